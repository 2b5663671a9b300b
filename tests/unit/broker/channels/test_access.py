"""Rules of access hold for channels, however a subscription is written, and for sessions that were made before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mqtt5 import ConnectPacket, PubAckPacket, PublishPacket, SubAckPacket, SubscribePacket, TopicFilter

from tests.unit.broker.guarded import GuardedDoor
from tests.unit.broker.harness import Peer, until
from tests.unit.broker.pipeline import NEAR, WIDE, Pipeline
from tests.unit.broker.talk import LASTING, ONE, nothing_more, receive
from tocsin.config import Access, Settings
from tocsin.runtime.security.users import set_password
from tocsin.store.memory.store import MemoryServer, MemoryStore

RULES = """
[[rules]]
deny = "subscribe"
topics = ["$channel/Wide/5.0/#"]

[[rules]]
allow = "both"
topics = ["$channel/Near/%u", "$channel/Wide/#", "plain"]
users = ["alice", "bob"]
"""
NOTHING = """
[[rules]]
allow = "both"
topics = ["plain"]
"""


@pytest.fixture
async def pipeline() -> AsyncIterator[Pipeline[MemoryStore]]:
    made = Pipeline(MemoryStore(MemoryServer()))
    await made.define(NEAR, WIDE)
    async with made.serve():
        yield made


@pytest.fixture
async def door(tmp_path: Path, pipeline: Pipeline[MemoryStore]) -> AsyncIterator[GuardedDoor]:
    users, rules = tmp_path / "users", tmp_path / "rules"
    await asyncio.to_thread(set_password, users, "alice", b"liddell")
    await asyncio.to_thread(rules.write_text, RULES)
    settings = Settings(access=Access(users=str(users), rules=str(rules)))
    async with GuardedDoor(settings, store=pipeline.store) as opened:
        yield opened


async def alice(door: GuardedDoor) -> Peer:
    connect = ConnectPacket(
        "a", clean_start=False, session_expiry_interval=LASTING, username="alice", password=b"liddell"
    )
    return await door.peer(connect=connect)


async def code(peer: Peer, name: str) -> tuple[int, str]:
    peer.send(SubscribePacket(1, [TopicFilter(name, max_qos=ONE)]))
    answer = await peer.first(SubAckPacket)
    return int(answer.reason_codes[0]), answer.reason_str or ""


@pytest.mark.parametrize(
    "name",
    [
        "$channel/Near/bob",
        "$channel/NEAR/bob",
        "$channel/Near?user=bob",
        "$channel/near?USER=bob",
        "$channel/Near/alice%2Fbob",
        "$channel/Wide/5/x",
        "$channel/Wide/5e0/x",
        "$channel/wide?kind=x&radius=%2B5.00",
        "$share/g/$channel/near/bob",
        "$share/alice/$channel/Wide/5e0/x",
    ],
)
async def test_another_spelling_gets_nobody_round_a_rule(door: GuardedDoor, name: str) -> None:
    refused, why = await code(await alice(door), name)
    assert refused == 0x8F and "not authorized" in why


@pytest.mark.parametrize(
    "name",
    ["$channel/near/alice", "$channel/Near?user=alice", "$channel/Wide/6/x", "$share/g/$channel/near/alice"],
)
async def test_what_is_allowed_is_granted(door: GuardedDoor, name: str) -> None:
    assert (await code(await alice(door), name))[0] == 1


@pytest.mark.parametrize("rest", ["", "/alice", "/5/x", "/a/b/c", "?user=bob", "?radius=6&kind=x"])
@pytest.mark.parametrize("channel", ["Near", "NEAR", "Wide"])
async def test_to_whom_it_may_bring_nothing_a_channel_does_not_exist(
    door: GuardedDoor, channel: str, rest: str
) -> None:
    stranger = await door.peer("s")
    refused, why = await code(stranger, f"$channel/{channel}{rest}")
    there_is_none = await code(stranger, f"$channel/Nowhere{rest}")
    assert (refused, why.replace(channel, "Nowhere")) == there_is_none
    refused, why = await code(stranger, f"$share/g/$channel/{channel}{rest}")
    assert (refused, why.replace(channel, "Nowhere")) == there_is_none
    said = [await asked(stranger, name, rest) for name in (channel, "Nowhere")]
    assert said[0] == said[1] and said[0][0] == 0x90


async def asked(peer: Peer, channel: str, rest: str) -> tuple[int, str, str]:
    """What a client hears that asks for results, without the name of the channel."""
    question = PublishPacket(f"$results/{channel}{rest}", b"{}", qos=ONE, packet_id=9, response_topic="me")
    peer.send(question)
    refused = await peer.first(PubAckPacket)
    answer = (await peer.first(PublishPacket)).payload or b""
    return (
        int(refused.reason_code),
        (refused.reason_str or "").replace(channel, ""),
        bytes(answer).decode().replace(channel, ""),
    )


async def test_who_may_have_some_values_is_told_the_signature(door: GuardedDoor) -> None:
    peer = await alice(door)
    assert "Near(user STRING)" in (await code(peer, "$channel/Near"))[1]


async def test_a_rule_that_comes_later_holds_what_is_subscribed_to_back(
    door: GuardedDoor, pipeline: Pipeline[MemoryStore], tmp_path: Path
) -> None:
    peer = await alice(door)
    assert (await code(peer, "$channel/Near/alice"))[0] == 1
    await pipeline.tick({("Near", ("alice",)): [{"n": 1}]})
    assert (await receive(peer)).payload == b'{"n": 1}'
    await asyncio.to_thread((tmp_path / "rules").write_text, NOTHING)
    await until(lambda: door.changes > 0)
    await pipeline.tick({("Near", ("alice",)): [{"n": 2}]})
    results = door.parts.channels.results
    await until(lambda: results.dispatched == 2)
    peer.send(PublishPacket("plain", b"x"))
    await nothing_more(peer)
    peer.close()
    await until(lambda: not door.listener.clients)
    again = await alice(door)
    await nothing_more(again)

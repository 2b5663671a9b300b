"""A query never reveals or delivers a stream that its subscriber may not read, and nobody describes what is not his."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mqtt5 import ConnectPacket, PubAckPacket, PublishPacket, SubAckPacket, SubscribePacket, TopicFilter

from tests.unit.broker.coordination import coordinator
from tests.unit.broker.guarded import GuardedDoor
from tests.unit.broker.harness import Peer
from tests.unit.broker.talk import LASTING, ONE, nothing_more, publish, receive
from tocsin.config import Access, Settings
from tocsin.runtime.security.users import set_password
from tocsin.store.memory.store import MemoryServer, MemoryStore

RULES = """
[[rules]]
allow = "both"
topics = ["open/#"]

[[rules]]
allow = "both"
topics = ["secret/#"]
users = ["bob"]
"""
OPENED = """
[[rules]]
allow = "both"
topics = ["#"]
"""


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[GuardedDoor]:
    users, rules = tmp_path / "users", tmp_path / "rules"
    await asyncio.to_thread(set_password, users, "bob", b"builder")
    await asyncio.to_thread(rules.write_text, RULES)
    server = MemoryServer()
    settings = Settings(access=Access(users=str(users), rules=str(rules)))
    async with (
        coordinator(MemoryStore(server)),
        GuardedDoor(settings, store=MemoryStore(server), takes_part=True) as opened,
    ):
        yield opened


async def bob_publishes(door: GuardedDoor) -> Peer:
    bob = await door.peer(connect=ConnectPacket("b", username="bob", password=b"builder"))
    for number, topic in enumerate(("open/1", "secret/1"), 1):
        await publish(bob, topic, b"durable", ONE, number)
        bob.send(PublishPacket(topic, b"quick"))
    return bob


async def test_a_query_delivers_what_may_be_received_and_nothing_else(door: GuardedDoor) -> None:
    reader = await door.peer("r")
    await reader.subscribe(TopicFilter("$query/client = 'b'", max_qos=ONE))
    await bob_publishes(door)
    assert [(await receive(reader)).topic for _ in range(2)] == ["open/1", "open/1"]
    await nothing_more(reader)


async def test_a_client_that_comes_back_gets_no_more_than_it_may(door: GuardedDoor) -> None:
    away = ConnectPacket("r", session_expiry_interval=LASTING)
    reader = await door.peer(connect=away)
    await reader.subscribe(TopicFilter("$query/client = 'b'", max_qos=ONE))
    reader.close()
    await bob_publishes(door)
    again = await door.peer(connect=away)
    assert (await receive(again)).topic == "open/1"
    await nothing_more(again)


async def test_the_set_has_only_what_may_be_received_and_follows_the_rules(
    door: GuardedDoor, tmp_path: Path
) -> None:
    await bob_publishes(door)
    reader = await door.peer("r")
    await reader.subscribe(TopicFilter("$streams/client = 'b'"))
    said = json.loads((await receive(reader)).payload)
    assert [each["topic"] for each in said["streams"]] == ["open/1"]
    await asyncio.to_thread((tmp_path / "rules").write_text, OPENED)
    word = json.loads((await receive(reader)).payload)  # the guard looks every second
    assert word["joined"]["topic"] == "secret/1"
    await asyncio.to_thread((tmp_path / "rules").write_text, RULES)
    word = json.loads((await receive(reader)).payload)
    assert word["left"]["topic"] == "secret/1"


async def test_a_stream_that_joins_is_named_to_those_who_may_receive_it(door: GuardedDoor) -> None:
    reader = await door.peer("r")
    await reader.subscribe(TopicFilter("$streams/client = 'b'"))
    assert json.loads((await receive(reader)).payload) == {"streams": [], "v": 1}
    bob = await bob_publishes(door)
    assert json.loads((await receive(reader)).payload)["joined"]["topic"] == "open/1"
    bob.close()
    assert json.loads((await receive(reader)).payload)["left"]["topic"] == "open/1"
    await nothing_more(reader)


async def test_who_may_not_publish_to_a_topic_may_not_describe_it(door: GuardedDoor) -> None:
    peer = await door.peer("r")
    for topic, code in (("secret/1", 0x87), ("open/1", 0)):
        peer.send(PublishPacket(f"$meta/{topic}", b'{"kind": "lamp"}', qos=ONE, packet_id=1))
        assert int((await peer.first(PubAckPacket)).reason_code) == code


async def test_only_those_who_may_publish_on_all_of_it_may_ask(door: GuardedDoor) -> None:
    reader = await door.peer("r")
    names = ("open/#", "open/1", "secret/1", "#", "+/1", "secret/#")
    reader.send(SubscribePacket(1, [TopicFilter(f"$wanted/{each}") for each in names]))
    codes = [int(code) for code in (await reader.first(SubAckPacket)).reason_codes]
    assert codes == [0, 0, 0x80, 0x80, 0x80, 0x80]
    bob = await door.peer(connect=ConnectPacket("b", username="bob", password=b"builder"))
    bob.send(SubscribePacket(1, [TopicFilter("$wanted/secret/+")]))
    assert [int(code) for code in (await bob.first(SubAckPacket)).reason_codes] == [0]

"""A table or log of the store is full: every client that asks for more is told so, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PubAckPacket,
    PublishPacket,
    PubRecPacket,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    Will,
)

from tests.unit.broker.harness import Door, Peer, until
from tests.unit.broker.pipeline import NEAR, Pipeline
from tests.unit.broker.talk import ONE, TWO, lasting, publish, receive, retained
from tocsin.broker.delivery import wills as wills_module
from tocsin.config import Limits
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.mqtt.connect import V5, V311, Version

FULL = 0x97
GROUP = "$share/g/a"
ALICE = "$channel/Near/alice"


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
async def door(server: MemoryServer) -> AsyncIterator[Door]:
    pipeline = Pipeline(MemoryStore(server))
    await pipeline.define(NEAR)
    async with pipeline.serve(), Door(Limits(), store=pipeline.store, results=pipeline.files()) as opened:
        yield opened


def fill(server: MemoryServer, table: str) -> None:
    """Have no byte more fit into a table."""
    state = server.tables[f"net-{table}"].state
    state.spec = msgspec.structs.replace(state.spec, max_bytes=state.bytes)


def fill_log(server: MemoryServer) -> None:
    state = server.logs["net-messages"].state
    state.spec = msgspec.structs.replace(state.spec, max_bytes=0, refuses=True)


def make_room(server: MemoryServer) -> None:
    for table in server.tables.values():
        table.state.spec = msgspec.structs.replace(table.state.spec, max_bytes=None)
    for log in server.logs.values():
        log.state.spec = msgspec.structs.replace(log.state.spec, max_bytes=None, refuses=False)


async def subscribe(peer: Peer, *names: str) -> SubAckPacket:
    peer.send(SubscribePacket(1, [TopicFilter(name, max_qos=ONE) for name in names]))
    return await peer.first(SubAckPacket)


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize(("table", "name"), [("groups", GROUP), ("channel-subscriptions", ALICE)])
async def test_a_subscription_without_room_in_the_store_is_refused_alone(
    door: Door, server: MemoryServer, version: Version, table: str, name: str
) -> None:
    fill(server, table)
    peer = await door.peer("c", version=version)
    answer = await subscribe(peer, name, "plain")
    assert [int(code) for code in answer.reason_codes] == [FULL if version == V5 else 0x80, 1]
    if version == V5:
        assert f"shares.{table.replace('-', '_')}_bytes" in (answer.reason_str or "")
    make_room(server)
    assert [int(code) for code in (await subscribe(peer, name)).reason_codes] == [1]


async def test_a_group_that_is_refused_leaves_nothing_behind(door: Door, server: MemoryServer) -> None:
    fill(server, "groups")
    peer = await door.peer("c")
    await subscribe(peer, GROUP)
    await until(lambda: not len(door.parts.groups))


async def test_members_that_there_are_keep_their_group_when_it_takes_no_more(
    door: Door, server: MemoryServer
) -> None:
    first, publisher = await door.peer("first"), await door.peer("p")
    await subscribe(first, GROUP)
    fill(server, "groups")
    second = await door.peer("second")
    assert [int(code) for code in (await subscribe(second, GROUP)).reason_codes] == [FULL]
    make_room(server)
    await publish(publisher, "a", b"x")
    assert (await receive(first)).payload == b"x"


async def test_a_member_that_comes_back_to_a_full_table_is_told_so(door: Door, server: MemoryServer) -> None:
    peer = await door.peer(connect=lasting("c", clean=True))
    await subscribe(peer, GROUP)
    peer.close()
    durable = door.parts
    await until(lambda: not durable.endings.ending("c") and not len(durable.groups))
    fill(server, "groups")
    back = await door.peer(connect=lasting("c"), accepted=False)
    answer = await back.first(ConnAckPacket)
    assert int(answer.reason_code) == FULL
    assert "shares.groups_bytes" in (answer.reason_str or "")
    make_room(server)
    again = await door.peer(connect=lasting("c"))
    await publish(await door.peer("p"), "a", b"x")
    assert (await receive(again)).payload == b"x"


async def test_a_session_that_cannot_be_stored_is_refused(door: Door, server: MemoryServer) -> None:
    fill(server, "sessions")
    peer = await door.peer(connect=lasting("c", clean=True), accepted=False)
    answer = await peer.first(ConnAckPacket)
    assert int(answer.reason_code) == FULL
    assert "shares.sessions_bytes" in (answer.reason_str or "")


async def test_a_session_with_channels_that_cannot_be_held_is_refused(
    door: Door, server: MemoryServer
) -> None:
    peer = await door.peer(connect=lasting("c", clean=True))
    await subscribe(peer, ALICE)
    peer.close()
    await until(lambda: not door.parts.endings.ending("c"))
    fill(server, "channel-subscriptions")
    async with Door(Limits(), store=MemoryStore(server), broker="other") as other:
        back = await other.peer(connect=lasting("c"), accepted=False)
        answer = await back.first(ConnAckPacket)
        assert int(answer.reason_code) == FULL
        assert "shares.channel_subscriptions_bytes" in (answer.reason_str or "")


@pytest.mark.parametrize("asked", ["SUBSCRIBE", "PUBLISH"])
async def test_a_client_whose_session_cannot_grow_is_disconnected_with_why(
    door: Door, server: MemoryServer, asked: str
) -> None:
    peer = await door.peer(connect=lasting("c", clean=True))
    await subscribe(peer, "a")
    fill(server, "sessions")
    if asked == "SUBSCRIBE":
        peer.send(SubscribePacket(2, [TopicFilter("a/longer/filter/than/there/was", max_qos=ONE)]))
    else:
        peer.send(PublishPacket("x", b"x", qos=TWO, packet_id=1))
    goodbye = await peer.first(DisconnectPacket)
    assert int(goodbye.reason_code) == FULL
    assert "shares.sessions_bytes" in (goodbye.reason_str or "")


async def test_what_cannot_be_retained_is_refused(door: Door, server: MemoryServer) -> None:
    fill(server, "retained")
    peer = await door.peer("p")
    peer.send(retained("a", b"x"))
    assert int((await peer.first(PubAckPacket)).reason_code) == FULL


async def test_what_cannot_be_logged_is_refused(door: Door, server: MemoryServer) -> None:
    fill_log(server)
    peer = await door.peer("p")
    peer.send(PublishPacket("a", b"x", qos=ONE, packet_id=1))
    assert int((await peer.first(PubAckPacket)).reason_code) == FULL
    peer.send(PublishPacket("a", b"x", qos=TWO, packet_id=2))
    assert int((await peer.first(PubRecPacket)).reason_code) == FULL
    old = await door.peer("old", version=V311)
    old.send(PublishPacket("a", b"x", qos=ONE, packet_id=1))
    with pytest.raises(ConnectionError):  # there is no word for it: it is not acknowledged
        await old.first(PubAckPacket)


async def test_a_will_waits_until_the_log_has_room(
    door: Door, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wills_module, "WILL_AGAIN_S", 0.01)
    heir = await door.peer("heir")
    await subscribe(heir, "will")
    dying = await door.peer(
        connect=ConnectPacket("dying", clean_start=True, will=Will("will", payload=b"x", qos=ONE))
    )
    fill_log(server)
    dying.writer.transport.abort()
    wills = door.parts.wills
    await until(lambda: wills.unsettled("dying") is not None)
    await asyncio.sleep(0.05)
    assert wills.unsettled("dying") is not None
    make_room(server)
    assert (await receive(heir)).payload == b"x"
    await until(lambda: wills.unsettled("dying") is None)


async def test_a_broker_starts_though_the_table_of_groups_is_full(server: MemoryServer) -> None:
    async with Door(Limits(), store=MemoryStore(server), broker="one"):
        fill(server, "groups")
        async with Door(Limits(), store=MemoryStore(server), broker="other") as other:
            peer = await other.peer("c")
            assert [int(code) for code in (await subscribe(peer, GROUP, "a")).reason_codes] == [FULL, 1]


async def test_a_restarted_broker_counts_its_last_sessions_except_moved_ones(
    server: MemoryServer,
) -> None:
    async with Door(Limits(), store=MemoryStore(server), broker="one") as one:
        for client in ("a", "b"):
            (await one.peer(connect=lasting(client, clean=True))).close()
        await until(lambda: not one.parts.endings.ending("a"))
    async with (
        Door(Limits(), store=MemoryStore(server), broker="one") as one,
        Door(Limits(), store=MemoryStore(server), broker="other", others=("one",)) as other,
    ):
        quota, there = one.parts.quota, other.parts.quota
        await until(lambda: quota.of_user("")[0] == 2)
        await other.peer(connect=lasting("a"))
        await until(lambda: quota.of_user("")[0] == there.of_user("")[0] == 1)

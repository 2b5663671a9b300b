"""Clients that come while the store cannot be reached, and their sessions when it is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import msgspec
import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tests.unit.broker.harness import Door, Peer, until
from tests.unit.broker.old_news import OldNews
from tocsin.broker.survival.replication import Replicating
from tocsin.config import Limits
from tocsin.core.delivery.stored_session import StoredSession, decode_session, encode_session, session_key
from tocsin.core.shared.stored_group import decode_group, group_key
from tocsin.core.survival.provisional import StoreLooked
from tocsin.errors import StoreUnavailable
from tocsin.ports import Table
from tocsin.wire.mqtt.connect import V5, V311, Version

ONE = QoS.AT_LEAST_ONCE


class Deaf:
    """A table that does not answer while it is ``cut``."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.cut = False
        self.hangs: asyncio.Event | None = None  # until this is set, it leaves what it is asked unanswered
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.table, name)

        async def ask(*arguments: Any, **options: Any) -> Any:
            if self.hangs is not None:
                await self.hangs.wait()
            if self.cut:
                raise StoreUnavailable("ask", "cut off")
            self.writes += name != "get"
            return await method(*arguments, **options)

        return ask


class Broker:
    """A broker whose store can be cut off."""

    def __init__(self, door: Door) -> None:
        self.door = door
        parts = door.parts
        self.provisional = parts.provisional
        self.table = Deaf(parts.sessions.table)
        parts.sessions.table = self.table
        self.provisional._table = self.table

    async def cut(self) -> None:
        self.table.cut = True
        self.provisional.sever()
        await until(lambda: self.provisional.cut_off)

    async def heal(self) -> None:
        self.table.cut = False
        await until(lambda: not self.provisional.cut_off and not self.provisional.settling)
        self.provisional.restore()

    async def cell(self, client: str = "c") -> StoredSession:
        cell = await self.table.table.get(session_key(client))
        assert cell is not None
        return decode_session(cell.value)

    async def come(
        self, client: str = "c", *, clean: bool = False, expiry_s: int = 60, version: Version = V5
    ) -> tuple[Peer, ConnAckPacket]:
        connect = ConnectPacket(client, clean_start=clean, session_expiry_interval=expiry_s)
        peer = await self.door.peer(connect=connect, version=version, accepted=False)
        return peer, await peer.receive(ConnAckPacket)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Door(Limits()) as door:
        broker = Broker(door)
        yield broker
        broker.provisional.close()
        broker.table.cut = False


async def subscribe(peer: Peer, name: str, qos: QoS = ONE) -> SubAckPacket:
    peer.send(SubscribePacket(1, [TopicFilter(name, max_qos=qos)]))
    return await peer.first(SubAckPacket)


async def leave(broker: Broker, peer: Peer) -> None:
    peer.close()
    await until(lambda: not broker.door.parts.clients.present)


async def test_a_known_client_keeps_its_subscriptions_and_changes(broker: Broker) -> None:
    peer, _ = await broker.come()
    await subscribe(peer, "old")
    await subscribe(peer, "unwanted")
    await broker.cut()
    await leave(broker, peer)
    peer, answer = await broker.come()
    assert int(answer.reason_code) == 0 and answer.session_present
    said = await subscribe(peer, "new")
    assert int(said.reason_codes[0]) == 1 and "degraded" in (said.reason_str or "")
    peer.send(UnsubscribePacket(2, ["unwanted"]))
    assert "degraded" in ((await peer.receive(UnsubAckPacket)).reason_str or "")
    other = await broker.door.peer("other")
    for topic in ("unwanted", "old", "new"):
        other.send(PublishPacket(topic, b"x"))
    assert [(await peer.receive(PublishPacket)).topic for _ in range(2)] == ["old", "new"]
    before = (await broker.cell()).epoch
    await broker.heal()
    asked = await peer.receive(DisconnectPacket)
    assert asked.reason_str == "the session can be taken now: come again"
    found = await broker.cell()
    assert set(found.subscriptions) == {"old", "new"}
    assert (found.broker, found.epoch) == ("", before + 1)
    _, answer = await broker.come()
    assert answer.session_present


async def test_what_a_client_has_in_a_group_stays_with_its_session(broker: Broker) -> None:
    peer, _ = await broker.come()
    await subscribe(peer, "$share/g/old")
    table = broker.door.parts.groups.table

    async def session() -> str:
        cell = await table.get(group_key("$share/g/old"))
        assert cell is not None
        return decode_group(cell.value).members["c"].session

    before = await session()
    await broker.cut()
    await leave(broker, peer)
    peer, _ = await broker.come()
    said = await subscribe(peer, "$share/g/old")
    assert int(said.reason_codes[0]) == 1 and "degraded" in (said.reason_str or "")
    assert await session() == before


async def test_what_an_earlier_connection_stores_late_undoes_no_change(broker: Broker) -> None:
    peer, _ = await broker.come()
    await subscribe(peer, "old")
    await broker.cut()
    await subscribe(peer, "unwanted")
    await leave(broker, peer)
    assert broker.door.parts.endings.ending("c"), "the store does not answer"
    peer, _ = await broker.come()
    peer.send(UnsubscribePacket(2, ["unwanted"]))
    await peer.receive(UnsubAckPacket)
    await leave(broker, peer)
    assert broker.door.parts.endings.ending("c"), "of its first connection"
    await broker.heal()
    assert not broker.door.parts.endings.ending("c")
    assert set((await broker.cell()).subscriptions) == {"old"}


async def test_changes_are_kept_if_a_leader_is_heard_before_the_store_answers(broker: Broker) -> None:
    peer, _ = await broker.come()
    await subscribe(peer, "unwanted")
    await broker.cut()
    await leave(broker, peer)
    peer, _ = await broker.come()
    await subscribe(peer, "new")
    peer.send(UnsubscribePacket(2, ["unwanted"]))
    await peer.receive(UnsubAckPacket)
    broker.provisional.restore()
    await broker.heal()
    await peer.receive(DisconnectPacket)
    assert set((await broker.cell()).subscriptions) == {"new"}
    assert broker.provisional.statistics()["provisional"] == 0


async def test_nothing_is_written_or_acknowledged_meanwhile(broker: Broker) -> None:
    peer, _ = await broker.come()
    await subscribe(peer, "old")
    await broker.cut()
    await leave(broker, peer)
    peer, _ = await broker.come()
    writes = broker.table.writes
    committed = broker.door.parts.message_log.newest
    peer.send(PublishPacket("old", b"x", qos=ONE, packet_id=7))
    publisher = await broker.door.peer("publisher")
    publisher.send(PublishPacket("old", b"durable", qos=ONE, packet_id=1), PublishPacket("old", b"fast"))
    await publisher.receive(PubAckPacket)
    message = await peer.receive(PublishPacket)
    assert message.payload == b"fast", "nothing above QoS 0 comes to one whose position is not known"
    assert broker.table.writes == writes
    assert broker.door.parts.message_log.newest == committed + 1, "the publisher's, and no other"
    await broker.heal()
    await peer.receive(DisconnectPacket)
    peer, _ = await broker.come()
    assert (await peer.receive(PublishPacket)).payload == b"durable"


async def test_somebody_else_took_the_session_meanwhile_and_keeps_it(broker: Broker) -> None:
    peer, _ = await broker.come()
    await subscribe(peer, "old")
    await broker.cut()
    await leave(broker, peer)
    peer, _ = await broker.come()
    await subscribe(peer, "new")
    theirs = msgspec.structs.replace(await broker.cell(), broker="south-1", epoch=9)
    await broker.table.table.put(session_key("c"), encode_session(theirs))
    await broker.heal()
    await peer.receive(DisconnectPacket)
    assert await broker.cell() == theirs
    assert broker.provisional.statistics()["sessions_let_go"] == 1


async def test_old_news_of_a_session_undoes_no_change(broker: Broker) -> None:
    peer, _ = await broker.come()
    await subscribe(peer, "old")
    await leave(broker, peer)
    await until(lambda: not broker.door.parts.endings.ending("c"))
    old = OldNews(broker.table.table)
    await old.remember(session_key("c"))
    peer, _ = await broker.come()
    await broker.cut()
    await leave(broker, peer)
    peer, _ = await broker.come()
    await subscribe(peer, "new")
    broker.table.table = cast(Table, old)
    await broker.heal()
    await peer.receive(DisconnectPacket)
    cell = await old.now(session_key("c"))
    assert cell is not None and set(decode_session(cell.value).subscriptions) == {"old", "new"}


async def test_one_of_which_nothing_is_known_is_refused_unless_it_begins_anew(broker: Broker) -> None:
    await broker.cut()
    _, answer = await broker.come()
    assert int(answer.reason_code) == 0x88 and "cut off" in (answer.reason_str or "")
    _, answer = await broker.come("passing", expiry_s=0)
    assert int(answer.reason_code) == 0
    peer, answer = await broker.come("fresh", clean=True)
    assert int(answer.reason_code) == 0 and not answer.session_present
    await subscribe(peer, "new")
    await broker.heal()
    await peer.receive(DisconnectPacket)
    assert set((await broker.cell("fresh")).subscriptions) == {"new"}


async def test_a_version_3_client_is_disconnected_when_the_store_returns(broker: Broker) -> None:
    peer, _ = await broker.come(version=V311)
    await broker.cut()
    await leave(broker, peer)
    peer, _ = await broker.come(version=V311)
    await broker.heal()
    assert await peer.closed()


async def test_a_client_that_leaves_before_the_cut_is_known_is_refused(
    broker: Broker,
) -> None:
    peer, _ = await broker.come()
    await leave(broker, peer)
    broker.table.hangs, clients = asyncio.Event(), broker.door.parts.clients
    again = ConnectPacket("c", clean_start=True, session_expiry_interval=60)
    peer = await broker.door.peer(connect=again, accepted=False)
    await until(lambda: "c" in clients.present)
    connection = clients.present["c"]
    await leave(broker, peer)
    broker.table.cut = True
    broker.provisional.sever()
    broker.provisional._post(StoreLooked(reached=False))
    broker.table.hangs.set()
    coming_in = connection._coming_in
    assert coming_in is not None
    await until(lambda: not len(coming_in))
    assert broker.provisional.statistics()["provisional"] == 0


@pytest.mark.parametrize("wanted", [True, False])
async def test_an_answer_that_waits_for_backups_also_waits_for_the_store(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    peer, _ = await broker.come()
    await subscribe(peer, "old")
    await broker.cut()
    synced: list[Callable[[], None]] = []
    broker.door.parts.replication.active = True
    monkeypatch.setattr(Replicating, "when_synced", lambda self, client, act: synced.append(act))
    peer.send(SubscribePacket(2, [TopicFilter("new")]) if wanted else UnsubscribePacket(2, ["old"]))
    await until(lambda: bool(synced))
    broker.provisional._table = broker.table.table
    await until(lambda: not broker.provisional.cut_off)
    synced[0]()
    broker.table.cut = False  # the session is written when that is tried again
    answer = await peer.next()
    assert isinstance(answer, SubAckPacket | UnsubAckPacket) and answer.reason_str is None
    assert set((await broker.cell()).subscriptions) == ({"old", "new"} if wanted else set())


async def test_a_suback_that_waits_for_the_store_is_sent_at_the_cut(broker: Broker) -> None:
    peer, _ = await broker.come()
    broker.table.cut = True
    peer.send(SubscribePacket(1, [TopicFilter("x")]))
    await asyncio.sleep(0.05)
    await broker.cut()
    assert "degraded" in ((await peer.first(SubAckPacket)).reason_str or "")
    await broker.heal()
    await until(lambda: not broker.provisional.severed)
    async with asyncio.timeout(10):
        while "x" not in (await broker.cell()).subscriptions:
            await asyncio.sleep(0.05)


async def test_a_session_that_ends_meanwhile_is_forgotten(broker: Broker) -> None:
    peer, _ = await broker.come()
    await broker.cut()
    await leave(broker, peer)
    peer, _ = await broker.come()
    peer.send(DisconnectPacket(session_expiry_interval=0))
    await until(lambda: not broker.door.parts.clients.present)
    await broker.heal()
    assert await broker.table.table.get(session_key("c")) is None


async def test_where_the_store_answers_all_the_time_nothing_is_provisional(broker: Broker) -> None:
    broker.provisional.sever()
    await asyncio.sleep(0.1)
    peer, answer = await broker.come()
    assert int(answer.reason_code) == 0 and not broker.provisional.cut_off
    peer.close()
    broker.provisional.restore()
    await until(lambda: not broker.provisional._machine.records)


async def test_a_clean_start_without_expiry_deletes_the_known_session(broker: Broker) -> None:
    peer, _ = await broker.come()
    await broker.cut()
    await leave(broker, peer)
    await broker.come(clean=True, expiry_s=0)
    await broker.heal()
    assert await broker.table.table.get(session_key("c")) is None


async def test_changes_are_kept_though_a_leader_is_heard_before_the_store(broker: Broker) -> None:
    peer, _ = await broker.come()
    await subscribe(peer, "old")
    await broker.cut()
    await leave(broker, peer)
    peer, _ = await broker.come()
    await subscribe(peer, "new")
    broker.provisional.restore()
    await broker.heal()
    await peer.receive(DisconnectPacket)
    assert set((await broker.cell()).subscriptions) == {"old", "new"}
    assert broker.provisional.statistics()["provisional"] == 0, "nobody is here provisionally any more"

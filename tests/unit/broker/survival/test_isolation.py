"""Brokers of a cluster find each other in a table, and speak over links when no leader is heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from mqtt5 import PingReqPacket, PingRespPacket, PublishPacket

from tests.unit.broker.harness import Door, until
from tocsin.broker.survival.isolation import ENTRY, MARK, PREFIX, REPLICATION, WORDS, ClusterGossip
from tocsin.config import Limits
from tocsin.model.network import BrokerInfo, Role, Route, Scope, broker_address
from tocsin.ports import Table, TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.internal.cluster_messages import ClusterMessage, encode_cluster_message
from tocsin.wire.internal.replication import Begun, encode_replication
from tocsin.wire.mqtt.codec import Decoder
from tocsin.wire.mqtt.connect import V5


class Wire:
    """A link that hands over what it is given."""

    up = True

    def __init__(self, to: Broker, peer: str) -> None:
        self._to = to
        self._peer = peer

    def pass_on(self, data: bytes, messages: int) -> None:
        for packet in Decoder(1 << 20, version=V5).feed(data):  # as the peer reads it
            assert isinstance(packet, PublishPacket) and packet.topic.startswith(PREFIX)
            self._to.near.hear(self._peer, packet.topic, bytes(packet.payload))


class Broker:
    def __init__(self, name: str, brokers: dict[str, Broker]) -> None:
        self.wants: list[str] = []
        self.gone: list[str] = []
        self.wanted: set[str] = set()
        self.routes: set[Route] = set()
        self.takeovers: set[str] = set()
        self.heard: list[bytes] = []
        self.meetings = 0
        self.alive = True
        self._brokers = brokers
        self.info = BrokerInfo(name, "north", Role.EDGE, "127.0.0.1", 1)
        self.near = ClusterGossip(self.info, self, self, self, lambda: self.wants, lambda: self.gone)

    def link(self, broker: str) -> Any:
        there = self._brokers.get(broker)
        return (
            Wire(there, self.info.id) if broker in self.wanted and there is not None and there.alive else None
        )

    def want_links(self, peers: tuple[BrokerInfo, ...]) -> None:
        self.wanted = {each.id for each in peers}

    def change_near(self, added: tuple[Route, ...], removed: tuple[Route, ...]) -> None:
        self.routes = (self.routes | set(added)) - set(removed)

    def stand_in(self, broker: str) -> None:
        self.takeovers.add(broker)

    def stand_down(self, broker: str, *, meanwhile: bool = False) -> None:
        assert meanwhile
        self.takeovers.remove(broker)

    def hear(self, payload: bytes) -> None:
        self.heard.append(payload)

    def nudge(self) -> None:
        self.meetings += 1


class Cluster:
    def __init__(self, table: Table) -> None:
        self.table = table
        self.brokers: dict[str, Broker] = {}
        for name in ("a", "b", "c"):
            self.brokers[name] = Broker(name, self.brokers)
        self.tasks = [asyncio.create_task(each.near.run(table)) for each in self.brokers.values()]

    def __getitem__(self, name: str) -> Broker:
        return self.brokers[name]

    async def known(self) -> None:
        await until(lambda: all(len(each.near.machine.roster) == 2 for each in self.brokers.values()))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    found = Cluster(await MemoryStore(MemoryServer()).table(TableSpec("network")))
    yield found
    for task in found.tasks:
        task.cancel()
    await asyncio.gather(*found.tasks, return_exceptions=True)


async def test_they_find_each_other_and_exchange_what_is_wanted(cluster: Cluster) -> None:
    await cluster.known()
    cluster["a"].wants.append("x")
    for each in cluster.brokers.values():
        each.near.sever()
    assert cluster["a"].wanted == {"b", "c"}
    await until(lambda: cluster["b"].routes == {Route(Scope.ORIGIN, "a", "x")})
    await until(lambda: cluster["c"].near.statistics()["cluster_heard"] == 2)
    assert cluster["a"].meetings == 2
    assert "landmark" in (cluster["c"].near.problem() or "")
    cluster["a"].near.wants(("y",), ())
    await until(lambda: Route(Scope.ORIGIN, "a", "y") in cluster["b"].routes)


async def test_the_backup_stands_in_until_a_leader_is_heard(cluster: Cluster) -> None:
    await cluster.known()
    cluster["b"].near.backs(("a",))
    for each in cluster.brokers.values():
        each.near.sever()
    await until(lambda: cluster["c"].near.statistics()["cluster_heard"] == 2)
    cluster["a"].alive = False
    cluster.tasks[0].cancel()
    await until(lambda: cluster["b"].takeovers == {"a"})
    await until(lambda: cluster["c"].near.stands_in_for("a") == cluster["b"].info)
    assert cluster["b"].near.stands_in_for("a") == cluster["b"].info
    cluster["b"].near.restore()
    assert cluster["b"].takeovers == set() and cluster["b"].near.problem() is None


async def test_replication_goes_over_links_only_while_somebody_hears_no_leader(cluster: Cluster) -> None:
    await cluster.known()
    update, applied = said_by("a"), said_by("b")
    assert not cluster["a"].near.detour("b", update)
    cluster["a"].near.sever()
    assert cluster["a"].near.detour("b", update) and cluster["b"].heard == [update]
    assert not cluster["a"].near.detour("elsewhere", update)
    await until(lambda: "a" in cluster["b"].wanted)
    assert cluster["b"].near.detour("a", applied) and cluster["a"].heard == [applied]


def said_by(broker: str) -> bytes:
    """A message of replication."""
    return encode_replication(broker_address(broker), "cause", Begun(primary=broker, incarnation=1))


def word_of(broker: str) -> bytes:
    return encode_cluster_message(ClusterMessage(sender=broker, series=1, number=1, severed=True))


async def test_a_broker_speaks_for_itself_only(cluster: Cluster) -> None:
    """``c`` would have ``a`` believe that ``b`` hears no leader, and that it has forgotten its clients."""
    await cluster.known()
    near = cluster["a"].near
    cluster["b"].alive = cluster["c"].alive = False  # they say nothing themselves
    near.sever()
    for peer in ("c", ""):  # of its own link; and carried by others
        near.hear(peer, WORDS, word_of("b"))
        near.hear(peer, REPLICATION, said_by("b"))
    near.hear(
        "c", REPLICATION, encode_replication(broker_address("c"), "", Begun(primary="b", incarnation=1))
    )
    assert near.statistics()["cluster_heard"] == 0 and cluster["a"].heard == [] and near.forged == 5
    near.hear("b", WORDS, word_of("b"))
    near.hear("b", REPLICATION, said_by("b"))
    assert near.statistics()["cluster_heard"] == 1 and cluster["a"].heard == [said_by("b")]


async def test_a_standby_under_a_borrowed_name_speaks_with_its_own_certificate(
    cluster: Cluster,
) -> None:
    await cluster.known()
    near = cluster["a"].near
    taken = msgspec.structs.replace(cluster["b"].info, certified="spare-1", port=9)
    await cluster.table.put(cluster["b"].near._key, ENTRY.write(taken))
    await until(lambda: near.machine.roster["b"] == taken)
    near.hear("spare-1", REPLICATION, said_by("b"))
    near.hear("spare-2", REPLICATION, said_by("b"))
    assert cluster["a"].heard == [said_by("b")] and near.forged == 1


async def test_one_that_a_leader_has_given_up_before_is_not_missed_again(cluster: Cluster) -> None:
    await cluster.known()
    cluster["a"].gone.append("b")
    cluster["a"].near.sever()
    assert cluster["a"].wanted == {"c"}


async def test_what_is_unreadable_is_dropped(cluster: Cluster) -> None:
    await cluster.known()
    cluster["a"].near.hear("b", WORDS, b"\xff\x00")
    cluster["a"].near.hear("b", REPLICATION, b"whatever it is")
    assert cluster["a"].heard == []
    await cluster.table.put(f"{cluster['a'].near._prefix}junk", b"\xff")
    await cluster["c"].near.leave(cluster.table)
    await until(lambda: set(cluster["a"].near.machine.roster) == {"b"})


async def test_one_that_leaves_does_not_strike_out_another_of_its_name(cluster: Cluster) -> None:
    await cluster.known()
    moved = msgspec.structs.replace(cluster["c"].info, port=9)
    await cluster.table.put(cluster["c"].near._key, msgspec.msgpack.encode(moved))
    await cluster["c"].near.leave(cluster.table)
    await until(lambda: cluster["a"].near.machine.roster["c"] == moved)


async def test_words_come_over_links_and_from_no_client() -> None:
    told: list[tuple[str, str, bytes]] = []
    async with Door(Limits()) as door:
        door.link_listener.hear = lambda peer, topic, payload: told.append((peer, topic, bytes(payload)))
        client = await door.peer("c")
        client.send(PublishPacket(WORDS, b"forged", user_properties=MARK), PingReqPacket())
        await client.receive(PingRespPacket)
        link = await door.link("b", "north")
        link.send(PublishPacket(WORDS, b"true", user_properties=MARK))
        await until(lambda: bool(told))
    assert told == [("b", WORDS, b"true")], "with the name in the link's certificate"

"""A client that comes to the local backup has its QoS 0 messages at once: three brokers, on real sockets.

The coordinator ends with the broker that is lost, so that nobody can make a route for the client.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest
from mqtt5 import ConnAckPacket, PublishPacket, TopicFilter

from tests.unit.broker.coordination import coordinator
from tests.unit.broker.harness import Door, Peer, until
from tests.unit.broker.talk import lasting, nothing_more
from tocsin.broker.survival.covering import Covers
from tocsin.config import Limits
from tocsin.store.memory.store import MemoryServer, MemoryStore

LAMPS = "$query/kind = 'lamp'"


class Network(NamedTuple):
    lost: Door
    backup: Door
    sender: Door
    failing: AsyncExitStack  # the lost broker, and the coordinator

    async def comes_to_the_backup(self) -> Peer:
        self.lost.fall_silent()
        await self.failing.aclose()
        client = await self.backup.peer(connect=lasting("c"), accepted=False)
        assert (await client.receive(ConnAckPacket)).session_present
        return client


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    server = MemoryServer()
    async with AsyncExitStack() as stack, AsyncExitStack() as failing:
        await failing.enter_async_context(coordinator(MemoryStore(server)))

        def door(name: str) -> Door:
            return Door(Limits(), store=MemoryStore(server), broker=name, takes_part=True)

        backup, sender = [await stack.enter_async_context(door(each)) for each in ("north-2", "north-3")]
        lost = await failing.enter_async_context(door("north-1"))
        lost.parts.replication.set_backups(backup.info("north-2", "north"), None)
        yield Network(lost, backup, sender, failing)


async def subscribed(network: Network, name: str) -> None:
    client = await network.lost.peer(connect=lasting("c", clean=True))
    await client.subscribe(TopicFilter(name))
    await until(lambda: network.backup.parts.replication.known("c") is not None)


def lamp(payload: bytes) -> PublishPacket:
    return PublishPacket("lamps/1", payload, user_properties=[("meta.kind", "lamp")])


async def test_topics_flow_to_the_backup_without_a_new_route(network: Network) -> None:
    await subscribed(network, "lamps/#")
    publisher = await network.sender.peer("p")
    await until(lambda: bool(network.sender.participant.routes))
    client = await network.comes_to_the_backup()
    await until(lambda: bool(network.sender.exchange.routes.standby.covers))
    publisher.send(PublishPacket("lamps/1", b"on"))
    assert (await client.first(PublishPacket)).payload == b"on"
    assert network.sender.exchange.routes.standby.covers["north-1"].id == "north-2"


async def test_queries_flow_to_the_backup_without_an_answer(network: Network) -> None:
    await subscribed(network, LAMPS)
    publisher = await network.sender.peer("p")
    publisher.send(lamp(b"first"))
    queries = network.backup.exchange.queries
    await until(lambda: any(queries.standby_sets()))
    await until(lambda: bool(network.sender.participant.routes))
    client = await network.comes_to_the_backup()
    assert not queries.is_judging()
    await until(lambda: bool(network.sender.exchange.routes.standby.covers))
    publisher.send(lamp(b"second"))
    assert (await client.first(PublishPacket)).payload == b"second"


async def test_without_a_cover_nothing_flows(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Covers, "came", lambda self, client, owner: None)
    await subscribed(network, "lamps/#")
    publisher = await network.sender.peer("p")
    await until(lambda: bool(network.sender.participant.routes))
    client = await network.comes_to_the_backup()
    publisher.send(PublishPacket("lamps/1", b"on"))
    await nothing_more(publisher)
    await nothing_more(client)


async def test_a_prepared_query_brings_no_messages_to_the_backup(network: Network) -> None:
    await subscribed(network, LAMPS)
    publisher = await network.sender.peer("p")
    publisher.send(lamp(b"first"))
    await until(lambda: any(network.backup.exchange.queries.standby_sets()))
    await until(lambda: bool(network.sender.participant.routes))
    assert {route.peer for route in network.sender.participant.routes} == {"north-1"}

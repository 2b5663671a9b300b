"""Sources that ask whether anybody wants what they publish: at two brokers, by filters, groups and queries."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from mqtt5 import (
    ConnectPacket,
    PublishPacket,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tests.unit.broker.coordination import coordinator
from tests.unit.broker.harness import Door, Peer, until
from tests.unit.broker.streams.test_streams import Network, with_metadata
from tests.unit.broker.talk import LASTING, ONE, lasting, nothing_more
from tocsin.config import Limits
from tocsin.core.filters import topic_for
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.mqtt.topics import matches


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    server = MemoryServer()
    async with AsyncExitStack() as stack:
        machine = await stack.enter_async_context(coordinator(MemoryStore(server)))
        here, there = [
            await stack.enter_async_context(
                Door(Limits(), store=MemoryStore(server), broker=name, takes_part=True)
            )
            for name in ("north-1", "north-2")
        ]
        yield Network(here, there, machine)


async def told(peer: Peer, pattern: str = "hall/+") -> Any:
    """The next answer."""
    packet = await peer.first(PublishPacket)
    assert packet.topic == topic_for(f"$wanted/{pattern}") and matches(f"$wanted/{pattern}", packet.topic)
    assert not int(packet.qos)
    said = json.loads(packet.payload)
    assert {"v": 1, "filter": pattern, "wanted": said["wanted"]} == said
    return said["wanted"]


async def asker(network: Network, pattern: str = "hall/+") -> Peer:
    peer = await network.here.peer("source")
    await peer.subscribe(TopicFilter(f"$wanted/{pattern}"))
    return peer


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("wanted", ["hall/1", "hall/+", "+/1", "#", "hall/#", "$share/group/hall/2"])
async def test_a_source_hears_when_somebody_wants_it(network: Network, wanted: str, far: bool) -> None:
    source = await asker(network)
    assert await told(source) is False
    reader = await (network.there if far else network.here).peer("r")
    await reader.subscribe(TopicFilter("hall/1/x"), TopicFilter("$SYS/x"))
    await reader.subscribe(TopicFilter(wanted))
    assert await told(source) is True
    reader.send(UnsubscribePacket(7, [wanted]))
    await reader.first(UnsubAckPacket)
    assert await told(source) is False
    await reader.subscribe(TopicFilter(wanted))
    assert await told(source) is True
    reader.close()
    assert await told(source) is False


async def test_who_is_wanted_already_hears_it_first(network: Network) -> None:
    reader = await network.there.peer("r")
    await reader.subscribe(TopicFilter("hall/1"))
    await until(lambda: "hall/1" in network.coordinator.replica.interest.plan.interests("north-2"))
    source = await asker(network)
    assert await told(source) is True
    other = await network.here.peer("s")
    await other.subscribe(TopicFilter("hall/1"))
    reader.close()
    await until(lambda: not network.coordinator.replica.interest.plan.interests("north-2"))
    await nothing_more(source)


async def test_a_sources_own_subscriptions_do_not_count_for_it(network: Network) -> None:
    source = await asker(network)
    assert await told(source) is False
    await source.subscribe(TopicFilter("hall/1"))
    await until(lambda: "hall/1" in network.coordinator.replica.interest.plan.interests("north-1"))
    other = await network.there.peer("other")
    await other.subscribe(TopicFilter("$wanted/hall/+"))
    assert await told(other) is True
    await nothing_more(source)


@pytest.mark.parametrize("far", [False, True])
async def test_a_query_wants_the_streams_that_satisfy_it(network: Network, far: bool) -> None:
    source = await asker(network)
    assert await told(source) is False
    reader = await (network.there if far else network.here).peer("r")
    await reader.subscribe(TopicFilter("$query/kind = 'lamp'", max_qos=ONE))
    source.send(with_metadata("hall/1", b"", kind="lamp"))
    assert await told(source) is True
    source.send(with_metadata("hall/1", b"", kind="door"))
    assert await told(source) is False


async def test_no_question_is_kept_when_nobody_asks(network: Network) -> None:
    source = await asker(network)
    assert await told(source) is False
    demand = network.coordinator.replica.interest.demand
    reader = await network.there.peer("r")
    await reader.subscribe(TopicFilter("hall/1"))
    assert await told(source) is True
    assert len(demand) == 1
    source.send(UnsubscribePacket(7, ["$wanted/hall/+"]))
    await until(lambda: not len(demand))
    assert not demand.cost and not network.coordinator.replica.askers
    assert not network.here.exchange.queries.statistics()["demands"]


async def test_a_session_that_comes_back_is_told_again(network: Network) -> None:
    source = await network.here.peer(connect=lasting("source", clean=True))
    await source.subscribe(TopicFilter("$wanted/hall/+"))
    assert await told(source) is False
    source.close()
    reader = await network.there.peer("r")
    await reader.subscribe(TopicFilter("hall/1"))
    await until(lambda: "hall/1" in network.coordinator.replica.interest.plan.interests("north-2"))
    again = await network.here.peer(connect=ConnectPacket("source", session_expiry_interval=LASTING))
    told_last = await told(again)  # before the coordinator answers a filter counts as wanted
    assert told_last is True


@pytest.mark.parametrize("name", ["$wanted/", "$wanted/$SYS/#", "$share/g/$wanted/a"])
async def test_what_cannot_be_asked_about_is_refused(network: Network, name: str) -> None:
    peer = await network.here.peer("r")
    peer.send(SubscribePacket(1, [TopicFilter(name)]))
    assert [int(code) for code in (await peer.first(SubAckPacket)).reason_codes] == [0x8F]

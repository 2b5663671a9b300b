"""A whole broker measures what its subscriptions bring, and says so in its summary."""

from __future__ import annotations

import pytest
from mqtt5 import PubAckPacket, PublishPacket, QoS, TopicFilter

from tests.unit.broker.harness import Door, Peer, until
from tests.unit.coordinator.answering import summaries_of
from tocsin.broker.survival import rates
from tocsin.broker.survival.rates import RateMeter
from tocsin.config import Limits
from tocsin.ports import BusMessage
from tocsin.wire.internal.summaries import Ask, Summary, decode_summary, encode, name_of

ROUNDS, ROUND_US = 12, 10_000_000
PAYLOAD = b"x" * 1_000
BUSY, QUIET = 5, 1  # messages of a round


class Clock:
    """Time as a test says."""

    now_us = 0

    def __call__(self) -> int:
        return self.now_us


async def receive(peer: Peer, count: int) -> None:
    for _ in range(count):
        packet = await peer.first(PublishPacket)
        if packet.packet_id is not None:
            peer.send(PubAckPacket(packet.packet_id))


async def summary_of(door: Door, meter: RateMeter) -> Summary:
    answering = summaries_of(door.parts.held, rates=meter.look())
    return decode_summary(await answering.answer(BusMessage("x", encode(Ask()))))


async def test_a_busy_subscription_is_measured_within_a_factor_of_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At QoS 0 and 1, through wildcards, to several clients, and in a group."""
    monkeypatch.setattr(rates, "COUNT_S", 3_600.0)  # the broker's own leaves everything to that of this test
    async with Door(Limits()) as door:
        clock = Clock()
        parts = door.parts
        meter = RateMeter(door.exchange.tallies, parts.groups.counts, parts.channels.counts, clock=clock)
        first, second, lasting, one, two = [
            await door.peer(name) for name in ("first", "second", "lasting", "one", "two")
        ]
        for peer in (first, second):
            await peer.subscribe(TopicFilter("busy/#"))
        await first.subscribe(TopicFilter("quiet"), TopicFilter("silent"))
        await lasting.subscribe(TopicFilter("busy/log", max_qos=QoS.AT_LEAST_ONCE))
        for peer in (one, two):
            await peer.subscribe(TopicFilter("$share/g/turns"))
        publisher = await door.peer("publisher")
        for _ in range(ROUNDS):
            for _ in range(BUSY):
                publisher.send(PublishPacket("busy/x", PAYLOAD))
            publisher.send(PublishPacket("busy/log", PAYLOAD, qos=QoS.AT_LEAST_ONCE, packet_id=1))
            publisher.send(PublishPacket("quiet", b"x" * 10))
            publisher.send(PublishPacket("turns", PAYLOAD), PublishPacket("turns", PAYLOAD))
            await receive(first, BUSY + 2)
            await receive(second, BUSY + 1)
            await receive(lasting, 1)
            await receive(one, 1)
            await receive(two, 1)
            await publisher.first(PubAckPacket)
            clock.now_us += ROUND_US
            await meter.count()
        told = await summary_of(door, meter)
        assert told.rates is not None and told.held[name_of("busy/#")] == 2
        expected = {
            "busy/#": (BUSY + 1) * len(PAYLOAD) / 10,  # bytes a second for each of its clients
            "busy/log": len(PAYLOAD) / 10,
            "quiet": 1.5,
            "$share/g/turns": len(PAYLOAD) / 10,
        }
        for name, rate in expected.items():
            assert rate / 2 < told.rates[name_of(name)] < rate * 2, name
        assert name_of("silent") not in told.rates
        first.close()
        second.close()
        await until(lambda: door.listener.clients == 4)
        assert name_of("busy/#") not in ((await summary_of(door, meter)).rates or {}), "nobody has it"


async def test_what_members_of_a_group_get_from_the_log_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "COUNT_S", 3_600.0)
    async with Door(Limits()) as door:
        members = [await door.peer(name) for name in ("one", "two")]
        for member in members:
            await member.subscribe(TopicFilter("$share/g/a", max_qos=QoS.AT_LEAST_ONCE))
        publisher = await door.peer("publisher")
        for number in range(4):
            publisher.send(PublishPacket("a", PAYLOAD, qos=QoS.AT_LEAST_ONCE, packet_id=number + 1))
        group = door.parts.groups.local["$share/g/a"]
        await until(lambda: group.given_bytes > 4 * len(PAYLOAD))
        ((name, each_bytes, clients),) = door.parts.groups.counts()
        assert (name, clients) == ("$share/g/a", 2)
        assert 2 * len(PAYLOAD) < each_bytes < 2.1 * len(PAYLOAD)
        assert door.parts.groups.counts() == []


async def test_a_broker_counts_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "COUNT_S", 0.01)
    async with Door(Limits()) as door:
        peer = await door.peer("peer")
        await peer.subscribe(TopicFilter("a"))
        peer.send(PublishPacket("a", PAYLOAD))
        await until(lambda: "a" in door.parts.rates.look().named)

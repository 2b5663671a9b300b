"""Clients that only spend, at a broker's entrance: what they make it hold is bounded, and others do not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
    Will,
)

from tests.unit.broker.harness import Door, Peer, until
from tocsin.config import Budgets, Limits
from tocsin.core.budgets.budget import Budget, Kind, bounds_of
from tocsin.ports import Log, Record
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5

SMALL = Budgets(commits_bytes=16 << 20, outbound_bytes=16 << 20, packets_bytes=16 << 20, pages_bytes=32 << 20)


def door(settings: Budgets = SMALL, limits: Limits | None = None) -> Door:
    return Door(limits or Limits(), budget=Budget(bounds_of(settings)))


def used(door: Door, kind: Kind) -> int:
    return door.exchange.budget.figures()[kind].used


def most(door: Door, kind: Kind) -> int:
    return door.exchange.budget.figures()[kind].most


class Held:
    """A log that appends when it is told to."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.go = asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, records: Sequence[Record], *, expected: int | None = None) -> tuple[int, ...]:
        await self.go.wait()
        return await self._log.append(records, expected=expected)


async def pings(peer: Peer) -> None:
    peer.send(PingReqPacket())
    await peer.first(PingRespPacket)


async def test_a_client_that_reads_no_answers_is_paused_alone() -> None:
    async with door() as here:
        other, spender = await here.peer("other"), await here.peer("spender")
        spender.stop_reading()
        wrong = encode(SubscribePacket(1, [TopicFilter("/".join("a" * 40))]), V5)
        transport = cast(asyncio.Transport, spender.writer.transport)
        sent = 0
        while transport.get_write_buffer_size() < 1 << 20:  # until the broker takes no more
            spender.writer.write(wrong * 500)
            sent += 500
            await asyncio.sleep(0)
            await pings(other)
        assert most(here, Kind.OUTBOUND) < 1 << 20
        spender.resume_reading()
        for _ in range(100):
            await spender.receive(SubAckPacket)  # it goes on when it is read
        await pings(other)


async def test_a_client_that_never_reads_is_disconnected_after_the_deadline() -> None:
    async with door(limits=Limits(unread_deadline_s=1.0)) as here:
        spender = await here.peer("spender")
        spender.stop_reading()
        spender.send(SubscribePacket(1, [TopicFilter("own")]))
        while here.listener.clients:
            spender.send(PublishPacket("own", b"x" * 100_000))
            await asyncio.sleep(0.01)
        assert here.listener.cut_short == 1
        await until(lambda: used(here, Kind.OUTBOUND) == 0)


async def test_messages_that_wait_for_the_store_are_bounded_and_all_are_acknowledged() -> None:
    async with door() as here:
        spender, other = await here.peer("spender"), await here.peer("other")
        payload, count = b"x" * 900_000, 30
        for number in range(1, count + 1):
            spender.send(PublishPacket("big", payload, qos=QoS.AT_LEAST_ONCE, packet_id=number))
        for number in range(1, count + 1):
            assert (await spender.first(PubAckPacket)).packet_id == number
        client = SMALL.commits_bytes * SMALL.client_percent // 100
        assert 0 < most(here, Kind.COMMITS) <= client * 5 // 4
        await until(lambda: used(here, Kind.COMMITS) == used(here, Kind.PACKETS) == 0)
        await pings(other)


async def test_messages_in_the_log_queue_count_beyond_their_connection() -> None:
    async with door() as here:
        held = Held(here.parts.message_log._log)
        here.parts.message_log._log = cast(Log, held)
        for number in range(3):
            spender = await here.peer(f"spender {number}")
            spender.send(PublishPacket("a", b"x" * 900_000, qos=QoS.AT_LEAST_ONCE, packet_id=1))
            least = (number + 1) * 1_800_000
            while used(here, Kind.COMMITS) < least:
                await asyncio.sleep(0.005)
            spender.writer.transport.abort()
        await until(lambda: here.listener.clients == 0)
        assert used(here, Kind.COMMITS) > 3 * 1_800_000
        held.go.set()
        await until(lambda: used(here, Kind.COMMITS) == 0)


async def test_incomplete_packets_are_bounded() -> None:
    beginning = encode(PublishPacket("part", b"x" * 1_000_000), V5)[:-1]
    async with door() as here:
        spenders = []
        for number in range(30):
            spender = await here.peer(f"spender {number}")
            spender.writer.write(beginning)
            spenders.append(spender)
        await until(
            lambda: here.listener.cut_short >= 18
        )  # their bytes are unread, so that words may be lost
        limit = SMALL.packets_bytes * SMALL.user_percent // 100
        assert most(here, Kind.PACKETS) <= limit * 5 // 4
        for spender in spenders:
            spender.writer.transport.abort()
        await until(lambda: used(here, Kind.PACKETS) == 0)


@pytest.mark.parametrize("packet", [PingReqPacket(), PublishPacket("flood", b"x")])
async def test_a_flood_waits_for_its_turn_and_all_of_it_is_handled(
    packet: PingReqPacket | PublishPacket,
) -> None:
    async with door() as here:
        spender, other = await here.peer("spender"), await here.peer("other")
        await other.subscribe(TopicFilter("flood"))
        spender.writer.write(encode(packet, V5) * 20_000)
        await pings(other)
        for _ in range(20_000):
            if isinstance(packet, PublishPacket):
                await other.first(PublishPacket)
            else:
                await spender.first(PingRespPacket)
        assert used(here, Kind.PACKETS) == 0


@pytest.mark.parametrize("count", [65, 100, 200, 500])
async def test_a_few_small_packets_in_one_read_are_all_handled(count: int) -> None:
    """More than a slice, and less than what every connection may keep: what is left needs its turn all the same."""
    async with door() as here:
        sender, other = await here.peer("sender"), await here.peer("other")
        await other.subscribe(TopicFilter("t/#"))
        packets = [PublishPacket(f"t/{number % 3}", str(number).encode()) for number in range(count)]
        sender.writer.write(b"".join(encode(each, V5) for each in packets))
        for _ in range(count):
            await other.first(PublishPacket)


async def test_returning_sessions_get_large_messages_one_page_at_a_time() -> None:
    async with door() as here:
        names = [f"session {number}" for number in range(8)]
        for name in names:
            peer = await here.peer(connect=_lasting(name, clean=True))
            await peer.subscribe(TopicFilter("big", max_qos=QoS.AT_LEAST_ONCE))
            peer.close()
        publisher = await here.peer("publisher")
        for number in range(1, 13):
            publisher.send(PublishPacket("big", b"x" * 1_000_000, qos=QoS.AT_LEAST_ONCE, packet_id=number))
            await publisher.first(PubAckPacket)
        back = []
        for name in names:
            peer = await here.peer(connect=_lasting(name, clean=False))
            peer.stop_reading()
            back.append(peer)
        await until(lambda: most(here, Kind.PAGES) > 0)
        for _ in range(20):
            await pings(publisher)
        user = SMALL.outbound_bytes * SMALL.user_percent // 100
        assert most(here, Kind.OUTBOUND) <= user * 5 // 4
        for peer in back:  # whoever reads gets everything, in order
            peer.resume_reading()
        for peer in back:
            for number in range(12):
                message = await peer.first(PublishPacket)
                assert message.packet_id is not None, number
                peer.send(PubAckPacket(message.packet_id))
        await until(lambda: used(here, Kind.PAGES) == used(here, Kind.OUTBOUND) == 0)


async def test_groups_that_nobody_takes_from_leave_room_for_those_of_others() -> None:
    settings = Budgets(groups_bytes=16 << 20)
    async with door(settings) as here:
        stuck = []
        for number in range(12):
            peer = await here.peer(connect=ConnectPacket(f"stuck {number}", receive_max=1))
            await peer.subscribe(TopicFilter(f"$share/stuck{number}/big", max_qos=QoS.AT_LEAST_ONCE))
            stuck.append(peer)
        member = await here.peer("member")
        await member.subscribe(TopicFilter("$share/taking/big", max_qos=QoS.AT_LEAST_ONCE))
        publisher = await here.peer("publisher")
        for number in range(1, 25):
            publisher.send(PublishPacket("big", b"x" * 500_000, qos=QoS.AT_LEAST_ONCE, packet_id=number))
            await publisher.first(PubAckPacket)
        for number in range(24):
            message = await member.first(PublishPacket)
            assert message.packet_id is not None, number
            member.send(PubAckPacket(message.packet_id))
        assert 0 < most(here, Kind.GROUPS) <= settings.groups_bytes * settings.user_percent // 100
        for peer in stuck:
            peer.close()
        member.close()
        await until(lambda: used(here, Kind.GROUPS) == 0)


def _lasting(name: str, *, clean: bool) -> ConnectPacket:
    return ConnectPacket(name, clean_start=clean, session_expiry_interval=600, receive_max=100)


async def test_subscriptions_are_bounded_and_given_back() -> None:
    settings = Budgets(sessions_bytes=16 << 20, user_percent=10, client_percent=10)
    share = settings.sessions_bytes // 10
    async with door(settings) as here:
        granted = refused = 0
        peers = [await here.peer(f"client {number}") for number in range(2)]
        for peer in peers:
            for number in range(1, 11):
                filters = [TopicFilter(f"{number}/{each}") for each in range(100)]
                peer.send(SubscribePacket(number, filters))
                answer = await peer.receive(SubAckPacket)
                codes = [int(code) for code in answer.reason_codes]
                assert set(codes) <= {2, 0x97}
                granted, refused = granted + codes.count(2), refused + codes.count(0x97)
                if 0x97 in codes:
                    assert "subscriptions and wills" in (answer.reason_str or "")
        assert 1_000 < granted < 1_300 and refused
        assert share - 3_000 < used(here, Kind.SESSIONS) <= share
        peers[0].send(UnsubscribePacket(1, [f"1/{each}" for each in range(100)]))
        await peers[0].receive(UnsubAckPacket)
        assert used(here, Kind.SESSIONS) < share - 130_000
        for peer in peers:
            peer.close()
        await until(lambda: used(here, Kind.SESSIONS) == 0)


async def test_a_will_for_which_there_is_no_room_is_refused_with_words() -> None:
    settings = Budgets(sessions_bytes=16 << 20, user_percent=10, client_percent=10)
    async with door(settings) as here:
        will = Will(topic="w", payload=b"x" * 65_000)
        answers = []
        for number in range(30):
            peer = await here.peer(connect=ConnectPacket(f"client {number}", will=will), accepted=False)
            answers.append(await peer.receive(ConnAckPacket))
        codes = [int(answer.reason_code) for answer in answers]
        assert codes.count(0) in range(20, 27) and set(codes) == {0, 0x97}
        assert "subscriptions and wills" in (answers[-1].reason_str or "")


async def test_wills_on_their_way_to_a_store_that_hangs_are_bounded() -> None:
    settings = Budgets(sessions_bytes=16 << 20)
    async with door(settings) as here:
        held = Held(here.parts.message_log._log)
        here.parts.message_log._log = cast(Log, held)
        codes: list[int] = []
        for number in range(200):
            will = Will(topic="w", payload=b"x" * 65_000, qos=QoS.AT_LEAST_ONCE)
            peer = await here.peer(connect=ConnectPacket(f"client {number}", will=will), accepted=False)
            codes.append(int((await peer.receive(ConnAckPacket)).reason_code))
            peer.writer.transport.abort()
            await until(lambda: here.listener.clients == 0)
        queue = here.parts.message_log._queue
        waiting = sum(len(each[0].payload) for each in (*queue._waiting, *queue._batch))
        share = settings.sessions_bytes * settings.user_percent // 100
        assert share // 2 < waiting <= share
        assert set(codes) == {0, 0x97} and codes[-1] == 0x97
        held.go.set()
        await until(lambda: used(here, Kind.SESSIONS) == 0)


async def test_a_message_counts_with_all_of_its_properties() -> None:
    async with door() as here:
        held = Held(here.parts.message_log._log)
        here.parts.message_log._log = cast(Log, held)
        spender = await here.peer("spender")
        large = PublishPacket(
            "a",
            b"",
            qos=QoS.AT_LEAST_ONCE,
            packet_id=1,
            content_type="c" * 60_000,
            response_topic="r" * 60_000,
            correlation_data=b"d" * 60_000,
            user_properties=[("name", "v" * 1_000)] * 60,
        )
        spender.send(large)
        await until(lambda: used(here, Kind.COMMITS) > 0)
        (record, *_), *_ = (*here.parts.message_log._queue._waiting, *here.parts.message_log._queue._batch)
        assert used(here, Kind.COMMITS) >= 2 * len(record.payload) > 400_000
        held.go.set()
        await spender.first(PubAckPacket)

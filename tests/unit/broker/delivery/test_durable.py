"""QoS 1 and 2, sessions that last, retained messages and wills, over real sockets and the store in memory."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingReqPacket,
    PubAckPacket,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    QoS,
    RetainHandling,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    Will,
)

from tests.unit.broker.harness import DEADLINE_S, Door, until
from tests.unit.broker.talk import LASTING, ONE, TWO, lasting, nothing_more, publish, receive, retained
from tocsin.broker.delivery.session_store import HAND_OVER, HANDED
from tocsin.config import Budgets, Limits
from tocsin.core.budgets.budget import Budget, Kind, bounds_of
from tocsin.core.delivery.stored_session import session_key
from tocsin.wire.mqtt.connect import V5, V311, Version


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize(("published", "subscribed"), [(ONE, ONE), (TWO, TWO), (TWO, ONE), (ONE, TWO)])
async def test_messages_arrive_at_the_lower_qos_of_both_sides(
    door: Door, version: Version, published: QoS, subscribed: QoS
) -> None:
    subscriber, publisher = await door.peer("s", version=version), await door.peer("p", version=version)
    await subscriber.subscribe(TopicFilter("a/+", max_qos=subscribed))
    for number in range(5):
        await publish(publisher, f"a/{number}", b"%d" % number, published, packet_id=number + 1)
    for number in range(5):
        packet = await receive(subscriber)
        assert (packet.topic, packet.payload) == (f"a/{number}", b"%d" % number)
        assert int(packet.qos) == min(int(published), int(subscribed))
    await nothing_more(subscriber)


async def test_qos_1_messages_reach_qos_0_subscribers_and_vice_versa(door: Door) -> None:
    zero, one, publisher = await door.peer("0"), await door.peer("1"), await door.peer("p")
    await zero.subscribe(TopicFilter("a", max_qos=QoS.AT_MOST_ONCE))
    await one.subscribe(TopicFilter("a", max_qos=ONE))
    await publish(publisher, "a", b"durable")
    publisher.send(PublishPacket("a", b"quick"))
    assert {(await zero.receive(PublishPacket)).payload for _ in range(2)} == {b"durable", b"quick"}
    heard = {(packet.payload, int(packet.qos)) for packet in [await receive(one), await receive(one)]}
    assert heard == {(b"durable", 1), (b"quick", 0)}


async def test_the_receive_maximum_bounds_the_window_and_the_log_supplies_the_rest(
    door: Door,
) -> None:
    subscriber = await door.peer(connect=ConnectPacket("s", receive_max=2))
    publisher = await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    for number in range(6):
        await publish(publisher, "a", b"%d" % number)
    first = [await subscriber.receive(PublishPacket) for _ in range(2)]
    await nothing_more(subscriber)
    for packet in first:
        assert packet.packet_id is not None
        subscriber.send(PubAckPacket(packet.packet_id))
    rest = [await receive(subscriber) for _ in range(4)]
    assert [packet.payload for packet in first + rest] == [b"%d" % number for number in range(6)]


async def test_a_client_that_was_away_gets_what_it_missed_in_order(door: Door) -> None:
    subscriber = await door.peer(connect=lasting("s", clean=True))
    await subscriber.subscribe(TopicFilter("a/#", max_qos=TWO))
    subscriber.close()
    publisher = await door.peer("p")
    for number in range(10):
        await publish(publisher, f"a/{number}", b"%d" % number, TWO if number % 2 else ONE)
    again = await door.peer(connect=lasting("s"), accepted=False)
    assert (await again.receive(ConnAckPacket)).session_present
    heard = [await receive(again) for _ in range(10)]
    assert [packet.payload for packet in heard] == [b"%d" % number for number in range(10)]
    assert not any(packet.duplicate for packet in heard)
    await nothing_more(again)


async def test_a_client_that_leaves_during_a_log_read_loses_nothing(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is over may receive nothing: that says nothing of what its client is to get."""
    subscriber = await door.peer(connect=lasting("s", clean=True))
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    subscriber.close()
    publisher = await door.peer("p")
    for number in range(3):
        await publish(publisher, "a", b"%d" % number)
    departures, message_log = door.parts.departures, door.parts.message_log
    really_read, really_left = message_log.read, departures.left
    reading, over = asyncio.Event(), asyncio.Event()

    async def read(*arguments: Any, **options: Any) -> Any:
        reading.set()
        await over.wait()
        return await really_read(*arguments, **options)

    def left(*arguments: Any) -> None:
        over.set()  # the read is answered before anything else happens
        really_left(*arguments)

    monkeypatch.setattr(message_log, "read", read)
    monkeypatch.setattr(departures, "left", left)
    there = await door.peer(connect=lasting("s"))
    await reading.wait()
    there.close()
    await over.wait()
    again = await door.peer(connect=lasting("s"))
    heard = [await receive(again) for _ in range(3)]
    assert [packet.payload for packet in heard] == [b"0", b"1", b"2"]


async def test_a_connected_client_keeps_its_backlog_when_its_cell_expires(
    door: Door,
) -> None:
    """The store was away for longer than it keeps a cell, or its clock jumped: expiry counts from the close."""
    subscriber = await door.peer(connect=ConnectPacket("s", session_expiry_interval=5, receive_max=1))
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    publisher = await door.peer("p")
    for number in range(4):
        await publish(publisher, "a", b"%d" % number)
    held = await subscriber.receive(PublishPacket)
    await door.parts.sessions.table.delete(session_key("s"))
    subscriber.send(SubscribePacket(2, [TopicFilter("b", max_qos=ONE)]))  # which has to be stored
    async with asyncio.timeout(DEADLINE_S):
        while await door.parts.sessions.table.get(session_key("s")) is None:
            subscriber.send(PingReqPacket())  # it is there
            await asyncio.sleep(0.1)
    await subscriber.first(SubAckPacket)
    for payload in (b"1", b"2", b"3"):
        assert held.packet_id is not None
        subscriber.send(PubAckPacket(held.packet_id))
        held = await subscriber.first(PublishPacket)
        assert held.payload == payload
    subscriber.close()
    again = await door.peer(connect=ConnectPacket("s", session_expiry_interval=5), accepted=False)
    assert (await again.receive(ConnAckPacket)).session_present


async def test_a_session_may_be_resumed_for_the_last_time(door: Door) -> None:
    subscriber = await door.peer(connect=lasting("s", clean=True))
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    subscriber.close()
    publisher = await door.peer("p")
    await publish(publisher, "a", b"missed")
    for expected in (True, False):
        last = await door.peer(connect=ConnectPacket("s"), accepted=False)
        assert (await last.receive(ConnAckPacket)).session_present is expected
        if expected:
            assert (await receive(last)).payload == b"missed"
        last.send(DisconnectPacket())
        assert await last.closed()


async def test_what_was_not_acknowledged_comes_again_with_the_same_id_and_marked(door: Door) -> None:
    subscriber, publisher = await door.peer(connect=lasting("s", clean=True)), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    await publish(publisher, "a", b"1")
    await publish(publisher, "a", b"2")
    first = await subscriber.receive(PublishPacket)
    assert first.packet_id is not None
    await subscriber.receive(PublishPacket)
    subscriber.send(PubAckPacket(first.packet_id))
    await nothing_more(subscriber)
    subscriber.close()
    again = await door.peer(connect=lasting("s"))
    packet = await receive(again)
    assert (packet.payload, packet.duplicate) == (b"2", True)
    await nothing_more(again)


async def test_a_clean_start_forgets_the_session(door: Door) -> None:
    subscriber = await door.peer(connect=lasting("s", clean=True))
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    subscriber.close()
    again = await door.peer(connect=lasting("s", clean=True), accepted=False)
    assert not (await again.receive(ConnAckPacket)).session_present
    publisher = await door.peer("p")
    await publish(publisher, "a", b"x")
    await nothing_more(again)


async def test_a_session_survives_the_broker(door: Door) -> None:
    subscriber, publisher = await door.peer(connect=lasting("s", clean=True)), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=TWO))
    await publish(publisher, "a", b"before", TWO)
    await receive(subscriber)
    await nothing_more(subscriber)
    await door.__aexit__(None, None, None)
    async with Door(Limits(), store=door.store) as reborn:
        publisher = await reborn.peer("p")
        await publish(publisher, "a", b"after", TWO)
        again = await reborn.peer(connect=lasting("s"), accepted=False)
        assert (await again.receive(ConnAckPacket)).session_present
        assert (await receive(again)).payload == b"after"
        await nothing_more(again)
    await door.__aenter__()


async def test_a_repeated_qos_2_publish_is_taken_once(door: Door) -> None:
    subscriber, publisher = await door.peer("s"), await door.peer(connect=lasting("p", clean=True))
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    publisher.send(PublishPacket("a", b"once", qos=TWO, packet_id=7))
    await publisher.receive(PubRecPacket)
    publisher.close()
    again = await door.peer(connect=lasting("p"))
    again.send(PublishPacket("a", b"once", qos=TWO, packet_id=7, duplicate=True))
    await again.receive(PubRecPacket)
    again.send(PubRelPacket(7))
    await again.receive(PubCompPacket)
    await publish(again, "a", b"another", TWO, packet_id=7)
    assert [(await receive(subscriber)).payload for _ in range(2)] == [b"once", b"another"]
    await nothing_more(subscriber)


# ── retained messages ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_retained_message_is_given_to_who_subscribes_later(door: Door) -> None:
    publisher = await door.peer("p")
    for qos, topic in ((QoS.AT_MOST_ONCE, "a/0"), (ONE, "a/1"), (TWO, "a/2")):
        publisher.send(retained(topic, b"kept", qos))
    await publisher.receive(PubAckPacket)
    await publisher.receive(PubRecPacket)
    await nothing_more(publisher)
    subscriber = await door.peer("s")
    await subscriber.subscribe(TopicFilter("a/+", max_qos=TWO))
    heard = [await receive(subscriber) for _ in range(3)]
    assert sorted((packet.topic, int(packet.qos)) for packet in heard) == [("a/0", 0), ("a/1", 1), ("a/2", 2)]
    assert all(packet.retain for packet in heard)


async def test_an_empty_retained_message_removes_what_was_kept(door: Door) -> None:
    publisher, subscriber = await door.peer("p"), await door.peer("s")
    for payload in (b"kept", b""):
        publisher.send(retained("a", payload))
        await publisher.receive(PubAckPacket)
    await subscriber.subscribe(TopicFilter("a"))
    await nothing_more(subscriber)


@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_the_last_message_is_retained_however_slow_the_log_is(door: Door, qos: QoS) -> None:
    publisher, subscriber = await door.peer("p"), await door.peer("s")
    publisher.send(retained("a", b"older", qos), retained("a", b"newer", QoS.AT_MOST_ONCE))
    await publisher.receive(PubAckPacket if qos == ONE else PubRecPacket)
    kept = door.parts.retained.matching
    await until(lambda: [each.publication.payload for each in kept("a")] == [b"newer"])
    await nothing_more(publisher)
    await subscriber.subscribe(TopicFilter("a"))
    assert (await receive(subscriber)).payload == b"newer"


async def test_retain_handling_says_when_retained_messages_are_wanted(door: Door) -> None:
    publisher, subscriber = await door.peer("p"), await door.peer("s")
    publisher.send(retained("a", b"kept"))
    await publisher.receive(PubAckPacket)
    never = TopicFilter("a", retain_handling=RetainHandling.SEND_NEVER)
    if_new = TopicFilter("a", retain_handling=RetainHandling.SEND_IF_SUBSCRIPTION_NOT_EXISTS)
    await subscriber.subscribe(never)
    await subscriber.subscribe(if_new)
    await nothing_more(subscriber)
    await subscriber.subscribe(TopicFilter("a", retain_handling=RetainHandling.SEND_ALWAYS))
    assert (await receive(subscriber)).payload == b"kept"
    other = await door.peer("o")
    await other.subscribe(if_new)
    assert (await receive(other)).payload == b"kept"


@pytest.mark.parametrize("qos", [QoS.AT_MOST_ONCE, ONE])
async def test_a_live_message_is_marked_retained_only_under_retain_as_published(door: Door, qos: QoS) -> None:
    publisher, plain, exact = await door.peer("p"), await door.peer("s"), await door.peer("r")
    await plain.subscribe(TopicFilter("a", retain_as_published=False))
    await exact.subscribe(TopicFilter("a", retain_as_published=True))
    publisher.send(retained("a", b"x", qos))
    assert not (await receive(plain)).retain
    assert (await receive(exact)).retain


# ── wills ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("qos", [QoS.AT_MOST_ONCE, ONE, TWO])
async def test_a_will_of_any_qos_is_published_and_kept(door: Door, qos: QoS) -> None:
    watcher = await door.peer("w")
    await watcher.subscribe(TopicFilter("gone", max_qos=TWO))
    will = Will("gone", payload=b"x", qos=qos, retain=True)
    lost = await door.peer(connect=ConnectPacket("lost", clean_start=True, will=will))
    lost.close()
    assert int((await receive(watcher)).qos) == int(qos)
    late = await door.peer("late")
    await late.subscribe(TopicFilter("gone", max_qos=TWO))
    assert (await receive(late)).retain


@pytest.mark.mqtt("3.1.3-9", "3.1.2-8")
async def test_a_delayed_will_is_not_published_if_the_client_comes_back(door: Door) -> None:
    watcher = await door.peer("w")
    await watcher.subscribe(TopicFilter("gone", max_qos=ONE))
    will = Will("gone", payload=b"x", qos=ONE, will_delay_interval=1)
    connect = ConnectPacket("c", session_expiry_interval=LASTING, will=will)
    (await door.peer(connect=connect)).close()
    again = await door.peer(connect=connect)
    again.send(DisconnectPacket())
    assert await again.closed()
    await nothing_more(watcher)
    (await door.peer(connect=connect)).close()
    assert (await receive(watcher)).payload == b"x"


async def test_a_message_too_old_is_not_delivered(door: Door) -> None:
    subscriber, publisher = await door.peer(connect=lasting("s", clean=True)), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    subscriber.close()
    packets: list[Packet] = [
        PublishPacket("a", b"short", qos=ONE, packet_id=1, message_expiry_interval=0),
        PublishPacket("a", b"long", qos=ONE, packet_id=2, message_expiry_interval=100),
    ]
    publisher.send(*packets)
    await publisher.receive(PubAckPacket)
    await publisher.receive(PubAckPacket)
    again = await door.peer(connect=lasting("s"))
    packet = await receive(again)
    assert packet.payload == b"long"
    assert packet.message_expiry_interval is not None and packet.message_expiry_interval <= 100
    await nothing_more(again)


# ── two brokers on one store ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("expiry_s", [0, LASTING])
async def test_the_first_broker_lets_a_client_go_that_came_to_another(door: Door, expiry_s: int) -> None:
    connect = ConnectPacket("me", session_expiry_interval=expiry_s)
    async with Door(Limits(), store=door.store, broker="south-1") as south:
        first = await door.peer(connect=connect)
        second = await south.peer(connect=connect)
        assert int((await first.receive(DisconnectPacket)).reason_code) == 0x8E
        assert await first.closed()
        await nothing_more(second)


@pytest.mark.parametrize("expiry_s", [0, LASTING])
async def test_a_returned_client_is_not_let_go_for_its_earlier_stay(door: Door, expiry_s: int) -> None:
    """What the other broker says comes late: on the bus, or because it asks for the session of one that has gone."""
    connect = ConnectPacket("me", session_expiry_interval=expiry_s)
    before_us = time.time_ns() // 1_000
    back = await door.peer(connect=connect)
    bus = door.store.bus
    await bus.publish("net.arrivals", f"south-1\0+{before_us} me".encode())
    subject = door.parts.sessions.hand_over_subject("north-1")
    assert await bus.request(
        subject, HAND_OVER.seal(f"{before_us} me".encode()), deadline_s=5.0
    ) == HANDED.seal(b"newer here")
    await nothing_more(back)


async def test_a_session_moves_with_its_client_and_nothing_is_lost(door: Door) -> None:
    async with Door(Limits(), store=door.store, broker="south-1") as south:
        subscriber, publisher = await door.peer(connect=lasting("s", clean=True)), await south.peer("p")
        await subscriber.subscribe(TopicFilter("a", max_qos=TWO))
        await publish(publisher, "a", b"1", TWO)
        assert (await receive(subscriber)).payload == b"1"
        await publish(publisher, "a", b"2", TWO)
        held = await subscriber.receive(PublishPacket)
        moved = await south.peer(connect=lasting("s"), accepted=False)
        assert (await moved.receive(ConnAckPacket)).session_present
        again = await receive(moved)
        assert (again.payload, again.packet_id) == (b"2", held.packet_id)
        await publish(publisher, "a", b"3", ONE)
        assert (await receive(moved)).payload == b"3"


async def test_messages_and_retained_ones_are_the_same_at_every_broker(door: Door) -> None:
    async with Door(Limits(), store=door.store, broker="south-1") as south:
        here, there = await door.peer("h"), await south.peer("t")
        await there.subscribe(TopicFilter("a/#", max_qos=ONE))
        here.send(retained("a/b", b"x"))
        await here.receive(PubAckPacket)
        assert (await receive(there)).payload == b"x"
        late = await south.peer("l")
        await late.subscribe(TopicFilter("a/+", max_qos=ONE))
        assert (await receive(late)).retain


# ── what a client asks for ──────────────────────────────────────────────────────────────────────────────────


async def test_topics_are_told_by_number_to_who_takes_that(door: Door) -> None:
    subscriber = await door.peer(connect=ConnectPacket("s", clean_start=True, topic_alias_max=1))
    publisher = await door.peer("p")
    await subscriber.subscribe(TopicFilter("a/#", max_qos=TWO))
    for number, (topic, qos) in enumerate((("a/1", ONE), ("a/1", TWO), ("a/2", ONE)), 1):
        await publish(publisher, topic, b"%d" % number, qos, packet_id=number)
    publisher.send(PublishPacket("a/1", b"4"))
    heard = [await receive(subscriber) for _ in range(4)]
    assert [(packet.topic, packet.topic_alias, packet.payload) for packet in heard] == [
        ("a/1", 1, b"1"),
        ("", 1, b"2"),
        ("a/2", None, b"3"),
        ("", 1, b"4"),
    ]


@pytest.mark.parametrize("qos", [QoS.AT_MOST_ONCE, ONE])
async def test_a_client_may_tell_topics_by_number(door: Door, qos: QoS) -> None:
    subscriber, publisher = await door.peer("s"), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a/#", max_qos=ONE))
    for number, topic in enumerate(("a/1", ""), 1):
        packet_id = number if qos == ONE else None
        publisher.send(PublishPacket(topic, b"%d" % number, qos=qos, packet_id=packet_id, topic_alias=3))
    heard = [await receive(subscriber) for _ in range(2)]
    assert [(packet.topic, packet.payload) for packet in heard] == [("a/1", b"1"), ("a/1", b"2")]


async def test_a_durable_message_over_the_clients_maximum_is_as_good_as_delivered(door: Door) -> None:
    connect = ConnectPacket("s", session_expiry_interval=LASTING, max_packet_size=100)
    subscriber, publisher = await door.peer(connect=connect), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    await publish(publisher, "a", b"x" * 200)
    await publish(publisher, "a", b"small")
    assert (await receive(subscriber)).payload == b"small"
    subscriber.close()
    await publish(publisher, "a", b"y" * 200)
    await publish(publisher, "a", b"later")
    again = await door.peer(connect=connect)
    assert (await receive(again)).payload == b"later"
    await nothing_more(again)


async def test_a_will_that_waits_keeps_the_room_that_its_connection_had() -> None:
    budget = Budget(bounds_of(Budgets(sessions_bytes=16 << 20)))
    async with Door(Limits(), budget=budget) as door:
        will = Will("gone", payload=b"x", qos=ONE, will_delay_interval=1_000)
        dying = await door.peer(connect=ConnectPacket("c", session_expiry_interval=LASTING, will=will))
        while room := (others := budget.account("")).room(Kind.SESSIONS):
            assert others.take(Kind.SESSIONS, room) is None
        dying.close()
        await until(lambda: len(door.parts.wills) == 1)
        late = await door.peer(connect=ConnectPacket("d", clean_start=True, will=will), accepted=False)
        assert int((await late.first(ConnAckPacket)).reason_code) == 0x97


async def test_nothing_waits_at_a_broker_that_is_over() -> None:
    """Its process may go on as another one: a standby takes a place, or gives it back."""
    async with Door(Limits()) as door:
        will = Will("gone", payload=b"x", qos=ONE, will_delay_interval=1_000)
        dying = await door.peer(connect=ConnectPacket("c", session_expiry_interval=LASTING, will=will))
        dying.close()
        await until(lambda: len(door.parts.wills) == 1)
        assert door.parts.wills._shell._timers
        door.parts.takeovers.stand_in("north-9", 1)
        door.parts.close()
        assert not door.parts.wills._shell._timers and not door.parts.takeovers._shell._timers


async def test_a_will_that_waits_counts_for_its_user() -> None:
    budget = Budget(bounds_of(Budgets(sessions_bytes=16 << 20)))
    async with Door(Limits(), budget=budget) as door:
        will = Will("gone", payload=bytes(60_000), qos=ONE, will_delay_interval=1_000)
        connect = ConnectPacket("c", session_expiry_interval=LASTING, will=will)
        (await door.peer(connect=connect)).close()
        wills = door.parts.wills
        await until(lambda: len(wills) == 1 and 60_000 < budget.figures()[Kind.SESSIONS].used < 70_000)
        await door.peer(connect=ConnectPacket("c", session_expiry_interval=LASTING))
        await until(lambda: not budget.figures()[Kind.SESSIONS].used)

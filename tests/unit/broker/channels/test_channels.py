"""Channels over real sockets: subscribing, results at QoS 0 and 1, sessions that last, go away and move."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PubAckPacket,
    PubAckReasonCode,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tests.unit.broker.harness import Door, Peer, until
from tests.unit.broker.pipeline import NEAR, WIDE, Pipeline
from tests.unit.broker.talk import LASTING, ONE, TWO, ZERO, lasting, nothing_more, publish, receive
from tocsin.broker.channels import results as results_module
from tocsin.broker.survival import rates as rates_module
from tocsin.config import Limits
from tocsin.core.delivery.window import RESULTS
from tocsin.core.forwarding.tallies import Count
from tocsin.model.results import k_of, result_position
from tocsin.ports import TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.mqtt.connect import V5, V311, Version

ALICE = "$channel/Near/alice"
FOR_ALICE, FOR_BOB = ("Near", ("alice",)), ("Near", ("bob",))
K_ALICE = k_of("Near", ("alice",))


@pytest.fixture(params=["files", "bus"])
async def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pipeline[MemoryStore]]:
    if request.param == "files":
        pytest.importorskip("pyarrow", reason="the extra spark is not installed")
    made = Pipeline(MemoryStore(MemoryServer()), tmp_path if request.param == "files" else None)
    await made.define(NEAR, WIDE)
    async with made.serve():
        yield made


def door_of(pipeline: Pipeline[MemoryStore], broker: str = "north-1") -> Door:
    return Door(Limits(), store=pipeline.store, broker=broker, results=pipeline.files())


@pytest.fixture
async def door(pipeline: Pipeline[MemoryStore]) -> AsyncIterator[Door]:
    async with door_of(pipeline) as opened:
        yield opened


def backend(door: Door) -> dict[str, int]:
    return door.parts.channels.backend.machine.statistics()


async def subscribe(peer: Peer, name: str, qos: QoS = ONE) -> SubAckPacket:
    peer.send(SubscribePacket(1, [TopicFilter(name, max_qos=qos)]))
    return await peer.first(SubAckPacket)


async def subscribed(peer: Peer, name: str = ALICE, qos: QoS = ONE) -> None:
    assert int((await subscribe(peer, name, qos)).reason_codes[0]) == min(1, int(qos))


def numbers(packets: list[PublishPacket]) -> list[int]:
    return [json.loads(packet.payload)["n"] for packet in packets]


def n(*values: int) -> list[dict[str, int]]:
    return [{"n": value} for value in values]


async def take(peer: Peer, count: int) -> list[int]:
    return numbers([await receive(peer) for _ in range(count)])


# ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_results_are_counted_for_the_rate_of_their_subscription(
    pipeline: Pipeline[MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates_module, "COUNT_S", 3_600.0)  # the broker leaves the counts to us
    async with door_of(pipeline) as door:
        for name in ("a", "b"):
            await subscribed(await door.peer(name))
        await subscribed(gone := await door.peer("c"), "$channel/Near/bob")
        await pipeline.tick({FOR_ALICE: n(1, 2), FOR_BOB: n(3)})
        await take(gone, 1)
        gone.close()
        await until(lambda: door.listener.clients == 2)
        await until(lambda: door.parts.channels.results.dispatched == 3)
        size = 2 * (len(ALICE) + len('{"n": 1}'))
        assert door.parts.channels.counts() == [Count(ALICE, size, 2)]
        assert door.parts.channels.counts() == []


@pytest.mark.parametrize("qos", [ZERO, ONE, TWO])
async def test_a_subscriber_gets_the_results_of_its_parameters(
    door: Door, pipeline: Pipeline[MemoryStore], qos: QoS
) -> None:
    peer, bob = await door.peer("a"), await door.peer("b")
    await subscribed(peer, ALICE, qos)
    await subscribed(bob, "$channel/near?user=bob")
    await pipeline.tick({FOR_ALICE: n(1, 2), FOR_BOB: n(3)}, priority=7)
    first = await receive(peer)
    assert (first.topic, json.loads(first.payload), int(first.qos)) == (ALICE, {"n": 1}, min(1, int(qos)))
    assert first.content_type == "application/json" and first.payload_format_indicator == 1
    assert dict(first.user_properties) == {
        "specversion": "1.0",
        "v": "1",
        "id": "1-0",
        "source": "/net/channels/Near",
        "type": "tocsin.channel.result",
        "time": "2023-11-14T22:13:20.123Z",
        "channel": "Near",
        "execution": "1",
        "position": str(result_position(1, 0)),
        "priority": "7",
    }
    assert await take(peer, 1) == [2]
    other = await receive(bob)
    assert (other.topic, numbers([other])) == ("$channel/near?user=bob", [3])
    await nothing_more(peer)


@pytest.mark.parametrize("qos", [ZERO, ONE])
async def test_a_result_that_is_too_large_for_a_client_is_left_out(
    door: Door, pipeline: Pipeline[MemoryStore], qos: QoS
) -> None:
    peer = await door.peer(connect=ConnectPacket("a", max_packet_size=1_000))
    await subscribed(peer, ALICE, qos)
    await pipeline.tick({FOR_ALICE: [{"n": 1}, {"n": 2, "text": "x" * 1_000}, {"n": 3}]})
    assert await take(peer, 2) == [1, 3]
    away = await door.peer(connect=lasting("b", clean=True))
    await subscribed(away)
    away.close()
    await pipeline.tick({FOR_ALICE: [{"n": 4, "text": "x" * 1_000}, {"n": 5}]})
    small = ConnectPacket("b", clean_start=False, session_expiry_interval=LASTING, max_packet_size=1_000)
    assert await take(await door.peer(connect=small), 1) == [5]


async def test_mqtt_311_gets_the_payload_alone(door: Door, pipeline: Pipeline[MemoryStore]) -> None:
    peer = await door.peer("a", version=V311)
    await subscribed(peer)
    await pipeline.tick({FOR_ALICE: n(1)})
    packet = await receive(peer)
    assert (packet.topic, packet.payload, packet.user_properties) == (ALICE, b'{"n": 1}', [])


async def test_subscription_identifiers_come_with_results(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer("a")
    await peer.subscribe(TopicFilter(ALICE, max_qos=ONE), subscription_id=9)
    await pipeline.tick({FOR_ALICE: n(1)})
    assert (await receive(peer)).subscription_ids == [9]


async def test_the_backend_subscription_is_stored_before_the_suback_and_once_for_all(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    one, two = await door.peer("1"), await door.peer("2")
    await subscribed(one)
    assert await pipeline.held() == {K_ALICE: {"north-1"}}
    await subscribed(two, "$channel/NEAR?USER=alice")
    one.send(UnsubscribePacket(2, [ALICE]))
    await one.first(UnsubAckPacket)
    assert await pipeline.held() == {K_ALICE: {"north-1"}}
    two.send(DisconnectPacket())
    assert await two.closed()
    await until(lambda: not backend(door)["channel_subscriptions"])
    assert await pipeline.held() == {}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("$channel/Nowhere/alice", "there is no channel 'Nowhere'"),
        ("$channel/Near", "Near(user STRING)"),
        ("$channel/Near/alice/5", "it has 2 values, and the channel takes 1 value"),
        ("$channel/Wide/far/flood", "radius = 'far': a DOUBLE is a number"),
        ("$channel/Wide/far/flood", "Wide(radius DOUBLE, kind STRING)"),
        ("$channel/Near?radius=5", "there is no parameter 'radius'"),
        ("$channel/Near/+", "no wildcards"),
        ("$channel/#", "no wildcards"),
        ("$share/g/$channel/Nowhere/alice", "there is no channel 'Nowhere'"),
        ("$share/g/$channel/Near", "Near(user STRING)"),
        ("$share/g/$channel/Near/+", "no wildcards"),
    ],
)
@pytest.mark.parametrize("version", [V5, V311])
async def test_what_cannot_be_subscribed_to_is_refused_in_words(
    door: Door, pipeline: Pipeline[MemoryStore], name: str, words: str, version: Version
) -> None:
    peer = await door.peer("a", version=version)
    answer = await subscribe(peer, name)
    if version == V311:
        assert int(answer.reason_codes[0]) == 0x80
    else:
        assert int(answer.reason_codes[0]) == 0x8F
        assert answer.reason_str is not None and words in answer.reason_str
    assert await pipeline.held() == {}


async def test_of_one_subscribe_the_good_ones_are_granted(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer("a")
    wanted = [ALICE, "$channel/Nowhere", "plain", "$channel/Near/bob"]
    peer.send(SubscribePacket(1, [TopicFilter(name, max_qos=ONE) for name in wanted]))
    answer = await peer.first(SubAckPacket)
    assert [int(code) for code in answer.reason_codes] == [1, 0x8F, 1, 1]
    await pipeline.tick({FOR_ALICE: n(1), FOR_BOB: n(2)})
    assert await take(peer, 2) == [1, 2]
    await publish(peer, "plain", b'{"n": 3}')
    assert await take(peer, 1) == [3]


async def test_the_same_under_two_names_is_refused(door: Door, pipeline: Pipeline[MemoryStore]) -> None:
    peer = await door.peer("a")
    await subscribed(peer, "$channel/Wide/5/flood")
    answer = await subscribe(peer, "$channel/Wide?kind=flood&radius=5.0")
    assert answer.reason_str is not None and "the same as '$channel/Wide/5/flood'" in answer.reason_str


async def test_a_channel_that_was_defined_a_moment_ago_is_found(
    door: Door, pipeline: Pipeline[MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = door.parts.channels.backend
    monkeypatch.setattr(held, "_on_change", lambda change: None)  # the watch tells nothing
    await pipeline.define(NEAR.__class__("New", NEAR.parameters, (), ""))
    peer = await door.peer(connect=lasting("a", clean=True))
    await subscribed(peer, "$channel/New/alice")
    await pipeline.tick({("New", ("alice",)): n(1)})
    assert await take(peer, 1) == [1]


async def test_nobody_publishes_to_a_channel(door: Door, pipeline: Pipeline[MemoryStore]) -> None:
    peer, other = await door.peer("a"), await door.peer("b")
    await subscribed(peer)
    other.send(PublishPacket(ALICE, b"fake"), PublishPacket(ALICE, b"fake", qos=ONE, packet_id=1))
    assert (await other.first(PubAckPacket)).reason_code == PubAckReasonCode.NOT_AUTHORIZED
    await nothing_more(peer)


async def test_a_new_subscription_is_for_what_comes_after_it(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    first, late = await door.peer("1"), await door.peer("2")
    await subscribed(first)
    await pipeline.tick({FOR_ALICE: n(1)})
    assert await take(first, 1) == [1]
    await subscribed(late)
    await pipeline.tick({FOR_ALICE: n(2)})
    assert await take(late, 1) == [2]


# ── durable ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_no_more_than_the_window_is_under_way_together_with_messages(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer(connect=ConnectPacket("a", receive_max=3))
    publisher = await door.peer("p")
    await subscribed(peer)
    await peer.subscribe(TopicFilter("m", max_qos=ONE))
    await pipeline.tick({FOR_ALICE: n(*range(5))})
    first = [await peer.receive(PublishPacket) for _ in range(3)]
    await publish(publisher, "m", b'{"n": 99}')
    await nothing_more(peer)
    assert all(packet.packet_id in RESULTS for packet in first if packet.packet_id)
    for packet in first:
        peer.send(PubAckPacket(packet.packet_id or 0))
    rest = [await receive(peer) for _ in range(3)]
    assert numbers(first) + [each for each in numbers(rest) if each != 99] == list(range(5))
    assert 99 in numbers(rest)


async def test_a_returning_client_gets_missed_results_first_and_in_order(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer(connect=lasting("a", clean=True))
    await subscribed(peer)
    await subscribed(peer, "$channel/Near/bob")
    peer.close()
    for tick in range(3):
        await pipeline.tick({FOR_ALICE: n(10 * tick, 10 * tick + 1), FOR_BOB: n(10 * tick + 2)})
    again = await door.peer(connect=lasting("a"), accepted=False)
    assert (await again.receive(ConnAckPacket)).session_present
    await pipeline.tick({FOR_ALICE: n(99)})
    assert await take(again, 10) == [0, 1, 2, 10, 11, 12, 20, 21, 22, 99]
    await nothing_more(again)


def urgency(payload: dict[str, int]) -> int:
    return 8 if payload["n"] >= 100 else 0


async def test_critical_results_overtake_what_a_client_missed(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer(connect=lasting("a", clean=True))
    await subscribed(peer)
    await subscribed(peer, "$channel/Near/bob")
    peer.close()
    for tick in range(3):
        await pipeline.tick(
            {FOR_ALICE: n(tick, 100 + tick, 10 + tick), FOR_BOB: n(200 + tick, 20 + tick)}, priority=urgency
        )
    again = await door.peer(connect=lasting("a"))
    packets = [await receive(again) for _ in range(15)]
    assert numbers(packets) == [100, 200, 101, 201, 102, 202, 0, 10, 20, 1, 11, 21, 2, 12, 22]
    assert [dict(packet.user_properties).get("priority") for packet in packets[:7]] == ["8"] * 6 + [None]
    await nothing_more(again)
    again.close()
    await pipeline.tick({FOR_ALICE: n(3, 103)}, priority=urgency)
    async with door_of(pipeline, "south-1") as elsewhere:
        assert await take(await elsewhere.peer(connect=lasting("a")), 2) == [103, 3]


async def test_a_critical_result_does_not_wait_for_a_window_that_is_full(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer(connect=ConnectPacket("a", receive_max=4))
    await subscribed(peer)
    await pipeline.tick({FOR_ALICE: n(*range(6), 100, 101)}, priority=urgency)
    packets = [await peer.receive(PublishPacket) for _ in range(4)]
    assert numbers(packets) == [0, 1, 2, 100], "a fourth of the window is spared for it"
    await nothing_more(peer)
    peer.send(PubAckPacket(packets[0].packet_id or 0))
    packets.append(await peer.receive(PublishPacket))
    assert numbers(packets[-1:]) == [101], "it is critical too"
    for packet in packets[1:]:
        peer.send(PubAckPacket(packet.packet_id or 0))
    assert await take(peer, 3) == [3, 4, 5]


async def test_what_was_not_acknowledged_comes_again_with_the_same_id_and_marked(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer(connect=lasting("a", clean=True))
    await subscribed(peer)
    await pipeline.tick({FOR_ALICE: n(1, 2)})
    first, second = await peer.receive(PublishPacket), await peer.receive(PublishPacket)
    peer.send(PubAckPacket(first.packet_id or 0))
    await nothing_more(peer)
    peer.close()
    again = await door.peer(connect=lasting("a"))
    repeat = await receive(again)
    assert (numbers([repeat]), repeat.packet_id, repeat.duplicate) == ([2], second.packet_id, True)
    await nothing_more(again)


async def test_a_session_survives_its_broker_and_so_does_what_it_holds(
    pipeline: Pipeline[MemoryStore],
) -> None:
    async with door_of(pipeline) as door:
        peer = await door.peer(connect=lasting("a", clean=True))
        await subscribed(peer)
        gone = await door.peer("clean")
        await subscribed(gone, "$channel/Near/bob")
    await pipeline.tick({FOR_ALICE: n(1)}, held={K_ALICE: {"north-1"}})
    async with door_of(pipeline) as reborn:
        await until(lambda: backend(reborn)["channel_sessions"] == 1)
        await until(lambda: backend(reborn)["channel_subscriptions"] == 1)
        async with asyncio.timeout(10):
            while await pipeline.held() != {K_ALICE: {"north-1"}}:
                await asyncio.sleep(0.01)
        await pipeline.tick({FOR_ALICE: n(2)})
        again = await reborn.peer(connect=lasting("a"))
        assert await take(again, 2) == [1, 2]


async def test_a_client_that_moves_misses_nothing_and_its_old_home_lets_go(
    pipeline: Pipeline[MemoryStore],
) -> None:
    async with door_of(pipeline) as north, door_of(pipeline, "south-1") as south:
        await until(lambda: not backend(north)["channel_sessions"])
        peer = await north.peer(connect=lasting("a", clean=True))
        await subscribed(peer)
        await pipeline.tick({FOR_ALICE: n(1)})
        assert await take(peer, 1) == [1]
        peer.close()
        await pipeline.tick({FOR_ALICE: n(2)})
        known, seen = await pipeline.held(), await pipeline.seen()
        again = await south.peer(connect=lasting("a"))
        assert await take(again, 1) == [2]
        # a tick that began before the move: its rows are in the files of the old home
        await pipeline.tick({FOR_ALICE: n(3)}, held=known, seen=seen)
        assert await take(again, 1) == [3]
        async with asyncio.timeout(10):
            while await pipeline.held() != {K_ALICE: {"south-1"}}:
                await asyncio.sleep(0.01)
        await pipeline.tick({FOR_ALICE: n(4)})
        assert await take(again, 1) == [4]
        await nothing_more(again)


async def test_a_session_that_ends_elsewhere_is_let_go(pipeline: Pipeline[MemoryStore]) -> None:
    async with door_of(pipeline) as north, door_of(pipeline, "south-1") as south:
        peer = await north.peer(connect=lasting("a", clean=True))
        await subscribed(peer)
        peer.close()
        await until(lambda: not north.listener.clients)
        await south.peer(connect=lasting("a", clean=True))
        await until(lambda: not backend(north)["channel_subscriptions"])
        assert await pipeline.held() == {}


async def test_a_session_that_is_resumed_for_the_last_time_holds_nothing_afterwards(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer(connect=lasting("a", clean=True))
    await subscribed(peer)
    peer.close()
    await pipeline.tick({FOR_ALICE: n(1)})
    last = await door.peer(connect=ConnectPacket("a", clean_start=False))
    assert await take(last, 1) == [1]
    last.send(DisconnectPacket())
    assert await last.closed()
    await until(lambda: not backend(door)["channel_subscriptions"])
    assert await pipeline.held() == {}


async def test_a_read_that_fails_holds_up_results_and_nothing_else(
    door: Door, pipeline: Pipeline[MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_module, "AGAIN_S", 0.05)
    peer, publisher = await door.peer("a"), await door.peer("p")
    await subscribed(peer)
    await peer.subscribe(TopicFilter("m", max_qos=ONE))
    pipeline.fails = 3
    root = pipeline.root
    if root is not None:
        root.rename(root.with_name("elsewhere"))  # not reachable: and the bus answers with an error first
        pipeline.root = root.with_name("elsewhere")
    await pipeline.tick({FOR_ALICE: n(1, 2, 3, 4, 5)})
    await publish(publisher, "m", b'{"n": 99}')
    assert await take(peer, 6) == [99, 1, 2, 3, 4, 5]
    assert pipeline.fails == 0


async def test_a_changed_definition_moves_subscriptions(door: Door, pipeline: Pipeline[MemoryStore]) -> None:
    peer = await door.peer("a")
    await subscribed(peer, "$channel/Wide/5/flood")
    text = WIDE.__class__("Wide", (NEAR.parameters[0], WIDE.parameters[1]), (), "", version=2)
    await pipeline.define(text)
    moved = k_of("Wide", ("5", "flood"))
    async with asyncio.timeout(10):
        while await pipeline.held() != {moved: {"north-1"}}:
            await asyncio.sleep(0.01)
    await pipeline.tick({("Wide", ("5", "flood")): n(1)})
    assert await take(peer, 1) == [1]


async def test_sessions_say_their_home_and_how_far_their_results_are(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    from tocsin.store.retention import retention_floor

    peer = await door.peer(connect=lasting("a", clean=True))
    await subscribed(peer)
    await pipeline.tick({FOR_ALICE: n(1)})
    await pipeline.tick({FOR_ALICE: n(2)})
    first = await peer.receive(PublishPacket)
    peer.send(PubAckPacket(first.packet_id or 0))
    await peer.receive(PublishPacket)  # the second is not acknowledged
    await nothing_more(peer)
    peer.close()
    await until(lambda: not door.listener.clients)
    await door.parts.endings.ended("a")
    sessions = door.parts.sessions.table
    log = await pipeline.store.log(pipeline.places.notices)
    groups = await pipeline.store.table(TableSpec("net-groups"))
    assert await retention_floor(sessions, groups, log) == 2
    assert LASTING > 0


async def test_results_of_ten_megabytes_come_live_behind_and_when_pulled(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    large = [{"n": number, "text": "x" * 10_000_000} for number in range(2)]
    peer = await door.peer(connect=lasting("large"))
    await subscribed(peer)
    await pipeline.tick({FOR_ALICE: large})
    assert await take(peer, 2) == [0, 1]
    peer.close()
    await pipeline.tick({FOR_ALICE: large})
    again = await door.peer(connect=lasting("large"))
    assert await take(again, 2) == [0, 1]
    again.send(PublishPacket("$results/Near/alice", b'{"newest": 1, "reply": "r"}'))
    assert numbers([await again.first(PublishPacket)]) == [1]

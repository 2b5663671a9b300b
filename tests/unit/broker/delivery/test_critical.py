"""Critical messages overtake others on their way to a client: over real sockets and the store in memory."""

from __future__ import annotations

import asyncio

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    PubAckPacket,
    PublishPacket,
    PubRecPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tests.unit.broker.harness import Door, Peer
from tests.unit.broker.talk import ONE, TWO, lasting, nothing_more, publish, receive, retained
from tocsin.config import Limits
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.mqtt.connect import V311

CRITICAL = ("priority", "critical")


async def alarm(
    peer: Peer, topic: str, payload: bytes, qos: QoS = ONE, said: tuple[str, str] = CRITICAL
) -> None:
    """Publish with a priority and see it through, but for PUBREL."""
    peer.send(PublishPacket(topic, payload, qos=qos, packet_id=7, user_properties=[said]))
    await peer.first(PubAckPacket if qos == ONE else PubRecPacket)


async def payloads(peer: Peer, count: int) -> list[bytes]:
    return [(await receive(peer)).payload for _ in range(count)]


@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_a_returning_client_gets_critical_messages_first_each_class_in_order(
    door: Door, qos: QoS
) -> None:
    subscriber, publisher = await door.peer(connect=lasting("s", clean=True)), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a/#", max_qos=qos))
    subscriber.close()
    for number in range(12):
        if number % 5 == 4:
            await alarm(publisher, "a/b", b"%d" % number)
        else:
            await publish(publisher, "a/b", b"%d" % number)
    again = await door.peer(connect=lasting("s"), accepted=False)
    assert (await again.receive(ConnAckPacket)).session_present
    wanted = [4, 9, *(each for each in range(12) if each % 5 != 4)]
    assert await payloads(again, 12) == [b"%d" % each for each in wanted]
    await nothing_more(again)


async def test_a_client_that_acknowledges_nothing_still_gets_the_critical_one(door: Door) -> None:
    slow = await door.peer(connect=ConnectPacket("s", receive_max=8))
    publisher = await door.peer("p")
    await slow.subscribe(TopicFilter("a", max_qos=ONE))
    for number in range(20):
        await publish(publisher, "a", b"%d" % number)
    await alarm(publisher, "a", b"now")
    got = [await slow.receive(PublishPacket) for _ in range(7)]
    assert [each.payload for each in got] == [*(b"%d" % number for number in range(6)), b"now"]
    assert ("priority", "critical") in got[-1].user_properties
    await nothing_more(slow)
    for each in got:
        assert each.packet_id is not None
        slow.send(PubAckPacket(each.packet_id))
    assert await payloads(slow, 14) == [b"%d" % number for number in range(6, 20)]


@pytest.mark.parametrize(
    ("said", "overtakes"),
    [("7", True), ("9", True), ("critical", True), ("6", False), ("0", False), ("high", False)],
)
async def test_from_seven_on_a_priority_is_critical(door: Door, said: str, overtakes: bool) -> None:
    subscriber, publisher = await door.peer(connect=lasting("s", clean=True)), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    subscriber.close()
    await publish(publisher, "a", b"before")
    await alarm(publisher, "a", b"it", said=("priority", said))
    again = await door.peer(connect=lasting("s"))
    assert await payloads(again, 2) == ([b"it", b"before"] if overtakes else [b"before", b"it"])


async def test_what_was_not_acknowledged_comes_again_with_its_id_critical_ones_first(door: Door) -> None:
    subscriber, publisher = await door.peer(connect=lasting("s", clean=True)), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=TWO))
    await publish(publisher, "a", b"1")
    await alarm(publisher, "a", b"2", TWO)
    first = [await subscriber.receive(PublishPacket) for _ in range(2)]
    await nothing_more(subscriber)
    subscriber.close()
    again = await door.peer(connect=lasting("s"))
    repeats = [await receive(again) for _ in range(2)]
    assert [each.payload for each in repeats] == [b"2", b"1"]
    assert all(each.duplicate for each in repeats)
    assert {each.payload: each.packet_id for each in repeats} == {
        each.payload: each.packet_id for each in first
    }
    await nothing_more(again)


async def test_a_broker_that_starts_anew_finds_what_was_critical_before() -> None:
    server = MemoryServer()
    async with Door(Limits(), store=MemoryStore(server)) as door:
        subscriber, publisher = await door.peer(connect=lasting("s", clean=True)), await door.peer("p")
        await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
        subscriber.close()
        await publish(publisher, "a", b"before")
        await alarm(publisher, "a", b"it")
        await publish(publisher, "a", b"after")
    async with Door(Limits(), store=MemoryStore(server)) as door:
        again = await door.peer(connect=lasting("s"))
        assert await payloads(again, 3) == [b"it", b"before", b"after"]
        await nothing_more(again)


async def test_without_critical_messages_a_return_costs_one_read_of_the_log(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriber, publisher = await door.peer(connect=lasting("s", clean=True)), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    subscriber.close()
    await publish(publisher, "a", b"1")
    message_log, reads = door.parts.message_log, list[bool | None]()
    read = message_log.read

    async def counted(*arguments: object, critical: bool | None = None, **more: object) -> object:
        reads.append(critical)
        return await read(*arguments, critical=critical, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(message_log, "read", counted)
    again = await door.peer(connect=lasting("s"))
    assert await payloads(again, 1) == [b"1"]
    await nothing_more(again)
    assert reads == [False]
    again.close()
    await alarm(publisher, "a", b"2")
    once_more = await door.peer(connect=lasting("s"))
    assert await payloads(once_more, 1) == [b"2"]
    await nothing_more(once_more)
    assert reads[1:] == [True, False]


async def test_retained_messages_do_not_wait_for_an_empty_critical_read(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriber, publisher = await door.peer(connect=lasting("s", clean=True)), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    subscriber.close()
    await alarm(publisher, "elsewhere", b"it")
    publisher.send(retained("b", b"kept"))
    await publisher.first(PubAckPacket)
    message_log, gate = door.parts.message_log, asyncio.Event()
    read = message_log.read

    async def late(*arguments: object, **more: object) -> object:
        await gate.wait()
        return await read(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(message_log, "read", late)
    again = await door.peer(connect=lasting("s"))
    again.send(SubscribePacket(1, [TopicFilter("b", max_qos=ONE)]))
    assert await payloads(again, 1) == [b"kept"]
    await again.first(SubAckPacket)
    gate.set()
    await nothing_more(again)


async def test_a_group_gives_messages_out_in_the_order_of_the_log(door: Door) -> None:
    member, publisher = await door.peer("m"), await door.peer("p")
    await member.subscribe(TopicFilter("$share/g/a/#", max_qos=ONE))
    for number in range(4):
        if number % 2:
            await alarm(publisher, "a/b", b"%d" % number)
        else:
            await publish(publisher, "a/b", b"%d" % number)
    assert await payloads(member, 4) == [b"0", b"1", b"2", b"3"]


async def test_a_group_that_is_behind_reads_critical_ones_too(door: Door) -> None:
    member = await door.peer(connect=ConnectPacket("m", receive_max=1))
    await member.subscribe(TopicFilter("$share/g/a", max_qos=ONE))
    publisher = await door.peer("p")
    for number in range(3):
        await alarm(publisher, "a", b"%d" % number)
    assert await payloads(member, 3) == [b"0", b"1", b"2"]


async def test_whoever_cannot_hear_of_it_gets_it_as_well(door: Door) -> None:
    """A subscriber with MQTT 3.1.1, and one at QoS 0."""
    old, zero = await door.peer("old", version=V311), await door.peer("zero")
    await old.subscribe(TopicFilter("a", max_qos=ONE))
    await zero.subscribe(TopicFilter("a", max_qos=QoS.AT_MOST_ONCE))
    publisher = await door.peer("p")
    await alarm(publisher, "a", b"it")
    assert (await receive(old)).payload == (await receive(zero)).payload == b"it"


async def test_a_critical_qos_2_message_is_in_the_log_once(door: Door) -> None:
    subscriber = await door.peer("s")
    await subscriber.subscribe(TopicFilter("a", max_qos=TWO))
    first = await door.peer(connect=lasting("p", clean=True))
    await alarm(first, "a", b"it", TWO)
    first.close()
    again = await door.peer(connect=lasting("p"))
    repeat = PublishPacket(
        "a", b"it", qos=TWO, packet_id=7, duplicate=True, user_properties=[("priority", "critical")]
    )
    again.send(repeat)
    assert (await again.first(PubRecPacket)).packet_id == 7
    assert (await receive(subscriber)).payload == b"it"
    await nothing_more(subscriber)

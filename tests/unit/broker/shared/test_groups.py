"""Groups (``$share/group/filter``) over real sockets and the store in memory: what clients can see."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PubAckPacket,
    PubAckReasonCode,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tests.unit.broker.harness import DEADLINE_S, Door, Peer
from tests.unit.broker.talk import gather, lasting, nothing_more, publish, receive
from tocsin.config import Limits
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.mqtt.connect import V5, V311, Version

ZERO, ONE, TWO = QoS.AT_MOST_ONCE, QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE


async def members(
    door: Door, count: int, qos: QoS, *, version: Version = V5, name: str = "$share/g/a/#"
) -> list[Peer]:
    peers = [await door.peer(f"m{number}", version=version) for number in range(count)]
    for peer in peers:
        await peer.subscribe(TopicFilter(name, max_qos=qos))
    return peers


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("qos", [ZERO, ONE, TWO])
async def test_a_group_gets_each_message_once_in_turn(door: Door, version: Version, qos: QoS) -> None:
    peers = await members(door, 3, qos, version=version)
    publisher = await door.peer("p")
    for number in range(9):
        if qos == ZERO:
            publisher.send(PublishPacket("a/x", b"%d" % number))
        else:
            await publish(publisher, "a/x", b"%d" % number, qos)
    got = await gather(peers, 9)
    assert sorted(payload for _, payload in got) == [b"%d" % number for number in range(9)]
    assert set(Counter(who for who, _ in got).values()) == {3}
    for peer in peers:
        await nothing_more(peer)


async def test_a_group_and_a_plain_subscription_both_get_the_message(door: Door) -> None:
    (member,) = await members(door, 1, ONE)
    await member.subscribe(TopicFilter("a/#", max_qos=ONE))
    publisher = await door.peer("p")
    await publish(publisher, "a/x", b"durable")
    publisher.send(PublishPacket("a/x", b"quick"))
    got = [(await receive(member)).payload for _ in range(4)]
    assert sorted(got) == [b"durable", b"durable", b"quick", b"quick"]
    await nothing_more(member)


async def test_groups_of_one_filter_each_get_it(door: Door) -> None:
    one, other, publisher = await door.peer("1"), await door.peer("2"), await door.peer("p")
    await one.subscribe(TopicFilter("$share/one/a", max_qos=ONE))
    await other.subscribe(TopicFilter("$share/other/a", max_qos=TWO))
    await publish(publisher, "a", b"x", TWO)
    publisher.send(PublishPacket("a", b"y"))
    for peer in (one, other):
        assert {(await receive(peer)).payload for _ in range(2)} == {b"x", b"y"}


async def test_delivery_uses_the_members_subscription_id_and_retain_option(door: Door) -> None:
    member, publisher = await door.peer("m"), await door.peer("p")
    wanted = TopicFilter("$share/g/a", max_qos=ONE, retain_as_published=True)
    await member.subscribe(wanted, subscription_id=7)
    publisher.send(PublishPacket("a", b"quick", retain=True))
    quick = await receive(member)
    await publish(publisher, "a", b"durable")
    durable = await receive(member)
    assert (quick.subscription_ids, quick.retain) == ([7], True)
    assert (durable.subscription_ids, durable.retain) == ([7], False)


async def test_a_group_gets_no_retained_messages(door: Door) -> None:
    publisher = await door.peer("p")
    publisher.send(PublishPacket("a/x", b"kept", qos=ONE, packet_id=1, retain=True))
    await publisher.receive(PubAckPacket)
    (member,) = await members(door, 1, ONE)
    await nothing_more(member)


async def test_connack_says_that_there_are_groups(door: Door) -> None:
    peer = await door.peer(connect=ConnectPacket("c"), accepted=False)
    assert (await peer.receive(ConnAckPacket)).shared_subscription_available


async def test_what_a_member_did_not_acknowledge_goes_to_another_when_it_leaves(door: Door) -> None:
    first, publisher = await door.peer("first"), await door.peer("p")
    await first.subscribe(TopicFilter("$share/g/a", max_qos=ONE))
    await publish(publisher, "a", b"x")
    assert (await first.receive(PublishPacket)).payload == b"x"
    second = await door.peer("second")
    await second.subscribe(TopicFilter("$share/g/a", max_qos=ONE))
    await nothing_more(second)
    first.close()
    assert (await receive(second)).payload == b"x"


async def test_a_qos_2_message_waits_for_its_member_and_completes(door: Door) -> None:
    first = await door.peer(connect=lasting("first", clean=True))
    await first.subscribe(TopicFilter("$share/g/a", max_qos=TWO))
    second, publisher = await door.peer("second"), await door.peer("p")
    await publish(publisher, "a", b"x", TWO)
    sent = await first.receive(PublishPacket)
    await second.subscribe(TopicFilter("$share/g/a", max_qos=TWO))
    first.close()
    await publish(publisher, "a", b"y", TWO)
    assert (await receive(second)).payload == b"y"
    await nothing_more(second)
    again = await door.peer(connect=lasting("first"), accepted=False)
    assert (await again.receive(ConnAckPacket)).session_present
    repeat = await receive(again)
    assert (repeat.payload, repeat.packet_id, repeat.duplicate) == (b"x", sent.packet_id, True)
    await nothing_more(again)


async def test_a_message_at_qos_2_that_was_received_is_not_sent_again(door: Door) -> None:
    member = await door.peer(connect=lasting("m", clean=True))
    await member.subscribe(TopicFilter("$share/g/a", max_qos=TWO))
    publisher = await door.peer("p")
    await publish(publisher, "a", b"x", TWO)
    sent = await member.receive(PublishPacket)
    assert sent.packet_id is not None
    member.send(PubRecPacket(sent.packet_id))
    await member.receive(PubRelPacket)
    member.close()
    again = await door.peer(connect=lasting("m"), accepted=False)
    assert (await again.receive(ConnAckPacket)).session_present
    assert (await again.receive(PubRelPacket)).packet_id == sent.packet_id
    again.send(PubCompPacket(sent.packet_id))
    await publish(publisher, "a", b"y", TWO)
    assert (await receive(again)).payload == b"y"
    await nothing_more(again)


async def test_what_came_while_everybody_was_away_waits(door: Door) -> None:
    member = await door.peer(connect=lasting("m", clean=True))
    await member.subscribe(TopicFilter("$share/g/a", max_qos=ONE))
    member.close()
    publisher = await door.peer("p")
    for number in range(5):
        await publish(publisher, "a", b"%d" % number)
    again = await door.peer(connect=lasting("m"), accepted=False)
    await again.receive(ConnAckPacket)
    assert [(await receive(again)).payload for _ in range(5)] == [b"%d" % number for number in range(5)]


async def test_a_refused_message_is_settled_and_nobody_elses(door: Door) -> None:
    first, second = await members(door, 2, ONE)
    publisher = await door.peer("p")
    await publish(publisher, "a/x", b"x")
    waiting = [asyncio.create_task(peer.receive(PublishPacket)) for peer in (first, second)]
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=DEADLINE_S)
    for task in pending:
        task.cancel()
    taker = first if waiting[0] in done else second
    other = second if taker is first else first
    sent = done.pop().result()
    assert sent.packet_id is not None
    taker.send(PubAckPacket(sent.packet_id, reason_code=PubAckReasonCode.IMPLEMENTATION_SPECIFIC_ERROR))
    taker.send(DisconnectPacket())
    await publish(publisher, "a/x", b"y")
    assert (await receive(other)).payload == b"y"
    await nothing_more(other)


async def test_who_unsubscribes_keeps_what_it_was_sent_and_gets_no_more(door: Door) -> None:
    first, publisher = await door.peer("first"), await door.peer("p")
    await first.subscribe(TopicFilter("$share/g/a", max_qos=TWO))
    await publish(publisher, "a", b"x", TWO)
    sent = await first.receive(PublishPacket)
    assert sent.packet_id is not None
    first.send(UnsubscribePacket(2, ["$share/g/a"]))
    await first.receive(UnsubAckPacket)
    second = await door.peer("second")
    await second.subscribe(TopicFilter("$share/g/a", max_qos=TWO))
    await publish(publisher, "a", b"y", TWO)
    assert (await receive(second)).payload == b"y"
    first.send(PubRecPacket(sent.packet_id))
    await first.receive(PubRelPacket)
    first.send(PubCompPacket(sent.packet_id))
    await nothing_more(first)
    await nothing_more(second)


async def test_the_last_member_that_goes_ends_the_group(door: Door) -> None:
    (member,) = await members(door, 1, ONE)
    table = door.parts.groups.table
    assert await table.keys("group.") != ()
    member.send(UnsubscribePacket(2, ["$share/g/a/#"]))
    await member.receive(UnsubAckPacket)
    async with asyncio.timeout(DEADLINE_S):
        while await table.keys("group."):
            await asyncio.sleep(0.005)
    await publish(await door.peer("p"), "a/x", b"nobody's")
    await member.subscribe(TopicFilter("$share/g/a/#", max_qos=ONE))
    await nothing_more(member)


async def test_a_clean_start_ends_the_membership_of_the_session_before(door: Door) -> None:
    member = await door.peer(connect=lasting("m", clean=True))
    await member.subscribe(TopicFilter("$share/g/a", max_qos=ONE))
    member.close()
    publisher = await door.peer("p")
    await publish(publisher, "a", b"not for the next")
    clean = await door.peer(connect=lasting("m", clean=True))
    table = door.parts.groups.table
    async with asyncio.timeout(DEADLINE_S):
        while await table.keys("group."):
            await asyncio.sleep(0.005)
    await clean.subscribe(TopicFilter("$share/g/a", max_qos=ONE))
    await publish(publisher, "a", b"for it")
    assert (await receive(clean)).payload == b"for it"


async def test_a_member_with_a_full_window_leaves_the_rest_to_others(door: Door) -> None:
    slow = await door.peer(connect=ConnectPacket("slow", receive_max=1))
    quick, publisher = await door.peer("quick"), await door.peer("p")
    for peer in (slow, quick):
        await peer.subscribe(TopicFilter("$share/g/a", max_qos=ONE))
    for number in range(6):
        await publish(publisher, "a", b"%d" % number)
    got = [(await receive(quick)).payload for _ in range(5)]
    held = await slow.receive(PublishPacket)
    assert sorted([*got, held.payload]) == [b"%d" % number for number in range(6)]
    await nothing_more(slow)


async def test_a_message_that_is_too_large_for_one_goes_to_another(door: Door) -> None:
    small = await door.peer(connect=ConnectPacket("small", max_packet_size=100))
    large, publisher = await door.peer("large"), await door.peer("p")
    for peer in (small, large):
        await peer.subscribe(TopicFilter("$share/g/a", max_qos=ONE))
    for _ in range(4):
        await publish(publisher, "a", b"x" * 200)
    for _ in range(4):
        assert len((await receive(large)).payload) == 200
    await nothing_more(small)


async def test_a_message_that_no_member_can_take_is_counted_and_skipped() -> None:
    async with Door(Limits()) as door:
        small = await door.peer(connect=ConnectPacket("small", max_packet_size=100))
        await small.subscribe(TopicFilter("$share/g/a", max_qos=ONE))
        publisher = await door.peer("p")
        await publish(publisher, "a", b"x" * 200)
        await publish(publisher, "a", b"y")
        assert (await receive(small)).payload == b"y"
        assert door.exchange.counts.dropped == 1


async def test_too_many_groups_and_too_many_members_are_refused_in_words() -> None:
    async with Door(Limits(groups_max=1, group_members_max=2)) as door:
        peers = [await door.peer(str(number)) for number in range(3)]
        for peer in peers[:2]:
            await peer.subscribe(TopicFilter("$share/g/a"))
        peers[2].send(SubscribePacket(1, [TopicFilter("b"), TopicFilter("$share/g/a")]))
        answer = await peers[2].receive(SubAckPacket)
        assert [int(code) for code in answer.reason_codes] == [2, 0x97]
        assert "at most 2" in (answer.reason_str or "")
        peers[2].send(SubscribePacket(2, [TopicFilter("$share/h/a")]))
        answer = await peers[2].receive(SubAckPacket)
        assert [int(code) for code in answer.reason_codes] == [0x97]
        assert "at most 1" in (answer.reason_str or "")
        publisher = await door.peer("p")
        publisher.send(*(PublishPacket("a", b"x") for _ in range(6)))
        for peer in peers[:2]:
            for _ in range(3):
                await peer.receive(PublishPacket)
        await nothing_more(peers[2])
        peers[0].close()
        async with asyncio.timeout(DEADLINE_S):
            while True:
                peers[2].send(SubscribePacket(3, [TopicFilter("$share/g/a")]))
                if int((await peers[2].first(SubAckPacket)).reason_codes[0]) == 2:
                    break


# ── two brokers ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_members_at_two_brokers_share(qos: QoS) -> None:
    server = MemoryServer()
    async with (
        Door(Limits(), store=MemoryStore(server), broker="one") as one,
        Door(Limits(), store=MemoryStore(server), broker="two") as two,
    ):
        peers = [await one.peer("a"), await one.peer("b"), await two.peer("c"), await two.peer("d")]
        for peer in peers:
            await peer.subscribe(TopicFilter("$share/g/a", max_qos=qos))
        publisher = await one.peer("p")
        for number in range(40):
            await publish(publisher, "a", b"%d" % number, qos)
        got = await gather(peers, 40)
        assert sorted(payload for _, payload in got) == sorted(b"%d" % number for number in range(40))
        assert {who for who, _ in got} == {0, 1, 2, 3}
        for number in range(4):
            mine = [int(payload) for who, payload in got if who == number]
            assert mine == sorted(mine), "each gets its share in order"


async def test_a_member_moves_to_another_broker_with_what_it_has() -> None:
    server = MemoryServer()
    async with (
        Door(Limits(), store=MemoryStore(server), broker="one") as one,
        Door(Limits(), store=MemoryStore(server), broker="two") as two,
    ):
        member = await one.peer(connect=lasting("m", clean=True))
        await member.subscribe(TopicFilter("$share/g/a", max_qos=TWO))
        publisher = await two.peer("p")
        await publish(publisher, "a", b"x", TWO)
        sent = await member.receive(PublishPacket)
        moved = await two.peer(connect=lasting("m"), accepted=False)
        assert (await moved.receive(ConnAckPacket)).session_present
        repeat = await receive(moved)
        assert (repeat.payload, repeat.packet_id, repeat.duplicate) == (b"x", sent.packet_id, True)
        await publish(publisher, "a", b"y", TWO)
        assert (await receive(moved)).payload == b"y"
        await nothing_more(moved)


async def test_who_wants_no_reasons_gets_none_with_a_refusal() -> None:
    async with Door(Limits(groups_max=1)) as door:
        peer = await door.peer(connect=ConnectPacket("c", request_problem_info=False))
        peer.send(SubscribePacket(1, [TopicFilter("$share/g/a"), TopicFilter("$share/h/a")]))
        answer = await peer.receive(SubAckPacket)
        assert ([int(code) for code in answer.reason_codes], answer.reason_str) == ([2, 0x97], None)


async def test_a_client_that_pipelines_its_requests_gets_every_answer(door: Door) -> None:
    peer = await door.peer(connect=lasting("c", clean=True))
    subscribe = SubscribePacket(1, [TopicFilter("$share/g/a", max_qos=ONE)])
    unsubscribe = UnsubscribePacket(2, ["$share/g/a"])
    peer.send(subscribe, unsubscribe, SubscribePacket(3, [TopicFilter("$share/g/a", max_qos=ONE)]))
    answers = {(await peer.first(SubAckPacket)).packet_id for _ in range(2)}
    assert answers == {1, 3}
    assert (await peer.first(UnsubAckPacket)).packet_id == 2
    publisher = await door.peer("p")
    await publish(publisher, "a", b"x")
    assert (await receive(peer)).payload == b"x"


async def test_who_unsubscribes_at_once_is_no_member(door: Door) -> None:
    peer = await door.peer(connect=lasting("c", clean=True))
    peer.send(SubscribePacket(1, [TopicFilter("$share/g/a")]), UnsubscribePacket(2, ["$share/g/a"]))
    await peer.first(SubAckPacket)
    await peer.first(UnsubAckPacket)
    groups = door.parts.groups
    assert (len(groups), await groups.table.keys("group.")) == (0, ())

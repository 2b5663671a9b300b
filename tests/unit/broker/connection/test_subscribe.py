"""SUBACK on real sockets: one for all kinds of filters, when everything that it says is so."""

from __future__ import annotations

import asyncio

import pytest
from mqtt5 import (
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tests.unit.broker.harness import Door, Peer, until
from tests.unit.broker.talk import lasting, nothing_more, publish, receive, retained
from tocsin.broker.connection.connection import Connection
from tocsin.broker.retained.table import Retained
from tocsin.core.delivery.stored_session import StoredSession, encode_session, kept_s, session_key
from tocsin.core.forwarding.table import Subscription
from tocsin.errors import StoreUnavailable
from tocsin.model.publication import Publication, encode_publication
from tocsin.model.subjects import subject_of
from tocsin.ports import Record

UNANSWERED = "$query/kind = 'lamp'"  # nobody answers: there is no coordinator


def ask(peer: Peer, packet_id: int, *names: str) -> None:
    peer.send(SubscribePacket(packet_id, [TopicFilter(name) for name in names]))


async def codes(peer: Peer, packet_id: int) -> list[int]:
    answer = await peer.receive(SubAckPacket)
    assert answer.packet_id == packet_id
    return [int(code) for code in answer.reason_codes]


async def test_one_suback_answers_every_kind_in_its_place(door: Door) -> None:
    publisher = await door.peer("p")
    publisher.send(retained("a", b"kept"))
    await publisher.next()
    peer = await door.peer("c")
    ask(peer, 7, "$channel/Nothing", "a", "$share/g/b", "$query/kind =", UNANSWERED)
    assert await codes(peer, 7) == [0x8F, 2, 2, 0x8F, 2]
    assert (await receive(peer)).payload == b"kept", "retained messages come after SUBACK"
    await publish(publisher, "b", b"shared")
    assert (await receive(peer)).payload == b"shared"


async def test_plain_filters_of_a_clean_client_are_answered_without_a_task(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, other = await door.peer("c"), await door.peer("other")
    ask(other, 1, "a", "b/#")
    assert await codes(other, 1) == [2, 2], "the log is read for them now"
    monkeypatch.setattr(Connection, "spawn", lambda self, work: pytest.fail("a task was made"))
    ask(peer, 1, "a", "b/#")
    assert await codes(peer, 1) == [2, 2]
    peer.send(UnsubscribePacket(2, ["a"]))
    assert (await peer.receive(UnsubAckPacket)).packet_id == 2


async def test_who_goes_while_its_suback_waits_leaves_no_task(door: Door) -> None:
    peer = await door.peer("c")
    ask(peer, 1, UNANSWERED, "$share/g/a")
    connection = door.listener._clients["c"]
    await until(lambda: len(connection._shell._tasks or ()) == 1)
    peer.close()
    await until(lambda: not connection._shell._tasks and "c" not in door.listener._clients)


async def test_a_filter_that_waits_does_not_hold_up_the_next_subscribe(door: Door) -> None:
    peer = await door.peer("c")
    ask(peer, 1, UNANSWERED)
    ask(peer, 2, "a")
    assert await codes(peer, 2) == [2]
    assert await codes(peer, 1) == [2], "after a while, though nobody answered"


async def test_an_unsuback_never_overtakes_the_suback_before_it(door: Door) -> None:
    peer = await door.peer("c", connect=lasting("c"))
    for number in range(1, 9, 2):
        ask(peer, number, "a")
        peer.send(UnsubscribePacket(number + 1, ["a"]))
    for number in range(1, 9, 2):
        assert await codes(peer, number) == [2]
        assert (await peer.receive(UnsubAckPacket)).packet_id == number + 1


async def test_who_unsubscribes_from_a_group_meanwhile_does_not_become_a_member(door: Door) -> None:
    peer = await door.peer("c", connect=lasting("c"))
    ask(peer, 1, "$share/g/a")
    peer.send(UnsubscribePacket(2, ["$share/g/a"]))
    await peer.first(SubAckPacket)
    await peer.first(UnsubAckPacket)
    publisher = await door.peer("p")
    await publish(publisher, "a", b"x")
    await nothing_more(peer)


async def test_a_client_whose_suback_fails_is_cut_off_and_can_come_again(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable() -> None:
        raise StoreUnavailable("join", "it is gone")

    peer = await door.peer("c")
    monkeypatch.setattr(door.parts.groups, "write_incarnation", unreachable)
    ask(peer, 1, "$share/g/a")
    assert await peer.closed()


async def test_an_unreadable_stored_query_does_not_cost_the_client_its_other_subscriptions(
    door: Door,
) -> None:
    """Another version of ours may have stored it."""
    subscriptions = {"$query/kind ??": Subscription(qos=1), "a": Subscription(qos=1)}
    session = StoredSession("c", "uid", 1_000, subscriptions=subscriptions)
    table = door.parts.sessions.table
    await table.put(session_key("c"), encode_session(session), ttl_s=kept_s(session))
    publisher = await door.peer("p")
    await publish(publisher, "a", b"missed")
    async with asyncio.timeout(10):
        peer = await door.peer("c", connect=lasting("c"))
        got = await receive(peer)
    assert (got.topic, got.payload) == ("a", b"missed")
    assert isinstance(got, PublishPacket)


async def test_who_subscribes_again_after_a_return_does_not_begin_anew(door: Door) -> None:
    """The log is not read for it any more: its answer waits for that, and what it was to get is not lost."""
    peer = await door.peer("c", connect=lasting("c"))
    peer.send(SubscribePacket(1, [TopicFilter("a", max_qos=QoS.AT_MOST_ONCE)]))
    assert await codes(peer, 1) == [0]
    since = door.listener._clients["c"].delivery.subscriptions["a"].since
    peer.close()
    await until(lambda: "c" not in door.listener._clients)
    publisher = await door.peer("p")
    await publish(publisher, "b", b"x")
    message_log = door.parts.message_log
    message_log.reading.filters = ()
    message_log.reading._known.clear()
    peer = await door.peer("c", connect=lasting("c"))
    ask(peer, 2, "a")
    assert await codes(peer, 2) == [2]
    assert door.listener._clients["c"].delivery.subscriptions["a"].since == since


async def test_a_message_that_is_retained_late_reaches_who_subscribed_before(door: Door) -> None:
    """It is in the log before the subscription, and in the table only after it: its topic was not read in between."""
    log = door.parts.message_log._log
    late = Publication("t", b"late", 1, "p", retain=True)
    await door.peer("p")
    (position,) = await log.append([Record(subject_of("t", "net"), encode_publication(late), "late")])
    peer = await door.peer("c")
    ask(peer, 1, "t")
    assert await codes(peer, 1) == [2]
    since = door.listener._clients["c"].delivery.subscriptions["t"].since
    assert since >= position
    await Retained(door.parts._stored.retained, 100).put(late, position, "")
    found = await receive(peer)
    assert (found.payload, found.retain) == (b"late", True)
    await nothing_more(peer)

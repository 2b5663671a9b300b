"""What one client publishes: streams are made, bounded and told; everything else keeps its place in the line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.machine import Effect, Event, IllegalEvent
from tocsin.core.streams import machine as module
from tocsin.core.streams import publish_gate
from tocsin.core.streams.machine import CHANGE_BYTES, ChangeNumbers, ClientStreams, MetadataTooLarge
from tocsin.core.streams.metadata import StreamMetadata
from tocsin.core.streams.metadata_payload import DescriptionInvalid
from tocsin.core.streams.signals import (
    Cleared,
    ClientLeft,
    CountUnregistered,
    DeclareStream,
    HoldClient,
    MessageSettled,
    MessageTaken,
    MetadataTaken,
    PassOn,
    RefuseItem,
    Register,
    SessionResumed,
    TellBack,
    TellGone,
    WillTaken,
)
from tocsin.model.stream import Diff

QUOTA_EXCEEDED = 0x97
LAMP = {"kind": "lamp"}


class Publishing:
    """The machine of one client, and what its broker knows."""

    def __init__(self, streams_max: int = 3) -> None:
        self.metadata, self.tickets = StreamMetadata(), ChangeNumbers()
        self.machine = ClientStreams(
            self.metadata, self.tickets, streams_max=streams_max, metadata_max_bytes=100
        )

    def tell(self, event: Event) -> list[Effect]:
        return self.machine.handle(event, 0)

    def take(self, item: str, topic: str, diff: Diff | None = None, *, commits: bool = False) -> list[Effect]:
        return self.tell(MessageTaken(item=item, topic=topic, diff=diff, size=10, commits=commits))

    def known(self, topic: str) -> None:
        """Have a stream that everybody knows."""
        self.take("first", topic)
        self.tell(Cleared(ticket=self.tickets.last))
        assert topic in self.machine.gate.ready


def test_a_first_message_declares_its_stream_and_waits_for_the_network() -> None:
    one = Publishing()
    assert one.take("m", "a") == [
        Register(topic="a"),
        DeclareStream(ticket=1, topic="a", diff={}, publishes=True),
    ]
    assert "a" not in one.machine.gate.ready and len(one.machine) == 1
    assert one.tell(Cleared(ticket=1)) == [PassOn(items=["m"])]
    assert "a" in one.machine.gate.ready and len(one.machine) == 0


def test_beyond_its_streams_a_client_is_heard_but_not_found() -> None:
    one = Publishing(streams_max=1)
    one.known("a")
    assert one.take("m", "b") == [CountUnregistered(), PassOn(items=["m"])]
    assert one.take("n", "b", LAMP) == [
        RefuseItem(item="n", reason_code=QUOTA_EXCEEDED, problem="b is one stream too many to be described")
    ]
    assert one.take("o", "a", LAMP) == [DeclareStream(ticket=2, topic="a", diff=LAMP, publishes=True)]


def test_no_stream_is_made_while_too_much_waits_for_a_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSETTLED_MAX", 1)
    one = Publishing()
    one.take("m", "a")
    assert one.take("n", "b") == [CountUnregistered()], "and keeps its place behind the first"
    (refused,) = one.tell(MetadataTaken(item="s", topic="c", diff=LAMP))
    assert isinstance(refused, RefuseItem) and "no coordinator answers" in refused.problem
    assert one.tell(Cleared(ticket=1)) == [PassOn(items=["m", "n"])]
    one.tickets.settle(1)
    assert one.take("o", "b")[0] == Register(topic="b")


def test_metadata_is_declared_without_a_stream_and_bounded_like_streams() -> None:
    one = Publishing(streams_max=2)
    one.known("a")
    assert one.tell(MetadataTaken(item="s", topic="x", diff=LAMP)) == [
        DeclareStream(ticket=2, topic="x", diff=LAMP, publishes=False, item="s")
    ]
    one.tell(Cleared(ticket=2))
    (refused,) = one.tell(MetadataTaken(item="t", topic="y", diff=LAMP))
    assert refused == RefuseItem(
        item="t", reason_code=QUOTA_EXCEEDED, problem="a client may describe 2 streams"
    )
    for topic, diff in (("x", LAMP), ("a", LAMP), ("y", None), ("y", {})):
        said: list[Effect] = one.tell(MetadataTaken(item="u", topic=topic, diff=diff))
        assert isinstance(said[0], DeclareStream), (topic, diff)
        one.tell(Cleared(ticket=one.tickets.last))


def test_a_described_topic_counts_once_when_it_becomes_a_stream() -> None:
    one = Publishing(streams_max=2)
    one.tell(MetadataTaken(item="s", topic="x", diff=LAMP))
    one.tell(Cleared(ticket=1))
    one.known("x")
    assert isinstance(one.tell(MetadataTaken(item="t", topic="y", diff=LAMP))[0], DeclareStream)


def test_invalid_or_oversized_metadata_is_refused_before_anything_is_kept() -> None:
    one = Publishing()
    assert one.machine.read("a", [("other", "x")]) is None
    assert one.machine.read("a", [("meta.kind", "lamp")]) == LAMP
    assert one.machine.read_metadata("a", b"") is None
    with pytest.raises(DescriptionInvalid) as invalid:
        one.machine.read_metadata("a", b"[1]")
    with pytest.raises(MetadataTooLarge) as large:
        one.machine.read("a", [("meta.kind", "x" * 200)])
    assert (invalid.value.reason_code, large.value.reason_code) == (0x99, QUOTA_EXCEEDED)
    assert len(one.machine) == 0 and one.tickets.last == 0


def test_the_client_is_not_read_while_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_gate, "HELD_MAX", 2)
    one = Publishing()
    one.take("m", "a")
    assert one.take("n", "a") == [HoldClient(waits=True)]
    assert one.tell(Cleared(ticket=1)) == [PassOn(items=["m", "n"]), HoldClient(waits=False)]


def test_the_coordinator_hears_that_a_client_left_when_all_is_durable() -> None:
    one = Publishing()
    one.take("m", "a", commits=True)
    assert one.tell(ClientLeft()) == []
    assert one.tell(WillTaken(item="will", size=1)) == []
    assert one.tell(Cleared(ticket=1)) == [PassOn(items=["m"])]
    assert one.tell(MessageSettled()) == [PassOn(items=["will"]), TellGone(topics=frozenset({"a"}))]
    with pytest.raises(IllegalEvent):
        one.take("late", "a")


def test_of_a_client_that_made_no_stream_the_coordinator_hears_nothing() -> None:
    one = Publishing()
    assert one.tell(WillTaken(item="will", size=1)) == [PassOn(items=["will"])]
    assert one.tell(ClientLeft()) == []


def test_a_client_that_resumed_its_session_is_known_if_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Publishing()
    assert one.tell(SessionResumed()) == [TellBack()]
    assert one.tell(ClientLeft()) == [TellGone(topics=frozenset())]
    monkeypatch.setattr(module, "UNSETTLED_MAX", 0)
    other = Publishing()
    assert other.tell(SessionResumed()) == [] and other.tell(ClientLeft()) == []


steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from("abcd"), st.sampled_from([None, LAMP, {}]), st.booleans()),
        st.tuples(st.just("say"), st.sampled_from("abcd"), st.sampled_from([None, LAMP])),
        st.tuples(st.just("clear")),
        st.tuples(st.just("settle")),
    ),
    max_size=30,
)


@given(steps)
def test_everything_comes_back_once_and_in_order(history: list[tuple[Any, ...]]) -> None:
    one = Publishing(streams_max=2)
    given_in: list[int] = []
    passed: list[int] = []
    refused: set[int] = set()
    declared: set[int] = set()
    durable: set[int] = set()
    under_way = 0

    def note(effects: list[Effect]) -> None:
        nonlocal under_way
        for effect in effects:
            match effect:
                case PassOn(items=items):
                    passed.extend(items)
                    under_way += sum(item in durable for item in items)
                case RefuseItem(item=item):
                    refused.add(item)
                case DeclareStream(item=int() as item):
                    declared.add(item)

    for number, step in enumerate(history):
        match step:
            case ("take", topic, diff, commits):
                given_in.append(number)
                if commits:
                    durable.add(number)
                note(one.tell(MessageTaken(item=number, topic=topic, diff=diff, size=1, commits=commits)))
            case ("say", topic, diff):
                given_in.append(number)
                note(one.tell(MetadataTaken(item=number, topic=topic, diff=diff)))
            case ("clear",):
                note(one.tell(Cleared(ticket=one.tickets.last)))
            case ("settle",) if under_way:
                under_way -= 1
                note(one.tell(MessageSettled()))
    note(one.tell(ClientLeft()))
    for _ in range(2 * len(history) + 2):
        note(one.tell(Cleared(ticket=one.tickets.last)))
        while under_way:
            under_way -= 1
            note(one.tell(MessageSettled()))
    assert passed == sorted(passed) and len(one.machine) == 0
    assert sorted([*passed, *refused, *declared]) == given_in


def test_tickets_grow_and_what_is_settled_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSETTLED_MAX", 2)
    tickets = ChangeNumbers()
    assert [tickets.next(), tickets.room, tickets.next(), tickets.room] == [1, True, 2, False]
    tickets.settle(1)
    assert tickets.room
    tickets.settle(0)
    assert tickets.settled == 1, "a late word changes nothing"


def test_the_bytes_of_what_waits_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSETTLED_MAX_BYTES", 2 * CHANGE_BYTES)
    tickets = ChangeNumbers()
    found = []
    for diff in (None, {"kind": "x" * CHANGE_BYTES}):
        tickets.declared(tickets.next(), "a", diff)
        found.append(tickets.room)
    for ticket in (1, 2):
        tickets.settle(ticket)
        found.append(tickets.room)
    assert found == [True, False, False, True], "the second alone is too much"

"""Stories in words that are the same in every process."""

from __future__ import annotations

from enum import Enum

import pytest

from tocsin.core import machine as kernel
from tocsin.core.machine import Effect, Event
from tocsin.errors import StoreUnavailable
from tocsin.model.network import Message
from tocsin.ports import Cell, Change, Entry, Page, Record
from tocsin.sim.runs.transcript import TEXT_MAX, Line, Transcript, describe, describe_effect, describe_event


class Colour(Enum):
    RED = "red"


class Ping(Message, frozen=True):
    text: str


ENTRY = Entry(3, "log.x", b"pay", "id", 0)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (kernel.Started(incarnation=255), "starts as ff"),
        (kernel.Received(sender="a", message=Ping("hi")), "hears Ping(text=hi) from a"),
        (kernel.TimerFired(name="t"), "timer t"),
        (kernel.Stored(request="r", value=(1, 2)), "r is done: [1, 2]"),
        (kernel.StoreFailed(request="r", error=StoreUnavailable("x", "y")), "r failed: StoreUnavailable"),
        (kernel.Followed(log="l", entry=ENTRY), "follows l: 3 id pay"),
        (kernel.Watched(table="t", change=Change("put", "k", b"v", 4)), "watches t: put k = v @4"),
        (kernel.Watched(table="t", change=Change("reset")), "watches t: reset"),
        (Event(cause="c"), "Event()"),
    ],
)
def test_an_event_has_words(event: Event, words: str) -> None:
    assert describe_event(event) == words


@pytest.mark.parametrize(
    ("effect", "words"),
    [
        (kernel.Send(to="b", message=Ping("hi")), "tells b Ping(text=hi)"),
        (
            kernel.Append(request="r", log="l", records=(Record("l.x", b"p", "i"),), expected=4),
            "asks r: append [i p] to l expecting 4",
        ),
        (
            kernel.ReadLog(request="r", log="l", subject=">", start=2, limit=9),
            "asks r: read l > from 2",
        ),
        (kernel.GetKey(request="r", table="t", key="k"), "asks r: get k of t"),
        (kernel.PutKey(request="r", table="t", key="k", value=b"v"), "asks r: put k = v in t"),
        (
            kernel.PutKey(request="r", table="t", key="k", value=b"v", revision=0),
            "asks r: put k = v in t expecting @0",
        ),
        (kernel.DeleteKey(request="r", table="t", key="k"), "asks r: delete k of t"),
        (kernel.FollowLog(log="l", subject=">", start=2), "asks to follow l from 2"),
        (kernel.WatchTable(table="t"), "asks to watch t"),
        (kernel.Say(text="hello", facts={"n": 1}), "says: hello n=1"),
        (kernel.Say(text="hello"), "says: hello"),
        (kernel.Stop(reason="done"), "stops: done"),
        (Effect(), "Effect()"),
    ],
)
def test_an_effect_has_words(effect: Effect, words: str) -> None:
    assert describe_effect(effect) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (frozenset({"b", "a", "c"}), "{a, b, c}"),
        (b"\xff\x00", "0xff00"),
        (b"\xff" * 30, "0x" + "ff" * 24 + "…"),
        (b"line\n", "'line\\n'"),
        (Colour.RED, "red"),
        ({"a": (1, None)}, "{a: [1, None]}"),
        (ValueError("x"), "ValueError: x"),
        (object(), "object"),
        (Page((ENTRY,), 4, 9), "1 entries up to 3 of 9"),
        (Cell("k", b"v", 2), "v @2"),
        ("x" * 500, "x" * (TEXT_MAX - 1) + "…"),
    ],
)
def test_a_value_has_words_without_identities(value: object, words: str) -> None:
    assert describe(value) == words


def test_a_line_shows_seconds_who_what_and_cause() -> None:
    assert str(Line(1_002_003, "a", "does", "c")) == "   1.002003 a              does  [c]"
    assert str(Line(0, "a", "does")) == "   0.000000 a              does"


def test_setting_timers_is_not_told() -> None:
    transcript = Transcript()
    transcript.effect(0, "a", kernel.SetTimer(name="t", delay_us=1))
    transcript.effect(0, "a", kernel.CancelTimer(name="t"))
    transcript.effect(0, "a", kernel.Say(text="hello"))
    assert [line.text for line in transcript] == ["  says: hello"]
    assert transcript.text() == "   0.000000 a                says: hello\n"


def test_the_last_lines_are_the_newest() -> None:
    transcript = Transcript()
    for number in range(5):
        transcript.add(number, "a", str(number))
    assert [line.text for line in transcript.last(2)] == ["3", "4"]
    assert transcript.last(0) == []
    assert (len(transcript), transcript.told) == (5, 5)

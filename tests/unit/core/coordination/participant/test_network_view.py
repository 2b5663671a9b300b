"""What a broker knows from its notices and from messages, and what of it its subscribers hear."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.coordination.histories import HUB, NORTH, SOUTH
from tocsin.core.coordination.participant.network_view import TOPICS_MAX, MessageEvidence, NetworkView
from tocsin.core.coordination.participant.signals import (
    QuerySetKnown,
    RoutesChanged,
    StreamChanged,
    StreamJoined,
    StreamLeft,
    StreamsDescribed,
)
from tocsin.core.machine import Effect
from tocsin.model.network import Route, Scope
from tocsin.model.stream import Metadata, Value
from tocsin.query import parse
from tocsin.wire.internal.notices import Changed, Described, Item, Joined, Left, QuerySet, Routes

QUERIES = {"q": "kind = 'lamp'"}
ONE: dict[str, Value] = {"kind": "lamp", "n": 1}
TWO: dict[str, Value] = {"kind": "lamp", "n": 2}
TO_SOUTH = Route(Scope.ORIGIN, "south", "a")
TO_HUB = Route(Scope.ORIGIN, "hub", "b")
TEXTS = {"lamps": "kind = 'lamp'", "~lamps": "kind = 'lamp'", "one": "n = 1", "not one": "NOT n = 1"}
NONE: dict[str, dict[str, None]] = {query: {} for query in TEXTS}
LAMP: dict[str, Value] = {"kind": "lamp"}


def hears(picture: NetworkView, *items: Item, fresh: bool = False) -> list[Effect]:
    return picture.apply(items, QUERIES, fresh=fresh)


def turns(effects: list[Effect]) -> list[tuple[str, str, Metadata]]:
    names = {StreamJoined: "joined", StreamChanged: "changed", StreamLeft: "left"}
    return [
        (names[type(each)], each.topic, each.metadata)
        for each in effects
        if isinstance(each, StreamJoined | StreamChanged | StreamLeft)
    ]


def test_the_first_answer_is_the_set_and_then_come_the_changes() -> None:
    picture = NetworkView()
    assert hears(picture, QuerySet("q", (("a", ONE),))) == [QuerySetKnown(query="q", streams={"a": ONE})]
    heard = hears(picture, Joined("q", "b", ONE), Changed("q", "b", TWO), Left("q", "a", ONE, 0))
    assert turns(heard) == [("joined", "b", ONE), ("changed", "b", TWO), ("left", "a", ONE)]
    assert picture.sets == {"q": {"b": TWO}}


def test_a_set_in_several_items_is_one_answer() -> None:
    heard = hears(NetworkView(), QuerySet("q", (("a", ONE),), more=True), QuerySet("q", (("b", TWO),)))
    assert heard == [QuerySetKnown(query="q", streams={"a": ONE, "b": TWO})]


def test_a_set_that_is_told_again_tells_only_what_differs() -> None:
    picture = NetworkView()
    hears(picture, QuerySet("q", (("a", ONE), ("b", ONE), ("c", ONE))))
    heard = hears(picture, Routes(()), QuerySet("q", (("b", ONE), ("c", TWO), ("d", ONE))), fresh=True)
    assert turns(heard) == [("left", "a", ONE), ("changed", "c", TWO), ("joined", "d", ONE)]


def test_joined_and_left_take_turns_whatever_comes() -> None:
    picture = NetworkView()
    hears(picture, QuerySet("q", ()))
    heard = hears(picture, Left("q", "a", ONE, 0), Joined("q", "a", ONE), Joined("q", "a", ONE))
    assert turns(heard) == [("joined", "a", ONE)]


def test_what_nobody_asks_or_was_not_answered_yet_is_ignored() -> None:
    picture = NetworkView()
    assert hears(picture, Joined("q", "a", ONE), QuerySet("other", (("a", ONE),))) == []
    hears(picture, QuerySet("q", (("a", ONE),)))
    picture.forget("q")
    assert hears(picture, Left("q", "a", ONE, 0)) == []


def test_routes_come_and_go_with_their_peers() -> None:
    picture = NetworkView()
    assert hears(picture, Routes((TO_SOUTH,), (), (SOUTH,))) == [
        RoutesChanged(added=(TO_SOUTH,), removed=(), peers=(SOUTH,))
    ]
    assert hears(picture, Routes((TO_HUB,), (TO_SOUTH,), (HUB,))) == [
        RoutesChanged(added=(TO_HUB,), removed=(TO_SOUTH,), peers=(HUB,))
    ]
    assert hears(picture, Routes((TO_SOUTH,), (), (SOUTH,)), Routes((), (TO_SOUTH,))) == []


def test_a_fresh_notice_replaces_all_routes() -> None:
    picture = NetworkView()
    hears(picture, Routes((TO_SOUTH, TO_HUB), (), (SOUTH, HUB)))
    assert hears(picture, Routes((TO_HUB,), (), (HUB,)), fresh=True) == [
        RoutesChanged(added=(), removed=(TO_SOUTH,), peers=(HUB,))
    ]


def test_a_peer_that_moved_changes_the_links_though_no_route_does() -> None:
    picture = NetworkView()
    hears(picture, Routes((TO_SOUTH,), (), (SOUTH,)))
    moved = type(NORTH)("south", "s", SOUTH.role, "10.0.0.9", 9)
    assert hears(picture, Routes((), (), (moved,))) == [RoutesChanged(added=(), removed=(), peers=(moved,))]


def test_what_is_said_of_streams_that_are_published_here_is_passed_on() -> None:
    picture = NetworkView()
    assert hears(picture, Routes(()), fresh=True) == [], "nothing ever was"
    (told,) = hears(
        picture, Described("a", {"kind": "lamp"}), Described("b", {}), Described("a", {"room": 1})
    )
    assert told == StreamsDescribed(streams={"a": {"room": 1}, "b": {}}, whole=False)
    (all_of_it,) = hears(picture, fresh=True)
    assert all_of_it == StreamsDescribed(streams={}, whole=True)


def test_a_stream_is_found_for_each_query_that_lacks_it() -> None:
    evidence = MessageEvidence()
    assert evidence.find("a", {"kind": "lamp", "n": 1}, NONE, TEXTS) == ["lamps", "~lamps", "one"]
    known = {**NONE, "lamps": {"b": None}}
    assert evidence.find("b", {"kind": "lamp", "n": 1}, known, TEXTS) == ["~lamps", "one"]
    assert evidence.find("c", LAMP, {"one": {}}, TEXTS) == [], "others are not answered"


def test_a_stream_is_judged_again_when_its_metadata_change() -> None:
    evidence = MessageEvidence()
    assert evidence.find("a", LAMP, NONE, TEXTS) == ["lamps", "~lamps"]
    assert evidence.find("a", dict(LAMP), NONE, TEXTS) == [], "all that it satisfies was told"
    assert evidence.find("a", {"n": 1}, NONE, TEXTS) == ["one"]
    assert evidence.find("a", LAMP, NONE, TEXTS) == ["lamps", "~lamps"]


def test_what_is_remembered_is_bounded_and_the_oldest_goes() -> None:
    evidence = MessageEvidence()
    for number in range(TOPICS_MAX + 1):
        evidence.find(f"{number}", LAMP, NONE, TEXTS)
    assert len(evidence._judged) == TOPICS_MAX
    assert evidence.find(f"{TOPICS_MAX}", LAMP, NONE, TEXTS) == []
    assert evidence.find("0", LAMP, NONE, TEXTS) == ["lamps", "~lamps"]


said = st.fixed_dictionaries({}, optional={"kind": st.sampled_from(["lamp", "door"]), "n": st.integers(1, 2)})


@given(st.lists(st.tuples(st.sampled_from("abc"), said), max_size=30))
def test_a_stream_ends_up_in_every_query_that_its_messages_satisfy(
    story: list[tuple[str, dict[str, Value]]],
) -> None:
    evidence = MessageEvidence()
    sets: dict[str, dict[str, None]] = {query: {} for query in TEXTS}
    for topic, metadata in story:
        for query in evidence.find(topic, metadata, sets, TEXTS):
            assert topic not in sets[query] and parse(TEXTS[query]).matches(metadata)
            sets[query][topic] = None
        for query, text in TEXTS.items():
            assert topic in sets[query] or not parse(text).matches(metadata)

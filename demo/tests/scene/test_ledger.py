"""What is known of subscribers, held against a replay of everything that happened."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tocsin_demo.scene.account import Result
from tocsin_demo.scene.ledger import Ledger, Passage, Presence

HOMES = ("north-1", "north-1", "south-1")
SERVERS = {"h:1": "north-1", "h:2": "north-2", "h:3": "south-1"}
MOVES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.sampled_from((None, "h:1", "h:2", "h:3"))),
    max_size=30,
)
RESULT = Result(1, 1, 3)


def ledger() -> Ledger:
    return Ledger(HOMES, SERVERS)


@given(MOVES, st.integers(-1, 31))
def test_where_everybody_is_and_was_follows_from_the_moves(
    moves: list[tuple[int, int, str | None]], at_s: int
) -> None:
    moves = sorted(moves, key=lambda move: move[1])
    found, now, then = ledger(), dict[int, str | None](), dict[int, str | None]()
    for subscriber, when_s, server in moves:
        found.moved(subscriber, when_s, server)
        where = None if server is None else SERVERS[server]
        now[subscriber] = where
        if when_s <= at_s:
            then[subscriber] = where
    assert [found.where(each) for each in range(3)] == [now.get(each) for each in range(3)]
    assert [found.where_at(each, at_s) for each in range(3)] == [then.get(each) for each in range(3)]
    at = Counter(where for where in now.values() if where is not None)
    shown = found.presence()
    assert {name: each.at_home + each.guests for name, each in shown.items() if each != Presence(0, 0)} == at
    at_home = sum(now.get(each) == home for each, home in enumerate(HOMES))
    assert sum(each.at_home for each in shown.values()) == at_home
    assert found.away == sum(now.get(each) is None for each in range(3))
    assert found.abroad == 3 - found.away - at_home
    assert found.at(["north-1", "south-1"], at_s) == tuple(
        each for each in range(3) if then.get(each) in ("north-1", "south-1")
    )


def test_homes_are_shown_also_if_nobody_is_there() -> None:
    found = ledger()
    found.moved(0, 1.0, "h:2")
    assert found.presence() == {
        "north-1": Presence(0, 0),
        "south-1": Presence(0, 0),
        "north-2": Presence(0, 1),
    }


def test_a_server_outside_the_scene_is_shown_by_its_address() -> None:
    found = ledger()
    found.moved(0, 1.0, "elsewhere:9")
    assert found.where(0) == "elsewhere:9"


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 20)), max_size=30), st.integers(5, 25))
def test_notifications_are_counted_by_whole_seconds(got: list[tuple[int, float]], now_s: int) -> None:
    found = ledger()
    for subscriber, at_s in got:
        found.got(subscriber, at_s, RESULT)
    lately = [at_s for _, at_s in got if now_s - 5 <= int(at_s) < now_s]
    assert found.rate(now_s + 0.9) == len(lately) / 5
    assert sum(found.per_second(now_s - 5, now_s)) == len(lately)
    assert found.received == len(got)


def test_a_passage_records_the_break_the_return_and_the_next_notification() -> None:
    found = ledger()
    found.moved(0, 1.0, "h:1")
    found.got(0, 2.0, RESULT)
    assert found.passage(0, 5.0) == Passage(0, "north-1", None, None, None, None)
    found.moved(0, 5.1, None)
    assert found.passage(0, 5.0) == Passage(0, "north-1", 5.1, None, None, None)
    found.moved(0, 5.2, None)  # a try that failed
    found.moved(0, 5.4, "h:2")
    assert found.passage(0, 5.0) == Passage(0, "north-1", 5.1, 5.4, "north-2", None)
    found.got(0, 6.0, RESULT)
    found.got(0, 7.0, RESULT)
    found.moved(0, 8.0, None)
    found.moved(0, 8.1, "h:1")
    assert found.passage(0, 5.0) == Passage(0, "north-1", 5.1, 5.4, "north-2", 6.0)
    assert found.arrivals(0) == [(2.0, RESULT), (6.0, RESULT), (7.0, RESULT)]
    assert found.results(0) == [RESULT] * 3


def test_who_is_not_meant_to_be_there_is_not_away() -> None:
    found = ledger()
    assert found.away == 3
    found.absent = {0, 1}
    assert found.away == 1
    found.moved(2, 1.0, "h:3")
    assert found.away == 0 and found.abroad == 0

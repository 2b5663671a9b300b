"""What V-B's publishers say, its subscribers ask, and what has to be heard."""

from __future__ import annotations

from tocsin.query import parse
from tocsin_labs.cqbs.changes import MARK, Change, changes, differing, expected, queries


def test_no_two_subscribers_ask_the_same() -> None:
    assert len({query.id for query in queries(500)}) == 500


def test_a_few_queries_are_asked_by_all_subscribers() -> None:
    asked = queries(500, 10)
    assert len(asked) == 500 and asked == queries(500, 10)
    assert sorted({query.id for query in asked}) == sorted(query.id for query in queries(10))


def test_one_publisher_in_ten_satisfies_a_query_also_after_they_changed() -> None:
    _, sets = expected(queries(500), changes(1_000, 1_000, seed=3))
    assert all(50 < len(streams) < 160 for streams in sets)
    assert 95 < sum(map(len, sets)) / len(sets) < 105


def test_each_publisher_comes_once_and_then_changes_in_turns() -> None:
    said = changes(20, 45, seed=1)
    assert [change.mark for change in said] == list(range(1, 66))
    assert all(change.metadata[MARK] == change.mark for change in said)
    topics = [change.topic for change in said]
    everybody = set(topics[:20])
    assert len(everybody) == 20
    assert set(topics[20:40]) == set(topics[40:60]) == everybody
    assert len(set(topics[60:])) == 5


def test_the_same_seed_gives_the_same_changes() -> None:
    assert changes(5, 5, seed=7) == changes(5, 5, seed=7)
    assert changes(5, 5, seed=7) != changes(5, 5, seed=8)


def test_subscribers_are_due_what_joined_changed_and_left() -> None:
    asked = [parse('Room = "1"'), parse('Room = "2"')]
    said = [
        Change(1, "lamp", {"Room": "1"}),
        Change(2, "lamp", {"Room": "1", "Lit": 1}),
        Change(3, "lamp", {"Room": "2"}),
        Change(4, "bell", {"Room": "2"}),
    ]
    notices, sets = expected(asked, said)
    assert notices == {
        (1, 0, "joined"),
        (2, 0, "changed"),
        (3, 0, "left"),
        (3, 1, "joined"),
        (4, 1, "joined"),
    }
    assert sets == [set(), {"lamp", "bell"}]


def test_a_missing_surplus_or_unknown_stream_makes_the_sets_differ() -> None:
    want = [{"a"}, {"a"}, {"a"}, {"a"}]
    assert differing(want, [{"a": {}}, {}, {"a": {}, "b": {}}, None]) == 3

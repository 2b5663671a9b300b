"""The index of standing queries against asking every query."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.query.standing import METADATA, QUERIES, Asked, changed, metadata, text
from tocsin.query import Metadata, Query, QueryIndex, StreamIndex, parse
from tocsin.query.index import bag, intervals
from tocsin.query.index import tree as index_tree
from tocsin.query.index.index import changed_keys
from tocsin.query.index.postings import Posting, united


@contextmanager
def small_parts(list_max: int, depth_max: int = 16) -> Iterator[None]:
    """Let few queries do what takes many."""
    with (
        patch.object(index_tree, "LIST_MAX", list_max),
        patch.object(index_tree, "DEPTH_MAX", depth_max),
        patch.object(index_tree, "PLACES_MAX", 12),
        patch.object(intervals, "WIDE", 2),
        patch.object(bag, "FEW", 2),
    ):
        yield


def expected_change(
    queries: dict[int, Query], before: Metadata, after: Metadata
) -> tuple[list[int], list[int]]:
    entered = [id for id, each in sorted(queries.items()) if each.matches(after) and not each.matches(before)]
    left = [id for id, each in sorted(queries.items()) if each.matches(before) and not each.matches(after)]
    return entered, left


class IndexedQueries(RuleBasedStateMachine):
    """Queries come and go, a stream changes; the index answers as asking all of them does."""

    def __init__(self) -> None:
        super().__init__()
        self.index: QueryIndex[int] = QueryIndex()
        self.model: dict[int, Query] = {}
        self.stream: Metadata = {}
        self.held: set[int] = set()

    @initialize(list_max=st.sampled_from([0, 1, 3]), depth_max=st.sampled_from([1, 2, 16]))
    def divide_early(self, list_max: int, depth_max: int) -> None:
        self.small = small_parts(list_max, depth_max)
        self.small.__enter__()

    @rule(query=QUERIES, copies=st.integers(1, 3), id=st.integers(0, 60))
    def add(self, query: Query, copies: int, id: int) -> None:
        for each in range(id, id + copies):
            self.index.add(each, query)
            self.model[each] = query
            self.held.discard(each)
            if query.matches(self.stream):
                self.held.add(each)

    @rule(ids=st.lists(st.integers(0, 62), max_size=10))
    def remove(self, ids: list[int]) -> None:
        for id in ids:
            self.index.remove(id)
            self.model.pop(id, None)
            self.held.discard(id)

    @rule(diff=METADATA, gone=st.sets(st.sampled_from(["a", "b", "c"]), max_size=1))
    def change(self, diff: Metadata, gone: set[str]) -> None:
        after = {key: value for key, value in {**self.stream, **diff}.items() if key not in gone}
        change = self.index.change(self.stream, after)
        assert (change.entered, change.left) == expected_change(self.model, self.stream, after)
        assert self.index.change(self.stream, after, self.held) == change
        self.held = (self.held | set(change.entered)) - set(change.left)
        assert all(self.model[id].matches(after) for id in self.held)
        self.stream = after

    @rule(metadata=METADATA)
    def ask(self, metadata: Metadata) -> None:
        assert self.index.matching(metadata) == {
            id for id, each in self.model.items() if each.matches(metadata)
        }

    @invariant()
    def held_is_what_matches(self) -> None:
        assert len(self.index) == len(self.model)
        assert self.held == self.index.matching(self.stream)

    def teardown(self) -> None:
        for id in list(self.model):
            self.index.remove(id)
        root = self.index._tree._root
        assert root.size == 0
        assert root.inner is None or not (root.inner.children or root.inner.mentions or root.inner.watches)
        self.small.__exit__(None, None, None)


TestIndexedQueries = IndexedQueries.TestCase
TestIndexedQueries.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)


@given(st.lists(QUERIES, min_size=1, max_size=12), METADATA, METADATA)
@settings(max_examples=100, deadline=None)
def test_answers_do_not_depend_on_the_order_of_additions(
    many: list[Query], before: Metadata, after: Metadata
) -> None:
    queries = dict(enumerate(many))
    with small_parts(1):
        for order in (list(queries), list(reversed(queries))):
            index: QueryIndex[int] = QueryIndex()
            for id in order:
                index.add(id, queries[id])
            change = index.change(before, after)
            assert (change.entered, change.left) == expected_change(queries, before, after)
            assert sorted(index.matching(after)) == [
                id for id, each in queries.items() if each.matches(after)
            ]


@pytest.mark.parametrize("seed", range(8))
def test_a_long_life_of_many_queries(seed: int) -> None:
    chance = random.Random(seed)
    pool = [parse(text(chance.choice)) for _ in range(150)]
    index: QueryIndex[int] = QueryIndex()
    model: dict[int, Query] = {}
    stream = metadata(chance.choice)
    with small_parts(seed % 4, depth_max=chance.choice((1, 2, 16))):
        for _ in range(300):
            for id in chance.sample(range(len(pool)), 5):
                if id in model:
                    index.remove(id)
                    del model[id]
                elif len(model) < 60:
                    index.add(id, pool[id])
                    model[id] = pool[id]
            after = changed(chance.choice, stream)
            change = index.change(stream, after)
            assert (change.entered, change.left) == expected_change(model, stream, after)
            assert index.matching(after) == {id for id, each in model.items() if each.matches(after)}
            stream = after


# ── what it does not look at ────────────────────────────────────────────────────────────────────────────────


def index_of(texts: Sequence[str], asked: Asked | None = None) -> QueryIndex[str]:
    index: QueryIndex[str] = QueryIndex()
    for each in texts:
        query = parse(each)
        index.add(each, asked.counting(query) if asked else query)
    return index


def test_a_change_asks_only_queries_that_share_its_selective_values() -> None:
    asked = Asked()
    index = index_of(
        [f"room = 'r{room}' AND type = 't{kind}'" for room in range(500) for kind in range(4)], asked
    )
    change = index.change({"room": "r1", "type": "t1"}, {"room": "r1", "type": "t2"})
    assert change.entered == ["room = 'r1' AND type = 't2'"]
    assert change.left == ["room = 'r1' AND type = 't1'"]
    assert asked.count <= 3 * index_tree.LIST_MAX


def test_a_range_under_a_shared_value_costs_what_it_turns() -> None:
    asked = Asked()
    index = index_of([f"temp > {bound / 10} AND type = 't'" for bound in range(4_000)], asked)
    change = index.change({"type": "t", "temp": 200.05}, {"type": "t", "temp": 200.25})
    assert change.entered == ["temp > 200.1 AND type = 't'", "temp > 200.2 AND type = 't'"]
    assert change.left == []
    assert asked.count <= 8


def test_narrow_ranges_that_a_value_jumps_over_are_not_asked() -> None:
    asked = Asked()
    index = index_of([f"temp >= {low} AND temp < {low + 1}" for low in range(1, 3_000)], asked)
    change = index.change({"temp": 10.5}, {"temp": 2_900.5})
    assert change.entered == ["temp >= 2900 AND temp < 2901"]
    assert change.left == ["temp >= 10 AND temp < 11"]
    assert asked.count <= 8


def test_negations_under_a_shared_value_cost_what_they_turn() -> None:
    asked = Asked()
    index = index_of([f"type = 't' AND room != 'r{room}'" for room in range(2_000)], asked)
    change = index.change({"type": "t", "room": "r7"}, {"type": "t", "room": "r8"})
    assert change.entered == ["type = 't' AND room != 'r7'"]
    assert change.left == ["type = 't' AND room != 'r8'"]
    assert asked.count <= 8


def test_a_shared_value_that_comes_costs_what_is_true_then() -> None:
    asked = Asked()
    index = index_of([f"temp > {bound} AND type = 't'" for bound in range(2_000)], asked)
    change = index.change({"type": "u", "temp": 2.5}, {"type": "t", "temp": 2.5})
    assert change.entered == [f"temp > {bound} AND type = 't'" for bound in range(3)]
    assert asked.count <= 8


def test_a_key_that_nobody_mentions_costs_nothing() -> None:
    asked = Asked()
    index = index_of([f"room = 'r{room % 3}' AND NOT EXISTS k{room}" for room in range(200)], asked)
    index.change({"room": "r1"}, {"room": "r1", "colour": "red"})
    assert asked.count == 0


def test_literal_beginnings_of_patterns_narrow_down() -> None:
    asked = Asked()
    index = index_of(
        [f"name LIKE 'n{n}/%'" for n in range(1_000)] + [f"name =~ '^n{n}/'" for n in range(1_000)], asked
    )
    assert len(index.matching({"name": "n77/x"})) == 2
    assert asked.count <= 2 * index_tree.LIST_MAX


def test_a_query_is_in_a_bounded_number_of_places() -> None:
    options = [", ".join(f"'{key}{option}'" for option in range(40)) for key in "abc"]
    texts = [
        f"a IN ({options[0]}) AND b IN ({options[1]}) AND c IN ({options[2]}) AND d != {n}"
        for n in range(100)
    ]
    index = index_of(texts)
    places = [len(entry.places) for entry in index._entries.values()]
    assert max(places) <= index_tree.PLACES_MAX
    matching = index.matching({"a": "a1", "b": "b2", "c": "c3", "d": 4})
    assert len(matching) == 99


@pytest.mark.parametrize("depth_max", [1, 2])
def test_the_tree_is_no_higher_than_allowed(depth_max: int) -> None:
    with small_parts(1, depth_max):
        index = index_of([f"a = 1 AND b = 1 AND c = 1 AND d = 1 AND e != {n}" for n in range(50)])
    places = [place for entry in index._entries.values() for place in entry.places]
    assert max(len(list(place.above())) for place in places) == depth_max + 1
    assert len(index.matching({"a": 1, "b": 1, "c": 1, "d": 1, "e": 7})) == 49


def test_many_equal_queries_come_and_go() -> None:
    index: QueryIndex[int] = QueryIndex()
    query = parse("a = 1 AND b = 2 AND c > 3")
    for id in range(500):
        index.add(id, query)
    assert index.change({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "c": 4}).entered == list(range(500))
    order = list(range(500))
    random.Random(3).shuffle(order)
    for id in order[1:]:
        index.remove(id)
    assert index.matching({"a": 1, "b": 2, "c": 4}) == {order[0]}
    assert index._tree._root.inner is None


def test_replacing_a_query_forgets_the_old_one() -> None:
    index: QueryIndex[str] = QueryIndex()
    index.add("q", parse("a = 1"))
    index.add("q", parse("a = 2"))
    assert index.matching({"a": 1}) == set()
    assert index.matching({"a": 2}) == {"q"}
    assert index.query("q").text == "a = 2"
    assert "q" in index
    index.remove("q")
    index.remove("q")
    assert "q" not in index


def test_those_that_stay_and_mention_a_changed_key_are_touched() -> None:
    index = index_of(["a = 1 AND b > 0", "a = 1", "b > 0"])
    assert index.touched({"a = 1 AND b > 0", "a = 1", "b > 0"}, frozenset({"b"})) == [
        "a = 1 AND b > 0",
        "b > 0",
    ]


def test_a_value_of_another_type_is_a_change() -> None:
    assert changed_keys({"a": 1, "b": 1, "c": "x"}, {"a": True, "b": 1, "d": 0}) == {"a", "c", "d"}
    assert changed_keys({"a": 1}, {"a": 1.0}) == {"a"}
    assert not changed_keys({"a": "long text"}, {"a": "long " + "text"})


class IndexedStreams(RuleBasedStateMachine):
    """Streams come, change and go; the index finds what asking about each finds."""

    def __init__(self) -> None:
        super().__init__()
        self.index: StreamIndex[int] = StreamIndex()
        self.model: dict[int, Metadata] = {}

    @rule(metadata=METADATA, first=st.integers(0, 20), copies=st.integers(1, 4))
    def put(self, metadata: Metadata, first: int, copies: int) -> None:
        for id in range(first, first + copies):
            self.index.put(id, metadata)
            self.model[id] = metadata

    @rule(ids=st.lists(st.integers(0, 23), max_size=6))
    def remove(self, ids: list[int]) -> None:
        for id in ids:
            self.index.remove(id)
            self.model.pop(id, None)

    @rule(queries=st.lists(QUERIES, min_size=1, max_size=4))
    def find(self, queries: list[Query]) -> None:
        for query in queries:
            expected = {id for id, metadata in self.model.items() if query.matches(metadata)}
            assert self.index.find(query) == expected

    @invariant()
    def all_streams_are_there(self) -> None:
        assert len(self.index) == len(self.model)

    def teardown(self) -> None:
        for id in list(self.model):
            self.index.remove(id)
        assert not self.index._keys


TestIndexedStreams = IndexedStreams.TestCase
TestIndexedStreams.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


@pytest.mark.parametrize("seed", range(6))
def test_queries_find_what_asking_about_each_stream_finds(seed: int) -> None:
    chance = random.Random(seed)
    index: StreamIndex[int] = StreamIndex()
    model: dict[int, Metadata] = {}
    for _ in range(300):
        id = chance.randrange(40)
        if chance.random() < 0.2:
            index.remove(id)
            model.pop(id, None)
        else:
            model[id] = changed(chance.choice, model.get(id, {}))
            index.put(id, model[id])
        query = parse(text(chance.choice))
        assert index.find(query) == {id for id, each in model.items() if query.matches(each)}, query


@pytest.fixture
def building() -> StreamIndex[str]:
    index: StreamIndex[str] = StreamIndex()
    for room in range(500):
        for kind in ("temp", "light"):
            index.put(
                f"{room}/{kind}", {"room": f"r{room}", "type": kind, "floor": room // 100, "level": room / 10}
            )
    return index


@pytest.mark.parametrize(
    ("text", "found", "most"),
    [
        ("room = 'r7'", 2, 2),
        ("type = 'temp' AND room = 'r7'", 1, 1),
        ("room IN ('r7', 'r8') AND floor < 3", 4, 4),
        ("type = 'temp' AND level >= 10 AND level < 10.5", 5, 10),
        ("type = 'temp' AND floor = 2", 100, 100),
        ("room LIKE 'r49%' AND NOT type = 'temp'", 11, 22),
        ("room =~ '^r49' AND floor = '4'", 20, 20),
        ("EXISTS colour", 0, 0),
        ("room = 'r7' OR room = 'r8' AND type = 'light'", 3, 4),
    ],
)
def test_a_query_asks_few_streams_beyond_those_it_finds(
    building: StreamIndex[str], text: str, found: int, most: int
) -> None:
    asked = Asked()
    assert len(building.find(asked.counting(parse(text)))) == found
    assert asked.count <= most


def test_a_large_part_is_not_gathered_to_spare_few_questions(
    building: StreamIndex[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered: list[int] = []

    def watched(postings: Iterable[Posting[str]]) -> set[str]:
        found = united(postings)
        gathered.append(len(found))
        return found

    monkeypatch.setattr("tocsin.query.index.index.united", watched)
    assert building.find(parse("room = 'r7' AND level > 0.5")) == {"7/temp", "7/light"}
    assert building.find(parse("floor = 2 AND room = 'r207'")) == {"207/temp", "207/light"}
    assert gathered == [2, 2]


def test_what_is_found_is_the_callers_own(building: StreamIndex[str]) -> None:
    query = parse("type = 'temp'")
    building.find(query).clear()
    assert len(building.find(query)) == 500


def test_metadata_is_given_back() -> None:
    index: StreamIndex[str] = StreamIndex()
    index.put("s", {"a": 1})
    assert index.metadata("s") == {"a": 1}
    assert "s" in index
    index.put("s", {"b": 2})
    assert index.find(parse("EXISTS a")) == set()
    assert index.find(parse("b = 2")) == {"s"}
    index.remove("s")
    index.remove("s")
    assert "s" not in index

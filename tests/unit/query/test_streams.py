"""The index of streams against asking a query about every stream."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.query.standing import METADATA, QUERIES, Asked, changed, text
from tocsin.query import Metadata, Query, StreamIndex, parse
from tocsin.query.postings import Posting, united


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

    monkeypatch.setattr("tocsin.query.streams.united", watched)
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

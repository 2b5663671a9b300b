"""What is asked of the pipeline."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.client.sql import Answer, Pipeline, Problem, Reply
from tocsin.errors import TocsinError
from tocsin.pipeline.language.text.script import read_script
from tocsin.pipeline.language.text.statements import CreateChannel, CreateDataset, CreateFeed
from tocsin_demo.scene.account import Result
from tocsin_demo.scene.application import CHANNEL, definitions, report
from tocsin_demo.scene.backend import PAGE, Backend, pages
from tocsin_demo.traces import Emergency


@given(st.dictionaries(st.integers(1, 60), st.integers(1, PAGE + 10), max_size=40))
def test_pages_cover_every_execution_once_and_are_no_larger_than_one_answer(sizes: dict[int, int]) -> None:
    found = pages(list(sizes.items()))
    covered = [[each for each in sorted(sizes) if first <= each <= last] for first, last in found]
    assert [each for page in covered for each in page] == sorted(sizes)
    for page in covered:
        assert len(page) == 1 or sum(sizes[each] for each in page) <= PAGE


@given(st.lists(st.integers(1, PAGE), min_size=2, max_size=20))
def test_two_pages_side_by_side_would_not_fit_into_one(sizes: list[int]) -> None:
    numbered = dict(enumerate(sizes))
    found = pages(list(numbered.items()))
    for (first, _), (_, last) in pairwise(found):
        assert sum(numbered[each] for each in range(first, last + 1)) > PAGE


def test_the_application_is_two_datasets_two_feeds_and_a_channel() -> None:
    statements = read_script(definitions(10))
    kinds = [type(each) for each in statements]
    assert kinds == [CreateDataset, CreateDataset, CreateFeed, CreateFeed, CreateChannel]
    channel = statements[-1]
    assert isinstance(channel, CreateChannel)


def test_an_emergency_is_reported_with_its_number_and_priority() -> None:
    told = report(7, Emergency(3.0, "fire-2", "fire", 10.0, 20.5, 500.0))
    assert told == {
        "number": 7,
        "id": "fire-2",
        "kind": "fire",
        "level": 9,
        "place": {"x": 10.0, "y": 20.5},
        "radius": 500.0,
    }
    assert CHANNEL in definitions(5)


class Spark:
    """A pipeline that has results, and answers with so many at most."""

    def __init__(self, rows: list[tuple[str, int, int, int]], most: int) -> None:
        self.rows = rows
        self.most = most
        self.asked: list[str] = []

    async def run(self, sql: str, *, limit: int) -> Reply:
        self.asked.append(sql)
        if "COUNT(*)" in sql:
            counts = Counter(row[1] for row in self.rows)
            return Reply((Answer("SELECT", rows=tuple(counts.items())),))
        between = re.search(r"BETWEEN (\d+) AND (\d+)", sql)
        first, last = (int(between[1]), int(between[2])) if between else (0, 1_000)
        found = [row for row in self.rows if first <= row[1] <= last]
        return Reply((Answer("SELECT", rows=tuple(found[: self.most]), more=len(found) > self.most),))


ROWS = [("ann", 1, 1, 9), ("bob", 1, 1, 9), ("ann", 2, 2, 3), ("bob", 3, 3, 3)]
COMMITTED = {"ann": [Result(1, 1, 9), Result(2, 2, 3)], "bob": [Result(1, 1, 9), Result(3, 3, 3)]}


async def test_what_was_committed_is_asked_for_at_once_if_it_fits() -> None:
    spark = Spark(ROWS, 4)
    assert await Backend(cast(Pipeline, spark)).committed() == COMMITTED
    assert len(spark.asked) == 1


async def test_committed_results_that_do_not_fit_one_answer_are_fetched_in_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tocsin_demo.scene.backend.PAGE", 2)
    spark = Spark(ROWS, 2)
    assert await Backend(cast(Pipeline, spark)).committed() == COMMITTED
    assert len(spark.asked) == 4


async def test_an_execution_with_more_results_than_an_answer_carries_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tocsin_demo.scene.backend.PAGE", 1)
    with pytest.raises(TocsinError, match="executions 1 to 1 have more results"):
        await Backend(cast(Pipeline, Spark(ROWS, 1))).committed()


async def test_what_is_wrong_with_a_question_is_raised() -> None:
    class Refusing(Spark):
        async def run(self, sql: str, *, limit: int) -> Reply:
            return Reply((), Problem("there is no such table"))

    with pytest.raises(TocsinError, match="no such table"):
        await Backend(cast(Pipeline, Refusing([], 1))).ask("SELECT 1")

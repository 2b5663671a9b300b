"""Brokers whose clients' queries name topics read only those of the log, and miss nothing; one that reads less does."""

from __future__ import annotations

import pytest

from tocsin.core.streams import query_topics
from tocsin.core.streams.query_topics import filters_of
from tocsin.query.expression import Expression, Literal
from tocsin.sim.runs.runner import run
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios.streams import clients

QUERIES = ("topic LIKE 'anna/%'", "kind = 'lamp' AND topic = 'ben/1'", "topic IN ('anna/1', 'cleo/2')")
SEEDS = 8


@pytest.fixture(autouse=True)
def _topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "QUERIES", QUERIES)


def test_some_seeds_break_nothing() -> None:
    assert [run(find("streams"), seed).broken for seed in range(SEEDS)] == [None] * SEEDS


def test_where_nothing_fails_nothing_is_missing() -> None:
    assert [run(find("streams"), seed, plan=[]).broken for seed in range(SEEDS)] == [None] * SEEDS


def test_a_topic_of_a_query_that_is_not_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(options: tuple[Expression, ...]) -> tuple[str, ...]:
        return tuple(str(each.value) for each in options[:1] if isinstance(each, Literal))

    monkeypatch.setattr(query_topics, "_one_of", first)
    filters_of.cache_clear()
    try:
        found = (run(find("streams"), seed, plan=[]).broken for seed in range(4 * SEEDS))
        broken = next((each for each in found if each is not None), None)
    finally:
        filters_of.cache_clear()
    assert broken is not None and broken.invariant == "no message of a stream is missing"

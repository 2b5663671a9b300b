"""The topics that a query can be true of, beside a model that asks the query itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery.wanted import covers, overlap
from tocsin.core.streams.query_topics import FILTERS_MAX, filters_of
from tocsin.query import parse

LEVELS = ("a", "b", "ab", "a_", "$a", "")
TOPICS = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=3).map("/".join).filter(bool)
PATTERNS = st.lists(st.sampled_from((*"ab$/%_", r"\%", r"\_")), max_size=5).map("".join)
SIMPLE = st.one_of(
    TOPICS.map(lambda topic: f"topic = '{topic}'"),
    TOPICS.map(lambda topic: f"'{topic}' = topic"),
    TOPICS.map(lambda topic: f"topic != '{topic}'"),
    st.lists(TOPICS, min_size=1, max_size=3).map(
        lambda topics: "topic IN ({})".format(", ".join(f"'{each}'" for each in topics))
    ),
    PATTERNS.map(lambda pattern: f"topic LIKE '{pattern}'"),
    st.sampled_from(("kind = 'lamp'", "topic = 5", "topic IN ('a', 5)", "topic = kind", "EXISTS topic")),
)


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joined = st.tuples(inner, st.sampled_from(("AND", "OR", "XOR")), inner)
    return st.one_of(
        joined.map(lambda parts: "({} {} {})".format(*parts)), inner.map(lambda text: f"NOT ({text})")
    )


CONDITIONS = st.recursive(SIMPLE, _grown, max_leaves=6)


@given(CONDITIONS, TOPICS, st.sampled_from(("lamp", "door", "a")))
def test_every_stream_of_a_query_has_a_topic_of_its_filters(text: str, topic: str, kind: str) -> None:
    query = parse(text)
    if query.matches({"topic": topic, "kind": kind}):
        assert any(covers(each, topic) for each in filters_of(query))


@given(CONDITIONS)
def test_the_filters_of_a_query_do_not_overlap(text: str) -> None:
    filters = filters_of(parse(text))
    pairs = [(one, other) for i, one in enumerate(filters) for other in filters[i + 1 :]]
    assert not any(overlap(one, other) for one, other in pairs)


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("topic = 'hall/1/door'", ("hall/1/door",)),
        ("topic LIKE 'hall/1%' AND kind = 'door'", ("hall/#",)),
        ("topic LIKE 'hall/%' AND topic = 'hall/2'", ("hall/2",)),
        ("topic IN ('a', 'b') OR topic LIKE 'c/1%'", ("c/#", "a", "b")),
        ("kind = 'door'", ("#",)),
        ("NOT topic = 'a'", ("#",)),
        ("topic = 'a' OR kind = 'door'", ("#",)),
        ("topic LIKE 'hall%'", ("#",)),
        ("topic = 'a/#'", ("#",)),
    ],
)
def test_filters_say_what_the_query_says_of_topics(text: str, filters: tuple[str, ...]) -> None:
    assert filters_of(parse(text)) == filters


def test_a_query_with_very_many_topics_has_everything_read() -> None:
    topics = ", ".join(f"'hall/{number}'" for number in range(FILTERS_MAX + 1))
    assert filters_of(parse(f"topic IN ({topics})")) == ("#",)

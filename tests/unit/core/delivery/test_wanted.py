"""The filters of a reader: never overlapping, never too many, and always enough. Held against all topics of a kind."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery.wanted import (
    ALL_FILTERS,
    BYTES_MAX,
    CUT_MAX,
    Level,
    Wanted,
    covers,
    cut,
    fits,
    join,
    overlap,
    simplified,
)
from tocsin.model.subjects import MESSAGES, patterns_of, subject_of
from tocsin.store import rules

LEVELS = ("a", "b")
TOPICS = ["/".join(each) for length in (1, 2, 3, 4) for each in product(LEVELS, repeat=length)]


def matching(topic_filter: str) -> set[str]:
    """By the patterns of the log, which is what counts."""
    patterns = patterns_of(topic_filter, "net", MESSAGES)
    return {topic for topic in TOPICS if any(rules.matches(p, subject_of(topic, "net")) for p in patterns)}


def of_all(filters: tuple[str, ...]) -> set[str]:
    return {topic for each in filters for topic in matching(each)}


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.sampled_from(("a", "b", "+")), max_size=3))
    if not levels or draw(st.booleans()):
        levels.append("#")
    return "/".join(levels)


@given(filters(), filters())
def test_covering_and_overlapping_are_about_topics(one: str, other: str) -> None:
    assert covers(one, other) == (matching(one) >= matching(other)) or (one, other) == ("+/#", "#")
    assert overlap(one, other) == bool(matching(one) & matching(other))


@given(filters(), filters())
def test_what_joins_two_filters_covers_both(one: str, other: str) -> None:
    joined = join(one, other)
    assert covers(joined, one) and covers(joined, other)


@given(filters(), st.integers(1, 3))
def test_a_cut_filter_covers_the_whole_one(topic_filter: str, levels: int) -> None:
    assert covers(cut(topic_filter, levels), topic_filter)


@given(st.lists(filters(), max_size=8))
def test_simplified_filters_cover_all_and_do_not_overlap(some: list[str]) -> None:
    found = simplified(some)
    assert of_all(found) >= of_all(tuple(some))
    assert len(found) <= len(set(some))
    patterns = [pattern for each in found for pattern in patterns_of(each, "net", MESSAGES)]
    for i, one in enumerate(patterns):
        assert not any(rules.overlap(one, other) for other in patterns[i + 1 :])


@given(st.lists(st.tuples(st.booleans(), filters()), max_size=20))
def test_every_level_covers_what_is_wanted(changes: list[tuple[bool, str]]) -> None:
    wanted, there = Wanted(), list[str]()
    for more, each in changes:
        if more:
            assert wanted.add(each, len(there)) == (each not in there)
            there.append(each)
        elif each in there:
            there.remove(each)
            assert wanted.remove(each) == (each not in there)
    assert set(wanted) == set(there)
    for level in Level:
        found = wanted.filters(level)
        assert fits(found)
        assert all(any(covers(wide, each) for wide in found) for each in there)
    if not there:
        assert wanted.filters(Level.EXACT) == wanted.filters(Level.HEADS) == ()


def made(names: list[str]) -> Wanted:
    wanted = Wanted()
    for each in names:
        wanted.add(each, 7)
    return wanted


def test_few_filters_are_read_as_they_are() -> None:
    names = ["plant/+/alarm", "city/#", "plain", "deep/a/b/c/d"]
    assert set(made(names).filters(Level.EXACT)) == set(names)
    assert set(made(names).filters(Level.HEADS)) == {"plant/#", "city/#", "plain", "deep/#"}
    assert made(names).filters(Level.ALL) == ALL_FILTERS


def test_many_filters_are_cut_behind_their_first_levels() -> None:
    names = [f"plant/{i % 40}/{i}/state" for i in range(2_000)]
    assert set(made(names).filters(Level.EXACT)) == {f"plant/{i}/#" for i in range(40)}
    assert set(made([f"plant/{i}" for i in range(2_000)]).filters(Level.EXACT)) == {"plant/#"}
    assert made([str(i) for i in range(2_000)]).filters(Level.EXACT) == ALL_FILTERS


def test_a_crowd_of_filters_is_only_looked_at_by_heads() -> None:
    names = [f"{i % 9}/{i % 50}/{i}" for i in range(CUT_MAX + 1)]
    assert set(made(names).filters(Level.EXACT)) == {f"{i}/#" for i in range(9)}


def test_long_filters_count_by_their_bytes() -> None:
    names = [f"{i}/{'x' * 1_000}" for i in range(BYTES_MAX // 1_000 + 1)]
    assert set(made(names).filters(Level.EXACT)) == {f"{i}/#" for i in range(len(names))}
    assert made([each.replace("/", "-") for each in names]).filters(Level.EXACT) == ALL_FILTERS


def test_a_level_grows_only_with_what_is_new_to_it() -> None:
    wanted = Wanted()
    assert wanted.grew_us(Level.EXACT) is wanted.grew_us(Level.HEADS) is wanted.grew_us(Level.ALL) is None
    wanted.add("a/1", 10)
    wanted.add("a/2", 20)
    wanted.add("a/2", 30)
    assert (wanted.grew_us(Level.EXACT), wanted.grew_us(Level.HEADS)) == (20, 10)
    wanted.remove("a/1")
    assert (wanted.grew_us(Level.EXACT), wanted.grew_us(Level.HEADS)) == (20, 10)


def test_what_nobody_wants_cannot_be_given_up() -> None:
    with pytest.raises(AssertionError):
        Wanted().remove("a")

"""What stores accept, and how subjects match, against the definition spelled out."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import Refused
from tocsin.ports import LogSpec, Record, TableSpec
from tocsin.store import rules

ALPHABET = ("a", "b", "c")
tokens = st.sampled_from([*ALPHABET[:2], "*"])
patterns = st.tuples(st.lists(tokens, min_size=1, max_size=3), st.booleans()).map(
    lambda made: ".".join([*made[0], ">"] if made[1] else made[0])
)


def every_subject(longest: int = 4) -> list[str]:
    return [".".join(each) for n in range(1, longest + 1) for each in itertools.product(ALPHABET, repeat=n)]


SUBJECTS = every_subject()


def plainly_matches(pattern: str, subject: str) -> bool:
    wanted, given_ = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(given_) <= len(wanted):
            return False
        given_ = given_[: len(wanted)]
    return len(wanted) == len(given_) and all(w in ("*", g) for w, g in zip(wanted, given_, strict=True))


@given(patterns)
def test_a_pattern_matches_what_the_definition_says(pattern: str) -> None:
    for subject in SUBJECTS:
        assert rules.matches(pattern, subject) == plainly_matches(pattern, subject)


@given(patterns, patterns)
def test_covering_and_overlap_are_about_the_subjects_that_match(one: str, other: str) -> None:
    ones = {subject for subject in SUBJECTS if plainly_matches(one, subject)}
    others = {subject for subject in SUBJECTS if plainly_matches(other, subject)}
    assert rules.overlap(one, other) == bool(ones & others)
    assert rules.covers(one, other) == (others <= ones)


@given(st.text(max_size=30))
def test_whatever_is_given_as_a_subject_is_taken_or_refused_in_words(text: str) -> None:
    try:
        rules.check_subject("test", text)
    except Refused as error:
        assert error.reason if hasattr(error, "reason") else str(error)
    else:
        assert text.isprintable()
        assert not set(text) & set(" *>\r\n")
        assert all(text.split("."))


@pytest.mark.parametrize(
    "spec",
    [
        LogSpec("", ("a",)),
        LogSpec("a.b", ("a",)),
        LogSpec("x" * 65, ("a",)),
        LogSpec("a", ()),
        LogSpec("a", (">",)),
        LogSpec("a", ("*.b",)),
        LogSpec("a", ("$JS.x",)),
        LogSpec("a", ("_x",)),
        LogSpec("a", ("a.>", "a.b")),
        LogSpec("a", ("a",), max_bytes=0),
        LogSpec("a", ("a",), max_per_subject=-1),
        LogSpec("a", ("a",), max_age_s=0.01),
        LogSpec("a", ("a",), max_age_s=10, dedupe_window_s=11),
        LogSpec("a", ("a",), dedupe_window_s=math.nan),
    ],
)
def test_a_log_that_no_server_would_keep_is_refused(spec: LogSpec) -> None:
    with pytest.raises(Refused):
        rules.check_log(spec)


def test_a_table_that_no_server_would_keep_is_refused() -> None:
    for spec in (TableSpec("a b"), TableSpec("a", max_bytes=0)):
        with pytest.raises(Refused):
            rules.check_table(spec)


def test_an_append_is_bounded_in_count_and_bytes() -> None:
    record = Record("a", b"x" * (1 << 20), "1")
    rules.check_batch("test", [record] * 8, None)
    for records, expected in (([record] * 9, None), ([Record("a", b"", "1")] * 1_001, None), ([], -1)):
        with pytest.raises(Refused):
            rules.check_batch("test", records, expected)


@pytest.mark.parametrize("ttl_s", [0, 0.5, 1.5, -1, 1e12])
def test_a_time_to_live_is_whole_seconds(ttl_s: float) -> None:
    with pytest.raises(Refused):
        rules.ttl_seconds("test", ttl_s)


def test_a_good_time_to_live_is_kept() -> None:
    assert rules.ttl_seconds("test", 3.0) == 3
    assert rules.ttl_seconds("test", None) is None

"""Topics and filters against definitions so plain that they can be seen to be right."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.wire.mqtt.topics import (
    FilterInvalid,
    TopicInvalid,
    check_filter,
    check_topic,
    matches,
    split_filter,
    topic_size,
)

anything = st.text(st.sampled_from(["a", "b", "/", "+", "#", "$", "ü", "\0", "\ud800"]), max_size=8)
level = st.sampled_from(["a", "b", "", "$c"])
topics = st.lists(level, min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.one_of(
    st.lists(level | st.just("+"), min_size=1, max_size=4).map("/".join).filter(bool),
    st.lists(level | st.just("+"), max_size=3).map(lambda levels: "/".join([*levels, "#"])),
)


def expression(pattern: str) -> re.Pattern[str]:
    """A filter as a regular expression."""
    if pattern == "#":
        return re.compile(r"[^$].*")
    body, rest = (pattern[:-2], r"(/.*)?") if pattern.endswith("/#") else (pattern, "")
    text = "/".join("[^/]*" if each == "+" else re.escape(each) for each in body.split("/"))
    guard = r"(?!\$)" if pattern.startswith("+") else ""
    return re.compile(guard + text + rest)


@settings(deadline=None)
@given(filters, topics)
def test_a_filter_matches_as_its_regular_expression_does(pattern: str, topic: str) -> None:
    check_filter(pattern)
    check_topic(topic)
    assert matches(pattern, topic) is bool(expression(pattern).fullmatch(topic))


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/uptime", False),
        ("+/uptime", "$SYS/uptime", False),
        ("$SYS/#", "$SYS/uptime", True),
        ("a", "A", False),
        ("a/", "a", False),
    ],
)
def test_the_standard_s_own_examples(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected


def sayable(text: str) -> bool:
    return bool(text) and "\0" not in text and "\ud800" not in text


@settings(deadline=None)
@given(anything)
def test_a_topic_is_any_text_without_wildcards(text: str) -> None:
    valid = sayable(text) and "+" not in text and "#" not in text
    if valid:
        check_topic(text)
        assert topic_size(text) == (len(text.encode()), len(text.split("/")))
    else:
        with pytest.raises(TopicInvalid) as caught:
            check_topic(text)
        assert caught.value.reason_code == 0x90


@settings(deadline=None)
@given(anything)
def test_a_filter_has_its_wildcards_alone_and_the_hash_last(text: str) -> None:
    shape = re.compile(r"(([^+#/]*|\+)/)*([^+#/]*|\+|#)", re.DOTALL)
    if sayable(text) and shape.fullmatch(text):
        check_filter(text)
    else:
        with pytest.raises(FilterInvalid) as caught:
            check_filter(text)
        assert caught.value.reason_code == 0x8F


@settings(deadline=None)
@given(st.sampled_from(["g", "", "g+", "#", "$x"]), filters | st.just(""))
def test_a_share_has_a_plain_group_and_a_filter(group: str, pattern: str) -> None:
    text = f"$share/{group}/{pattern}"
    if group in ("g", "$x") and pattern:
        assert split_filter(text) == (pattern, group)
    else:
        with pytest.raises(FilterInvalid):
            split_filter(text)


@pytest.mark.parametrize("text", ["$share", "$share/g", "$shared/g/a"])
def test_what_only_looks_like_a_share(text: str) -> None:
    if text == "$share/g":
        with pytest.raises(FilterInvalid, match=r"\$share/group/filter"):
            split_filter(text)
    else:
        assert split_filter(text) == (text, None)


def test_limits_are_of_bytes_and_of_levels() -> None:
    check_topic("üü", max_bytes=4)
    with pytest.raises(TopicInvalid, match="it has 4 bytes; at most 3 are allowed"):
        check_topic("üü", max_bytes=3)
    check_filter("a/+/#", max_levels=3)
    with pytest.raises(FilterInvalid, match="it has 3 levels; at most 2 are allowed"):
        check_filter("a/+/#", max_levels=2)
    check_filter("$share/g/a/b", max_levels=2)
    with pytest.raises(TopicInvalid, match="at most 65535"):
        check_topic("a" * 65_536)


def test_an_error_repeats_a_long_topic_only_in_part() -> None:
    with pytest.raises(TopicInvalid) as caught:
        check_topic("a" * 1_000 + "#")
    assert len(str(caught.value)) < 200
    assert caught.value.topic == "a" * 1_000 + "#"

"""Topics as subjects: different ones stay different, and filters find exactly theirs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.subjects import (
    all_of,
    fits,
    is_critical,
    kind_of,
    messages_log,
    patterns_of,
    subject_of,
    tokens_of,
    topic_of,
)
from tocsin.ports import TOPIC_MAX_BYTES
from tocsin.store import rules
from tocsin.wire.mqtt.topics import matches

topics = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=30)
small_topics = (
    st.lists(st.sampled_from(["a", "b", "", "a.b", "*", "é"]), min_size=1, max_size=4)
    .map("/".join)
    .filter(bool)
)
small_filters = st.builds(
    lambda path, rest: "/".join([*path, "#"]) if rest else "/".join(path or ["+"]),
    st.lists(st.sampled_from(["a", "b", "", "+", "a.b", "*", "é"]), max_size=4),
    st.booleans(),
).filter(bool)


@given(topics)
def test_every_topic_has_a_subject_and_a_key_that_the_store_takes(topic: str) -> None:
    rules.check_subject("test", subject_of(topic, "net"))
    rules.check_key("test", tokens_of(topic))
    assert topic_of(tokens_of(topic)) == topic


@given(topics, topics)
def test_different_topics_have_different_subjects(one: str, other: str) -> None:
    assert (tokens_of(one) == tokens_of(other)) == (one == other)


@given(small_topics, small_filters, st.booleans(), st.sampled_from([None, True, False]))
def test_a_filters_patterns_match_exactly_what_the_filter_matches(
    topic: str, topic_filter: str, critical: bool, wanted: bool | None
) -> None:
    """Of critical messages, of the others, or of both."""
    subject = subject_of(topic, "net", critical=critical)
    patterns = patterns_of(topic_filter, "net", kind_of(wanted))
    found = [pattern for pattern in patterns if rules.matches(pattern, subject)]
    assert bool(found) == (matches(topic_filter, topic) and wanted in (None, critical))
    assert len(found) <= 1


@given(topics, st.booleans(), st.sampled_from([None, True, False]))
def test_whether_a_message_is_critical_is_said_by_its_subject(
    topic: str, critical: bool, wanted: bool | None
) -> None:
    subject = subject_of(topic, "net", critical=critical)
    assert is_critical(subject) is critical
    assert rules.matches(all_of("net", kind_of(wanted)), subject) == (wanted in (None, critical))
    rules.check_taken("test", messages_log("net", None, None), subject)


def test_the_log_is_one_that_the_store_takes() -> None:
    rules.check_log(messages_log("net", 600.0, 1 << 30))


def test_messages_that_are_not_critical_are_where_they_always_were() -> None:
    """Logs are kept that have them there."""
    assert subject_of("a/b", "net") == "net.m.a.b"


@pytest.mark.parametrize("topic", ["a" * 1_024, "é" * 512, "€" * 341, "/" * 1_023, "é/" * 341, "//é" * 256])
def test_every_topic_that_clients_may_use_can_be_stored(topic: str) -> None:
    assert len(topic.encode()) <= TOPIC_MAX_BYTES
    network = "n" * 63
    assert fits(topic)
    rules.check_key("test", tokens_of(topic))
    rules.check_taken("test", messages_log(network, None, None), subject_of(topic, network, critical=True))
    for pattern in patterns_of(topic[: TOPIC_MAX_BYTES // 4] + "/#", network):
        rules.check_pattern("test", pattern)


def test_a_topic_too_long_for_the_store_is_known_as_one() -> None:
    assert not fits("é" * 513)

"""Topics as subjects: different ones stay different, and filters find exactly theirs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.subjects import fits, patterns_of, subject_of, tokens_of
from tocsin.store import rules
from tocsin.wire.topics import matches

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


@given(topics, topics)
def test_different_topics_have_different_subjects(one: str, other: str) -> None:
    assert (tokens_of(one) == tokens_of(other)) == (one == other)


@given(small_topics, small_filters)
def test_a_filters_patterns_match_exactly_what_the_filter_matches(topic: str, topic_filter: str) -> None:
    subject = subject_of(topic, "net")
    found = [pattern for pattern in patterns_of(topic_filter, "net") if rules.matches(pattern, subject)]
    assert bool(found) == matches(topic_filter, topic)
    assert len(found) <= 1


def test_a_topic_too_long_for_the_store_is_known_as_one() -> None:
    assert fits("a" * 500)
    assert not fits("a" * 501)
    assert not fits("é" * 100)

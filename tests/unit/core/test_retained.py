"""Retained messages by filter, against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.retained import RetainedTopics
from tocsin.wire.topics import matches

levels = st.sampled_from(["a", "b", "", "$s"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.builds(
    lambda path, rest: "/".join([*path, "#"]) if rest else "/".join(path or ["+"]),
    st.lists(st.sampled_from(["a", "b", "", "+", "$s"]), max_size=4),
    st.booleans(),
).filter(bool)


@given(st.lists(st.tuples(topics, st.booleans()), max_size=30), filters)
def test_a_filter_finds_what_a_scan_finds(story: list[tuple[str, bool]], topic_filter: str) -> None:
    retained: RetainedTopics[str] = RetainedTopics(1_000)
    plain: dict[str, str] = {}
    for topic, keeps in story:
        if keeps:
            assert retained.put(topic, topic)
            plain[topic] = topic
        else:
            retained.remove(topic)
            plain.pop(topic, None)
        assert len(retained) == len(plain)
        assert retained.get(topic) == plain.get(topic)
    assert sorted(retained.matching(topic_filter)) == sorted(t for t in plain if matches(topic_filter, t))


def test_a_topic_beyond_the_bound_is_refused_and_a_known_one_is_replaced() -> None:
    retained: RetainedTopics[str] = RetainedTopics(1)
    assert retained.put("a", "one")
    assert not retained.put("b", "two")
    assert retained.put("a", "three")
    assert list(retained.matching("#")) == ["three"]


def test_clearing_forgets_everything() -> None:
    retained: RetainedTopics[str] = RetainedTopics(10)
    retained.put("a/b", "x")
    retained.clear()
    assert len(retained) == 0
    assert list(retained.matching("#")) == []

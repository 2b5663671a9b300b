"""Retained messages by filter, against a plain dictionary."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.retained.topics import RetainedTopics
from tocsin.wire.mqtt.topics import matches

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
    expected = sorted((t for t in plain if matches(topic_filter, t)), key=lambda topic: topic.split("/"))
    assert list(retained.matching(topic_filter)) == expected, "in the order of levels"
    for topic, _ in story:
        behind = [each for each in expected if each.split("/") > topic.split("/")]
        assert list(retained.matching(topic_filter, topic)) == behind


@given(
    st.sets(topics, max_size=20),
    st.lists(st.tuples(topics, st.booleans()), max_size=20),
    filters,
    st.integers(1, 3),
)
def test_who_reads_in_parts_gets_what_was_there_all_the_time_once(
    there: set[str], story: list[tuple[str, bool]], topic_filter: str, page: int
) -> None:
    retained: RetainedTopics[str] = RetainedTopics(1_000)
    for topic in there:
        retained.put(topic, topic)
    steady = there - {topic for topic, _ in story}
    changes, seen, after = iter(story), [], None
    while part := list(islice(retained.matching(topic_filter, after), page)):
        seen += part
        after = part[-1]
        for topic, keeps in islice(changes, 2):
            if keeps:
                retained.put(topic, topic)
            else:
                retained.remove(topic)
    assert len(seen) == len(set(seen)), "nothing twice"
    assert {t for t in steady if matches(topic_filter, t)} <= set(seen), "nothing missed"


def test_what_changes_while_it_is_read_does_no_harm() -> None:
    retained: RetainedTopics[str] = RetainedTopics(1_000)
    for topic in ("a/1", "a/2", "a/3", "b/1"):
        retained.put(topic, topic)
    found = retained.matching("#")
    assert next(found) == "a/1"
    retained.remove("a/2")
    retained.remove("b/1")
    retained.put("a/25", "a/25")
    retained.put("c", "c")
    assert "a/3" in list(found)


def test_a_topic_over_the_bound_is_refused_and_a_known_one_replaced() -> None:
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

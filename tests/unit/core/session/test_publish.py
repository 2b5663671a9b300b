"""The topics of one client against the plain rules."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt5 import PublishPacket

from tocsin.core.session import publish as module
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.publish import Publishing
from tocsin.errors import WireError
from tocsin.wire.mqtt.topics import HERE_PREFIX, ONE_PREFIX, TopicInvalid, check_topic

LIMITS = SessionLimits(topic_max_bytes=6, topic_max_levels=2, topic_alias_max=2)
topics = st.text("a$ü/", max_size=7)
packets = st.tuples(topics, st.none() | st.integers(1, 3)).filter(lambda each: bool(each[0] or each[1]))


def expected(
    topic: str, alias: int | None, known: dict[int, str], link: bool, denied: set[str]
) -> str | int | None:
    """The topic, None, or the reason code of the mistake."""
    if alias is not None:
        if alias > LIMITS.topic_alias_max:
            return 0x94
        if topic:
            known[alias] = topic
        elif alias not in known:
            return 0x82
        topic = known[alias]
    try:
        most, levels = (
            LIMITS.topic_max_bytes + len(HERE_PREFIX + ONE_PREFIX) * link,
            LIMITS.topic_max_levels + link,
        )
        check_topic(topic, max_bytes=most, max_levels=levels)
    except TopicInvalid:
        return 0x90
    return None if topic in denied or (topic[0] == "$") else topic


@settings(max_examples=300, deadline=None)
@given(st.lists(packets, max_size=12), st.booleans(), st.sets(topics, max_size=3))
def test_any_sequence_of_publishes_goes_where_the_rules_say(
    history: list[tuple[str, int | None]], link: bool, denied: set[str]
) -> None:
    publishing = Publishing(LIMITS, link=link)
    if denied:
        publishing.permit(lambda topic: topic not in denied)
    known: dict[int, str] = {}
    refused = 0
    for topic, alias in history:
        wanted = expected(topic, alias, known, link, denied)
        try:
            found: str | int | None = publishing.topic_of(PublishPacket(topic, b"", topic_alias=alias))
        except WireError as error:
            found = error.reason_code
        assert found == wanted
        refused += wanted is None
        assert publishing.refused == refused


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(topics.filter(bool), st.integers(1, 4)), max_size=12),
    st.booleans(),
    st.sets(topics, max_size=3),
)
def test_a_run_of_plain_messages_is_taken_as_one_by_one(
    history: list[tuple[str, int]], link: bool, denied: set[str]
) -> None:
    together, single = Publishing(LIMITS, link=link), Publishing(LIMITS, link=link)
    for publishing in (together, single):
        if denied:
            publishing.permit(lambda topic: topic not in denied)
    for topic, messages in history:
        try:
            wanted: bool | int = [single.topic_of(PublishPacket(topic, b"")) for _ in range(messages)] == [
                topic
            ] * messages
        except WireError as error:
            wanted = error.reason_code
        try:
            found: bool | int = together.takes(topic, messages)
        except WireError as error:
            found = error.reason_code
        assert found == wanted
        assert together.refused == single.refused


def test_a_permission_is_asked_for_every_message() -> None:
    publishing, asked = Publishing(LIMITS), list[str]()
    publishing.topic_of(PublishPacket("a", b""))

    def may(topic: str) -> bool:
        asked.append(topic)
        return True

    publishing.permit(may)
    for _ in range(2):
        assert publishing.topic_of(PublishPacket("a", b"")) == "a"
    assert asked == ["a", "a"]


def test_a_link_with_a_permission_is_asked_as_well() -> None:
    publishing = Publishing(LIMITS, link=True)
    publishing.permit(lambda topic: False)
    assert publishing.topic_of(PublishPacket("a", b"")) is None


@pytest.mark.parametrize(
    "topic", ["$SYS/a", "$meta/a", "$query/a", "$a", "$one/", "$one/$SYS/a", "$carried/x", "$near"]
)
def test_a_link_brings_no_topics_that_are_the_servers_own(topic: str) -> None:
    assert Publishing(LIMITS, link=True).topic_of(PublishPacket(topic, b"")) is None


@pytest.mark.parametrize("topic", ["a/b", "$one/a", "$carried", "$near/words"])
def test_a_link_brings_what_brokers_say_to_each_other(topic: str) -> None:
    limits = msgspec.structs.replace(LIMITS, topic_max_bytes=32)
    assert Publishing(limits, link=True).topic_of(PublishPacket(topic, b"")) == topic
    assert (Publishing(limits).topic_of(PublishPacket(topic, b"")) is None) == topic.startswith("$")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MEMO_MAX", 3)
    monkeypatch.setattr(module, "_MEMO_TOPIC_MAX", 4)
    limits = SessionLimits(topic_max_bytes=777)  # bounds of its own, and so a memo of its own
    publishing = Publishing(limits)
    for topic in ("a", "b", "long topic", "c", "d", "a"):
        assert publishing.topic_of(PublishPacket(topic, b"")) == topic
        assert len(publishing._good) <= 3
    assert publishing._good == {"d", "a"}
    assert Publishing(limits)._good is publishing._good


def test_no_alias_is_offered_when_the_maximum_is_0() -> None:
    with pytest.raises(WireError, match="none is offered"):
        Publishing(SessionLimits(topic_alias_max=0)).topic_of(PublishPacket("a", b"", topic_alias=1))

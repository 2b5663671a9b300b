"""Which queries a stream satisfies, by what its messages say of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.coordination.participant.message_evidence import TOPICS_MAX, MessageEvidence
from tocsin.model.stream import Value
from tocsin.query import parse

TEXTS = {"lamps": "kind = 'lamp'", "~lamps": "kind = 'lamp'", "one": "n = 1", "not one": "NOT n = 1"}
NONE: dict[str, dict[str, None]] = {query: {} for query in TEXTS}
LAMP: dict[str, Value] = {"kind": "lamp"}


def test_a_stream_is_found_for_each_query_that_lacks_it() -> None:
    evidence = MessageEvidence()
    assert evidence.find("a", {"kind": "lamp", "n": 1}, NONE, TEXTS) == ["lamps", "~lamps", "one"]
    known = {**NONE, "lamps": {"b": None}}
    assert evidence.find("b", {"kind": "lamp", "n": 1}, known, TEXTS) == ["~lamps", "one"]
    assert evidence.find("c", LAMP, {"one": {}}, TEXTS) == [], "others are not answered"


def test_a_stream_is_judged_again_when_its_metadata_change() -> None:
    evidence = MessageEvidence()
    assert evidence.find("a", LAMP, NONE, TEXTS) == ["lamps", "~lamps"]
    assert evidence.find("a", dict(LAMP), NONE, TEXTS) == [], "all that it satisfies was told"
    assert evidence.find("a", {"n": 1}, NONE, TEXTS) == ["one"]
    assert evidence.find("a", LAMP, NONE, TEXTS) == ["lamps", "~lamps"]


def test_what_is_remembered_is_bounded_and_the_oldest_goes() -> None:
    evidence = MessageEvidence()
    for number in range(TOPICS_MAX + 1):
        evidence.find(f"{number}", LAMP, NONE, TEXTS)
    assert len(evidence._judged) == TOPICS_MAX
    assert evidence.find(f"{TOPICS_MAX}", LAMP, NONE, TEXTS) == []
    assert evidence.find("0", LAMP, NONE, TEXTS) == ["lamps", "~lamps"]


said = st.fixed_dictionaries({}, optional={"kind": st.sampled_from(["lamp", "door"]), "n": st.integers(1, 2)})


@given(st.lists(st.tuples(st.sampled_from("abc"), said), max_size=30))
def test_a_stream_ends_up_in_every_query_that_its_messages_satisfy(
    story: list[tuple[str, dict[str, Value]]],
) -> None:
    evidence = MessageEvidence()
    sets: dict[str, dict[str, None]] = {query: {} for query in TEXTS}
    for topic, metadata in story:
        for query in evidence.find(topic, metadata, sets, TEXTS):
            assert topic not in sets[query] and parse(TEXTS[query]).matches(metadata)
            sets[query][topic] = None
        for query, text in TEXTS.items():
            assert topic in sets[query] or not parse(text).matches(metadata)

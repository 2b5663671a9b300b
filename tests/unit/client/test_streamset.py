"""A set of streams, from the notices that keep it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.client import Change, Changed, Joined, Left, Set
from tocsin.client.streamset import StreamSet
from tocsin.core.streams.listing import encode_set, encode_turn
from tocsin.errors import FormatNewer, Malformed
from tocsin.model.stream import Metadata

SETS = st.dictionaries(st.sampled_from("abcd"), st.fixed_dictionaries({"n": st.integers(0, 1)}), max_size=4)


def test_the_first_set_is_told_whole_and_then_each_change() -> None:
    streams = StreamSet()
    assert streams.take(encode_set({"a": {"n": 1}})[0]) == [Set({"a": {"n": 1}})]
    assert streams.take(encode_turn("joined", "b", {"n": 2})) == [Joined("b", {"n": 2})]
    assert streams.take(encode_turn("changed", "b", {"n": 3})) == [Changed("b", {"n": 3})]
    assert streams.take(encode_turn("left", "a", {"n": 1})) == [Left("a", {"n": 1})]
    assert streams.streams == {"b": {"n": 3}}


def test_a_set_in_parts_is_told_when_the_last_has_come() -> None:
    many: dict[str, Metadata] = {f"stream/{number}": {"text": "x" * 200} for number in range(1_000)}
    parts = encode_set(many)
    assert len(parts) > 2
    streams = StreamSet()
    assert [streams.take(part) for part in parts] == [*([] for _ in parts[1:]), [Set(many)]]


def test_a_set_whose_rest_never_came_is_forgotten_with_its_connection() -> None:
    streams = StreamSet()
    streams.take(b'{"streams": [{"topic": "gone", "metadata": {}}], "more": true}')
    streams.begin()
    assert streams.take(encode_set({"a": {}})[0]) == [Set({"a": {}})]


@given(st.lists(SETS, min_size=1))
def test_changes_lead_from_any_set_to_the_next(sets: list[dict[str, Metadata]]) -> None:
    streams, model = StreamSet(), dict[str, Metadata]()
    for number, whole in enumerate(sets):
        for change in [each for part in encode_set(whole) for each in streams.take(part)]:
            assert isinstance(change, Set) == (number == 0)
            apply(model, change)
        assert model == streams.streams == whole


def apply(model: dict[str, Metadata], change: Change) -> None:
    match change:
        case Set(streams):
            model.clear()
            model.update(streams)
        case Joined(topic, metadata):
            assert topic not in model
            model[topic] = metadata
        case Changed(topic, metadata):
            assert model[topic] != metadata
            model[topic] = metadata
        case Left(topic, metadata):
            assert model.pop(topic) == metadata


def test_a_notice_of_a_newer_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(FormatNewer, match="Upgrade this process"):
        StreamSet().take(b'{"v": 2, "streams": []}')
    assert StreamSet().take(b'{"v": 1, "streams": []}') == StreamSet().take(b'{"streams": []}') == [Set({})]


@pytest.mark.parametrize("bad", [b"", b"[]", b'{"joined": 1}', b'{"streams": [{"metadata": {}}]}', b"\xff"])
def test_what_is_no_notice_is_refused(bad: bytes) -> None:
    with pytest.raises(Malformed, match="not a notice about streams"):
        StreamSet().take(bad)


def test_a_word_of_a_later_version_changes_nothing() -> None:
    assert StreamSet().take(json.dumps({"renamed": {"topic": "a"}}).encode()) == []

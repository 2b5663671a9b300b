"""What clients say of streams is read, or refused in words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.streams.metadata_payload import DescriptionInvalid, read_payload, read_properties
from tocsin.model.stream import KEY_MAX_BYTES, KEYS_MAX, TEXT_MAX_BYTES


def test_an_object_is_a_change_and_nothing_or_null_forgets() -> None:
    said = {"Room": "410", "level": 2.5, "floor": 4, "on": True, "old": None, "$permanent": False}
    assert read_payload(json.dumps(said).encode()) == said
    assert read_payload(b"") is None and read_payload(b"null") is None
    assert read_payload(b"{}") == {}


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"[]", "is not a JSON object of strings, numbers, booleans and null"),
        (b'"text"', "is not a JSON object"),
        (b'{"a": [1]}', "is not a JSON object"),
        (b'{"a": 1', "is not a JSON object"),
        (b"\xff\xfe", "is not a JSON object"),
        (b'{"a": "\\ud800"}', "is not a JSON object"),
        (b"[" * 100_000, "is not a JSON object"),
        (b'{"topic": "x"}', "the key 'topic' is set by the system"),
        (b'{"": 1}', "a key has 1 to"),
        (b'{"a": 1e999}', "a finite number|not a JSON object"),
        (b'{"a": 99999999999999999999}', "beyond"),
        (b'{"$permanent": 1}', "true or false"),
        (b'{"$v": 2, "a": 1}', "version 2, and this process reads up to version 1"),
        (b'{"$v": true}', "is no version"),
        (b'{"$v": null}', "is no version"),
        (b'{"$v": "x"}', "is no version"),
        (json.dumps({"k" * (KEY_MAX_BYTES + 1): 1}).encode(), "a key has 1 to"),
        (json.dumps({"k": "v" * (TEXT_MAX_BYTES + 1)}).encode(), "is longer than"),
        (json.dumps({f"k{n}": 1 for n in range(KEYS_MAX + 1)}).encode(), "keys in one change"),
    ],
)
def test_what_cannot_be_taken_is_refused_in_words(payload: bytes, words: str) -> None:
    with pytest.raises(DescriptionInvalid, match=words) as caught:
        read_payload(payload)
    assert caught.value.reason_code == 0x99


def test_who_says_the_version_says_nothing_else_by_it() -> None:
    assert read_payload(b'{"$v": 1, "Room": "410"}') == {"Room": "410"}
    assert read_payload(b'{"v": 7}') == {"v": 7}, "a key of somebody's own"
    assert read_properties([("meta.$v", "1"), ("meta.Room", "410")]) == {"Room": "410"}
    with pytest.raises(DescriptionInvalid, match="version 2, and this process reads up to version 1"):
        read_properties([("meta.$v", "2"), ("meta.Room", "410")])


def test_properties_say_strings_and_an_empty_one_takes_a_key_away() -> None:
    properties = [("meta.Room", "410"), ("other", "x"), ("meta.old", ""), ("meta.$permanent", "true")]
    assert read_properties(properties) == {"Room": "410", "old": None, "$permanent": True}
    assert read_properties([("other", "x")]) is None and read_properties([]) is None


@pytest.mark.parametrize("name", ["meta.", "meta.client", "meta.$permanent"])
def test_bad_properties_are_refused(name: str) -> None:
    with pytest.raises(DescriptionInvalid):
        read_properties([(name, "x")])


@given(st.binary(max_size=200))
def test_no_payload_does_anything_but_be_read_or_refused(payload: bytes) -> None:
    try:
        read_payload(payload)
    except DescriptionInvalid as error:
        assert error.problem

"""Values that clients say and hear."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.client import Message
from tocsin.client.message import as_properties, checked, checked_qos, payload_of, publication_of
from tocsin.core.streams.metadata_payload import read_properties
from tocsin.errors import MetadataInvalid

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda key: key != "topic"
)


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        (b"\0\xff", b"\0\xff"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        ("21 °C", "21 °C".encode()),
        (21.5, b"21.5"),
        (True, b"true"),
        (None, b"null"),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
    ],
)
def test_bytes_and_text_go_as_they_are_and_the_rest_as_json(value: object, payload: bytes) -> None:
    assert payload_of(value) == payload


@pytest.mark.parametrize(("priority", "heard"), [(None, 0), (0, 0), (7, 7), ("9", 9), ("critical", 9)])
def test_a_priority_is_said_as_a_user_property(priority: int | str | None, heard: int) -> None:
    said = publication_of("a", "x", priority=priority, user_properties=[("k", "v")]).user_properties
    assert ("k", "v") in said and len(said) == (1 if priority is None else 2)
    assert Message("a", b"x", user_properties=said).priority == heard


def test_what_is_no_priority_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="a priority is 0 to 9, or 'critical', not 'high'"):
        publication_of("a", "x", priority="high")


def test_what_json_cannot_say_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        payload_of(object())


def test_a_message_is_read_as_text_and_as_json() -> None:
    assert Message("a", b"\xff{").text == "\\xff{"
    assert Message("a", b'{"t": 1}').json() == {"t": 1}
    with pytest.raises(ValueError):
        Message("a", b"\xff{").json()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"a": [1]}, "the value of 'a' is a list; it must be text, a number, true or false"),
        ({"a": b"x"}, "the value of 'a' is a bytes"),
        ({"topic": "b"}, "'topic' is set by the system"),
        ({"": 1}, "a key has 1 to"),
        ({"a": math.nan}, "not a finite number"),
        ({"$permanent": 1}, "is true or false"),
    ],
)
def test_metadata_that_no_broker_takes_is_refused_with_the_topic(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(MetadataInvalid, match=problem) as refused:
        checked("t", changes)
    assert refused.value.topic == "t"


@pytest.mark.parametrize("bad", [-1, 3, "1"])
def test_a_quality_of_service_that_does_not_exist_is_refused(bad: int) -> None:
    with pytest.raises(ValueError, match="0, 1 or 2"):
        checked_qos(bad)


@given(
    st.dictionaries(KEYS, st.none() | st.text(max_size=3) | st.integers(0, 9) | st.booleans()), st.booleans()
)
def test_user_properties_say_the_same_as_the_change_or_nothing(
    changes: dict[str, Any], permanent: bool
) -> None:
    if permanent:
        changes["$permanent"] = True
    properties = as_properties(changes)
    if properties is None:
        assert any(value == "" or not isinstance(value, str | None) for value in changes.values())
    else:
        assert read_properties(properties) == (changes or None)

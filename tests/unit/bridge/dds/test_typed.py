"""Samples of a known type as JSON, and back."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds has no wheel for this Python")

from cyclonedds.idl import IdlEnum, IdlStruct
from cyclonedds.idl.annotations import key
from cyclonedds.idl.types import array, float64, int16, int32, sequence, uint8

from tocsin.bridge.dds.typed import NotTyped, from_json, key_of, to_json


class Color(IdlEnum, typename="test.Color", default="red"):
    red = 0
    blue = 1


@dataclass
class Corner(IdlStruct, typename="test.Corner"):
    x: float64
    y: float64


@dataclass
class Shape(IdlStruct, typename="test.Shape"):
    name: str
    key("name")
    size: int32
    color: Color
    corners: sequence[Corner]  # type: ignore[type-arg]
    raw: sequence[uint8]  # type: ignore[type-arg]
    three: array[int16, 3]  # type: ignore[type-arg, valid-type]
    hidden: bool = field(default=False)


WHOLE: dict[str, Any] = {
    "name": "ü",
    "size": -3,
    "color": "blue",
    "corners": [{"x": 1.5, "y": 2.0}],
    "raw": [0, 255],
    "three": [1, 2, 3],
    "hidden": True,
}


def test_json_becomes_a_sample_and_comes_back() -> None:
    assert json.loads(to_json(Shape, from_json(Shape, json.dumps(WHOLE).encode()))) == WHOLE


def test_what_is_left_out_is_zero() -> None:
    zero = {
        "name": "",
        "size": 0,
        "color": "red",
        "corners": [],
        "raw": [],
        "three": [0, 0, 0],
        "hidden": False,
    }
    assert json.loads(to_json(Shape, from_json(Shape, b"{}"))) == zero
    assert json.loads(to_json(Shape, from_json(Shape, b'{"corners": [{"x": 1}]}')))["corners"] == [
        {"x": 1.0, "y": 0.0}
    ]


def test_the_key_alone_stands_for_an_instance() -> None:
    data = from_json(Shape, json.dumps(WHOLE).encode())
    assert key_of(Shape, data) == from_json(Shape, b'{"name": "\xc3\xbc"}', key=True)
    assert key_of(Corner, from_json(Corner, b"{}")) == b""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no object"),
        (b'{"colour": "red"}', "has no field 'colour'; it has color"),
        (b'{"size": "3"}', 'Shape.size is "3", and no int'),
        (b'{"size": true}', "Shape.size is true"),
        (b'{"size": 3000000000}', "does not fit"),
        (b'{"color": "green"}', "none of red, blue"),
        (b'{"corners": {}}', "Shape.corners is no list"),
        (b'{"corners": [3]}', "Shape.corners is no object"),
        (b'{"three": [1]}', "no list of 3"),
        (b'{"raw": [256]}', "does not fit"),
    ],
)
def test_json_that_does_not_fit_is_refused_in_words(text: bytes, problem: str) -> None:
    with pytest.raises(NotTyped, match=problem):
        from_json(Shape, text)


def test_data_of_another_type_is_refused_in_words() -> None:
    with pytest.raises(NotTyped, match="not of its type"):
        to_json(Shape, b"\0\1\0\0\xff\xff")

"""Standing queries and streams: what they look like, and what changes.

A query or stream depends on its number alone, so that a larger load has the smaller one in it; what tells them apart
(rooms, bounds, owners) grows with their number, so that about as many are true of a stream at any size.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import msgspec

from bench.matching.shapes import Shape
from tocsin.query import Metadata, Query, Value

Step = tuple[Metadata, Metadata]

PER_ROOM: Final = 200  # queries, or streams, of a room; half of each type
KINDS: Final = ("temperature", "light")
STEP: Final = 0.01  # between the bounds of ranges: a value that moves by one passes a hundred


class Workload(msgspec.Struct, frozen=True):
    """``query`` and ``stream`` make the one with a number; ``change`` and ``fresh`` draw one for so many."""

    name: str
    what: str
    query: Callable[[int], Query]
    change: Callable[[random.Random, int], Step]
    stream: Callable[[int], Metadata]
    fresh: Callable[[random.Random, int], Query]


# ── building: equality that tells apart, and a rest to be verified ───────────────────────────────────────────

_BUILDING: Final = Shape(
    "Location/Building = {building} AND Location/Room = {room} AND Type = {kind}"
    " AND NOT Status = 'off' AND Owner != {owner}",
    building="",
    room="",
    kind="",
    owner="",
)


def _place(room: int) -> dict[str, Value]:
    return {
        "Location/Building": f"b{room // 50}",
        "Location/Room": f"r{room}",
        "Location/Floor": room % 50 // 10,
    }


def _building_query(i: int) -> Query:
    room = i // PER_ROOM
    return _BUILDING(building=f"b{room // 50}", room=f"r{room}", kind=KINDS[i % 2], owner=f"o{i}")


def _building_stream(i: int) -> Metadata:
    return {
        **_place(i // PER_ROOM),
        "Type": KINDS[i % 2],
        "Status": "on",
        "Owner": "me",
        "Unit": "C",
        "Nr": i,
    }


def _building_change(chance: random.Random, size: int) -> Step:
    after = _building_stream(chance.randrange(size))
    return {**after, "Status": "off"}, after


# ── ranges: one type, a bound each ───────────────────────────────────────────────────────────────────────────

_BOUND: Final = Shape("Type = 'temperature' AND Value > {low}", low=0.5)
_BETWEEN: Final = Shape("Type = 'temperature' AND Value >= {low} AND Value < {high}", low=0.5, high=0.5)


def _range_change(chance: random.Random, size: int) -> Step:
    value = chance.random() * (size * STEP - 1)
    before: dict[str, Value] = {"Type": "temperature", "Value": value, "Unit": "C", "Location/Room": "r1"}
    return before, {**before, "Value": value + 1}


def _range_fresh(chance: random.Random, size: int) -> Query:
    low = chance.random() * (size * STEP - 1)
    return _BETWEEN(low=low, high=low + 1)


# ── mixed: everything the language has, a hundred queries or streams a room ──────────────────────────────────

_MIXED: Final = (
    Shape("Location/Room = {room} AND Type = {kind}", room="", kind=""),
    Shape("Location/Room IN ({room}, {other}) AND Value > {low}", room="", other="", low=0.5),
    Shape("Path LIKE '{room_}/%' AND Value < {low}", room="", low=0.5),
    Shape("Path =~ '^{room_}/[a-z]+$' AND Owner != {owner}", room="", owner=""),
    Shape("(Location/Room = {room} AND Type = {kind}) OR Owner = {owner}", room="", kind="", owner=""),
    Shape("EXISTS Unit AND Location/Room = {room} AND NOT Owner = {owner}", room="", owner=""),
    Shape("Serial >= {low} AND Serial < {high} AND Type = {kind}", low=0.5, high=0.5, kind=""),
    Shape(
        "NOT Status = 'off' AND Location/Room = {room} AND (Type = {kind} OR Value > {low})",
        room="",
        kind="",
        low=0.5,
    ),
)


def _mixed_values(i: int) -> dict[str, Value]:
    room = i // 100
    return {
        "room": f"r{room}",
        "other": f"r{room + 1}",
        "kind": KINDS[i % 2],
        "low": float(i % 40),
        "high": float(i % 40 + 20),
        "owner": f"o{i}",
    }


def _mixed_query(i: int) -> Query:
    values = _mixed_values(i)
    shape = i % len(_MIXED)
    if shape == 6:
        values |= {"low": float(i), "high": float(i + 20)}
    return _MIXED[shape](**values)


def _mixed_stream(i: int) -> Metadata:
    room = i // 100
    return {
        **_place(room),
        "Path": f"r{room}/sensor",
        "Type": KINDS[i % 2],
        "Value": i * 7 % 40 + 0.5,
        "Serial": i,
        "Owner": f"o{i}",
        "Status": "on",
        "Unit": "C",
    }


def _mixed_change(chance: random.Random, size: int) -> Step:
    before = _mixed_stream(chance.randrange(size))
    room = chance.randrange(max(size // 100, 1))
    diff: Metadata = chance.choice(
        (
            {"Value": chance.random() * 40},
            {"Status": "off"},
            {"Type": "humidity"},
            {"Location/Room": f"r{room}", "Path": f"r{room}/sensor"},
            {"Serial": chance.randrange(size)},
        )
    )
    return before, {**before, **diff}


# ── adversarial: all share one key and value, and differ in what must not be ─────────────────────────────────

_OTHER_ROOM: Final = Shape("Site = 'hq' AND Location/Room != {room}", room="")
_ENDING: Final = Shape("Site = 'hq' AND Name =~ '{name_}$'", name="")


def _site_stream(i: int) -> Metadata:
    return {"Site": "hq", "Location/Room": f"r{i}", "Name": f"sensor-{i}", "Unit": "C"}


def _site_change(chance: random.Random, size: int) -> Step:
    before = _site_stream(chance.randrange(size))
    return before, {**before, "Location/Room": f"r{chance.randrange(size)}"}


# ── opaque: all share one key and value, and differ in what no table can tell ────────────────────────────────

_LENGTH: Final = Shape("Site = 'hq' AND LENGTH(Name) > {low}", low=0.5)
_SHORT: Final = Shape("Site = 'hq' AND Location/Room != {room}", room="")


def _opaque_change(chance: random.Random, size: int) -> Step:
    before = _site_stream(chance.randrange(size))
    return before, {**before, "Name": "s" * 100}


WORKLOADS: Final = (
    Workload(
        "building",
        "building, room and type are equal, the rest is verified; 100 turn",
        _building_query,
        _building_change,
        _building_stream,
        lambda chance, size: _building_query(chance.randrange(size)),
    ),
    Workload(
        "ranges",
        "one type for all, and a bound each; 100 turn",
        lambda i: _BOUND(low=i * STEP),
        _range_change,
        lambda i: {"Type": "temperature", "Value": i * STEP, "Unit": "C", "Location/Room": f"r{i // 100}"},
        _range_fresh,
    ),
    Workload(
        "mixed",
        "equality, IN, LIKE, regular expressions, ranges, EXISTS, OR, NOT",
        _mixed_query,
        _mixed_change,
        _mixed_stream,
        lambda chance, size: _mixed_query(chance.randrange(size)),
    ),
    Workload(
        "adversarial",
        "one value for all, and a room each that it must not be; 2 turn. New: a pattern without a beginning",
        lambda i: _OTHER_ROOM(room=f"r{i}"),
        _site_change,
        _site_stream,
        lambda chance, size: _ENDING(name=f"sensor-{chance.randrange(size)}"),
    ),
    Workload(
        "opaque",
        "one value for all, and a function of a key each: nothing to look up. New: true of all but one",
        lambda i: _LENGTH(low=i + 0.5),
        _opaque_change,
        _site_stream,
        lambda chance, size: _SHORT(room=f"r{chance.randrange(size)}"),
    ),
)

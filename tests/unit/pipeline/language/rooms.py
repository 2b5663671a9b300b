"""A small world of reports from rooms, with every kind of gap in it."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.unit.pipeline.language.oracle import World, datasets_of

DATASETS = datasets_of(
    """CREATE DATASET Reports (id BIGINT, room STRING, kind STRING, level INT, temp DOUBLE, at TIMESTAMP, day DATE,
        note STRING, tags ARRAY<STRING>);
    CREATE DATASET Rooms (room STRING, floor INT, name STRING, zone STRING) KEY (room);
    CREATE DATASET Zones (zone STRING, risk INT) KEY (zone)"""
)


def _at(minute: int) -> dt.datetime:
    return dt.datetime(2026, 3, 1, 11, minute, tzinfo=dt.UTC)


def _day(day: int) -> dt.date:
    return dt.date(2026, 2, day)


OLD = [
    (1, "r1", "fire", 1, 20.5, _at(1), _day(1), "big fire here", ["a", "b"]),
    (2, "r1", "smoke", 2, 21.5, _at(2), _day(2), "Smoke, small", ["b"]),
    (3, "r2", "fire", 3, None, _at(3), _day(3), None, []),
    (4, None, "fire", 2, 18.0, _at(4), None, "100%_sure", None),
    (5, "r3", None, None, 30.0, None, _day(3), "it's", ["c"]),
]
NEW = [
    (6, "r1", "fire", 4, 25.0, _at(30), _day(3), "fire fire", ["a"]),
    (7, "r2", "smoke", 1, 22.0, _at(31), _day(4), "nothing", ["x"]),
    (8, "r2", "fire", 2, 22.0, _at(32), _day(4), "ünïcode", ["a", "x"]),
    (9, "r4", "flood", 5, 10.0, _at(33), _day(5), "a.b", []),
]
ROOMS = [("r1", 1, "one", "z1"), ("r2", 2, "two", "z1"), ("r3", 2, "three", "z2"), ("r5", None, "five", None)]
ZONES = [("z1", 1), ("z2", 5), ("z3", None)]


def rooms(spark: object) -> World:
    world = World(spark, DATASETS)  # type: ignore[arg-type]
    world.fill("Reports", OLD, NEW)
    world.fill("Rooms", ROOMS)
    world.fill("Zones", ZONES)
    return world


on_spark = pytest.mark.xdist_group("spark")

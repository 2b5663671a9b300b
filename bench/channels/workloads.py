"""Subscriptions and publications: by equality, by distance, and the emergency channel of the REAPS paper.

A subscription depends on its number alone, so that a larger load has the smaller one in it. One subscription in ten
thousand is interested in a publication, whatever their number: n subscriptions and m publications have n × m ÷ 10 000
results, give or take chance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

import msgspec
import pyarrow as pa

from tocsin.model.catalogue import Channel, Column, Dataset, Parameter
from tocsin.model.results import Value

SHARE: Final = 10_000  # subscriptions of which one is interested in a publication
TEXT: Final = "the water has risen by a hand's breadth since noon"
XY: Final = "STRUCT<x: DOUBLE, y: DOUBLE>"
RADIUS_M: Final = 500.0
SIDE_M: Final = math.sqrt(SHARE * math.pi) * RADIUS_M  # of the square in which a circle is one part in SHARE


class Workload(msgspec.Struct, frozen=True):
    """``values`` are those of the subscription with a number; ``publications`` draws so many."""

    name: str
    what: str
    dataset: Dataset  # of the publications
    channel: Channel
    values: Callable[[int], tuple[Value, ...]]
    publications: Callable[[random.Random, int], pa.Table]
    duckdb: str  # the same query for DuckDB, over ``new`` and ``subs`` (_channel, _k, p0, p1)
    alone: str  # the same query of one subscription for Spark, over ``new``, with its values in braces


# ── equality: a topic, and somebody else's words ─────────────────────────────────────────────────────────────


def _equality_publications(chance: random.Random, count: int) -> pa.Table:
    topics = [chance.randrange(SHARE) for _ in range(count)]
    return pa.table(
        {
            "id": pa.array([chance.getrandbits(40) for _ in topics], pa.int64()),
            "about": [f"topic-{topic}" for topic in topics],
            "author": [f"author-{chance.randrange(1_000)}" for _ in topics],
            "text": [TEXT] * count,
        }
    )


_REPORTS: Final = Dataset(
    "Reports",
    (Column("id", "BIGINT"), Column("about", "STRING"), Column("author", "STRING"), Column("text", "STRING")),
)

EQUALITY: Final = Workload(
    "equality",
    "reports about one of 10 000 topics, by somebody else",
    _REPORTS,
    Channel(
        "About",
        (Parameter("about", "STRING"), Parameter("reader", "STRING")),
        (),
        "SELECT r.id, r.about, r.text FROM NEW Reports r WHERE r.about = :about AND r.author <> :reader",
        10.0,
    ),
    lambda i: (f"topic-{i % SHARE}", f"reader-{i}"),
    _equality_publications,
    "SELECT s._channel, s._k, to_json({'id': r.id, 'about': r.about, 'text': r.text}) AS payload"
    " FROM new r JOIN subs s ON r.about = s.p0 AND r.author <> s.p1",
    "SELECT r.id, r.about, r.text FROM new r WHERE r.about = '{0}' AND r.author <> '{1}'",
)

# ── distance: five hundred metres around a place of one's own ────────────────────────────────────────────────

_GOLDEN: Final = 1.32471795724474602596  # the plastic number: its powers spread points evenly over a square


def spot(i: int, side_m: float = SIDE_M) -> tuple[float, float]:
    """The i-th of points that are evenly spread over a square."""
    return (0.5 + i / _GOLDEN) % 1 * side_m, (0.5 + i / _GOLDEN**2) % 1 * side_m


def _distance_publications(chance: random.Random, count: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([chance.getrandbits(40) for _ in range(count)], pa.int64()),
            "place": [{"x": chance.random() * SIDE_M, "y": chance.random() * SIDE_M} for _ in range(count)],
            "text": [TEXT] * count,
        }
    )


_CELL: Final = "CAST(floor({axis} / 500.0) AS BIGINT)"

DISTANCE: Final = Workload(
    "distance",
    "reports from within 500 m of a place",
    Dataset("Sightings", (Column("id", "BIGINT"), Column("place", XY), Column("text", "STRING"))),
    Channel(
        "Around",
        (Parameter("x", "DOUBLE"), Parameter("y", "DOUBLE")),
        (),
        "SELECT s.id, s.place, s.text FROM NEW Sightings s WHERE WITHIN(s.place, XY(:x, :y), 500)",
        10.0,
    ),
    spot,
    _distance_publications,
    # The grid is written out: without it DuckDB compares all pairs.
    "SELECT s._channel, s._k, to_json({'id': r.id, 'place': r.place, 'text': r.text}) AS payload"
    f" FROM (SELECT new.*, {_CELL.format(axis='place.x')} + dx AS cx, {_CELL.format(axis='place.y')} + dy AS cy"
    " FROM new, (VALUES (-1), (0), (1)) a(dx), (VALUES (-1), (0), (1)) b(dy)) r"
    f" JOIN subs s ON {_CELL.format(axis='s.p0')} = r.cx AND {_CELL.format(axis='s.p1')} = r.cy"
    " WHERE sqrt((r.place.x - s.p0) ** 2 + (r.place.y - s.p1) ** 2) <= 500",
    "SELECT r.id, r.place, r.text FROM new r"
    " WHERE sqrt(pow(r.place.x - {0}D, 2) + pow(r.place.y - {1}D, 2)) <= 500",
)

WORKLOADS: Final = (EQUALITY, DISTANCE)

# ── emergencies: people who move, and what happens around them ───────────────────────────────────────────────

WORLD_M: Final = (45_000.0, 34_000.0)  # ten times the length of the paper's: a city, and not a quarter of one
RADII_M: Final = {"fire": 500.0, "flood": 1_000.0, "crash": 100.0, "storm": 2_000.0}
MOVE_SHARE: Final = 10  # a person moves every 100 s, an execution comes every 10 s: a tenth of them

PEOPLE: Final = Dataset(
    "People",
    (Column("user", "STRING", nullable=False), Column("place", XY), Column("at", "TIMESTAMP")),
    key=("user",),
    event_time="at",
)
EMERGENCIES: Final = Dataset(
    "Emergencies",
    (Column("id", "BIGINT"), Column("kind", "STRING"), Column("place", XY), Column("radius", "DOUBLE")),
)
NEAR_ME: Final = Channel(
    "EmergenciesNearMe",
    (Parameter("user", "STRING"),),
    (),
    "SELECT e.id, e.kind, ROUND(DISTANCE(u.place, e.place)) AS metres"
    " FROM NEW Emergencies e JOIN People u ON u.user = :user AND WITHIN(u.place, e.place, e.radius)",
    10.0,
)


def _places(chance: random.Random, count: int) -> list[dict[str, float]]:
    return [{"x": chance.random() * WORLD_M[0], "y": chance.random() * WORLD_M[1]} for _ in range(count)]


def moves(chance: random.Random, users: list[int], at_us: int) -> pa.Table:
    """Where these people are now."""
    return pa.table(
        {
            "user": [f"user-{user}" for user in users],
            "place": _places(chance, len(users)),
            "at": pa.array([at_us] * len(users), pa.timestamp("us", "UTC")),
        }
    )


def emergencies(chance: random.Random, count: int) -> pa.Table:
    kinds = [chance.choice(list(RADII_M)) for _ in range(count)]
    return pa.table(
        {
            "id": pa.array([chance.getrandbits(40) for _ in kinds], pa.int64()),
            "kind": kinds,
            "place": _places(chance, count),
            "radius": [RADII_M[kind] for kind in kinds],
        }
    )


# ── a hundred channels of one shape ──────────────────────────────────────────────────────────────────────────


def many_channels(count: int) -> list[Channel]:
    """Channels that differ in their name, their period (10 to 600 s) and a constant."""
    periods = [10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0]
    return [
        Channel(
            f"About{i}",
            EQUALITY.channel.parameters,
            (),
            f"SELECT r.id, r.about, r.text FROM NEW Reports r"
            f" WHERE r.about = :about AND r.author <> :reader AND r.id > {i}",
            periods[i % len(periods)],
        )
        for i in range(count)
    ]

"""Queries over the results of a channel give each subscription what a query of its own would, over typed rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.unit.pipeline.language.oracle import Result, Tuples, World, channel
from tests.unit.pipeline.language.rooms import rooms
from tocsin.model.catalogue import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

NEAR = msgspec.structs.replace(
    channel(
        "room STRING, least DOUBLE",
        "SELECT id, kind, temp, tags FROM NEW Reports WHERE room = :room AND temp > :least",
        "Near",
    ),
    columns=(
        Column("id", "BIGINT"),
        Column("theKind", "STRING"),
        Column("temp", "DOUBLE"),
        Column("tags", "ARRAY<STRING>"),
    ),
)
RESULTS: list[Result] = [
    (3, ("r1", 20.0), (1, "fire", 20.5, ["a", "b"])),
    (3, ("r1", 21.0), (2, "smoke", 21.5, ["b"])),
    (4, ("r2", 0.0), (3, "it's", None, [])),
    (6, ("r1", 20.0), (6, "fire", 25.0, None)),
    (6, ("r2", 0.0), (7, None, 22.0, ["x"])),
    (7, ("r2", 0.0), (8, "\u00fc {}", 22.0, ["a", "x"])),
]
ROOMS: Tuples = [("r1",), ("r2",), ("r4",), ("zz",)]
FEW: Tuples = [(0,), (1,), (2,), (9,)]


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> World:
    made = rooms(spark)
    made.fill_results(NEAR, RESULTS, since=4)
    return made


SHAPES: dict[str, tuple[str, str, Tuples]] = {
    "what is new": (
        "room STRING",
        "SELECT r.id, r.theKind, r._priority AS level FROM NEW RESULTS OF Near r WHERE r._parameters.room = :room",
        ROOMS,
    ),
    "all of it": (
        "n BIGINT",
        "SELECT id, tags, _tick AS tick FROM RESULTS OF Near WHERE _execution > :n * 10",
        FEW,
    ),
    "grouped by a parameter of the other": (
        "n BIGINT",
        "SELECT r._parameters.room AS room, COUNT(DISTINCT r.id) AS n, MAX(r.temp) AS hottest "
        "FROM RESULTS OF Near r GROUP BY r._parameters.room HAVING COUNT(DISTINCT r.id) >= :n",
        FEW,
    ),
    "joined with a dataset": (
        "room STRING",
        "SELECT r.id, m.floor, p.kind FROM NEW RESULTS OF Near r JOIN Rooms m ON m.room = r._parameters.room "
        "LEFT JOIN Reports p ON p.id = r.id WHERE m.room = :room",
        ROOMS,
    ),
    "new ones beside old ones": (
        "n BIGINT",
        "SELECT a.id, COUNT(b.id) AS before FROM NEW RESULTS OF Near a LEFT JOIN RESULTS OF Near b "
        "ON b._k = a._k AND b._tick < a._tick WHERE a.id > :n GROUP BY a.id",
        FEW,
    ),
    "one row also if there is nothing": (
        "n BIGINT",
        "SELECT COUNT(*) AS n FROM NEW RESULTS OF Near WHERE id > :n",
        FEW,
    ),
    "not told before": (
        "room STRING",
        "SELECT p.id FROM NEW Reports p WHERE p.room = :room AND NOT EXISTS "
        "(SELECT 1 FROM RESULTS OF Near r WHERE r.id = p.id)",
        ROOMS,
    ),
    "by the time": (
        "n BIGINT",
        "SELECT id FROM RESULTS OF Near WHERE _at > NOW() - :n * INTERVAL '1' HOUR",
        FEW,
    ),
    "a subquery with its own name": (
        "n BIGINT",
        "WITH hot AS (SELECT id, _parameters.room AS room FROM RESULTS OF Near WHERE temp > 21) "
        "SELECT h.room, COUNT(*) AS n FROM hot h WHERE h.id > :n GROUP BY h.room",
        FEW,
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_each_subscription_gets_what_its_own_query_would(world: World, name: str) -> None:
    parameters, query, tuples = SHAPES[name]
    made = channel(parameters, query)
    found = world.run((world.compile(made), tuples))
    assert found == world.expected(made, tuples)
    assert any(found.values()), "a shape that finds nothing shows nothing"


def test_channels_over_one_channel_share_a_plan(world: World) -> None:
    text = "SELECT id FROM NEW RESULTS OF Near WHERE theKind = '{}' AND id > :n"
    made = [channel("n BIGINT", text.format(kind), f"C{kind}") for kind in ("fire", "smoke")]
    compiled = [world.compile(each) for each in made]
    assert compiled[0].template.id == compiled[1].template.id
    found = world.run(*((each, FEW) for each in compiled))
    assert found == {**world.expected(made[0], FEW), **world.expected(made[1], FEW)}

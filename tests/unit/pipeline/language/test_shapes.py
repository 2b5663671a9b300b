"""Every shape of query gives each subscription what a query of its own would."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.pipeline.language.oracle import Tuples, World, channel, channel_of
from tests.unit.pipeline.language.rooms import rooms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

ROOMS: Tuples = [("r1",), ("r2",), ("zz",), ("' OR 1=1 --",)]
LOW: Tuples = [(0.0,), (21.0,), (99.0,)]
FEW: Tuples = [(0,), (2,), (9,)]


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> World:
    return rooms(spark)


SHAPES: dict[str, tuple[str, str, Tuples]] = {
    "equality": ("room STRING", "SELECT id, kind FROM NEW Reports WHERE room = :room", ROOMS),
    "a star": ("room STRING", "SELECT * FROM Reports WHERE room = :room", ROOMS),
    "a range": (
        "lo DOUBLE, hi DOUBLE",
        "SELECT id FROM Reports WHERE temp BETWEEN :lo AND :hi",
        [(20.0, 22.0), (0.0, 100.0), (5.0, 1.0)],
    ),
    "a list": (
        "a STRING, b STRING",
        "SELECT id FROM Reports WHERE kind IN (:a, :b) AND level >= 2",
        [("fire", "smoke"), ("x", "flood")],
    ),
    "a pattern": (
        "p STRING",
        "SELECT id FROM Reports WHERE note LIKE :p",
        [("%fire%",), ("100\\%%",), ("_ig%",), ("%",), ("it's",)],
    ),
    "no parameters": ("", "SELECT id, room FROM NEW Reports WHERE level > 1 AND kind = 'fire'", [()]),
    "an inner join": (
        "room STRING",
        "SELECT r.id, m.name, m.floor FROM NEW Reports r JOIN Rooms m ON m.room = r.room WHERE r.room = :room",
        ROOMS,
    ),
    "a left join with a parameter": (
        "room STRING",
        "SELECT r.id, m.name FROM Reports r LEFT JOIN Rooms m ON m.room = r.room AND m.room = :room",
        ROOMS,
    ),
    "a parameter on both sides of a left join": (
        "floor BIGINT",
        "SELECT m.room, r.id FROM Rooms m LEFT JOIN Reports r ON r.room = m.room AND r.level > :floor "
        "WHERE m.floor = :floor",
        [(1,), (2,), (9,)],
    ),
    "a right join": (
        "room STRING",
        "SELECT r.id, m.name FROM Reports r RIGHT JOIN Rooms m ON m.room = r.room WHERE m.room = :room",
        ROOMS,
    ),
    "a full join, then a left one": (
        "room STRING",
        "SELECT r.id, m.name FROM Reports r FULL JOIN Rooms m ON m.room = r.room "
        "LEFT JOIN Zones z ON z.zone = m.zone WHERE coalesce(m.room, :room) = :room",
        ROOMS,
    ),
    "a semi join": (
        "room STRING",
        "SELECT m.name FROM Rooms m LEFT SEMI JOIN Reports r ON r.room = m.room AND r.room = :room",
        ROOMS,
    ),
    "an anti join": (
        "room STRING",
        "SELECT m.name FROM Rooms m LEFT ANTI JOIN Reports r ON r.room = m.room AND r.room <> :room",
        ROOMS,
    ),
    "USING": (
        "room STRING",
        "SELECT m.name, z.risk FROM Rooms m JOIN Zones z USING (zone) WHERE m.room = :room",
        ROOMS,
    ),
    "a join with itself": (
        "room STRING",
        "SELECT a.id, b.id AS other FROM NEW Reports a JOIN Reports b ON b.room = a.room AND b.id < a.id "
        "WHERE a.room = :room",
        ROOMS,
    ),
    "aggregates of nothing": (
        "room STRING",
        "SELECT count(*) AS n, avg(temp) AS t, max(level) + 1 AS m, collect_set(kind) AS k FROM Reports "
        "WHERE room = :room AND level = 1",
        ROOMS,
    ),
    "aggregates with FILTER and HAVING": (
        "room STRING",
        "SELECT count(*) AS n, sum(level) FILTER (WHERE kind = 'fire') AS f, :room AS r FROM NEW Reports "
        "WHERE room = :room HAVING count(*) > 0",
        ROOMS,
    ),
    "GROUP BY": (
        "lo BIGINT",
        "SELECT kind, count(*) AS n, :lo AS lo FROM Reports WHERE level >= :lo GROUP BY kind",
        FEW,
    ),
    "HAVING": (
        "lo BIGINT",
        "SELECT kind, count(*) AS n FROM Reports GROUP BY kind HAVING count(*) > :lo",
        FEW,
    ),
    "DISTINCT": (
        "room STRING",
        "SELECT DISTINCT kind, level > 1 AS high FROM Reports WHERE room <> :room",
        ROOMS,
    ),
    "the first few": (
        "lo DOUBLE",
        "SELECT id, temp FROM Reports WHERE temp > :lo ORDER BY temp DESC, id LIMIT 2",
        LOW,
    ),
    "a number of results that is a parameter": (
        "lo DOUBLE, n BIGINT",
        "SELECT id FROM Reports WHERE temp > :lo ORDER BY id LIMIT :n",
        [(0.0, 1), (0.0, 3), (99.0, 2)],
    ),
    "LIMIT with OFFSET": (
        "lo DOUBLE",
        "SELECT id FROM Reports WHERE temp > :lo ORDER BY id LIMIT 2 OFFSET 1",
        LOW,
    ),
    "the largest groups": (
        "lo DOUBLE",
        "SELECT room, count(*) AS n FROM Reports WHERE temp > :lo GROUP BY room ORDER BY count(*) DESC, room LIMIT 2",
        LOW,
    ),
    "the first few of DISTINCT": (
        "lo DOUBLE",
        "SELECT DISTINCT room FROM Reports WHERE temp > :lo ORDER BY room LIMIT 2",
        LOW,
    ),
    "windows": (
        "lo DOUBLE",
        "SELECT id, rank() OVER (PARTITION BY room ORDER BY level, id) AS r, sum(level) OVER () AS s, "
        "count(*) OVER w AS c, lag(id, 1) OVER (ORDER BY id) AS before FROM Reports WHERE temp > :lo "
        "WINDOW w AS (PARTITION BY kind)",
        LOW,
    ),
    "a window over groups": (
        "lo DOUBLE",
        "SELECT room, n FROM (SELECT room, count(*) AS n, row_number() OVER (ORDER BY count(*) DESC, room) AS rn "
        "FROM Reports WHERE temp > :lo GROUP BY room) WHERE rn <= 2",
        LOW,
    ),
    "common table expressions": (
        "lo DOUBLE",
        "WITH hot AS (SELECT * FROM Reports WHERE temp > :lo), fires AS (SELECT * FROM hot WHERE kind = 'fire'), "
        "z AS (SELECT room, zone FROM Rooms) SELECT f.id, h.n, z.zone FROM fires f "
        "CROSS JOIN (SELECT count(*) AS n FROM hot) h LEFT JOIN z ON z.room = f.room",
        LOW,
    ),
    "UNION": (
        "room STRING",
        "SELECT kind AS what FROM Reports WHERE room = :room UNION SELECT name FROM Rooms WHERE room = :room",
        ROOMS,
    ),
    "EXCEPT": (
        "room STRING",
        "SELECT room FROM Rooms EXCEPT SELECT room FROM Reports WHERE room <> :room",
        ROOMS,
    ),
    "UNION and INTERSECT": (
        "room STRING",
        "SELECT room FROM Rooms UNION SELECT kind FROM Reports WHERE room = :room INTERSECT SELECT kind FROM Reports",
        ROOMS,
    ),
    "UNION ALL and EXCEPT ALL": (
        "room STRING",
        "SELECT room FROM Rooms UNION ALL SELECT kind FROM Reports WHERE room = :room "
        "EXCEPT ALL SELECT room FROM Reports",
        ROOMS,
    ),
    "limits inside a UNION": (
        "room STRING",
        "(SELECT room FROM Rooms ORDER BY room LIMIT 2) UNION ALL "
        "(SELECT kind FROM Reports WHERE room = :room ORDER BY kind DESC, id LIMIT 1)",
        ROOMS,
    ),
    "a limit of a UNION": (
        "room STRING",
        "SELECT room FROM Rooms UNION ALL SELECT kind FROM Reports WHERE room = :room ORDER BY room DESC LIMIT 3",
        ROOMS,
    ),
    "a scalar subquery": (
        "room STRING",
        "SELECT id FROM Reports WHERE level > (SELECT avg(level) FROM Reports WHERE room = :room)",
        ROOMS,
    ),
    "a scalar subquery in the result": (
        "room STRING",
        "SELECT id, (SELECT count(*) FROM Rooms WHERE room = :room) AS n FROM NEW Reports",
        ROOMS,
    ),
    "EXISTS, correlated": (
        "room STRING",
        "SELECT id FROM Reports r WHERE EXISTS (SELECT 1 FROM Rooms m WHERE m.room = r.room AND m.room = :room)",
        ROOMS,
    ),
    "NOT EXISTS, correlated": (
        "room STRING",
        "SELECT id FROM Reports r WHERE NOT EXISTS (SELECT 1 FROM Rooms m WHERE m.room = r.room AND m.room = :room)",
        ROOMS,
    ),
    "NOT EXISTS": (
        "room STRING",
        "SELECT id FROM Reports WHERE NOT EXISTS (SELECT 1 FROM Rooms WHERE room = :room)",
        ROOMS,
    ),
    "IN a subquery": (
        "room STRING",
        "SELECT id FROM Reports WHERE kind IN (SELECT kind FROM Reports WHERE room = :room)",
        ROOMS,
    ),
    "NOT IN a subquery with NULL": (
        "room STRING",
        "SELECT id FROM Reports WHERE kind NOT IN (SELECT kind FROM Reports WHERE room = :room)",
        [("r1",), ("r3",), ("zz",)],
    ),
    "a subquery in a subquery": (
        "room STRING",
        "SELECT id FROM Reports WHERE room IN (SELECT room FROM Rooms WHERE zone IN "
        "(SELECT zone FROM Rooms WHERE room = :room))",
        ROOMS,
    ),
    "a correlated aggregate": (
        "lo BIGINT",
        "SELECT r.id, (SELECT count(*) FROM Reports x WHERE x.room = r.room AND x.level > :lo) AS m FROM Reports r",
        FEW,
    ),
    "a correlated subquery without parameters": (
        "n BIGINT",
        "SELECT m.name, (SELECT any_value(z.risk) FROM Zones z WHERE z.zone = m.zone) AS risk FROM Rooms m "
        "WHERE m.floor > :n",
        [(0,), (1,)],
    ),
    "CASE": (
        "room STRING",
        "SELECT id, CASE WHEN room = :room THEN 'mine' WHEN level > 2 THEN 'high' ELSE NULL END AS c FROM Reports",
        ROOMS,
    ),
    "times and days": (
        "at TIMESTAMP, day DATE",
        "SELECT id FROM Reports WHERE at > :at AND day <= :day",
        [("2026-03-01 11:02:00", "2026-02-04"), ("2020-01-01 00:00:00", "2030-01-01")],
    ),
    "a truth": ("flag BOOLEAN", "SELECT id FROM Reports WHERE (level > 2) = :flag", [(True,), (False,)]),
    "null-safe equality": (
        "room STRING",
        "SELECT id FROM Reports WHERE room <=> :room OR (room IS NULL AND :room = 'zz')",
        ROOMS,
    ),
    "the time of the execution, of a whole dataset": (
        "n BIGINT",
        "SELECT id FROM Reports WHERE at > NOW() - :n * INTERVAL '1' MINUTE",
        [(29,), (60,), (1,)],
    ),
    "the time of the execution, in the result": (
        "n BIGINT",
        "SELECT id, NOW() AS seen FROM NEW Reports WHERE level > :n",
        [(2,)],
    ),
    "functions of arrays": (
        "tag STRING",
        "SELECT id, transform(tags, t -> concat(t, :tag)) AS t FROM Reports "
        "WHERE array_contains(tags, :tag) AND exists(tags, t -> t <> :tag)",
        [("a",), ("x",), ("q",)],
    ),
    "an aggregate with LIMIT": ("n BIGINT", "SELECT max(id) AS m FROM Reports WHERE level > :n LIMIT 1", FEW),
    "nothing read": ("x BIGINT", "SELECT :x AS x, :x + 1 AS y", [(1,), (2,)]),
    "a table in FROM without parameters": (
        "room STRING",
        "SELECT q.room, q.n FROM (SELECT room, count(*) AS n FROM Reports GROUP BY room) q WHERE q.room = :room",
        ROOMS,
    ),
    "a table in a left join with parameters": (
        "room STRING",
        "SELECT q.n, m.name FROM Rooms m LEFT JOIN (SELECT room, count(*) AS n FROM Reports WHERE room = :room "
        "GROUP BY room) q ON q.room = m.room",
        ROOMS,
    ),
    "names that are swapped": (
        "room STRING",
        "SELECT kind AS room, room AS kind FROM Reports WHERE room = :room AND kind IS NOT NULL",
        ROOMS,
    ),
    "a result that is called like a column": (
        "room STRING",
        "SELECT level AS id, count(*) AS n FROM Reports WHERE room <> :room GROUP BY level ORDER BY id",
        ROOMS,
    ),
}


# Beside these, a quicker one of their kind is in the normal run.
SLOW = {
    "a list",
    "a parameter on both sides of a left join",
    "a full join, then a left one",
    "the largest groups",
    "limits inside a UNION",
    "a subquery in a subquery",
    "functions of arrays",
    "a result that is called like a column",
    "UNION",
    "DISTINCT",
    "a star",
    "a right join",
    "a semi join",
    "USING",
    "a join with itself",
    "HAVING",
    "LIMIT with OFFSET",
    "the first few of DISTINCT",
    "a window over groups",
    "EXCEPT",
    "UNION ALL and EXCEPT ALL",
    "a limit of a UNION",
    "a scalar subquery in the result",
    "EXISTS, correlated",
    "NOT EXISTS",
    "IN a subquery",
    "a correlated subquery without parameters",
    "times and days",
    "a truth",
    "null-safe equality",
    "the time of the execution, in the result",
    "an aggregate with LIMIT",
    "nothing read",
    "a table in FROM without parameters",
    "names that are swapped",
}
assert SHAPES.keys() > SLOW


@pytest.mark.parametrize(
    "shape", [pytest.param(shape, marks=[pytest.mark.slow] * (shape in SLOW)) for shape in SHAPES]
)
def test_each_subscription_gets_what_a_query_of_its_own_would(world: World, shape: str) -> None:
    parameters, query, tuples = SHAPES[shape]
    made = channel(parameters, query)

    assert world.run((world.compile(made), tuples)) == world.expected(made, tuples)


@pytest.mark.parametrize(
    ("parameters", "query", "tuples"),
    [
        ("lo DOUBLE", "SELECT id, temp FROM Reports WHERE temp > :lo ORDER BY temp DESC, id", LOW),
        ("lo DOUBLE", "SELECT id FROM Reports WHERE temp > :lo ORDER BY at DESC NULLS LAST LIMIT 3", LOW),
        (
            "lo DOUBLE",
            "SELECT room AS r FROM Rooms UNION ALL SELECT kind FROM Reports WHERE temp > :lo AND level > 2 ORDER BY r",
            LOW,
        ),
    ],
)
def test_results_are_in_the_order_that_the_query_says(
    world: World, parameters: str, query: str, tuples: Tuples
) -> None:
    made = channel(parameters, query)

    assert world.run_in_order((world.compile(made), tuples)) == world.expected_in_order(made, tuples)


def test_without_order_by_there_is_no_rank(world: World) -> None:
    compiled = world.compile(channel("", "SELECT id FROM Reports"))

    assert "CAST(NULL AS BIGINT) AS _rank" in compiled.template.sql


def test_a_result_carries_its_priority(world: World) -> None:
    made = channel_of(
        "CREATE CHANNEL P CONTINUOUS PRIORITY BY urgency AS SELECT id, level AS urgency FROM NEW Reports"
    )
    compiled = world.compile(made)
    world.run((compiled, [()]))

    rows = world.session.sql(f"SELECT _priority, urgency FROM ({compiled.template.sql})").collect()

    assert rows and all(priority == urgency for priority, urgency in rows)


def test_values_that_cannot_be_computed_cost_nobody_else_their_results(world: World) -> None:
    made = channel(
        "n BIGINT", "SELECT id FROM NEW Reports WHERE level / :n >= 1 AND CAST(note AS INT) IS NULL"
    )

    found = world.run((world.compile(made), [(0,), (1,)]))

    assert found[("C", (0,))] == []
    assert len(found[("C", (1,))]) == 4

"""Random queries over random rows, for random tuples: compiled, they give what a query for each tuple gives."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.pipeline.language.oracle import World, channel
from tests.unit.pipeline.language.rooms import DATASETS
from tocsin.model.catalogue import Channel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

names = st.sampled_from(["a", "b", "c'", "%", ""])
numbers = st.integers(-1, 4)
maybe = st.one_of(st.none(), names)
reports = st.lists(
    st.tuples(
        maybe,
        maybe,
        st.one_of(st.none(), numbers),
        st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.5, -2.0])),
        maybe,
    ),
    max_size=7,
)
rooms = st.lists(
    st.tuples(names, st.one_of(st.none(), numbers), maybe, maybe), max_size=4, unique_by=lambda row: row[0]
)
zones = st.lists(st.tuples(names, st.one_of(st.none(), numbers)), max_size=3, unique_by=lambda row: row[0])

CONDITIONS = [
    "r.room = :s", "r.room <> :s", "r.kind = :t", "r.room = :s OR r.kind = :t", "r.level > :n",
    "r.level BETWEEN :n AND 3",
    "r.temp <= :d", "r.temp > 0.5", "r.level = 1", "r.kind IN (:s, 'a')", "r.kind NOT IN (:s, 'b')", "r.note LIKE :s",
    "r.note LIKE concat('%', :t, '%')", "r.kind IS NULL", "NOT (r.room = :s AND r.level < :n)",
    "coalesce(r.room, :s) = :t",
    "EXISTS (SELECT 1 FROM Zones z WHERE z.zone = r.room AND z.risk > :n)", "r.kind <=> :s",
    "NOT EXISTS (SELECT 1 FROM Zones z WHERE z.zone = r.kind AND z.zone <> :t)",
    "r.level >= (SELECT min(x.level) FROM Reports x WHERE x.room = :s)",
    "r.room IN (SELECT z.zone FROM Zones z WHERE z.risk < :n)",
    "CASE WHEN r.level > :n THEN r.kind ELSE r.room END = :s",
]  # fmt: skip
JOINS = [
    "", "", " JOIN Rooms m ON m.room = r.room", " LEFT JOIN Rooms m ON m.room = r.room AND m.floor > :n",
    " LEFT JOIN Rooms m ON m.room = :s", " JOIN Rooms m ON m.floor >= r.level AND m.name <> :t",
    " LEFT JOIN (SELECT room, count(*) AS floor FROM Reports WHERE kind = :t GROUP BY room) m ON m.room = r.room",
    " SEMI JOIN Rooms m ON m.room = r.room AND m.floor <> :n", " ANTI JOIN Rooms m ON m.room = r.room AND m.zone = :s",
]  # fmt: skip
FORMS = [
    "SELECT r.id, r.kind{m} FROM {r}{j}{w}",
    "SELECT r.id, :s AS asked{m} FROM {r}{j}{w} ORDER BY r.id{mo} LIMIT 2",
    "SELECT DISTINCT r.kind, r.level > :n AS high FROM {r}{j}{w}",
    "SELECT r.kind, count(*) AS n, sum(r.level) AS s, max(:d) AS d FROM {r}{j}{w} GROUP BY r.kind",
    "SELECT r.kind, count(*) AS n FROM {r}{j}{w} GROUP BY r.kind HAVING count(*) > :n",
    "SELECT count(*) AS n, max(r.level) AS m, :n + count(r.kind) AS k FROM {r}{j}{w}",
    "SELECT count(*) AS n FROM {r}{j}{w} HAVING count(*) > 1",
    "SELECT r.id, row_number() OVER (PARTITION BY r.kind ORDER BY r.id{mo}) AS p, sum(r.level) OVER () AS s "
    "FROM {r}{j}{w}",
    "SELECT r.kind AS x FROM {r}{j}{w} UNION SELECT room FROM Rooms WHERE floor <> :n",
    "SELECT room AS x FROM Rooms EXCEPT SELECT r.kind FROM {r}{j}{w}",
    "WITH q AS (SELECT r.id, r.kind, r.level FROM {r}{j}{w}) "
    "SELECT a.id, b.id AS other FROM q a JOIN q b ON a.kind = b.kind",
    "SELECT q.kind, q.n FROM (SELECT r.kind, count(*) AS n FROM {r}{j}{w} GROUP BY r.kind "
    "ORDER BY count(*), r.kind LIMIT 1) q",
]  # fmt: skip
KINDS = {"s": "STRING", "t": "STRING", "n": "BIGINT", "d": "DOUBLE"}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "s": names,
    "t": names,
    "n": numbers,
    "d": st.sampled_from([0.0, 0.5, 9.0]),
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[Channel, list[tuple[Any, ...]]]:
    join = draw(st.sampled_from(JOINS))
    where = draw(st.lists(st.sampled_from(CONDITIONS), max_size=3, unique=True))
    selected = "m." in join and "SEMI" not in join and "ANTI" not in join
    query = draw(st.sampled_from(FORMS)).format(
        r=draw(st.sampled_from(["Reports r", "NEW Reports r"])),
        j=join,
        w=f" WHERE {' AND '.join(f'({each})' for each in where)}" if where else "",
        m=", m.floor" if selected else "",
        mo=", m.floor, m.room" if selected else "",
    )
    used = [name for name in KINDS if f":{name}" in query]
    made = channel(", ".join(f"{name} {KINDS[name]}" for name in used), query)
    tuples = draw(st.lists(st.tuples(*(VALUES[name] for name in used)), min_size=1, max_size=4, unique=True))
    return made, tuples


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> World:
    return World(spark, DATASETS)


def compare(
    world: World, case: tuple[Channel, list[tuple[Any, ...]]], rows: tuple[Any, Any, Any, Any]
) -> None:
    made, tuples = case
    old, new, of_rooms, of_zones = rows
    at = dt.datetime(2026, 3, 1, 11, tzinfo=dt.UTC)

    def whole(found: list[Any], first: int) -> list[Any]:
        return [
            (first + index, room, kind, level, temp, at, at.date(), note, [])
            for index, (room, kind, level, temp, note) in enumerate(found)
        ]

    world.fill("Reports", whole(old, 0), whole(new, 100))
    world.fill("Rooms", of_rooms)
    world.fill("Zones", of_zones)
    compiled = world.compile(made)
    assert world.run((compiled, tuples)) == world.expected(made, tuples), compiled.template.sql


worlds = st.tuples(reports, reports, rooms, zones)
_CALM = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]


@given(cases(), worlds)
@settings(max_examples=3, deadline=None, suppress_health_check=_CALM)
def test_random_queries_give_what_a_query_for_each_tuple_gives(
    world: World, case: tuple[Channel, list[tuple[Any, ...]]], rows: tuple[Any, Any, Any, Any]
) -> None:
    compare(world, case, rows)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@given(cases(), worlds)
@settings(max_examples=300, deadline=None, suppress_health_check=_CALM)
def test_many_random_queries_give_what_a_query_for_each_tuple_gives(
    world: World, case: tuple[Channel, list[tuple[Any, ...]]], rows: tuple[Any, Any, Any, Any]
) -> None:
    compare(world, case, rows)

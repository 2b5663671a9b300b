"""Channels of one shape share one plan; values and constants are data in it, whatever they contain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.unit.pipeline.language.oracle import World, channel, literal_of
from tests.unit.pipeline.language.rooms import DATASETS, rooms
from tocsin.pipeline.execution.compiled import PLAIN_PAIRS, compile_channel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NASTY = [
    "plain", "it's", "''", "' OR 1=1 --", "'; DROP TABLE x; --", "\\", "\\'", "a\\nb", "line\nbreak", "tab\t",
    '"', "`", "``",
    "/* c */", "-- c", "%", "_", "100%",
    "${env:HOME}", "${spark.app.name}", "$", "{{x}}", "%s", "%(x)s", "\u2028", "\u0301",
    "ünï😀", "\u202e", ":room", "c0", "_s0.p0", "\\u0024{env:HOME}", "NULL", "",
]  # fmt: skip


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> World:
    return rooms(spark)


@pytest.fixture
def nasty(world: World) -> World:
    world.fill("Rooms", [(each, index, each, None) for index, each in enumerate(NASTY)])
    return world


@pytest.mark.xdist_group("spark")
def test_a_hundred_channels_of_one_shape_share_a_plan(world: World) -> None:
    channels = [
        channel(
            "room STRING",
            f"SELECT id, 'c{n}' AS label FROM NEW Reports WHERE room = :room AND level >= {n % 5} AND temp < {n}.5 "
            f"AND kind <> {literal_of(NASTY[n % len(NASTY)], 'STRING')}",
            name=f"C{n}",
        )
        for n in range(100)
    ]
    compiled = [world.compile(each) for each in channels]
    tuples = [("r1",), ("r2",)]

    found = world.run(*((each, tuples) for each in compiled))

    assert len({each.template.id for each in compiled}) == 1
    assert compiled[7].constants == (2, 7.5, NASTY[7], "c7")
    for n in (1, 23, 99):
        expected = world.expected(channels[n], tuples)
        assert {key: found[key] for key in expected} == expected
    assert any(found.values())


@pytest.mark.xdist_group("spark")
def test_a_value_is_only_ever_data(nasty: World) -> None:
    made = channel("room STRING", "SELECT floor, name, :room AS asked FROM Rooms WHERE room = :room")

    found = nasty.run((nasty.compile(made), [(each,) for each in NASTY]))

    for index, each in enumerate(NASTY):
        assert [json.loads(row) for row in found[("C", (each,))]] == [
            {"floor": index, "name": each, "asked": each}
        ]


@pytest.mark.xdist_group("spark")
def test_a_constant_is_only_ever_data(nasty: World) -> None:
    """Once as a column of the subscriptions, once in the text, where it is part of the shape."""
    as_column = [
        channel("", f"SELECT floor FROM Rooms WHERE room = {literal_of(each, 'STRING')}", name=f"C{index}")
        for index, each in enumerate(NASTY)
    ]
    texts = ", ".join(
        f"concat({literal_of(each, 'STRING')}, '') AS x{index}" for index, each in enumerate(NASTY)
    )
    in_text = channel("", f"SELECT {texts}")

    found = nasty.run(*((nasty.compile(each), [()]) for each in as_column))
    (payload,) = nasty.run((nasty.compile(in_text), [()]))[("C", ())]

    for index in range(len(NASTY)):
        assert found[(f"C{index}", ())] == [json.dumps({"floor": index}, separators=(",", ":"))]
    assert json.loads(payload) == {f"x{index}": each for index, each in enumerate(NASTY)}


@pytest.mark.xdist_group("spark")
def test_variables_are_not_put_into_texts_even_where_spark_would(nasty: World) -> None:
    made = channel("", "SELECT concat('${spark.app.name}', '') AS x")
    nasty.session.conf.set("spark.sql.variable.substitute", "true")
    try:
        (payload,) = nasty.run((nasty.compile(made), [()]))[("C", ())]
    finally:
        nasty.session.conf.set("spark.sql.variable.substitute", "false")

    assert json.loads(payload) == {"x": "${spark.app.name}"}


@pytest.mark.xdist_group("spark")
def test_a_pattern_with_many_wildcards_matches_nothing(nasty: World) -> None:
    made = channel("p STRING", "SELECT name FROM Rooms WHERE name LIKE :p")

    found = nasty.run((nasty.compile(made), [("%a%",), ("%",), ("%%%%",), ("%a%a%a%a%a%a%a%a%",)]))

    assert [len(found[("C", (each,))]) for each in ("%a%", "%", "%%%%", "%a%a%a%a%a%a%a%a%")] == [
        5,
        len(NASTY),
        0,
        0,
    ]


def test_constants_of_another_kind_or_place_are_another_shape() -> None:
    queries = [
        "SELECT id FROM NEW Reports WHERE level = 1",
        "SELECT id FROM NEW Reports WHERE level = 1.5",
        "SELECT id FROM NEW Reports WHERE temp = 1",
        "SELECT id FROM NEW Reports WHERE level > 1",
        "SELECT id FROM Reports WHERE level = 1",
        "SELECT id FROM NEW Reports WHERE level = 1 LIMIT 1",
        "SELECT id FROM NEW Reports WHERE level = 1 LIMIT 2",
        "SELECT id AS other FROM NEW Reports WHERE level = 1",
        "SELECT round(temp, 1) AS id FROM NEW Reports",
        "SELECT round(temp, 2) AS id FROM NEW Reports",
    ]

    ids = {compile_channel(channel("", query), DATASETS).template.id for query in queries}

    assert len(ids) == len(queries)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("SELECT id FROM NEW Reports WHERE level = 1", "select  ID from new REPORTS where LEVEL=-22 -- note"),
        (
            "SELECT id FROM NEW Reports WHERE kind IN ('a', 'b')",
            "SELECT id FROM NEW Reports WHERE kind IN ('c', 'd')",
        ),
        (
            "SELECT id FROM Reports WHERE temp BETWEEN 1 AND 2",
            "SELECT id FROM Reports WHERE temp BETWEEN 3 AND 4",
        ),
        (
            "SELECT count(*) AS n FROM Reports WHERE kind = 'a' HAVING count(*) > 3",
            "SELECT count(*) AS n FROM Reports WHERE kind = 'b' HAVING count(*) > 4",
        ),
        (
            "SELECT id FROM Reports WHERE MATCHES(note, 'big fire')",
            "SELECT id FROM Reports WHERE MATCHES(note, 'flood')",
        ),
    ],
)
def test_what_differs_in_constants_only_is_one_shape(first: str, second: str) -> None:
    one, other = (compile_channel(channel("", query), DATASETS) for query in (first, second))

    # Results are named as they are written, and are part of the shape.
    if "ID" not in second:
        assert one.template == other.template
    else:
        assert one.template.columns != other.template.columns
    assert one.constants != other.constants


def test_the_names_of_parameters_do_not_matter() -> None:
    one = compile_channel(channel("room STRING", "SELECT id FROM NEW Reports WHERE room = :room"), DATASETS)
    other = compile_channel(channel("r STRING", "SELECT id FROM NEW Reports WHERE room = :r"), DATASETS)

    assert one.template == other.template


def test_few_pairs_are_compared_one_by_one() -> None:
    datasets = [*DATASETS]
    made = channel("x DOUBLE", "SELECT r.id FROM NEW Reports r WHERE MATCHES(r.note, CAST(:x AS STRING))")
    template = compile_channel(made, datasets).template
    (pair,) = template.pairs

    assert set(pair) == {"new_reports", template.subscriptions}
    assert template.sql_for({"new_reports": 10, template.subscriptions: PLAIN_PAIRS // 10}) == template.plain
    assert template.sql_for({"new_reports": 11, template.subscriptions: PLAIN_PAIRS // 10}) == template.sql
    assert template.sql_for({}) == template.sql


def test_a_query_without_such_predicates_is_the_same_either_way() -> None:
    template = compile_channel(
        channel("r STRING", "SELECT id FROM Reports WHERE room = :r"), DATASETS
    ).template

    assert template.sql == template.plain
    assert template.sql_for({}) == template.sql

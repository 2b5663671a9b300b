"""Spark has the last word: what it accepts has columns with types, what it refuses is said where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.unit.pipeline.language.oracle import channel, datasets_of
from tests.unit.pipeline.language.rooms import DATASETS
from tocsin.errors import SqlInvalid
from tocsin.model.catalogue import Column
from tocsin.pipeline.execution.compiled import compile_channel, compile_select
from tocsin.pipeline.language.checks.spark import check_with_spark, pointing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")


def test_the_columns_of_results_have_the_types_that_spark_gives_them(spark: SparkSession) -> None:
    query = (
        "SELECT id, kind AS theKind, avg(temp) AS t, count(*) AS n, POINT(1, 2) AS place, collect_list(day) AS days "
        "FROM Reports WHERE room = :room GROUP BY id, kind"
    )
    compiled = compile_channel(channel("room STRING", query), DATASETS)

    found = check_with_spark(spark, compiled, DATASETS)

    assert [(column.name, column.type) for column in found] == [
        ("id", "BIGINT"),
        ("theKind", "STRING"),
        ("t", "DOUBLE"),
        ("n", "BIGINT"),
        ("place", "STRUCT<lon: DOUBLE, lat: DOUBLE>"),
        ("days", "ARRAY<DATE>"),
    ]


SPOTS = datasets_of("CREATE DATASET Spots (id BIGINT, flat XY, round POINT, area STRING, note STRING)")


@pytest.mark.parametrize("name", ["i", "j", "h", "n", "ring", "corner", "inside", "odd", "word", "best"])
def test_a_table_may_be_called_as_it_likes(spark: SparkSession, name: str) -> None:
    query = (
        f"SELECT {name}.id AS a, other.id AS b FROM NEW Spots {name} JOIN Spots other ON "
        f"WITHIN({name}.round, other.round, {name}.id) AND CONTAINS({name}.area, other.flat) "
        f"AND CONTAINS(other.area, {name}.flat) WHERE MATCHES({name}.note, :words)"
    )
    compiled = compile_channel(channel("words STRING", query), SPOTS)

    assert [column.name for column in check_with_spark(spark, compiled, SPOTS)] == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "line", "said"),
    [
        ("SELECT id,\n level AS x FROM Reports\n GROUP BY id", 2, "Spark does not accept this"),
        ("SELECT array_contains(kind, 'x') AS x FROM Reports", 1, "Spark does not accept this"),
        ("SELECT id FROM Reports\nWHERE level", 2, "Spark does not accept this"),
    ],
)
def test_what_spark_refuses_is_refused_in_one_sentence(
    spark: SparkSession, query: str, line: int, said: str
) -> None:
    compiled = compile_channel(channel("", query), DATASETS)

    with pytest.raises(SqlInvalid) as caught:
        check_with_spark(spark, compiled, DATASETS)

    assert caught.value.line == line
    assert said in str(caught.value)
    assert "org.apache" not in str(caught.value) and "SQLSTATE" not in str(caught.value)


def test_the_views_that_are_at_work_are_left_alone(spark: SparkSession) -> None:
    spark.sql("SELECT 1 AS mine").createOrReplaceTempView("data_reports")
    try:
        check_with_spark(spark, compile_channel(channel("", "SELECT id FROM Reports"), DATASETS), DATASETS)
        assert spark.sql("SELECT * FROM data_reports").columns == ["mine"]
    finally:
        spark.catalog.dropTempView("data_reports")


def test_history_is_a_row_for_each_result_however_many_brokers_had_it(spark: SparkSession) -> None:
    columns = (Column("id", "BIGINT"), Column("theKind", "STRING"))
    made = msgspec.structs.replace(
        channel("least BIGINT", "SELECT id, kind AS theKind FROM Reports WHERE id > :least", name="Near"),
        columns=columns,
    )
    session = spark.newSession()
    session.createDataFrame(
        [
            (1, "Near", 7, broker, "k1", 0, 0, None, 3, '{"id":5,"theKind":"fire"}', '{"least":4}')
            for broker in ("north", "south")
        ]
        + [
            (1, "Near", 7, "north", "k2", 0, 1, None, None, '{"id":6,"theKind":null}', None),
            (1, "Other", 7, "north", "k3", 0, 2, None, None, '{"id":8}', "{}"),
        ],
        "tick BIGINT, channel STRING, execution BIGINT, broker STRING, k STRING, part INT, row INT, at TIMESTAMP, "
        "priority INT, payload STRING, parameters STRING",
    ).createOrReplaceTempView("rows_results_near")
    text = (
        "SELECT id, theKind, _execution, _k, _priority, _parameters.least FROM RESULTS OF Near "
        "WHERE id > 4 ORDER BY id"
    )
    selection = compile_select(text, DATASETS, [made])
    (view,) = selection.results
    session.sql(view.sql).createOrReplaceTempView(view.name)

    rows = [tuple(row) for row in session.sql(selection.sql).collect()]

    assert rows == [(5, "fire", 7, "k1", 3, 4), (6, None, 7, "k2", None, None)]


def test_what_spark_says_of_a_question_is_said_where_it_stands(spark: SparkSession) -> None:
    script = "SELECT 1 AS x;\nSELECT 2 AS y"

    with pytest.raises(SqlInvalid) as caught, pointing("SELECT 2 AS y", script, 15):
        spark.sql("SELECT y FROM VALUES (1) AS t(x)")

    assert (caught.value.line, caught.value.column) == (2, 13)
    assert "Spark does not accept this" in str(caught.value)

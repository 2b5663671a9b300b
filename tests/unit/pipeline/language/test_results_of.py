"""Results of a channel as a table: its columns, and what is said where a query takes it for something else."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.pipeline.language.oracle import channel
from tests.unit.pipeline.language.rooms import DATASETS
from tocsin.errors import SqlInvalid
from tocsin.model.catalogue import Channel, Column
from tocsin.pipeline.execution.compiled import compile_channel, compile_select
from tocsin.pipeline.language.checks.statements import check, check_circle
from tocsin.pipeline.language.explaining import explain
from tocsin.pipeline.language.text.script import read_script
from tocsin.pipeline.language.text.statements import CreateChannel
from tocsin.pipeline.language.tree.query import channels_read
from tocsin.pipeline.language.tree.resolution import Read, results_columns

NEAR = msgspec.structs.replace(
    channel(
        "room STRING, Least BIGINT",
        "SELECT id, at FROM NEW Reports WHERE room = :room AND level > :least",
        "Near",
    ),
    columns=(Column("id", "BIGINT"), Column("at", "TIMESTAMP")),
)
PLAIN = msgspec.structs.replace(
    channel("", "SELECT id FROM Reports", "Plain"), columns=(Column("id", "BIGINT"),)
)
CHANNELS = [NEAR, PLAIN]


def test_the_columns_of_results_have_a_fixed_order() -> None:
    assert [(each.name, each.type) for each in results_columns(NEAR)] == [
        ("id", "BIGINT"),
        ("at", "TIMESTAMP"),
        ("_tick", "BIGINT"),
        ("_execution", "BIGINT"),
        ("_at", "TIMESTAMP"),
        ("_k", "STRING"),
        ("_priority", "INT"),
        ("_parameters", "STRUCT<room: STRING, least: BIGINT>"),
    ]
    assert [each.name for each in results_columns(PLAIN)][-1] == "_priority"


def test_all_results_and_the_new_ones_are_two_tables() -> None:
    query = "SELECT a.id FROM new Reports r, NEW RESULTS OF near a JOIN RESULTS OF Near b ON a.id = b.id"
    template = compile_channel(channel("", query), DATASETS, channels=CHANNELS).template
    reads = (Read("Near", False, True), Read("Near", True, True), Read("Reports", True))
    assert template.reads == reads
    assert [each.name for each in template.results] == ["results_near", "newresults_near"]
    assert len({read.key for read in reads}) == 2


@pytest.mark.parametrize(
    ("query", "column", "said"),
    [
        ("SELECT id FROM RESULTS OF Naer", 27, "there is no channel naer; did you mean Near?"),
        ("SELECT id FROM NEW RESULTS OF Naer", 31, "there is no channel naer; did you mean Near?"),
        ("SELECT id FROM Near", 16, "Near is a channel: write RESULTS OF Near"),
        ("SELECT id FROM NEW Near", 20, "Near is a channel: write RESULTS OF Near"),
        ("SELECT id FROM RESULTS OF Reports", 27, "Reports is a dataset: leave RESULTS OF out"),
        ("SELECT id FROM RESULTS Near", 16, "there is no dataset results"),
        ("SELECT r.ids FROM RESULTS OF Near r", 10, "r has no column ids; did you mean id?"),
        ("SELECT r._ticks AS t FROM RESULTS OF Near r", 10, "did you mean _tick?"),
        ("SELECT r._parameters.rom AS x FROM RESULTS OF Near r", 22, "no field rom; did you mean room?"),
        ("SELECT r._parameters.room AS x FROM RESULTS OF Plain r", 10, "r has no column _parameters"),
        (
            "SELECT id FROM RESULTS OF Near r WHERE r._parameters.least = 'x'",
            40,
            "a number is compared with text",
        ),
        ("SELECT id FROM RESULTS OF Near WHERE at > 5", 38, "a time is compared with a number"),
        (
            "SELECT id, _tick FROM RESULTS OF Near",
            12,
            "a column _tick of its own; give this one another name",
        ),
        ("SELECT * FROM RESULTS OF Near", None, "give this one another name: _tick AS …"),
        ("SELECT id FROM RESULTS OF Near, NEW RESULTS OF Near", 48, "two tables are called near"),
        ("SELECT id FROM RESULTS OF (SELECT 1 AS id)", None, "OF(…) is not allowed"),
        ("WITH newresults_x AS (SELECT 1 AS a) SELECT a FROM newresults_x", 6, "is taken"),
        ("SELECT x.a FROM RESULTS OF Near AS x(a, b)", 28, "have their names"),
    ],
)
def test_a_query_over_results_that_is_wrong_is_told_where(query: str, column: int | None, said: str) -> None:
    script = f"CREATE CHANNEL C() CONTINUOUS AS\n{query}"
    (statement,) = read_script(script)
    with pytest.raises(SqlInvalid) as caught:
        check(statement, [*DATASETS, *CHANNELS], script)
    assert said in str(caught.value)
    assert caught.value.line == 2 and (column is None or caught.value.column == column), caught.value


def test_new_results_have_no_meaning_in_a_question() -> None:
    with pytest.raises(SqlInvalid, match="NEW means since the last execution"):
        compile_select("SELECT id FROM NEW RESULTS OF Near", DATASETS, CHANNELS)


def test_channels_whose_read_results_have_other_types_share_no_plan() -> None:
    wider = msgspec.structs.replace(NEAR, columns=(Column("id", "STRING"), Column("at", "TIMESTAMP")))
    made = channel("", "SELECT id FROM NEW RESULTS OF Near")
    one, other = (compile_channel(made, DATASETS, channels=[each]).template for each in (NEAR, wider))
    assert one.sql.replace(one.id, "") == other.sql.replace(other.id, "") and one.id != other.id


def test_the_plan_says_what_of_which_results_is_read() -> None:
    made = channel("", "SELECT a.id FROM NEW RESULTS OF Near a JOIN RESULTS OF Plain b ON a.id = b.id")
    words = explain(compile_channel(made, DATASETS, channels=CHANNELS))
    assert "reads the results of Near, only what is new since the last execution" in words
    assert "reads the results of Plain, as a whole" in words
    assert "runs in a tick after Near, if both are due" in words


def test_the_channels_that_a_query_reads_are_known_from_its_text() -> None:
    query = "SELECT 1 FROM RESULTS OF `A` x JOIN (SELECT 2 FROM b, NEW RESULTS OF c) WHERE 'RESULTS OF d' = results"
    assert channels_read(query) == {"a": 25, "c": 69}


# ── circles ─────────────────────────────────────────────────────────────────────────────────────────────────────


def over(name: str, *others: str) -> Channel:
    tables = ", ".join(f"RESULTS OF {each} AS t{index}" for index, each in enumerate(others))
    return channel("", f"SELECT 1 AS one FROM {tables or 'Reports'}", name)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (over("A", "a"), "A reads A"),
        (over("A", "B"), "A reads B, B reads A"),
        (over("A", "Other", "D"), "A reads D, D reads C, C reads B, B reads A"),
    ],
)
def test_a_channel_that_would_read_its_own_results_is_refused(made: Channel, said: str) -> None:
    script = f"CREATE OR REPLACE CHANNEL A() CONTINUOUS AS {made.query}"
    (statement,) = read_script(script)
    assert isinstance(statement, CreateChannel)
    others = [over("A"), over("B", "A"), over("C", "B", "Other"), over("D", "C"), over("Other")]
    with pytest.raises(SqlInvalid) as caught:
        check_circle(script, statement, others, others)
    assert said in str(caught.value) and "cannot read its own results" in str(caught.value)
    named = caught.value.column - 1
    assert script[named : named + 1] == said.partition(" reads ")[2][:1].replace("A", "a")
    check_circle(script.replace("A()", "E()"), read_channel(script.replace("A()", "E()")), others, others)


def read_channel(script: str) -> CreateChannel:
    (statement,) = read_script(script)
    assert isinstance(statement, CreateChannel)
    return statement


def test_a_circle_names_nothing_that_the_user_may_not_see() -> None:
    statement = read_channel("CREATE OR REPLACE CHANNEL A() CONTINUOUS AS SELECT 1 AS one FROM RESULTS OF B")
    visible = [over("A"), over("B", "Hidden")]
    with pytest.raises(SqlInvalid) as caught:
        check_circle("x" * 200, statement, [*visible, over("Hidden", "A")], visible)
    assert caught.value.problem.endswith("A reads B, B reads another channel, another channel reads A")

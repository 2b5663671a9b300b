"""What a query's names and types must be, and what is said where they are not."""

from __future__ import annotations

import pytest

from tests.unit.pipeline.language.oracle import channel, datasets_of
from tests.unit.pipeline.language.rooms import DATASETS
from tocsin.errors import SqlInvalid
from tocsin.pipeline.execution.compiled import compile_channel, compile_select
from tocsin.pipeline.language.checks.statements import check
from tocsin.pipeline.language.text.script import read_script
from tocsin.pipeline.language.tree.resolution import Read

PLACES = datasets_of("CREATE DATASET Spots (id BIGINT, flat XY, round POINT, area STRING)")


@pytest.mark.parametrize(
    ("parameters", "query", "column", "said"),
    [
        ("", "SELECT id FROM Report", 16, "there is no dataset report; did you mean Reports?"),
        ("", "SELECT id FROM Zzzz", 16, "write one of Reports, Rooms"),
        ("", "SELECT knd FROM Reports", 8, "there is no column knd; did you mean kind?"),
        ("", "SELECT r.knd FROM Reports r", 10, "no column knd; did you mean kind?"),
        ("", "SELECT x.id FROM Reports r", 8, "there is no table x"),
        (
            "",
            "SELECT room FROM Reports, Rooms",
            8,
            "a column of reports and of rooms; say which, as reports.room",
        ),
        ("", "SELECT r.id FROM Reports r, Rooms r", 29, "two tables are called r"),
        ("", "SELECT id, id FROM Reports", None, "two columns of the result are called id"),
        ("", "SELECT r.*, m.* FROM Reports r, Rooms m", None, "two columns of the result are called room"),
        ("", "SELECT level + 1 FROM Reports", None, "has no name; give it one, with AS"),
        ("", "SELECT id FROM Reports WHERE room = :rom", 37, "this query takes no parameters"),
        ("room STRING", "SELECT id FROM Reports WHERE room = :rom", 37, "did you mean :room?"),
        (
            "room STRING, n BIGINT",
            "SELECT id FROM Reports WHERE room = :room",
            1,
            "the parameter n is not used",
        ),
        ("n BIGINT", "SELECT id FROM Reports WHERE room = :n", 30, "text is compared with a number"),
        ("n STRING", "SELECT id FROM Reports WHERE level = :n", 30, "the type of the other side, INT"),
        ("", "SELECT id FROM Reports WHERE level = '5'", 30, "write the number without quotes"),
        ("", "SELECT id FROM Reports WHERE at > 5", 30, "a time is compared with a number"),
        ("", "SELECT id FROM Reports WHERE level LIKE 'x'", 30, "a pattern is compared with a number"),
        ("", "SELECT id FROM Reports WHERE kind IN ('a', 5)", 30, "text is compared with a number"),
        ("n BIGINT", "SELECT id FROM Reports WHERE at > NOW() - INTERVAL :n HOUR", None, ":n * INTERVAL"),
        (
            "",
            "SELECT id FROM Reports WHERE EXISTS (SELECT 1 FROM Rooms WHERE rom = 'x')",
            64,
            "no column rom",
        ),
        ("", "SELECT id FROM NEW RESULTS", None, "there is no dataset results"),
        ("", "SELECT id FROM RESULTS OF Other", 27, "there is no channel other"),
        ("", "WITH data_x AS (SELECT 1 AS a) SELECT a FROM data_x", 6, "is taken"),
        ("", "WITH a AS (SELECT 1 AS x), a AS (SELECT 2 AS x) SELECT x FROM a", None, "two tables of WITH"),
        ("", "SELECT id FROM Reports LIMIT id", None, "LIMIT and OFFSET take a number"),
        ("n STRING", "SELECT id FROM Reports LIMIT :n", None, "parameter of type BIGINT"),
        ("", "SELECT x.a FROM Reports AS x(a, b)", 17, "a dataset's columns have their names"),
        ("", "SELECT id FROM (Reports JOIN Rooms USING (room))", 17, "a join in brackets is not allowed"),
        ("", "SELECT id, FROM Reports", 10, "nothing follows this comma"),
        ("", "SELECT FROM Reports", 1, "nothing is selected; name columns"),
        ("", "SELECT id FROM (SELECT DISTINCT FROM Reports) r", 17, "nothing is selected"),
        ("", "SELECT id FROM Reports WHERE", 24, "does not fit here"),
        ("", "SELECT kind, count(*) AS n FROM Reports", 8, "neither aggregated nor in GROUP BY"),
        (
            "n BIGINT",
            "SELECT (SELECT id FROM Reports WHERE level = :n) AS x FROM Rooms",
            None,
            "several rows",
        ),
        ("n BIGINT", "SELECT r.id FROM Reports r RIGHT JOIN Rooms m ON r.level = :n", 39, "write LEFT JOIN"),
        (
            "n BIGINT",
            "SELECT id FROM Reports r WHERE EXISTS (SELECT 1 FROM Rooms m WHERE m.room = r.room AND EXISTS "
            "(SELECT 1 FROM Zones z WHERE z.risk = :n AND z.zone = m.zone))",
            None,
            "too deep",
        ),
        ("", "SELECT DISTINCT room FROM Reports ORDER BY level LIMIT 1", None, "ordered by what is selected"),
        ("", "SELECT id FROM Reports ORDER BY 7 LIMIT 1", None, "there is no result 7|7"),
        ("", "SELECT MATCHES(level, 'x') AS m FROM Reports", 8, "MATCHES compares text"),
        ("", "SELECT POINT(1) AS p FROM Reports", 8, "write POINT(lon, lat)"),
        ("", "SELECT NOW(1) AS p FROM Reports", 8, "write NOW()"),
        ("", "SELECT DISTANCE(flat, round) AS d FROM Spots", 8, "on the plane and one on the globe"),
        ("", "SELECT DISTANCE(id, round) AS d FROM Spots", 17, "needs points, and this is BIGINT"),
        ("", "SELECT CONTAINS(id, flat) AS d FROM Spots", 8, "the area is no text"),
        ("", "SELECT CONTAINS('x', flat) AS d FROM Spots", 17, "no polygon: this is no JSON"),
        ("", "SELECT CIRCLE(flat, 3) AS d FROM Spots", 8, "only good for CONTAINS"),
        ("", "SELECT WITHIN(flat, flat, 'x') AS d FROM Spots", 8, "the distance is no number"),
        ("", "SELECT flat.z AS d FROM Spots", 13, "there is no field z"),
        ("", "SELECT CAST(flat.z AS INT) AS d FROM Spots", 18, "there is no field z"),
        ("", "SELECT TRY_CAST(DISTANCE(id, round) AS INT) AS d FROM Spots", 26, "this is BIGINT"),
        ("", "SELECT TUMBLE(at, INTERVAL '1' MONTH) AS d FROM Reports", 8, "an interval of fixed length"),
        ("", "SELECT SINCE(at, 5) AS d FROM Reports", 8, "SINCE takes an interval"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(
    parameters: str, query: str, column: int | None, said: str
) -> None:
    made = channel(parameters, query)

    with pytest.raises(SqlInvalid) as caught:
        compile_channel(made, [*DATASETS, *PLACES])

    assert any(each in str(caught.value) for each in said.split("|"))
    if column is not None:
        assert caught.value.column == column


@pytest.mark.parametrize("cast", ["CAST", "TRY_CAST"])
def test_what_is_inside_of_a_cast_has_a_type(cast: str) -> None:
    query = f"SELECT {cast}(ROUND({cast}(DISTANCE(flat, XY(1, 2)) AS FLOAT)) AS BIGINT) AS metres FROM Spots"

    assert compile_channel(channel("", query), PLACES).template.columns == ("metres",)


def test_an_error_points_into_the_script() -> None:
    script = (
        "SELECT 1 AS x;\n\nCREATE CHANNEL C(room STRING)\n  CONTINUOUS AS\n"
        "  SELECT id\n  FROM Reprts WHERE room = :room"
    )
    _, statement = read_script(script)

    with pytest.raises(SqlInvalid) as caught:
        check(statement, DATASETS, script)

    assert (caught.value.line, caught.value.column) == (6, 8)
    assert "did you mean Reports?" in str(caught.value)


def test_what_a_channel_reads_is_known() -> None:
    query = "SELECT a.id FROM NEW Reports a JOIN reports b ON a.id = b.id JOIN Rooms m ON m.room = a.room"

    compiled = compile_channel(channel("", query), DATASETS)

    assert compiled.template.reads == (Read("Reports", False), Read("Reports", True), Read("Rooms", False))


def test_results_are_named_as_they_are_written() -> None:
    compiled = compile_channel(channel("", "SELECT ID, kind AS theKind, Level FROM Reports"), DATASETS)

    assert compiled.template.columns == ("ID", "theKind", "Level")


def test_a_dataset_may_be_called_new() -> None:
    datasets = datasets_of("CREATE DATASET New (id BIGINT)")

    assert compile_channel(channel("", "SELECT id FROM New"), datasets).template.reads == (
        Read("New", False),
    )
    assert compile_channel(channel("", "SELECT n.id FROM New AS n"), datasets).template.reads == (
        Read("New", False),
    )
    assert compile_channel(channel("", "SELECT id FROM NEW New"), datasets).template.reads == (
        Read("New", True),
    )


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("CREATE DATASET reports (a INT)", "there is a dataset reports already"),
        ("CREATE FEED f INTO Rportes FROM HTTP", "did you mean Reports?"),
        ("DROP CHANNEL C", "there is no channel C"),
        ("DROP DATASET Rom", "did you mean Rooms?"),
        ("PAUSE CHANNEL C", "there is no channel C"),
        ("RUN CHANNEL C", "there is no channel C"),
        ("EXPLAIN CHANNEL C", "there is no channel C"),
        ("ALTER CHANNEL C PRIORITY 3", "there is no channel C"),
        ("SHOW SUBSCRIPTIONS OF C", "there is no channel C"),
        ("DESCRIBE Zonks", "did you mean Zones?"),
        ("SELECT id FROM NEW Reports", "NEW means since the last execution"),
        ("SELECT id FROM RESULTS OF C", "there is no channel c"),
        ("SELECT id FROM Reports WHERE room = :room", "takes no parameters"),
    ],
)
def test_statements_speak_of_what_there_is(script: str, said: str) -> None:
    (statement,) = read_script(script)

    with pytest.raises(SqlInvalid) as caught:
        check(statement, DATASETS, script)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    "script",
    [
        "CREATE DATASET IF NOT EXISTS reports (a INT)", "CREATE FEED f INTO REPORTS FROM HTTP",
        "DROP CHANNEL IF EXISTS C",
        "DESCRIBE zones", "SHOW CHANNELS", "DROP DATASET Rooms",
    ],
)  # fmt: skip
def test_statements_about_what_there_is_are_accepted(script: str) -> None:
    (statement,) = read_script(script)

    assert check(statement, DATASETS, script) is None


def test_a_selection_reads_datasets_and_results() -> None:
    made = channel("", "SELECT id, note FROM Reports")
    known = compile_channel(made, DATASETS).channel

    found = compile_select("SELECT r.id AS theId, NOW() AS now FROM Reports r", DATASETS, [known])

    assert found.reads == (Read("Reports", False),)
    assert "`theId`" in found.sql and "CURRENT_TIMESTAMP" in found.sql

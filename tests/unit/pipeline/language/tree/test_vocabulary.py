"""Every function that is allowed means what it means to Spark; every node and function that is not is refused."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from sqlglot import exp

from tests.unit.pipeline.language.oracle import World, channel
from tests.unit.pipeline.language.rooms import DATASETS, rooms
from tocsin.errors import SqlInvalid
from tocsin.pipeline.execution.compiled import compile_channel
from tocsin.pipeline.language.tree.vocabulary import (
    AGGREGATES,
    CALLED,
    FUNCTION_NODES,
    LIBRARY,
    OTHER_NODES,
    SCALARS,
    WINDOWS,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One call for each function, of the columns of Reports.
CALLS = """
coalesce(kind, room) nvl(kind, room) ifnull(kind, 'x') nullif(kind, 'fire') if(level > 1, 'a', 'b') greatest(level, 2)
least(level, 2) isnull(kind) isnotnull(kind) nvl2(kind, 'a', 'b')
abs(level - 3) ceil(temp) ceiling(temp) floor(temp) round(temp, 0) bround(temp, 0) sqrt(temp) cbrt(temp) pow(level, 2)
power(level, 2) exp(level) ln(temp) log(temp) log10(temp) log2(temp) sign(level - 2) signum(level - 2) mod(id, 3)
pmod(id - 5, 3) sin(temp) cos(temp) tan(temp) asin(level / 10) acos(level / 10) atan(temp) atan2(temp, level)
radians(temp) degrees(level) pi()
concat(kind, '-', room) concat_ws('-', kind, room) lower(note) lcase(note) upper(note) ucase(note) trim(note)
ltrim(note) rtrim(note) length(note) char_length(note) character_length(note) substring(note, 2, 3) substr(note, 2)
left(note, 3) right(note, 3) replace(note, 'i', 'o') instr(note, 'i') locate('i', note) position('i', note)
split(note, '[ ,]+') split_part(note, ' ', 1) initcap(note) reverse(note) startswith(note, 'b') endswith(note, 'e')
translate(note, 'ie', 'oa')
date_trunc('HOUR', at) trunc(day, 'MM') to_date(at) to_timestamp('2026-03-01 11:02:03') date(at) year(day) month(day)
day(day) dayofmonth(day) dayofweek(day) weekday(day) dayofyear(day) hour(at) minute(at) second(at) quarter(day)
weekofyear(day) date_add(day, 3) date_sub(day, 3) datediff(day, date(at)) date_diff(day, date(at))
months_between(at, day) add_months(day, 1) last_day(day) next_day(day, 'MO') unix_timestamp(at) unix_seconds(at)
unix_millis(at) unix_micros(at) timestamp_seconds(id) timestamp_millis(id) timestamp_micros(id) from_unixtime(id)
date_format(at, 'yyyy-MM-dd HH:mm') make_date(2026, 1, level) extract(MINUTE FROM at)
array(kind, room) size(tags) cardinality(tags) element_at(tags, 1) array_contains(tags, 'a') array_distinct(tags)
array_min(tags) array_max(tags) array_join(tags, '+') sort_array(tags) array_sort(tags) slice(tags, 1, 1)
array_union(tags, array('z')) array_intersect(tags, array('a')) array_except(tags, array('a'))
arrays_overlap(tags, array('a')) array_position(tags, 'a') array_remove(tags, 'a') array_append(tags, 'z')
exists(tags, t -> t = 'a') forall(tags, t -> t = 'a') filter(tags, t -> t > 'a') transform(tags, t -> upper(t))
map('a', level) map_keys(map('a', level))
map_values(map('a', level)) map_contains_key(map('a', level), 'a') named_struct('a', level, 'bC', note)
struct(level, note) flatten(array(tags, tags)) get(tags, 0) get_json_object('{"a": [1, 2]}', '$.a[1]')
to_json(struct(level, note)) cast(level AS STRING) try_cast(note AS INT) try_divide(level, 0) try_add(level, 1)
md5(note) sha2(note, 256)
"""
OPERATORS = r"""
level + 1 - 2 * 3 / 4 % 5
level DIV 2
-level
note || kind
NOT level > 1 AND kind = 'fire' OR temp < 20
kind LIKE 'f%'
kind ILIKE 'F%'
note RLIKE '^b.*e$'
kind IS NULL
kind IS NOT NULL
level IS DISTINCT FROM 2
kind NOT IN ('fire', 'x')
level NOT BETWEEN 2 AND 3
CASE kind WHEN 'fire' THEN 1 ELSE 2 END
tags[0]
at + INTERVAL '90' MINUTES
at - INTERVAL '1 day 2 hours'
DATE'2026-02-03' = day
level::STRING
'it''s'
"double"
'tab\tnew\nline \ back'
'10\%'
note LIKE '100\%%'
note LIKE '100!%%' ESCAPE '!'
1e3
2.50
named_struct('userName', kind).userName
TRUE
NULL
kind <=> NULL
'${env:HOME} $ \$'
level <> 2
""".strip().split("\n")


def calls(text: str) -> list[str]:
    """Calls one after the other, taken apart."""
    found, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == ")" and depth == 0:
            found.append(text[start : at + 1].strip())
            start = at + 1
    return found


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> World:
    return rooms(spark)


def test_there_is_a_call_for_each_function() -> None:
    called = {re.match(r"\w+", each)[0] for each in calls(CALLS)}  # type: ignore[index]

    assert called == SCALARS


@pytest.mark.xdist_group("spark")
def test_functions_and_operators_mean_what_they_mean_to_spark(world: World) -> None:
    every = [*calls(CALLS), *OPERATORS]
    selected = ", ".join(f"{each} AS x{index}" for index, each in enumerate(every))
    made = channel("", f"SELECT id, {selected} FROM Reports")
    world.session.conf.set("spark.sql.variable.substitute", "false")

    (found,) = world.run((world.compile(made), [()])).values()
    (expected,) = world.expected(made, [()]).values()

    assert len(found) == len(expected) == 9
    for ours, theirs in zip(found, expected, strict=True):
        got, wanted = (json.loads(_rounded(each)) for each in (ours, theirs))
        assert {each: got[f"x{index}"] for index, each in enumerate(every)} == {
            each: wanted[f"x{index}"] for index, each in enumerate(every)
        }


def _rounded(payload: str) -> str:
    """LOG10 is written as LOG(10, x), whose last digit may differ."""
    return re.sub(r"(\.\d{12})\d+", r"\1", payload)


@pytest.mark.xdist_group("spark")
def test_aggregates_and_windows_mean_what_they_mean_to_spark(world: World) -> None:
    aggregates = calls(
        """count(kind) count(DISTINCT kind) sum(level) avg(level) min(note) max(note) min_by(id, temp) max_by(id, temp)
        any_value(1) count_if(level > 1) bool_and(level > 0) bool_or(level > 3) stddev(level) stddev_pop(level)
        stddev_samp(level) variance(level) var_pop(level) var_samp(level) median(level) percentile_approx(level, 0.5)
        approx_percentile(level, 0.9) approx_count_distinct(kind) sort_array(collect_list(level))
        sort_array(collect_set(kind)) sort_array(array_agg(level))"""
    )
    windows = calls(
        """row_number() rank() dense_rank() percent_rank() cume_dist() ntile(2) lag(id, 1) lead(id, 1, 0)
        first_value(id) last_value(id) nth_value(id, 2)"""
    )
    assert {name for each in aggregates for name in re.findall(r"(\w+)\(", each)} - {
        "sort_array"
    } == AGGREGATES
    assert {name for each in windows for name in re.findall(r"(\w+)\(", each)} == WINDOWS
    for room in ("r1", "nowhere"):
        selected = ", ".join(f"{each} AS x{index}" for index, each in enumerate(aggregates))
        made = channel("room STRING", f"SELECT {selected} FROM Reports WHERE room = :room")
        assert world.run((world.compile(made), [(room,)])) == world.expected(made, [(room,)])
    over = ", ".join(
        f"{each} OVER (PARTITION BY room ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS x{index}"
        if index > 7
        else f"{each} OVER (PARTITION BY room ORDER BY id) AS x{index}"
        for index, each in enumerate(windows)
    )
    made = channel("lo BIGINT", f"SELECT id, {over} FROM Reports WHERE id > :lo")
    assert world.run((world.compile(made), [(0,), (4,)])) == world.expected(made, [(0,), (4,)])


@pytest.mark.parametrize(
    ("query", "refused"),
    [
        (
            "SELECT reflect('java.lang.System', 'exit') AS x",
            "REFLECT(…) is not allowed; the JVM cannot be called",
        ),
        ("SELECT `reflect`('a', 'b') AS x", "not allowed"),
        ("SELECT java_method('java.lang.Runtime', 'getRuntime') AS x", "JAVA_METHOD"),
        ("SELECT try_reflect('a', 'b') AS x", "JVM"),
        ("SELECT TRANSFORM(id) USING 'cat' AS (x) FROM Reports", "TRANSFORM"),
        ("SELECT * FROM parquet.`/etc/passwd`", "cannot be a name"),
        ("SELECT * FROM csv.passwd", "a name with a dot"),
        ("SELECT * FROM other.Reports", "only datasets can be read"),
        ("SELECT * FROM range(10)", "no dataset"),
        ("SELECT * FROM read_files('/etc')", "no dataset"),
        ("SELECT id FROM Reports LATERAL VIEW explode(tags) t AS tag", "EXPLODE"),
        ("SELECT explode(tags) AS t FROM Reports", "EXPLODE"),
        ("SELECT id FROM Reports, LATERAL (SELECT 1 AS one) q", "LATERAL"),
        ("SELECT rand() AS x FROM Reports", "depend on chance"),
        ("SELECT uuid() AS x FROM Reports", "depend on chance"),
        ("SELECT current_timestamp() AS x FROM Reports", "write NOW()"),
        ("SELECT current_timestamp AS x FROM Reports", "write NOW()"),
        ("SELECT current_date AS x FROM Reports", "write DATE(NOW())"),
        ("SELECT current_user() AS x FROM Reports", "CURRENT_USER"),
        ("SELECT input_file_name() AS x FROM Reports", "INPUT_FILE_NAME"),
        ("SELECT monotonically_increasing_id() AS x FROM Reports", "MONOTONICALLY_INCREASING_ID"),
        ("SELECT repeat(note, 1000000) AS x FROM Reports", "made larger"),
        ("SELECT sequence(1, 1000000000) AS x FROM Reports", "made larger"),
        ("SELECT aggregate(tags, note, (a, t) -> concat(a, a)) AS x FROM Reports", "made larger"),
        ("SELECT secret('a') AS x FROM Reports", "SECRET"),
        ("SELECT a.b.c(1) AS x FROM Reports a", "with a dot"),
        ("SELECT /*+ BROADCAST(r) */ id FROM Reports r", "hints are not allowed"),
        ("SELECT id FROM Reports TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT id FROM Reports VERSION AS OF 3", "version"),
        ("SELECT id FROM Reports QUALIFY row_number() OVER (ORDER BY id) = 1", "QUALIFY"),
        ("SELECT * FROM Reports PIVOT (sum(id) FOR kind IN ('fire'))", "PIVOT"),
        ("SELECT id FROM Reports NATURAL JOIN Rooms", "NATURAL JOIN"),
        ("SELECT kind FROM Reports GROUP BY ROLLUP(kind)", "ROLLUP"),
        ("SELECT kind FROM Reports GROUP BY ALL", "GROUP BY ALL"),
        ("SELECT DISTINCT ON (kind) id FROM Reports", "DISTINCT ON"),
        ("SELECT id FROM Reports SORT BY id", "SORT BY"),
        ("WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c) SELECT n FROM c", "RECURSIVE"),
        ("SELECT * FROM VALUES (1, 2) AS t(a, b)", "VALUES"),
        ("SELECT ${env:HOME} AS x", "no variables"),
        ("SELECT @@version AS x", "no variables"),
        ("SELECT session.x AS x FROM Reports", "no table session"),
        ("SELECT IDENTIFIER('id') AS x FROM Reports", "IDENTIFIER"),
        ("SELECT id FROM IDENTIFIER('Reports')", "no dataset"),
        ("SELECT x'ff' AS x", "prefix"),
        ("SELECT `a``b` AS x FROM Reports", "not allowed|cannot be a name|no column"),
        ("SELECT id AS `a b` FROM Reports", "cannot be a name"),
        ("SELECT id AS `x${env:HOME}` FROM Reports", "cannot be a name"),
        ("SELECT id AS _k FROM Reports", "reserved"),
        ("SELECT (id, room) IN ((1, 'r1')) AS x FROM Reports", "row of several values"),
        ("SELECT note RLIKE room AS x FROM Reports", "must be written out"),
        ("SELECT id FROM Reports WHERE note RLIKE '(a+)+$'", "forever"),
        ("SELECT id FROM Reports; DROP TABLE x", "semicolon"),
        ("SELECT id INTO x FROM Reports", "."),
        ("SELECT id FROM Reports FOR UPDATE", "."),
        ("INSERT INTO Reports SELECT 1", "no query"),
        ("CREATE TABLE x AS SELECT 1", "no query"),
        ("SELECT (SELECT id FROM Reports", "not closed|does not fit|missing"),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(query: str, refused: str) -> None:
    made = channel("", "SELECT 1 AS x").__class__("C", (), (), query)

    with pytest.raises(SqlInvalid) as caught:
        compile_channel(made, DATASETS)

    assert re.search(refused if "|" in refused or refused == "." else re.escape(refused), str(caught.value))


def test_nothing_is_both_a_function_of_ours_and_of_sparks() -> None:
    assert not LIBRARY & (SCALARS | AGGREGATES | WINDOWS)


def test_nodes_that_write_or_reach_out_are_on_no_list() -> None:
    forbidden = """Insert Update Delete Merge Create Drop Command Set Use Lateral Values Hint TableSample Pivot Rand
        CurrentTimestamp CurrentUser Parameter SessionParameter UserDefinedFunction Explode GenerateSeries Repeat
        QueryTransform"""
    forbidden_nodes = {getattr(exp, name) for name in forbidden.split()}
    assert not forbidden_nodes & (FUNCTION_NODES | OTHER_NODES.keys())
    assert set(CALLED) - {node.__name__ for node in OTHER_NODES}

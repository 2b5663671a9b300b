"""Statements: what each becomes, and what is said about those that are none."""

from __future__ import annotations

import msgspec
import pytest

from tocsin.errors import SqlInvalid
from tocsin.model.catalogue import (
    Column,
    FolderSource,
    HttpSource,
    KafkaSource,
    Parameter,
    StreamSource,
    TopicSource,
)
from tocsin.pipeline.language.text.script import read_script
from tocsin.pipeline.language.text.statements import (
    AlterChannel,
    CreateChannel,
    CreateDataset,
    CreateFeed,
    Describe,
    Drop,
    ExplainChannel,
    PauseChannel,
    ResumeChannel,
    RunChannel,
    Select,
    Show,
    Statement,
)


def one(text: str) -> Statement:
    (statement,) = read_script(text)
    return statement


def test_a_dataset_has_columns_a_key_a_time_and_an_end() -> None:
    made = one(
        "CREATE DATASET IF NOT EXISTS Locations (user STRING NOT NULL, place POINT, spot xy, at TIMESTAMP,"
        " tags array<string>) KEEP 30 DAYS KEY (USER) EVENT TIME at"
    )

    assert isinstance(made, CreateDataset)
    assert made.if_not_exists
    dataset = made.dataset
    assert dataset.columns == (
        Column("user", "STRING", nullable=False),
        Column("place", "STRUCT<`lon`: DOUBLE, `lat`: DOUBLE>"),
        Column("spot", "STRUCT<`x`: DOUBLE, `y`: DOUBLE>"),
        Column("at", "TIMESTAMP"),
        Column("tags", "ARRAY<STRING>"),
    )
    assert (dataset.key, dataset.event_time, dataset.keep_s) == (("user",), "at", 30 * 86_400.0)
    assert dataset.text.startswith("CREATE DATASET")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("STREAMS WHERE type = 'quake' AND Location/Room =~ '^4'", None),
        ("TOPIC 'sensors/+/temp'", TopicSource("sensors/+/temp")),
        ("HTTP", HttpSource()),
        ("FOLDER '/var/spool/x'", FolderSource("/var/spool/x")),
        ("KAFKA 'a:9092,b:9092' TOPIC 'reports'", KafkaSource("a:9092,b:9092", "reports")),
    ],
)
def test_a_feed_has_a_source(source: str, expected: object) -> None:
    made = one(f"CREATE FEED Quakes INTO Reports FROM {source}")

    assert isinstance(made, CreateFeed)
    assert (made.feed.name, made.feed.dataset) == ("Quakes", "Reports")
    wanted = expected or StreamSource("Location/Room =~ '^4' AND type = 'quake'")
    assert made.feed.source == wanted


def test_a_channel_has_parameters_a_period_a_priority_and_a_query() -> None:
    made = one(
        "CREATE OR REPLACE CHANNEL Near(user STRING, n INT) EVERY 10 SECONDS PRIORITY BY level AS\n"
        "SELECT id /* not; this */ FROM NEW Reports -- nor this"
    )

    assert isinstance(made, CreateChannel)
    channel = made.channel
    assert made.or_replace
    assert channel.parameters == (Parameter("user", "STRING"), Parameter("n", "BIGINT"))
    assert (channel.every_s, channel.priority, channel.priority_column) == (10.0, 0, "level")
    assert channel.query.split() == ["SELECT", "id", "FROM", "NEW", "Reports"]
    assert "not; this" in channel.text


@pytest.mark.parametrize(
    ("period", "seconds"),
    [("EVERY 90 SECONDS", 90.0), ("EVERY MINUTE", 60.0), ("EVERY 1.5 hours", 5400.0), ("CONTINUOUS", None)],
)
def test_a_period_has_a_unit(period: str, seconds: float | None) -> None:
    made = one(f"CREATE CHANNEL C {period} PRIORITY 7 AS SELECT 1 AS x")

    assert isinstance(made, CreateChannel)
    assert (made.channel.every_s, made.channel.priority) == (seconds, 7)


def test_small_statements_are_read() -> None:
    found = read_script(
        """DROP DATASET a; DROP FEED IF EXISTS `b`; drop channel c;
        ALTER CHANNEL c EVERY 5 MINUTES; ALTER CHANNEL c CONTINUOUS; ALTER CHANNEL c PRIORITY 3;
        ALTER CHANNEL c PRIORITY BY level; PAUSE CHANNEL c; RESUME CHANNEL c; RUN CHANNEL c;
        SHOW DATASETS; SHOW FEEDS; SHOW CHANNELS; SHOW SUBSCRIPTIONS OF c;
        DESCRIBE x; DESC CHANNEL x; DESCRIBE channel; EXPLAIN CHANNEL c;
        SELECT 1; WITH a AS (SELECT 1 AS x) SELECT x FROM a; (SELECT 2);;"""
    )

    assert tuple(msgspec.structs.replace(each, at=0) for each in found) == (
        Drop("dataset", "a", False, 0),
        Drop("feed", "b", True, 0),
        Drop("channel", "c", False, 0),
        AlterChannel("c", 0, every_s=300.0),
        AlterChannel("c", 0, continuous=True),
        AlterChannel("c", 0, priority=3),
        AlterChannel("c", 0, priority_column="level"),
        PauseChannel("c", 0),
        ResumeChannel("c", 0),
        RunChannel("c", 0),
        Show("datasets", 0),
        Show("feeds", 0),
        Show("channels", 0),
        Show("subscriptions", 0, "c"),
        Describe("x", 0),
        Describe("x", 0, "channel"),
        Describe("channel", 0),
        ExplainChannel("c", 0),
        Select("SELECT 1", 0),
        Select("WITH a AS (SELECT 1 AS x) SELECT x FROM a", 0),
        Select("(SELECT 2)", 0),
    )


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("INSERT INTO a VALUES (1)", (1, 1), "datasets are written by feeds"),
        ("DELETE FROM a", (1, 1), "KEEP n DAYS"),
        ("SELEKT 1", (1, 1), "did you mean SELECT?"),
        ("42", (1, 1), "begins no statement"),
        ("CREATE TABLE a (b INT)", (1, 8), "only datasets, feeds and channels"),
        ("CREATE FUNCTION f AS 'x'", (1, 8), "cannot be created"),
        ("CREATE OR REPLACE DATASET a (b INT)", (1, 19), "cannot be replaced"),
        ("CREATE OR REPLACE CHANNEL IF NOT EXISTS a", (1, 19), "contradict"),
        ("CREATE DATASET a", (1, 17), "( is expected"),
        ("CREATE DATASET 1a (b INT)", (1, 16), "number has a letter"),
        ("CREATE DATASET _a (b INT)", (1, 16), "names begin with a letter"),
        ("CREATE DATASET é (b INT)", (1, 16), "names begin with a letter"),
        (f"CREATE DATASET {'a' * 65} (b INT)", (1, 16), "at most 64"),
        ("CREATE DATASET a (b)", (1, 20), "has no type"),
        ("CREATE DATASET a (b FOO)", (1, 21), "there is no type FOO"),
        ("CREATE DATASET a (b INT, B INT)", (1, 26), "two columns are called B"),
        ("CREATE DATASET a (b INT NOT)", (1, 28), "NULL is expected"),
        ("CREATE DATASET a (b INT) KEY (c)", (1, 31), "there is no column c"),
        ("CREATE DATASET a (b INT) KEY (b, b)", (1, 34), "in the key already"),
        ("CREATE DATASET a (b DOUBLE) KEY (b)", (1, 34), "cannot be a key"),
        ("CREATE DATASET a (b INT) KEY (b) KEY (b)", (1, 34), "given twice"),
        ("CREATE DATASET a (b STRING) EVENT TIME b", (1, 40), "not a time"),
        ("CREATE DATASET a (b INT) KEEP 0 DAYS", (1, 31), "out of range"),
        ("CREATE DATASET a (b INT) KEEP 3 BANANAS", (1, 33), "no unit of time"),
        (f"CREATE DATASET a ({', '.join(f'c{n} INT' for n in range(257))})", None, "more than 256 columns"),
        ("CREATE FEED f INTO d", (1, 21), "FROM is expected"),
        ("CREATE FEED f INTO d FROM TOPIC 'a/#/b'", (1, 33), "# stands alone"),
        ("CREATE FEED f INTO d FROM TOPIC '$SYS/x'", (1, 33), "plain topics"),
        ("CREATE FEED f INTO d FROM TOPIC x", (1, 33), "in quotes"),
        ("CREATE FEED f INTO d FROM FOLDER 'x'", (1, 34), "not absolute"),
        ("CREATE FEED f INTO d FROM STREAMS", (1, 34), "WHERE is expected"),
        ("CREATE FEED f\nINTO d FROM STREAMS\n  WHERE a = 1 AND\n  = 2", (4, 3), "found ="),
        ("CREATE FEED f INTO d FROM STREAMS WHERE /* x */ a ==  1", (1, 51), "write ="),
        ("CREATE CHANNEL c(a FOO) CONTINUOUS AS SELECT 1", (1, 20), "write one of STRING, BIGINT"),
        ("CREATE CHANNEL c(a INT, A INT) CONTINUOUS AS SELECT 1", (1, 25), "two parameters"),
        ("CREATE CHANNEL c AS SELECT 1", (1, 18), "EVERY or CONTINUOUS"),
        ("CREATE CHANNEL c EVERY 0.5 SECONDS AS SELECT 1", (1, 24), "out of range"),
        ("CREATE CHANNEL c EVERY 1e99 DAYS AS SELECT 1", (1, 24), "out of range"),
        ("CREATE CHANNEL c CONTINUOUS PRIORITY 10 AS SELECT 1", (1, 38), "write 0 to 9"),
        ("CREATE CHANNEL c CONTINUOUS AS DELETE FROM x", (1, 32), "begins no query"),
        ("DROP TABLE x", (1, 6), "DATASET or FEED or CHANNEL"),
        ("DROP CHANNEL x y", (1, 16), "is too much here"),
        ("SHOW CHANELS", (1, 6), "did you mean CHANNELS?"),
        ("SELECT (1", (1, 8), "bracket is not closed"),
        ("SELECT 1)", (1, 9), "closes nothing"),
        ("SELECT " + "(" * 40 + "1" + ")" * 40, (1, 40), "brackets one inside the other"),
        ("SELECT " + "1 + " * 9_000 + "1", (1, 1), "too long"),
        ("SELECT '" + "x" * 70_000 + "'", (1, 1), "too long"),
        ("SELECT 1;" * 1_001, None, "more than 1000 statements"),
    ],
)
def test_what_is_no_statement_is_refused_where_it_goes_wrong(
    text: str, place: tuple[int, int] | None, said: str
) -> None:
    with pytest.raises(SqlInvalid) as caught:
        read_script(text)

    assert said in str(caught.value)
    if place is not None:
        assert (caught.value.line, caught.value.column) == place

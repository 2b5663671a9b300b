from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.pipeline.storage.stored_tables import (
    MOVES,
    NOW_US,
    PLACES,
    REPORTS,
    counting,
    rows_of,
    stored,
)
from tests.unit.pipeline.storage.tables.test_upkeep import moves
from tests.unit.pipeline.storage.test_results import NOW_US as COMMITTED_US
from tests.unit.pipeline.storage.test_results import row as result_row
from tests.unit.pipeline.storage.test_results import tick
from tocsin.model.catalogue import Column, Dataset
from tocsin.pipeline.storage import datasets
from tocsin.pipeline.storage.datasets import DatasetStore, time_of
from tocsin.pipeline.storage.results import ResultsStore
from tocsin.pipeline.storage.tables.upkeep import Upkeep, compact, fold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tocsin.pipeline.storage.frames import Frames

pytestmark = pytest.mark.xdist_group("spark")

Make = Callable[[DatasetStore], "Frames"]


@pytest.fixture(scope="session")
def make(spark: SparkSession) -> Make:
    from tocsin.pipeline.storage.frames import Frames

    return lambda store: Frames(spark, store)


@pytest.fixture
def store(tmp_path: Path) -> DatasetStore:
    return DatasetStore(tmp_path)


def ids(frame: DataFrame) -> list[int]:
    return sorted(each["id"] for each in frame.collect())


def report(store: DatasetStore, *numbers: int) -> None:
    store.append("Reports", rows_of(REPORTS, [(number, "t", None) for number in numbers]), now_us=NOW_US)


@pytest.mark.parametrize("recent_bytes", [0, 1 << 20])
def test_what_is_new_is_what_came_after_a_version(make: Make, tmp_path: Path, recent_bytes: int) -> None:
    store = DatasetStore(tmp_path, recent_bytes=recent_bytes)
    store.create(REPORTS)
    frames = make(store)
    assert ids(frames.current(store.snapshot("Reports"))) == []
    assert ids(frames.new(store.snapshot("Reports"), 0)) == []
    report(store, 1, 2)
    report(store, 3)
    snapshot = store.snapshot("Reports")
    report(store, 4)
    assert ids(frames.current(snapshot)) == [1, 2, 3]
    assert [ids(frames.new(snapshot, since)) for since in range(3)] == [[1, 2, 3], [3], []]
    assert frames.current(snapshot).columns == frames.new(snapshot, 0).columns == ["id", "text", "at"]
    assert frames.new(snapshot, 1).dtypes == frames.new(snapshot, 2).dtypes == frames.current(snapshot).dtypes


def test_compaction_makes_nothing_new(make: Make, tmp_path: Path) -> None:
    store = DatasetStore(tmp_path, recent_bytes=0)
    store.create(REPORTS)
    for number in range(1, 12):
        report(store, number)
    assert compact(store.snapshot("Reports"), store.table("Reports"), time_of(NOW_US)) is not None
    report(store, 12)
    frames = make(store)
    assert ids(frames.new(store.snapshot("Reports"), 9)) == [10, 11, 12]
    assert ids(frames.current(store.snapshot("Reports"))) == list(range(1, 13))


def test_every_type_reaches_spark_as_it_was_appended(make: Make, store: DatasetStore) -> None:
    columns = {
        "BOOLEAN": True,
        "TINYINT": 1,
        "SMALLINT": 2,
        "INT": 3,
        "BIGINT": 4,
        "FLOAT": 1.5,
        "DOUBLE": 2.5,
        "DECIMAL(10, 2)": __import__("decimal").Decimal("1.50"),
        "STRING": "é",
        "BINARY": b"x",
        "DATE": datetime.date(2024, 5, 1),
        "TIMESTAMP": datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC),
        "ARRAY<INT>": [1, None],
        "MAP<STRING, DOUBLE>": {"a": 1.5},
        "STRUCT<`a b`: INT, c: ARRAY<STRUCT<d: STRING>>>": {"a b": 1, "c": [{"d": "x"}]},
    }
    dataset = Dataset("All", tuple(Column(f"c {n}", kind) for n, kind in enumerate(columns)))
    store.create(dataset)
    frames = make(store)
    values: list[tuple[Any, ...]] = [tuple(columns.values()), (None,) * len(columns)]
    store.append("All", rows_of(dataset, values), now_us=NOW_US)
    snapshot = store.snapshot("All")
    whole = frames.current(snapshot)
    assert whole.dtypes == frames.new(snapshot, 0).dtypes
    for frame in (whole, frames.new(snapshot, 0)):
        found = {each.asDict(recursive=True)["c 0"]: each.asDict(recursive=True) for each in frame.collect()}
        assert list(found[None].values()) == [None] * len(columns)
        got = list(found[True].values())
        at = got.pop(11)
        assert at.timestamp() == datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC).timestamp()
        assert got == [value for kind, value in columns.items() if kind != "TIMESTAMP"]


steps = st.lists(st.one_of(moves, moves, st.sampled_from(["fold", "tidy"])), min_size=1, max_size=6)


Happening = tuple[list[Any], int, bool]
happenings = st.tuples(steps, st.integers(0, 3), st.booleans())


@settings(max_examples=5)
@given(happenings)
def test_spark_sees_the_rows_that_count(
    make: Make, tmp_path_factory: pytest.TempPathFactory, happening: Happening
) -> None:
    sees_what_counts(make, tmp_path_factory.mktemp("data"), *happening)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=60)
@given(happenings)
def test_spark_sees_the_rows_that_count_at_length(
    make: Make, tmp_path_factory: pytest.TempPathFactory, happening: Happening
) -> None:
    sees_what_counts(make, tmp_path_factory.mktemp("data"), *happening)


def sees_what_counts(make: Make, root: Path, happening: list[Any], since: int, timed: bool) -> None:
    dataset = MOVES if timed else Dataset("Moves", MOVES.columns, key=("user",))
    store = DatasetStore(root)
    store.create(dataset)
    for step in happening:
        if step == "fold":
            fold(store.snapshot("Moves"), store.table("Moves"), time_of(NOW_US))
        elif step == "tidy":
            Upkeep(store).tidy("Moves", NOW_US)
        else:
            rows = [(user, x, at, x is None) for user, x, at in step]
            store.append("Moves", rows_of(dataset, rows), now_us=NOW_US)
    snapshot = store.snapshot("Moves")
    frames = make(store)
    expected = counting(snapshot)
    found = {(each["user"],): each.asDict() for each in frames.current(snapshot).collect()}
    assert found == expected
    came = {row["user"]: 0 for row in stored(snapshot)}
    for row in sorted(stored(snapshot), key=lambda row: tuple(row[name] for name in snapshot.schema.order)):
        came[row["user"]] = row["_version"]
    changed = sorted(each["user"] for each in frames.new(snapshot, since).collect())
    assert changed == sorted(user for (user,) in expected if came[user] > since)


def test_a_late_row_wins_neither_against_a_change_nor_against_the_base(
    make: Make, store: DatasetStore
) -> None:
    store.create(MOVES)
    store.append("Moves", rows_of(MOVES, [("a", 1.0, 10), ("b", 1.0, 10), ("c", 1.0, 10)]), now_us=NOW_US)
    fold(store.snapshot("Moves"), store.table("Moves"), time_of(NOW_US))
    store.append("Moves", rows_of(MOVES, [("a", 2.0, 9), ("b", 2.0, 11)]), now_us=NOW_US)
    store.append("Moves", rows_of(MOVES, [("b", 3.0, 10), ("d", 3.0, 1)]), now_us=NOW_US)
    snapshot = store.snapshot("Moves")
    found = {each["user"]: each["x"] for each in make(store).current(snapshot).collect()}
    assert found == {"a": 1.0, "b": 2.0, "c": 1.0, "d": 3.0}
    assert sorted(each["user"] for each in make(store).new(snapshot, 1).collect()) == ["b", "d"]


def test_keys_of_several_columns_are_told_apart(make: Make, store: DatasetStore) -> None:
    dataset = Dataset("Places", (*PLACES.columns, Column("day", "DATE")), key=("user", "day"))
    store.create(dataset)
    days = [datetime.date(2024, 5, day) for day in (1, 2)]
    store.append("Places", rows_of(dataset, [("a", 1.0, days[0]), ("a", 2.0, days[1])]), now_us=NOW_US)
    fold(store.snapshot("Places"), store.table("Places"), time_of(NOW_US))
    store.append("Places", rows_of(dataset, [("a", 3.0, days[1])]), now_us=NOW_US)
    found = sorted(each["x"] for each in make(store).current(store.snapshot("Places")).collect())
    assert found == [1.0, 3.0]


def test_results_are_rows_of_later_ticks_for_each_broker(spark: SparkSession, tmp_path: Path) -> None:
    from tocsin.pipeline.storage.frames import Frames

    store, datasets_store = ResultsStore(tmp_path / "results"), DatasetStore(tmp_path / "data")
    frames = Frames(spark, datasets_store)

    def found(since: int) -> list[tuple[int, str, str]]:
        rows = frames.results(store.snapshot(), since)
        return sorted((each["tick"], each["k"], each["payload"]) for each in rows.collect())

    assert found(0) == []
    tick(store, 1, [[result_row("k1", '{"a":1}', "e1", "e2")], [result_row("k2", '{"a":2}', "e2")]])
    tick(store, 2, [[result_row("k1", '{"a":3}', "e1")]])
    first = [(1, "k1", '{"a":1}'), (1, "k1", '{"a":1}'), (1, "k2", '{"a":2}')]
    assert found(0) == [*first, (2, "k1", '{"a":3}')]
    assert found(1) == [(2, "k1", '{"a":3}')] and found(2) == []
    snapshot = store.snapshot()
    assert frames.results(snapshot, 1) is frames.results(store.snapshot(), 1)


def test_results_that_upkeep_put_together_are_told_apart_by_their_tick(
    spark: SparkSession, tmp_path: Path
) -> None:
    from tocsin.pipeline.storage.frames import Frames

    store = ResultsStore(tmp_path / "results")
    for number in range(1, 12):
        tick(store, number, [[result_row("k1", f'{{"a":{number}}}', "e1")]])
    store.upkeep(COMMITTED_US + 3_600_000_000, keep_s=None, floor=0)
    snapshot = store.snapshot()
    assert len(snapshot.files) < 11 and snapshot.tick == 11
    rows = Frames(spark, DatasetStore(tmp_path / "data")).results(snapshot, 7).collect()
    assert sorted(each["tick"] for each in rows) == [8, 9, 10, 11]


def test_large_appends_are_read_from_their_files(
    make: Make, store: DatasetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "RECENT_ROWS", 1)
    store.create(REPORTS)
    report(store, 1, 2)
    assert ids(make(store).new(store.snapshot("Reports"), 0)) == [1, 2]

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.pipeline.storage.stored_tables import (
    MOVES,
    NOW_US,
    PLACES,
    REPORTS,
    counting,
    rows_of,
    stored,
)
from tocsin.errors import Conflict, DatasetMissing, SchemaInvalid, StorageUnusable
from tocsin.model.catalogue import Column, Dataset
from tocsin.pipeline.storage.datasets import RECENT_ROWS, DatasetStore, Recent


@pytest.fixture
def store(tmp_path: Path) -> DatasetStore:
    return DatasetStore(tmp_path / "data")


def reports(*numbers: int) -> pa.Table:
    return rows_of(REPORTS, [(number, f"r{number}", None) for number in numbers])


def test_every_append_has_a_version_which_its_rows_carry(store: DatasetStore) -> None:
    store.create(REPORTS)
    assert store.version("Reports") == 0
    assert store.append("Reports", reports(1, 2), now_us=NOW_US) == 1
    assert store.append("reports", reports(3), now_us=NOW_US) == 2
    rows = stored(store.snapshot("REPORTS"))
    assert sorted((row["id"], row["_version"]) for row in rows) == [(1, 1), (2, 1), (3, 2)]
    assert {row["_arrived"].timestamp() for row in rows} == {NOW_US / 1_000_000}


def test_a_dataset_is_there_after_a_restart(store: DatasetStore) -> None:
    store.create(REPORTS)
    store.append("Reports", reports(1), now_us=NOW_US, transactions={"feed.a": 5})
    again = DatasetStore(store.root)
    with pytest.raises(DatasetMissing):
        again.snapshot("Reports")
    again.create(REPORTS)
    assert (again.version("Reports"), again.transaction("Reports", "feed.a")) == (1, 5)


def test_a_repeated_append_does_nothing(store: DatasetStore) -> None:
    store.create(REPORTS)
    for _ in range(2):
        assert store.append("Reports", reports(1), now_us=NOW_US, transactions={"feed.a": 5}) == 1
    assert store.append("Reports", reports(1), now_us=NOW_US, transactions={"feed.a": 4}) == 1
    assert len(stored(store.snapshot("Reports"))) == 1


def test_an_append_that_repeats_only_some_of_its_transactions_is_refused(store: DatasetStore) -> None:
    store.create(REPORTS)
    store.append("Reports", reports(1), now_us=NOW_US, transactions={"feed.a": 5})
    with pytest.raises(Conflict):
        store.append("Reports", reports(1), now_us=NOW_US, transactions={"feed.a": 5, "feed.b": 1})


def test_an_append_without_rows_keeps_its_transactions_and_has_no_version(store: DatasetStore) -> None:
    store.create(REPORTS)
    assert store.append("Reports", reports(), now_us=NOW_US, transactions={"feed.a": 5}) == 0
    assert store.transaction("Reports", "feed.a") == 5


def test_many_who_append_at_once_all_get_through_once(store: DatasetStore) -> None:
    store.create(REPORTS)
    other = DatasetStore(store.root)
    other.create(REPORTS)
    failed: list[Exception] = []

    def append(each: DatasetStore, name: int) -> None:
        try:
            for number in range(1, 6):
                each.append(
                    "Reports", reports(name * 100 + number), now_us=NOW_US, transactions={f"f{name}": number}
                )
        except Exception as error:
            failed.append(error)

    threads = [
        threading.Thread(target=append, args=(each, n)) for n, each in enumerate((store, store, other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    rows = stored(store.snapshot("Reports"))
    assert sorted(row["id"] for row in rows) == [n * 100 + i for n in range(3) for i in range(1, 6)]
    assert sorted(row["_version"] for row in rows) == list(range(1, 16))


WRITER = """
import sys
from pathlib import Path
from tests.unit.pipeline.storage.stored_tables import NOW_US, PLACES, rows_of
from tocsin.pipeline.storage.datasets import DatasetStore
from tocsin.pipeline.storage.tables.upkeep import Upkeep
store = DatasetStore(Path(sys.argv[1]))
store.create(PLACES)
keeper = Upkeep(store, grace_s=0)
number = store.transaction("Places", "feed") or 0
while True:
    number += 1
    rows = rows_of(PLACES, [(f"u{number}", float(number)), ("last", float(number))])
    store.append("Places", rows, now_us=NOW_US, transactions={"feed": number})
    print(number, flush=True)
    keeper.tidy("Places", NOW_US)
    keeper.run("Places", NOW_US)
"""


def test_a_killed_writer_leaves_every_confirmed_append_once(tmp_path: Path) -> None:
    told = 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for appends in (1, 6):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(appends):
                told = int(writer.stdout.readline())
            writer.kill()
        store = DatasetStore(tmp_path)
        store.create(PLACES)
        found = counting(store.snapshot("Places"))
        last = store.transaction("Places", "feed") or 0
        assert told <= last <= told + 10
        assert found == {
            **{(f"u{number}",): {"user": f"u{number}", "x": float(number)} for number in range(1, last + 1)},
            ("last",): {"user": "last", "x": float(last)},
        }


def test_of_a_key_the_newest_row_counts_and_a_late_one_never(store: DatasetStore) -> None:
    store.create(MOVES)
    store.append("Moves", rows_of(MOVES, [("a", 1.0, 10), ("a", 2.0, 12), ("a", 3.0, 11)]), now_us=NOW_US)
    store.append("Moves", rows_of(MOVES, [("a", 4.0, 11), ("b", 5.0, 1)]), now_us=NOW_US)
    assert counting(store.snapshot("Moves")) == {
        ("a",): {"user": "a", "x": 2.0, "at": 12},
        ("b",): {"user": "b", "x": 5.0, "at": 1},
    }


def test_without_event_time_the_last_that_came_counts(store: DatasetStore) -> None:
    store.create(PLACES)
    store.append("Places", rows_of(PLACES, [("a", 1.0), ("a", 2.0)]), now_us=NOW_US)
    store.append("Places", rows_of(PLACES, [("a", 3.0, False), ("b", None, True)]), now_us=NOW_US)
    assert counting(store.snapshot("Places")) == {("a",): {"user": "a", "x": 3.0}}


def test_rows_that_do_not_have_the_columns_are_refused(store: DatasetStore) -> None:
    store.create(REPORTS)
    with pytest.raises(SchemaInvalid, match="do not have its columns"):
        store.append("Reports", pa.table({"id": [1]}), now_us=NOW_US)
    with pytest.raises(SchemaInvalid, match="non-nullable"):
        wrong = pa.table(
            {"id": pa.array([None], pa.int64()), "text": ["a"], "at": pa.nulls(1, pa.timestamp("us", "UTC"))}
        )
        store.append("Reports", wrong, now_us=NOW_US)


def test_a_dataset_with_other_columns_is_not_opened_as_this_one(store: DatasetStore) -> None:
    store.create(REPORTS)
    with pytest.raises(SchemaInvalid, match="with other columns"):
        DatasetStore(store.root).create(Dataset("Reports", (Column("id", "STRING"),)))


def test_a_dropped_dataset_can_be_made_anew(store: DatasetStore) -> None:
    store.create(REPORTS)
    store.append("Reports", reports(1), now_us=NOW_US)
    store.drop("Reports")
    with pytest.raises(DatasetMissing, match="there is no dataset Reports"):
        store.append("Reports", reports(1), now_us=NOW_US)
    store.create(Dataset("Reports", (Column("other", "STRING"),)))
    assert store.version("Reports") == 0


def test_a_root_that_cannot_be_used_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageUnusable):
        DatasetStore(tmp_path / "file" / "data")


def test_recent_rows_are_given_only_if_all_of_them_are_there() -> None:
    rows = pa.table({"a": list(range(10))})
    recent = Recent(bytes_max=rows.nbytes * 3)
    for version in range(1, 6):
        recent.put("d", version, rows)
    assert recent.bytes <= recent.bytes_max
    found = recent.between("d", 2, 5)
    assert found is not None
    assert found.num_rows == 30
    assert recent.between("d", 1, 5) is None
    assert recent.between("d", 4, 6) is None
    assert recent.between("e", 4, 5) is None
    recent.put("d", 6, pa.table({"a": list(range(RECENT_ROWS + 1))}))
    assert recent.between("d", 5, 6) is None
    recent.forget("d")
    assert (recent.bytes, recent.between("d", 4, 5)) == (0, None)

"""A Delta table that is copied for a backup while it is written: the copy is whole, with all that was there before."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from tocsin.config import Settings
from tocsin.pipeline.storage.tables import delta
from tocsin.pipeline.storage.tables.delta import Table
from tocsin.pipeline.storage.tables.files import write_parquet
from tocsin.runtime.network.backup import DATASETS, BackupUnusable, _Maker, _newest

SCHEMA = pa.schema([pa.field("a", pa.int64(), False)])
COPIES = 25


class Writer(threading.Thread):
    """Commits as fast as it can, with a checkpoint every other time, and forgets what is before it."""

    def __init__(self, table: Table) -> None:
        super().__init__(daemon=True)
        self._table = table
        self.done = 0
        self.problem: Exception | None = None
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                number = self.done + 1
                file = write_parquet(
                    self._table.path,
                    f"{number}.parquet",
                    pa.table({"a": [number]}, schema=SCHEMA),
                    measured=["a"],
                )
                self._table.commit([file], transactions={"x": number})
                self.done = number
        except Exception as error:
            self.problem = error


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(delta, "LOG_KEPT", "interval 0 seconds")
    return Table.create(tmp_path / "state" / "datasets" / "data" / "t", SCHEMA)


def test_each_copy_of_a_table_that_is_written_is_whole(table: Table, tmp_path: Path) -> None:
    writer = Writer(table)
    writer.start()
    try:
        for number in range(COPIES):
            before = writer.done
            target = tmp_path / f"backup-{number}"
            maker = _Maker(
                cast(Any, None), Settings(state=str(tmp_path / "state")), target, lambda what: None
            )
            maker._copy_table(table.path)
            copied = Table(target / DATASETS / "data" / "t")
            files = copied.files()
            assert all((copied.path / each.path).is_file() for each in files)
            assert len(files) == copied.transaction("x") or not files
            assert len(files) >= before, "all that was committed before"
            assert maker.versions["data/t"] == copied.version
    finally:
        writer.stopped.set()
        writer.join(30)
    assert writer.problem is None and writer.done


def entry(number: int, kind: str = "json") -> str:
    return f"{number:020}.{kind}"


def test_a_log_starts_with_an_entry_or_a_checkpoint_without_gaps() -> None:
    assert _newest([]) is None
    assert _newest(map(entry, range(4))) == 3
    assert _newest(map(entry, (1, 2))) is None
    assert _newest(map(entry, (0, 2))) is None
    assert _newest([entry(5, "checkpoint.parquet")]) == 5
    assert _newest([entry(2), entry(5, "checkpoint.parquet"), entry(6)]) == 6
    assert _newest([entry(5, "checkpoint.parquet"), entry(7)]) is None


def test_what_was_copied_is_not_copied_again_and_what_is_new_is(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(number: int) -> None:
        rows = pa.table({"a": [number]}, schema=SCHEMA)
        file = write_parquet(table.path, f"{number}.parquet", rows, measured=["a"])
        table.commit([file], transactions={"x": number})

    target = tmp_path / "backup"
    maker = _Maker(cast(Any, None), Settings(state=str(tmp_path / "state")), target, lambda what: None)
    commit(1)
    maker._copy_table(table.path)
    before = {each: each.stat().st_mtime_ns for each in target.rglob("*") if each.is_file()}
    commit(2)
    maker.files = {}
    maker._copy_table(table.path)
    assert {each: each.stat().st_mtime_ns for each in before} == before
    assert len(Table(target / DATASETS / "data" / "t").files()) == 2
    assert {each.path for each in maker.files.values()} <= {
        str(each.relative_to(target)) for each in target.rglob("*")
    }


class Trimming:
    """Saves the log of feeds, of which the pipeline has trimmed something in the first rounds."""

    def __init__(self, maker: _Maker, rounds: int) -> None:
        self._maker = maker
        self._rounds = rounds
        self.first = 1

    async def oldest(self, log: str) -> int:
        return self.first

    async def take(self, names: object) -> None:
        if self._rounds:
            self._rounds -= 1
            self.first += 10
        saved: Any = SimpleNamespace(first=self.first, last=self.first + 5)
        self._maker.saved["tocsin-feeds"] = saved


@pytest.mark.parametrize(("rounds", "whole"), [(0, True), (3, True), (10_000, False)])
async def test_a_copy_that_lacks_records_in_both_places_is_no_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, whole: bool
) -> None:
    maker = _Maker(cast(Any, None), Settings(state=str(tmp_path)), tmp_path / "b", lambda what: None)
    trimming = Trimming(maker, rounds)
    monkeypatch.setattr(maker, "_oldest", trimming.oldest)
    monkeypatch.setattr(maker, "_take", trimming.take)
    if whole:
        await maker._take_feeds({"tocsin-feeds"})
        return
    with pytest.raises(BackupUnusable, match="faster than both can be saved"):
        await maker._take_feeds({"tocsin-feeds"})

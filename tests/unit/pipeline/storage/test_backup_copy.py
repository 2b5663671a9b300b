"""A Delta table that is copied for a backup while it is written: the copy is whole, with all that was there before."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tocsin.config import Settings
from tocsin.pipeline.storage import delta
from tocsin.pipeline.storage.delta import Table
from tocsin.pipeline.storage.files import write_parquet
from tocsin.runtime.backup import DATASETS, _Maker, _newest

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


def test_a_log_begins_with_its_first_entry_or_a_checkpoint_and_has_no_gap() -> None:
    assert _newest([]) is None
    assert _newest(map(entry, range(4))) == 3
    assert _newest(map(entry, (1, 2))) is None
    assert _newest(map(entry, (0, 2))) is None
    assert _newest([entry(5, "checkpoint.parquet")]) == 5
    assert _newest([entry(2), entry(5, "checkpoint.parquet"), entry(6)]) == 6
    assert _newest([entry(5, "checkpoint.parquet"), entry(7)]) is None

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tocsin.errors import FormatNewer, StorageUnusable
from tocsin.pipeline.storage.tables.delta import CHECKPOINT_EVERY, REWRITE, Overtaken, Table
from tocsin.pipeline.storage.tables.files import DataFile, write_parquet

SCHEMA = pa.schema([pa.field("a", pa.int64(), False)])


def file_of(table: Table, name: str, values: list[int]) -> DataFile:
    return write_parquet(
        table.path, f"{name}.parquet", pa.table({"a": values}, schema=SCHEMA), measured=["a"]
    )


def log_of(table: Table) -> list[str]:
    return sorted(each.name for each in (table.path / "_delta_log").iterdir())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "deep" / "t", SCHEMA)


def test_a_table_has_the_files_that_were_committed(table: Table) -> None:
    one = file_of(table, "one", [3, 1, 2])
    table.commit([one], transactions={"x": 7}, metadata={"what": ["ever"]}, now_us=5_000_000)
    (found,) = Table(table.path).files()
    assert (found.path, found.rows, found.least, found.greatest) == ("one.parquet", 3, {"a": 1}, {"a": 3})
    assert Table(table.path).transaction("x") == 7
    assert Table(table.path).transaction("y") is None
    assert Table(table.path).metadata() == {"what": ["ever"]}


def test_a_table_keeps_metadata_that_later_commits_do_not_name(table: Table) -> None:
    table.commit([], transactions={"x": 1}, metadata={"a": 1, "b": 1})
    table.commit([], transactions={"x": 2}, metadata={"b": 2})
    table.commit([], transactions={"x": 3})
    assert Table(table.path).metadata() == {"a": 1, "b": 2}


def test_a_transaction_is_committed_once(table: Table) -> None:
    table.commit([file_of(table, "one", [1])], transactions={"x": 7})
    again = file_of(table, "two", [1])
    with pytest.raises(Overtaken):
        table.commit([again], transactions={"x": 7})
    with pytest.raises(Overtaken):
        table.commit([again], transactions={"x": 6})
    assert len(Table(table.path).files()) == 1


def test_two_independent_writers_cannot_both_replace_a_file(table: Table) -> None:
    one = file_of(table, "one", [1])
    table.commit([one], transactions={"x": 1})
    other = Table(table.path)
    table.commit([file_of(table, "two", [1])], removes=[one], transactions={REWRITE: 1})
    with pytest.raises(Overtaken):
        other.commit([file_of(table, "three", [1])], removes=[one], transactions={REWRITE: 1})
    assert [each.path for each in Table(table.path).files()] == ["two.parquet"]


def test_an_append_beside_a_rewrite_goes_through(table: Table) -> None:
    one = file_of(table, "one", [1])
    table.commit([one], transactions={"x": 1})
    other = Table(table.path)
    table.commit([file_of(table, "two", [1])], removes=[one], transactions={REWRITE: 1}, data_change=False)
    other.commit([file_of(table, "three", [2])], transactions={"x": 2})
    assert {each.path for each in Table(table.path).files()} == {"two.parquet", "three.parquet"}


def test_a_file_that_is_gone_is_not_committed(table: Table) -> None:
    one = file_of(table, "one", [1])
    os.unlink(table.path / one.path)
    with pytest.raises(StorageUnusable, match="is gone"):
        table.commit([one], transactions={"x": 1})


def test_the_log_is_gathered_now_and_then_and_says_the_same_after(table: Table) -> None:
    for number in range(1, CHECKPOINT_EVERY + 3):
        table.commit(
            [file_of(table, f"f{number}", [number])], transactions={"x": number}, metadata={"n": number}
        )
    assert any(name.endswith(".checkpoint.parquet") for name in log_of(table))
    again = Table(table.path)
    assert len(again.files()) == CHECKPOINT_EVERY + 2
    assert again.transaction("x") == CHECKPOINT_EVERY + 2
    assert again.metadata() == {"n": CHECKPOINT_EVERY + 2}


@pytest.mark.parametrize("cut", ["empty", "half a line", "between lines", "zeros"])
def test_an_entry_that_a_power_failure_has_cut_is_put_aside(table: Table, cut: str) -> None:
    table.commit([file_of(table, "one", [1])], transactions={"x": 1})
    table.commit([file_of(table, "two", [2])], transactions={"x": 2})
    entry = table.path / "_delta_log" / f"{2:020}.json"
    data = entry.read_bytes()
    entry.write_bytes(
        {
            "empty": b"",
            "half a line": data[: len(data) // 2],
            "between lines": b"\n".join(data.splitlines()[:-1]),
            "zeros": data[:100] + b"\0" * (len(data) - 100),
        }[cut]
    )
    again = Table(table.path)
    assert [each.path for each in again.files()] == ["one.parquet"]
    again.commit([file_of(table, "three", [3])], transactions={"x": 2})
    assert len(Table(table.path).files()) == 2


def test_what_lies_behind_a_cut_entry_goes_with_it(table: Table) -> None:
    for number in (1, 2, 3):
        table.commit([file_of(table, f"f{number}", [number])], transactions={"x": number})
    (table.path / "_delta_log" / f"{2:020}.json").write_bytes(b"")
    assert [each.path for each in Table(table.path).files()] == ["f1.parquet"]


def test_an_entry_of_another_writer_is_left_alone(table: Table) -> None:
    table.commit([file_of(table, "one", [1])], transactions={"x": 1})
    entry = table.path / "_delta_log" / f"{1:020}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    entry.write_text("\n".join(json.dumps(line) for line in lines if "commitInfo" not in line))
    assert len(Table(table.path).files()) == 1


def test_a_cut_checkpoint_is_put_aside(table: Table) -> None:
    for number in range(1, 4):
        table.commit([file_of(table, f"f{number}", [number])], transactions={"x": number})
    table.checkpoint()
    (checkpoint,) = (table.path / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:50])
    assert len(Table(table.path).files()) == 3
    (table.path / "_delta_log" / "_last_checkpoint").write_bytes(b"{")
    assert len(Table(table.path).files()) == 3


def test_a_table_whose_making_was_cut_is_made_anew(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA)
    (table.path / "_delta_log" / f"{0:020}.json").write_bytes(b"")
    assert Table.create(tmp_path / "t", SCHEMA).version == 0


def test_a_place_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageUnusable, match="see that the storage is there"):
        Table.create(tmp_path / "file" / "t", SCHEMA)
    with pytest.raises(StorageUnusable):
        Table(tmp_path / "nothing")


WRITER = """
import pyarrow as pa, sys
from pathlib import Path
from tocsin.pipeline.storage.tables.delta import Table
from tocsin.pipeline.storage.tables.files import write_parquet
table = Table(Path(sys.argv[1]))
for number in range(int(sys.argv[2])):
    rows = pa.table({"a": [number]}, schema=pa.schema([pa.field("a", pa.int64(), False)]))
    file = write_parquet(table.path, f"f{number}.parquet", rows)
    print("commits", flush=True)
    table.commit([file], transactions={"x": number + 1})
    print("committed", flush=True)
"""


def test_rows_and_then_their_entry_are_flushed_before_a_commit_returns(
    table: Table, tmp_path: Path, debian_program: Callable[[str, str], str]
) -> None:
    trace = tmp_path / "trace"
    calls = "trace=fsync,fdatasync,openat,linkat,write"
    command = [debian_program("strace", "strace"), "-f", "-y", "-s", "16", "-e", calls, "-o", str(trace)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [*command, sys.executable, "-c", WRITER, str(table.path), "2"],
        check=True,
        env=environment,
        timeout=120,
    )
    lines = [line for line in trace.read_text().splitlines() if "resumed" not in line]
    for number in (0, 1):
        rows = next(i for i, line in enumerate(lines) if "fsync" in line and f"/f{number}.parquet" in line)
        names = next(
            i for i, line in enumerate(lines) if i > rows and "fsync" in line and f"{table.path}>" in line
        )
        linked = next(
            i for i, line in enumerate(lines) if "linkat" in line and f"{number + 1:020}.json" in line
        )
        entry = next(
            i for i, line in enumerate(lines) if "fsync" in line and f"/{number + 1:020}.json>" in line
        )
        log = next(
            i for i, line in enumerate(lines) if i > entry and "fsync" in line and "_delta_log>" in line
        )
        said = [i for i, line in enumerate(lines) if '"committed' in line][number]
        assert rows < names < linked < entry < log < said


def test_a_dropped_table_is_gone(table: Table) -> None:
    table.drop()
    assert not table.path.exists()
    assert not Table.exists(table.path)
    shutil.rmtree(table.path.parent)
    with pytest.raises(StorageUnusable):
        table.drop()


def contents(table: Table) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in table.path.rglob("*") if each.is_file()}


def test_every_commit_says_the_version_of_the_layout(table: Table) -> None:
    table.commit([], transactions={"x": 1}, metadata={"a": 1})
    for name in log_of(table)[:2]:
        lines = [json.loads(line) for line in (table.path / "_delta_log" / name).read_text().splitlines()]
        (info,) = (line["commitInfo"] for line in lines if "commitInfo" in line)
        assert info["tocsin"]["v"] == 1
    assert table.metadata() == {"a": 1}


def open_or_make(path: Path) -> Table:
    return Table.create(path, SCHEMA)


@pytest.mark.parametrize("look", [Table, open_or_make])
@pytest.mark.parametrize("entry", [0, 1])
def test_a_table_of_a_newer_release_is_refused_and_left_alone(
    table: Table, entry: int, look: Callable[[Path], Table]
) -> None:
    if entry:
        table.commit([], transactions={"x": 1})
    path = table.path / "_delta_log" / f"{entry:020}.json"
    text = path.read_text()
    assert '"v":1' in text
    path.write_text(text.replace('"v":1', '"v":2').replace('"actions"', '"operations"'))
    (table.path / "_delta_log" / f"{entry + 1:020}.json").write_text("{")  # which looks torn
    had = contents(table)
    with pytest.raises(FormatNewer, match="Upgrade this process"):
        look(table.path)
    assert contents(table) == had


def test_an_open_table_is_not_written_after_a_newer_release_did(table: Table) -> None:
    Table(table.path).commit([], transactions={"x": 1})
    path = table.path / "_delta_log" / f"{1:020}.json"
    path.write_text(path.read_text().replace('"v":1', '"v":2'))
    table.refresh()
    with pytest.raises(FormatNewer):
        table.commit([], transactions={"x": 2})
    assert table.version == 1


def test_a_table_without_a_version_is_read(table: Table) -> None:
    path = table.path / "_delta_log" / f"{0:020}.json"
    path.write_text(path.read_text().replace('"v":1', '"other":1'))
    table = Table(table.path)
    table.commit([file_of(table, "one", [1])], transactions={"x": 1})
    assert len(Table(table.path).files()) == 1

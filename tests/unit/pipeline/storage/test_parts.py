from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.errors import StorageUnusable
from tocsin.model.priority import CRITICAL
from tocsin.model.results import Execution
from tocsin.pipeline.storage import parts
from tocsin.pipeline.storage.parts import IN, Part, TaskOutput, parts_of, write_part

Row = tuple[str, int, str, list[str], int | None, str]


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns: Any = list(zip(*((*row, None) for row in rows), strict=True)) or [()] * len(IN)
    return pa.record_batch(
        [pa.array(list(column), field.type) for column, field in zip(columns, IN, strict=True)], schema=IN
    )


def place(root: Path, tick: int = 7, run: str = "r1") -> TaskOutput:
    return TaskOutput(str(root), tick, run, 1_000_000)


def written(root: Path, batches: list[list[Row]], part: int = 3) -> Part:
    (found,) = parts_of([write_part(place(root), part, 0, iter(map(batch, batches)))])
    return found


rows = st.tuples(
    st.sampled_from(["Near", "Far"]),
    st.integers(1, 2),
    st.sampled_from(["k1", "k2", "k3"]),
    st.lists(st.sampled_from(["e1", "e2", "e3"]), max_size=3, unique=True),
    st.one_of(st.none(), st.integers(0, 9)),
    st.text(max_size=5),
)


@settings(max_examples=40)
@given(st.lists(st.lists(rows, max_size=6), max_size=4), st.sampled_from([3, 1_000]))
def test_every_broker_has_a_file_with_its_rows_as_they_came(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]], buffer: int
) -> None:
    root = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "BUFFER_ROWS", buffer)
        part = written(root, batches)
    everything = [row for each in batches for row in each]
    brokers = {broker for row in everything for broker in row[3]}
    assert (part.part, part.rows) == (3, len(everything))
    assert {file.broker for file in part.files} == brokers
    for file in part.files:
        found = pq.read_table(root / file.path).to_pylist()
        assert os.path.getsize(root / file.path) == file.bytes
        assert len(found) == file.rows
        assert [(each["row"], each["k"], each["payload"], each["priority"]) for each in found] == [
            (n, row[2], row[5], row[4] or 0) for n, row in enumerate(everything) if file.broker in row[3]
        ]
        assert {(each["tick"], each["part"], each["at"].timestamp()) for each in found} == {(7, 3, 1.0)}
    of_each = {row[:2]: [each for each in everything if each[:2] == row[:2]] for row in everything}
    assert part.executions == tuple(
        Execution(*key, len(some), sum((row[4] or 0) >= CRITICAL for row in some))
        for key, some in sorted(of_each.items())
    )


def test_no_attempt_and_no_run_writes_over_what_another_wrote(tmp_path: Path) -> None:
    rows_of_one: list[Row] = [("Near", 1, "k", ["e1"], 0, "{}")]
    names = set()
    for run, attempt in (("r1", 0), ("r1", 1), ("r2", 0)):
        summary = write_part(place(tmp_path, run=run), 0, attempt, [batch(rows_of_one)])
        names.add(parts_of([summary])[0].files[0].path)
    assert len(names) == 3
    with pytest.raises(StorageUnusable, match="exists"):
        write_part(place(tmp_path), 0, 0, [batch(rows_of_one)])


def test_a_task_without_results_says_so(tmp_path: Path) -> None:
    assert written(tmp_path, []) == Part(3, 0, (), ())
    assert written(tmp_path, [[]]) == Part(3, 0, (), ())


def test_a_task_can_be_sent_elsewhere() -> None:
    function, where = pickle.loads(pickle.dumps((write_part, place(Path("/x")))))
    assert (function, where.tick) == (write_part, 7)


def test_every_file_and_the_names_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    (tmp_path / "new").mkdir()
    monkeypatch.setattr(os, "fsync", fsync)
    part = written(tmp_path, [[("Near", 1, "k", ["e1", "e2"], 0, "{}")]])
    assert sorted(flushed[:-1]) == sorted(str(tmp_path / file.path) for file in part.files)
    assert flushed[-1] == str(tmp_path / "new")


def test_a_place_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageUnusable):
        write_part(place(tmp_path / "file"), 0, 0, [])

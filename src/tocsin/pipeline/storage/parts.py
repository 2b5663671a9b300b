"""A Spark task's output: one file for each broker, and a summary for the driver.

A **part** is what one task of a tick wrote; its rows are numbered as they came. A result that several brokers are
to deliver is in a file of each, with the same number. Names hold the tick, the part, the run of the pipeline and
the task's attempt, and a file is never written over: what a lost attempt left behind is never mixed with what
counts, and the sweep removes it.

Nothing here needs Spark: ``write_part`` takes Arrow batches and returns one.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tocsin.errors import StorageUnusable
from tocsin.model.priority import CRITICAL
from tocsin.model.results import Execution
from tocsin.pipeline.storage.tables.files import make_directory, sync_directory

FRESH: Final = "new/"  # where parts are written; ``old/`` has what was put together later
BUFFER_ROWS: Final = 131_072  # rows held before they are written
BUFFER_BYTES: Final = 64 << 20
SYNC_THREADS: Final = 8  # files of one task that are flushed at a time

STAMP: Final = pa.timestamp("us", "UTC")
IN: Final = pa.schema(
    [
        ("channel", pa.string()),
        ("execution", pa.int64()),
        ("k", pa.string()),
        ("brokers", pa.list_(pa.string())),
        ("priority", pa.int32()),
        ("payload", pa.string()),
        ("parameters", pa.string()),
    ]
)
FILE: Final = pa.schema(
    [
        pa.field("tick", pa.int64(), False),
        pa.field("channel", pa.string(), False),
        pa.field("execution", pa.int64(), False),
        pa.field("k", pa.string(), False),
        pa.field("part", pa.int32(), False),
        pa.field("row", pa.int32(), False),
        pa.field("at", STAMP, False),
        pa.field("priority", pa.int32(), False),
        pa.field("payload", pa.string(), False),
        pa.field("parameters", pa.string()),  # of k, a JSON object; NULL: the row is older than this column
    ]
)
SUMMARY: Final = pa.schema(
    [
        ("part", pa.int32()),
        ("broker", pa.string()),  # NULL in the part's own row, which is the last
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("executions", pa.string()),  # of the part's own row: JSON [[channel, number, results, critical], …]
    ]
)
SUMMARY_DDL: Final = "part INT, broker STRING, path STRING, rows BIGINT, bytes BIGINT, executions STRING"


class PartFile(msgspec.Struct, frozen=True):
    """A file that a task wrote."""

    part: int
    broker: str
    path: str
    rows: int
    bytes: int


class Part(msgspec.Struct, frozen=True):
    """The part that one task wrote."""

    part: int
    rows: int  # results, each once
    files: tuple[PartFile, ...]
    executions: tuple[Execution, ...]


class TaskOutput(msgspec.Struct, frozen=True):
    """Where and as what a task writes."""

    root: str  # of the results dataset
    tick: int
    run: str  # differs whenever the pipeline starts
    at_us: int


def write_part(
    place: TaskOutput, part: int, attempt: int, batches: Iterable[pa.RecordBatch]
) -> pa.RecordBatch:
    """Write a task's results (columns as ``IN``), durably; the summary (as ``SUMMARY``) for the driver.

    ``part`` is the tick's own number for the task: no two tasks of a tick have the same.
    """
    try:
        make_directory(Path(place.root) / FRESH)
        with contextlib.closing(_PartWriter(place, part, attempt)) as writer:
            for rows in _gathered(batches):
                writer.write(rows)
            return writer.finish()
    except (OSError, pa.ArrowException) as error:
        raise StorageUnusable(f"write results to {place.root}", str(error)) from error


def parts_of(summaries: Iterable[pa.RecordBatch | pa.Table]) -> list[Part]:
    """The tasks' reports."""
    parts: list[Part] = []
    files: dict[int, list[PartFile]] = {}
    for summary in summaries:
        for row in summary.to_pylist():
            number = row["part"]
            if row["broker"] is not None:
                file = PartFile(number, row["broker"], row["path"], row["rows"], row["bytes"])
                files.setdefault(number, []).append(file)
                continue
            executions = msgspec.json.decode(row["executions"], type=tuple[Execution, ...])
            parts.append(Part(number, row["rows"], tuple(files.pop(number, ())), executions))
    assert not files, f"no summary of parts {sorted(files)}"
    return sorted(parts, key=lambda each: each.part)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Small batches put together, up to the bounds of what is held."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= BUFFER_ROWS or size >= BUFFER_BYTES:
            yield pa.Table.from_batches(held).select(IN.names).cast(IN)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held).select(IN.names).cast(IN)


class _PartWriter:
    """The open files of a part, one for each broker that has turned up."""

    def __init__(self, place: TaskOutput, part: int, attempt: int) -> None:
        self._place = place
        self._part = part
        self._attempt = attempt
        self._root = Path(place.root)
        self._rows = 0
        self._counts: dict[tuple[str, int], tuple[int, int]] = {}  # (channel, number) → results, critical
        self._files: dict[str, tuple[str, Any, pq.ParquetWriter]] = {}  # broker → name, file, writer
        self._written: dict[str, int] = {}  # broker → rows

    def write(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        rows = rows.combine_chunks()
        self._count(rows)
        brokers = rows["brokers"].combine_chunks()
        names = brokers.flatten().dictionary_encode()
        parents = pc.list_parent_indices(brokers)
        stored = self._stored(rows)
        self._rows += rows.num_rows
        for index, broker in enumerate(names.dictionary.to_pylist()):
            if len(names.dictionary) == 1 and len(parents) == rows.num_rows:
                mine = stored  # every row is for this broker
            else:
                mine = stored.take(parents.filter(pc.equal(names.indices, index)))
            self._writer(broker).write_table(mine, row_group_size=BUFFER_ROWS)
            self._written[broker] = self._written.get(broker, 0) + mine.num_rows

    def finish(self) -> pa.RecordBatch:
        for _, file, writer in self._files.values():
            writer.close()
            file.flush()
        files = [(broker, name, file) for broker, (name, file, _) in sorted(self._files.items())]
        _sync_all([file.fileno() for _, _, file in files])
        if files:
            sync_directory(self._root / FRESH)
        summary: list[tuple[Any, ...]] = [
            (self._part, broker, name, self._written[broker], file.tell(), None)
            for broker, name, file in files
        ]
        executions = [[*each, *counts] for each, counts in sorted(self._counts.items())]
        summary.append((self._part, None, None, self._rows, 0, msgspec.json.encode(executions).decode()))
        columns = zip(*summary, strict=True)
        return pa.record_batch(
            [pa.array(column, field.type) for column, field in zip(columns, SUMMARY, strict=True)],
            schema=SUMMARY,
        )

    def close(self) -> None:
        for _, file, _ in self._files.values():
            file.close()

    def _stored(self, rows: pa.Table) -> pa.Table:
        count = rows.num_rows
        columns: Mapping[str, Any] = {
            "tick": pa.repeat(pa.scalar(self._place.tick, pa.int64()), count),
            "channel": rows["channel"],
            "execution": rows["execution"],
            "k": rows["k"],
            "part": pa.repeat(pa.scalar(self._part, pa.int32()), count),
            "row": pa.array(range(self._rows, self._rows + count), pa.int32()),
            "at": pa.repeat(pa.scalar(_time(self._place.at_us), STAMP), count),
            "priority": pc.fill_null(rows["priority"], 0),
            "payload": rows["payload"],
            "parameters": rows["parameters"],
        }
        return pa.table([columns[name] for name in FILE.names], schema=FILE)

    def _count(self, rows: pa.Table) -> None:
        critical = pc.fill_null(pc.greater_equal(rows["priority"], CRITICAL), False)
        some = rows.select(["channel", "execution"]).append_column("critical", critical)
        wanted: list[Any] = [([], "count_all"), ("critical", "sum")]
        for row in some.group_by(["channel", "execution"]).aggregate(wanted).to_pylist():
            key = (row["channel"], row["execution"])
            results, of_them = self._counts.get(key, (0, 0))
            self._counts[key] = (results + row["count_all"], of_them + row["critical_sum"])

    def _writer(self, broker: str) -> pq.ParquetWriter:
        if broker not in self._files:
            place = self._place
            name = f"{FRESH}{place.tick:012}-{self._part:05}-{place.run}-{self._attempt}-{len(self._files):04}.parquet"
            file = open(self._root / name, "xb")  # noqa: SIM115
            writer = pq.ParquetWriter(
                file,
                FILE,
                compression="snappy",
                use_dictionary=["tick", "channel", "execution", "part", "at", "parameters"],
            )
            self._files[broker] = (name, file, writer)
        return self._files[broker][2]


def _sync_all(descriptors: list[int]) -> None:
    """Flush files side by side: the disk takes many at once in little more than the time of one."""
    if len(descriptors) == 1:
        os.fsync(descriptors[0])
    elif descriptors:
        with ThreadPoolExecutor(SYNC_THREADS) as pool:
            list(pool.map(os.fsync, descriptors))


def _time(us: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=us)

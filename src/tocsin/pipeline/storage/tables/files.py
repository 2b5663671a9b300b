"""Files that are there after a power failure, and what a table's log says of them.

A file is written under a name that nobody has had, flushed to the disk (``fsync``), and so is the directory that
names it, before any commit speaks of it. ``deltalake`` itself flushes nothing: see ``delta``.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tocsin.errors import StorageUnusable

# A reader holds one row group of the columns that it asks for; a task reads whole ones.
ROW_GROUP_ROWS: Final = 32_768
_MS: Final = datetime.timedelta(milliseconds=1)


class DataFile(msgspec.Struct, frozen=True):
    """A file of a table, as the table's log has it."""

    path: str  # within the table
    size: int
    rows: int
    least: dict[str, Any] = {}  # of the measured columns; no value in the file is less
    greatest: dict[str, Any] = {}
    partition: dict[str, str | None] = {}


def write_parquet(
    root: Path,
    path: str,
    table: pa.Table,
    *,
    measured: Sequence[str] = (),
    partition: dict[str, str | None] | None = None,
) -> DataFile:
    """Write a table as the file ``path`` under ``root``; durable when this returns. The name must be new."""
    target = root / path
    try:
        make_directory(target.parent)
        with open(target, "xb") as file:
            pq.write_table(table, file, row_group_size=ROW_GROUP_ROWS, compression="snappy")
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        sync_directory(target.parent)
    except (OSError, pa.ArrowException) as error:
        raise StorageUnusable(f"write {target}", str(error)) from error
    least, greatest = bounds_of(table, measured)
    return DataFile(path, size, table.num_rows, least, greatest, partition or {})


def read_parquet(root: Path, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
    """The rows of files that were written with ``write_parquet``, in their order."""
    try:
        tables = [pq.read_table(root / path, schema=schema, partitioning=None) for path in paths]
    except (OSError, pa.ArrowException) as error:
        raise StorageUnusable(f"read from {root}", str(error)) from error
    return pa.concat_tables([schema.empty_table(), *tables])


def bounds_of(table: pa.Table, columns: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The least and greatest values of columns that have any; times widened to the millisecond, as Delta has them."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name in columns:
        found = pc.min_max(table[name])
        low, high = found["min"].as_py(), found["max"].as_py()
        if low is None:
            continue
        if isinstance(low, datetime.datetime):
            low = low - datetime.timedelta(microseconds=low.microsecond % 1_000)
            if rest := high.microsecond % 1_000:
                ceiling = high - datetime.timedelta(microseconds=rest)
                high = (
                    ceiling + _MS if ceiling < _LAST else datetime.datetime.max.replace(tzinfo=datetime.UTC)
                )
        least[name], greatest[name] = low, high
    return least, greatest


_LAST: Final = datetime.datetime.max.replace(tzinfo=datetime.UTC) - _MS


def make_directory(path: Path) -> None:
    """Make a directory and those above it, durably."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Flush a directory's names."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Flush a file that somebody else wrote."""
    _sync(path, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

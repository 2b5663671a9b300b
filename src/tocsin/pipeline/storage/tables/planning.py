"""Plans the upkeep of a table, so that it stays small and quick: decisions alone.

- *Fold* a keyed dataset when its changes are many, in rows or beside its base.
- *Compact* an append-only one when small files of about the same size are many, so that a row is written again once for
  each size, not once for each compaction; never across partitions.
- *Forget* files whose rows are all older than is kept, and *trim* those that have had such rows for long.

Every plan is bounded in what it reads. The rest is planned the next time.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin.pipeline.storage.tables.files import DataFile

FOLD_ROWS: Final = 200_000  # changes that a base of any size may have beside it
FOLD_RATIO: Final = 0.25  # … or of the base's rows, if that is more
FOLD_ROWS_MAX: Final = (
    500_000  # … but never more: they are held in memory, and written again with every append
)
SMALL_ROWS: Final = 500_000  # a file with fewer rows …
SMALL_BYTES: Final = 32 << 20  # … and bytes is small
COMPACT_FILES: Final = (
    8  # small files of one partition and size that may be there; sizes are powers of as much
)
COMPACT_BYTES_MAX: Final = 256 << 20  # that one step reads
COMPACT_FILES_MAX: Final = 512
TRIM_SHARE: Final = 0.1  # of the time that rows are kept, for which they may be there beyond it


def should_fold(base: Sequence[DataFile], changes: Sequence[DataFile], times: int = 1) -> bool:
    """Whether the changes are over the bound, so many times."""
    rows = sum(file.rows for file in changes)
    bound = max(FOLD_ROWS, int(sum(file.rows for file in base) * FOLD_RATIO))
    return rows > times * min(bound, FOLD_ROWS_MAX)


def to_compact(files: Sequence[DataFile], by: str) -> list[list[DataFile]]:
    """Groups of small files, each to become one file. Files are ordered by the column ``by``."""
    alike: dict[tuple[object, ...], list[DataFile]] = {}
    for file in files:
        if file.rows < SMALL_ROWS and file.size < SMALL_BYTES:
            size = file.rows.bit_length() // (COMPACT_FILES.bit_length() - 1)
            alike.setdefault((size, *sorted(file.partition.items())), []).append(file)
    groups: list[list[DataFile]] = []
    budget_files, budget_bytes = COMPACT_FILES_MAX, COMPACT_BYTES_MAX
    for small in sorted(alike.values(), key=len, reverse=True):
        if len(small) <= COMPACT_FILES:
            break
        for group in _runs(sorted(small, key=lambda file: (file.least.get(by, 0), file.path))):
            budget_files -= len(group)
            budget_bytes -= sum(file.size for file in group)
            if budget_files < 0 or budget_bytes < 0:
                return groups
            groups.append(group)
    return groups


def _runs(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """Neighbours that together make a file which is no longer small; those left over at the end make one too."""
    runs: list[list[DataFile]] = []
    run: list[DataFile] = []
    rows = size = 0
    for file in files:
        run.append(file)
        rows, size = rows + file.rows, size + file.size
        if rows >= SMALL_ROWS or size >= SMALL_BYTES or len(run) == COMPACT_FILES_MAX // 2:
            runs.append(run)
            run, rows, size = [], 0, 0
    return [each for each in (*runs, run) if len(each) > 1]


class Forgetting(msgspec.Struct, frozen=True):
    """The files to delete, and the files to rewrite without their old rows."""

    whole: tuple[DataFile, ...] = ()
    parts: tuple[DataFile, ...] = ()


def to_forget(files: Sequence[DataFile], age: str, keep_s: float, now: datetime.datetime) -> Forgetting:
    """``age`` is the column that says how old a row is. A row goes once it is older than ``keep_s`` and a tenth."""
    horizon = before(now, keep_s)
    overdue = before(now, keep_s * (1 + TRIM_SHARE))
    whole = [file for file in files if age in file.greatest and file.greatest[age] < horizon]
    parts = [
        file
        for file in files
        if age in file.least and file.least[age] < overdue and file.greatest[age] >= horizon
    ]
    budget = COMPACT_BYTES_MAX
    bounded: list[DataFile] = []
    for file in sorted(parts, key=lambda each: each.least[age]):
        budget -= file.size
        if budget < 0 and bounded:
            break
        bounded.append(file)
    return Forgetting(tuple(whole), tuple(bounded))


def before(now: datetime.datetime, seconds: float) -> datetime.datetime:
    """The time so long before, or the first there is."""
    try:
        return now - datetime.timedelta(seconds=seconds)
    except OverflowError:
        return datetime.datetime.min.replace(tzinfo=datetime.UTC)

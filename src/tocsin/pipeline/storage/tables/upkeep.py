"""Tables kept small: folded, merged, compacted, trimmed and swept, beside their readers and writers.

Each step is one commit, or none; it is bounded, and whatever is left is done the next time. A step that another one
overtakes leaves nothing but files that nobody names, which the sweep finds. Rows keep their versions, so that
nothing is new to a channel; compaction, which only moves rows, says so in the log (``dataChange`` false).

The **sweep** removes files that no longer, or never, belonged to the table, once it has seen them so for
``grace_s``. It goes by what it has seen itself, not by the files' times, and looks at the table again before it
removes anything.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.errors import StorageUnusable
from tocsin.pipeline.storage.datasets import BASE, ROWS, SETTLED, DatasetStore, Snapshot, time_of
from tocsin.pipeline.storage.rows import keyed
from tocsin.pipeline.storage.rows.schema import ARRIVED, DELETED, VERSION, Schema
from tocsin.pipeline.storage.tables import planning
from tocsin.pipeline.storage.tables.delta import REWRITE, Overtaken, Table
from tocsin.pipeline.storage.tables.files import DataFile, read_parquet, write_parquet

GRACE_S: Final = 3_600.0  # a reader that takes longer than this may find a file gone
TOMBSTONES_KEPT_S: Final = 7 * 86_400.0  # how late a row may come and still lose against a deletion
FILE_ROWS: Final = 1_000_000  # of a file that upkeep writes
PRESSING: Final = 2  # times the usual bound of changes, beyond which an append waits for a fold
SWEEP_MAX: Final = 1_000  # files that one sweep removes


class Done(msgspec.Struct, frozen=True):
    """A step that was made."""

    step: str  # fold, merge, compact, forget or sweep
    removed: int  # files
    added: int = 0


class Upkeep:
    """The upkeep of all datasets of a store. ``run`` and ``tidy`` may be called by different threads."""

    def __init__(self, store: DatasetStore, *, grace_s: float = GRACE_S) -> None:
        self._store = store
        self._sweeps: dict[str, Sweep] = {}
        self._grace_s = grace_s

    def run(self, name: str, now_us: int) -> list[Done]:
        """Make the steps that are due for a dataset."""
        table = self._store.table(name)
        now = time_of(now_us)
        done: list[Done] = []
        with table.rewriting:
            snapshot = self._store.snapshot(name)
            has_key = snapshot.schema.keyed
            steps = self._keyed(snapshot, table, now) if has_key else self._plain(snapshot, table, now)
            with contextlib.suppress(
                Overtaken
            ):  # another process did something of the kind; look again next time
                for step in steps:
                    done += [step] if step is not None else []
        sweep = self._sweeps.get(name.lower())
        if sweep is None or sweep.table is not table:
            sweep = self._sweeps[name.lower()] = Sweep(table, self._grace_s)
        removed = sweep.run(now_us)
        return [*done, Done("sweep", removed)] if removed else done

    def tidy(self, name: str, now_us: int) -> None:
        """The upkeep that cannot wait after an append: changes of a keyed dataset are settled, or folded if far too
        many.

        Nothing is done while another thread is at it: it may take long, and would be overtaken.
        """
        table = self._store.table(name)
        if not self._store.schema(name).keyed or not table.rewriting.acquire(blocking=False):
            return
        try:
            snapshot = self._store.snapshot(name)
            if snapshot.settled:
                return
            if planning.should_fold(snapshot.base, snapshot.changes, PRESSING):
                fold(snapshot, table, time_of(now_us))
            else:
                merge(snapshot, table, time_of(now_us))
        except Overtaken:
            return  # the next append, or the next upkeep
        finally:
            table.rewriting.release()

    def _plain(self, snapshot: Snapshot, table: Table, now: datetime.datetime) -> Iterator[Done | None]:
        yield forget(snapshot, table, now)
        yield compact(self._store.snapshot(snapshot.name), table, now)

    def _keyed(self, snapshot: Snapshot, table: Table, now: datetime.datetime) -> Iterator[Done | None]:
        if planning.should_fold(snapshot.base, snapshot.changes) or _overdue(snapshot, now):
            yield fold(snapshot, table, now)
        elif not snapshot.settled:
            yield merge(snapshot, table, now)


def fold(snapshot: Snapshot, table: Table, now: datetime.datetime) -> Done:
    """Make one base of base and changes; leave out what is deleted, or older than is kept."""
    schema = snapshot.schema
    rewrite = Rewrite(table, snapshot, now)
    keep_s = schema.dataset.keep_s
    changes = keyed.newest(_read(snapshot, schema, snapshot.changes), schema.key, schema.order)
    contested = [changes.slice(0, 0)]
    rest: list[pa.Table] = []
    removes = list(snapshot.changes)
    adds: list[DataFile] = []
    for file in snapshot.base:
        rows = _read(snapshot, schema, [file])
        quiet, disputed = keyed.split(rows, changes, schema.key)
        kept = _kept(schema, quiet, keep_s, now)
        if kept.num_rows == rows.num_rows and file.rows >= planning.SMALL_ROWS:
            continue  # nothing in it changes
        contested.append(disputed)
        removes.append(file)
        rest.append(kept)
        adds += rewrite.write(BASE, rest, rows_min=FILE_ROWS)
    winners = keyed.newest(pa.concat_tables([*contested, changes]), schema.key, schema.order)
    rest.append(_kept(schema, winners, keep_s, now))
    adds += rewrite.write(BASE, rest)
    rewrite.commit(adds, removes, data_change=True)
    return Done("fold", len(removes), len(adds))


def merge(snapshot: Snapshot, table: Table, now: datetime.datetime) -> Done:
    """Make one file of all changes, without those that lose against the base."""
    schema = snapshot.schema
    rewrite = Rewrite(table, snapshot, now)
    rows = keyed.newest(_read(snapshot, schema, snapshot.changes), schema.key, schema.order)
    adds = rewrite.write(SETTLED, [_settled(snapshot, rows)])
    rewrite.commit(adds, snapshot.changes, data_change=True)
    return Done("merge", len(snapshot.changes), len(adds))


def _settled(snapshot: Snapshot, rows: pa.Table) -> pa.Table:
    """Changes without those that lose. Only what happened before the base's latest can, and only that is looked up."""
    schema = snapshot.schema
    event_time = schema.dataset.event_time
    latest = snapshot.late_before
    if event_time is None or latest is None:
        return rows
    early = pc.less(rows[event_time], pa.scalar(latest, schema.stored.field(event_time).type))
    late = rows.filter(early)
    for file in snapshot.base:
        names = [*schema.key, *schema.order]
        rivals = read_parquet(
            snapshot.root, [file.path], pa.schema([schema.stored.field(name) for name in names])
        )
        late = keyed.without_losers(late, rivals, schema.key, schema.order)
    return pa.concat_tables([rows.filter(pc.invert(early)), late])


def compact(snapshot: Snapshot, table: Table, now: datetime.datetime) -> Done | None:
    """Make one file of many small ones; rows keep their order."""
    groups = planning.to_compact(snapshot.files, VERSION)
    if not groups:
        return None
    rewrite = Rewrite(table, snapshot, now)
    adds: list[DataFile] = []
    for group in groups:
        adds += rewrite.write(ROWS, [_read(snapshot, snapshot.schema, group)])
    removes = [file for group in groups for file in group]
    rewrite.commit(adds, removes, data_change=False)
    return Done("compact", len(removes), len(adds))


def forget(snapshot: Snapshot, table: Table, now: datetime.datetime) -> Done | None:
    """Remove rows that are older than the dataset keeps them."""
    schema = snapshot.schema
    if schema.dataset.keep_s is None:
        return None
    plan = planning.to_forget(snapshot.files, schema.age, schema.dataset.keep_s, now)
    if not plan.whole and not plan.parts:
        return None
    rewrite = Rewrite(table, snapshot, now)
    adds: list[DataFile] = []
    for file in plan.parts:
        rows = _kept(schema, _read(snapshot, schema, [file]), schema.dataset.keep_s, now)
        adds += rewrite.write(ROWS, [rows])
    removes = [*plan.whole, *plan.parts]
    rewrite.commit(adds, removes, data_change=True)
    return Done("forget", len(removes), len(adds))


class Rewrite:
    """Files that replace others of a snapshot. A rewrite since the snapshot wins: ``Overtaken``."""

    def __init__(self, table: Table, snapshot: Snapshot, now: datetime.datetime) -> None:
        self._table = table
        self._measured = snapshot.schema.measured
        self._now_us = int(now.timestamp() * 1_000_000)
        self._number = snapshot.rewrite + 1

    def write(self, folder: str, waiting: list[pa.Table], *, rows_min: int = 1) -> list[DataFile]:
        """Write what is ``waiting`` if it has ``rows_min`` rows, in files of ``FILE_ROWS``; it waits no longer then."""
        if sum(rows.num_rows for rows in waiting) < rows_min:
            return []
        rows = pa.concat_tables(waiting)
        waiting.clear()
        return [
            write_parquet(
                self._table.path,
                f"{folder}r{self._number:012}-{uuid.uuid4().hex}.parquet",
                rows.slice(start, FILE_ROWS),
                measured=self._measured,
            )
            for start in range(0, rows.num_rows, FILE_ROWS)
        ]

    def commit(
        self,
        adds: Sequence[DataFile],
        removes: Sequence[DataFile],
        *,
        data_change: bool,
        transactions: Mapping[str, int] | None = None,
    ) -> None:
        self._table.commit(
            adds,
            removes=removes,
            transactions={REWRITE: self._number, **(transactions or {})},
            data_change=data_change,
            now_us=self._now_us,
        )


class Sweep:
    """Removes a table's files that are not part of it."""

    def __init__(self, table: Table, grace_s: float) -> None:
        self.table = table
        self._grace_us = int(grace_s * 1_000_000)
        self._idle: dict[str, int] = {}  # path → since when we have seen it without use

    def run(self, now_us: int, *, spared: Callable[[str], bool] = lambda path: False) -> int:
        """Remove what has been idle for the grace, but not what is ``spared``. How many files went."""
        self.table.refresh()
        used = {file.path for file in self.table.files()}
        found = [path for path in _data_paths(self.table.path) if path not in used and not spared(path)]
        self._idle = {path: self._idle.get(path, now_us) for path in found}
        due = [path for path, since in self._idle.items() if now_us - since >= self._grace_us][:SWEEP_MAX]
        if not due:
            return 0
        self.table.refresh()
        used = {file.path for file in self.table.files()}
        removed = 0
        for path in due:
            if path in used:
                continue
            try:
                (self.table.path / path).unlink(missing_ok=True)
            except OSError as error:
                raise StorageUnusable(f"remove {path} of {self.table.path}", str(error)) from error
            del self._idle[path]
            removed += 1
        return removed


def _data_paths(root: Path) -> Iterator[str]:
    """Parquet files below a table's directory, as the log names them."""
    for directory, folders, files in os.walk(root):
        folders[:] = [folder for folder in folders if not folder.startswith("_")]
        for file in files:
            if file.endswith(".parquet"):
                yield str((Path(directory) / file).relative_to(root))


def _read(snapshot: Snapshot, schema: Schema, files: Sequence[DataFile]) -> pa.Table:
    return read_parquet(snapshot.root, [file.path for file in files], schema.stored)


def _kept(schema: Schema, rows: pa.Table, keep_s: float | None, now: datetime.datetime) -> pa.Table:
    """Rows that are to stay: young enough, and deletions only while something late could undo them."""
    stamp = pa.timestamp("us", "UTC")
    if keep_s is not None:
        rows = rows.filter(pc.greater_equal(rows[schema.age], pa.scalar(planning.before(now, keep_s), stamp)))
    if schema.keyed:
        kept = pc.invert(rows[DELETED])
        if schema.dataset.event_time is not None:
            horizon = pa.scalar(planning.before(now, TOMBSTONES_KEPT_S), stamp)
            kept = pc.or_(kept, pc.greater_equal(rows[ARRIVED], horizon))
        rows = rows.filter(kept)
    return rows


def _overdue(snapshot: Snapshot, now: datetime.datetime) -> bool:
    keep_s = snapshot.schema.dataset.keep_s
    if keep_s is None:
        return False
    plan = planning.to_forget(snapshot.files, snapshot.schema.age, keep_s, now)
    return bool(plan.whole or plan.parts)

"""Datasets as they are stored: made, appended to, looked at, dropped.

A dataset is a Delta table in a directory of its own. Every append that brings rows has the next **version** (1, 2,
3 …; 0 is the empty dataset), which its rows carry; it is not the version of the Delta log, which also counts
upkeep. Rows of append-only datasets are in ``rows/``; of keyed ones in ``base/``, ``changes/`` and ``settled/``
(see ``keyed``). A file that somebody else's tool wrote is taken as changes, which is right whatever is in it.

An append names **transactions**: application id → number, such as a feed and its position. If the table has them,
the append is a repetition, and does nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import shutil
import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from tocsin.errors import Conflict, DatasetMissing, SchemaInvalid, StorageUnusable
from tocsin.model.catalogue import Dataset
from tocsin.pipeline.storage.rows import keyed
from tocsin.pipeline.storage.rows.schema import ARRIVED, DELETED, VERSION, Schema, schema_of
from tocsin.pipeline.storage.tables.delta import OVERTAKEN_MAX, REWRITE, Overtaken, Table
from tocsin.pipeline.storage.tables.files import DataFile, make_directory, write_parquet

APPEND: Final = "append"  # the application id whose number is the dataset's version
BASE: Final = "base/"
CHANGES: Final = "changes/"
SETTLED: Final = "settled/"  # changes that won against the base
ROWS: Final = "rows/"
RECENT_BYTES: Final = 64 << 20  # of all datasets' newest appends, kept in memory
RECENT_ROWS: Final = 20_000  # of one append; more is read from its file as quickly


class Snapshot(msgspec.Struct, frozen=True):
    """A dataset at one moment."""

    schema: Schema
    root: Path
    version: int
    files: tuple[DataFile, ...]
    rewrite: int = 0  # the number of the newest commit that replaced files

    @property
    def name(self) -> str:
        return self.schema.dataset.name

    @property
    def base(self) -> list[DataFile]:
        return [file for file in self.files if file.path.startswith(BASE)]

    @property
    def changes(self) -> list[DataFile]:
        return [file for file in self.files if not file.path.startswith(BASE)]

    @property
    def settled(self) -> bool:
        """Whether each key has one change at most, and no row of the base wins against it."""
        changes = self.changes
        if len(changes) > 1 or not all(file.path.startswith((CHANGES, SETTLED)) for file in changes):
            return False
        return all(file.path.startswith(SETTLED) for file in changes) or self.late_before is None

    @property
    def late_before(self) -> Any:
        """The event time before which a change may lose against the base; None if none can."""
        event_time = self.schema.dataset.event_time
        if event_time is None or not self.base:
            return None
        latest = max(file.greatest[event_time] for file in self.base)
        late = any(event_time not in file.least or file.least[event_time] < latest for file in self.changes)
        return latest if late else None

    def since(self, version: int) -> list[DataFile]:
        """Files that may have rows which came after a version."""
        return [file for file in self.files if file.greatest.get(VERSION, self.version) > version]

    def paths(self, files: Sequence[DataFile]) -> list[str]:
        return [str(self.root / file.path) for file in files]


class Recent:
    """The newest appends, in memory, so that what was just written is not read again. Bounded in bytes."""

    def __init__(self, bytes_max: int = RECENT_BYTES) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._rows: OrderedDict[tuple[str, int], pa.Table] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, name: str, version: int, rows: pa.Table) -> None:
        if rows.num_rows > RECENT_ROWS:
            return
        with self._lock:
            self._rows[name, version] = rows
            self.bytes += rows.nbytes
            while self.bytes > self.bytes_max:
                self.bytes -= self._rows.popitem(last=False)[1].nbytes

    def between(self, name: str, since: int, upto: int) -> pa.Table | None:
        """The rows of versions since + 1 … upto; None if some are not here, or they are many."""
        if upto - since > len(self._rows):
            return None
        with self._lock:
            found = [
                self._rows[name, version]
                for version in range(since + 1, upto + 1)
                if (name, version) in self._rows
            ]
        if not found or len(found) < upto - since or sum(rows.num_rows for rows in found) > RECENT_ROWS:
            return None
        return pa.concat_tables(found)

    def forget(self, name: str) -> None:
        with self._lock:
            for key in [key for key in self._rows if key[0] == name]:
                self.bytes -= self._rows.pop(key).nbytes


class DatasetStore:
    """All datasets under one directory. Threads may share it."""

    def __init__(self, root: Path, *, recent_bytes: int = RECENT_BYTES) -> None:
        self.root = root
        self.recent = Recent(recent_bytes)
        self._open: dict[str, tuple[Schema, Table]] = {}
        self._lock = threading.Lock()
        try:
            make_directory(root)
            for left in root.glob("*.dropped"):
                shutil.rmtree(left, ignore_errors=True)
        except OSError as error:
            raise StorageUnusable(f"use {root} for datasets", str(error)) from error

    def create(self, dataset: Dataset) -> Schema:
        """Make a dataset, or open it if it is there; ``SchemaInvalid`` if what is there has other columns."""
        schema = schema_of(dataset)
        path = self.root / dataset.name.lower()
        with self._lock:
            table = Table.create(path, schema.stored, description=f"Tocsin dataset {dataset.name}")
            if table.schema() != schema.stored:
                raise SchemaInvalid(
                    f"{path} has a dataset {dataset.name} with other columns",
                    "Drop the existing dataset first, or choose another name",
                )
            self._open[dataset.name.lower()] = (schema, table)
        return schema

    def drop(self, name: str) -> None:
        """Remove a dataset and its rows."""
        _, table = self._of(name)
        with self._lock:
            table.drop()
            del self._open[name.lower()]
            self.recent.forget(name.lower())

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(schema.dataset.name for schema, _ in self._open.values()))

    def schema(self, name: str) -> Schema:
        return self._of(name)[0]

    def table(self, name: str) -> Table:
        return self._of(name)[1]

    def version(self, name: str) -> int:
        """The number of the newest append that brought rows."""
        return self._of(name)[1].transaction(APPEND) or 0

    def transaction(self, name: str, application: str) -> int | None:
        """The newest number that was appended under an application id."""
        return self._of(name)[1].transaction(application)

    def snapshot(self, name: str) -> Snapshot:
        schema, table = self._of(name)
        (version, rewrite), files = table.seen(APPEND, REWRITE)
        return Snapshot(schema, table.path, version, files, rewrite)

    def append(
        self,
        name: str,
        rows: pa.Table,
        *,
        now_us: int,
        transactions: Mapping[str, int] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> int:
        """Append rows; the dataset's version then. Durable when this returns.

        ``rows`` has the dataset's columns; of a keyed dataset also ``_deleted`` if some rows delete. A repetition by
        its transactions changes nothing; a repetition of only some of them is a ``Conflict``.
        """
        schema, table = self._of(name)
        rows = self._checked(schema, rows)
        for _ in range(OVERTAKEN_MAX):
            try:
                with table.appending:
                    (version,), _ = table.seen(APPEND)
                    if self._repeated(name, table, transactions or {}):
                        return version
                    return self._append(
                        schema, table, rows, version, dict(transactions or {}), metadata, now_us
                    )
            except Overtaken:
                continue
        raise StorageUnusable(f"append to dataset {name}", "others append to it all the time")

    def _append(
        self,
        schema: Schema,
        table: Table,
        rows: pa.Table,
        version: int,
        transactions: dict[str, int],
        metadata: Mapping[str, Any] | None,
        now_us: int,
    ) -> int:
        if not rows.num_rows:
            if transactions:
                table.commit([], transactions=transactions, metadata=metadata, now_us=now_us)
            return version
        version += 1
        rows = stamp(schema, rows, version, now_us)
        file = write_parquet(
            table.path,
            f"{CHANGES if schema.keyed else ROWS}{version:012}-{uuid.uuid4().hex}.parquet",
            rows,
            measured=schema.measured,
        )
        try:
            table.commit(
                [file], transactions={APPEND: version, **transactions}, metadata=metadata, now_us=now_us
            )
        except Overtaken:
            with contextlib.suppress(OSError):
                (table.path / file.path).unlink()
            raise
        self.recent.put(schema.dataset.name.lower(), version, rows)
        return version

    def _repeated(self, name: str, table: Table, transactions: Mapping[str, int]) -> bool:
        behind = [
            application
            for application, number in transactions.items()
            if (table.transaction(application) or 0) >= number
        ]
        if behind and len(behind) < len(transactions):
            application = behind[0]
            raise Conflict(
                f"append to dataset {name}: transaction {application}",
                transactions[application],
                table.transaction(application),
            )
        return bool(behind)

    def _checked(self, schema: Schema, rows: pa.Table) -> pa.Table:
        """The rows with the stored types, each key once."""
        fields = list(schema.arrow)
        if schema.keyed:
            if DELETED not in rows.column_names:
                rows = rows.append_column(DELETED, pa.array([False] * rows.num_rows, pa.bool_()))
            fields.append(schema.stored.field(DELETED))
        try:
            rows = rows.select([field.name for field in fields]).cast(pa.schema(fields))
        except (KeyError, ValueError, pa.ArrowException) as error:
            raise SchemaInvalid(
                f"rows for dataset {schema.dataset.name} do not have its columns: {error}",
                "Fit them to it first",
            ) from None
        if schema.keyed:
            rows = keyed.newest(rows, schema.key, schema.order[:-1])
        return rows

    def _of(self, name: str) -> tuple[Schema, Table]:
        found = self._open.get(name.lower())
        if found is None:
            raise DatasetMissing(name)
        return found


def stamp(schema: Schema, rows: pa.Table, version: int, now_us: int) -> pa.Table:
    """Rows with the columns that are ours, in the stored order."""
    arrived = pa.scalar(time_of(now_us), pa.timestamp("us", "UTC"))
    columns = {name: rows[name] for name in rows.column_names}
    columns[VERSION] = pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows)
    columns[ARRIVED] = pa.repeat(arrived, rows.num_rows)
    return pa.table([columns[name] for name in schema.stored.names], schema=schema.stored)


def time_of(us: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=us)

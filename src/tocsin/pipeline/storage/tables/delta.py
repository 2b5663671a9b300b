"""A Delta table on a file system: opened, mended, read by its log, and committed to durably.

Promises beyond those of ``deltalake``:

- *Durable*: when ``commit`` returns, the log's entry is on the disk, and so are all entries before it.
  ``deltalake`` links an entry into place without flushing it; after a power failure the newest one can be empty or
  cut. Nobody was told of such an entry, so ``mend`` puts it aside when the table is opened for writing; a cut
  checkpoint likewise.
- *Once*: a transaction (application id, number) that the table has is not committed again.
- *Fenced*: of two commits that name the same application id and did not know of each other, the second is
  ``Overtaken``. ``deltalake`` alone lets two writers remove the same file, each with a replacement; so a commit that
  removes files names ``REWRITE``, and of two such at once only one gets through.
- *Versioned*: each commit says the version of our layout; a table with a newer one is refused, unchanged.
- The log stays short: a checkpoint every ``CHECKPOINT_EVERY`` commits, and entries before it go after ``LOG_KEPT``.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, Field
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
)

from tocsin.errors import FormatNewer, Malformed, StorageUnusable, TocsinError
from tocsin.model.results import OURS, TABLE, VERSION
from tocsin.pipeline.storage.tables.files import DataFile, make_directory, sync_directory, sync_file

REWRITE: Final = "rewrite"  # the application id of commits that remove files
CHECKPOINT_EVERY: Final = (
    20  # commits: opening and committing read what came after the last checkpoint, ~0.1 ms each
)
LOG_KEPT: Final = (
    "interval 10 minutes"  # of entries before the last checkpoint: longer than any reader takes to open
)
OVERTAKEN_MAX: Final = 20  # times in a row that a writer starts over
_ACTIONS: Final = "actions"  # within it: how many lines of the entry there are besides its own
_EACH: Final = (VERSION, _ACTIONS)  # of one commit
_LOG: Final = "_delta_log"
_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_TORN: Final = ".torn"

_T = TypeVar("_T")


class Overtaken(TocsinError):
    """An unknown commit came first. Look again before you decide what to write."""

    retryable = True


class Table:
    """One table. Threads may share it; other processes may commit to it too."""

    def __init__(self, path: Path, *, mended: bool = True) -> None:
        self.path = path
        self._lock = threading.RLock()
        # Held during an append or a replacement of files, so that threads wait rather than overtake each other.
        self.appending = threading.Lock()
        self.rewriting = threading.Lock()
        if mended:
            mend(path)
        self._delta = self._guard("open", lambda: DeltaTable(path))
        self._synced = self._delta.version() - 1  # entries up to this version are on the disk for certain
        self._checkpoint = _last_checkpoint(path)
        self._files: tuple[int, tuple[DataFile, ...]] | None = None  # by version
        self._metadata: tuple[int, dict[str, Any]] | None = None  # by version
        self.metadata()

    @staticmethod
    def exists(path: Path) -> bool:
        return any((path / _LOG).glob("*.json"))

    @classmethod
    def create(
        cls, path: Path, schema: pa.Schema, *, partition_by: Sequence[str] = (), description: str = ""
    ) -> Table:
        """Create the table, or open an existing one."""
        mend(path)
        if cls.exists(path):
            return cls(path)
        try:
            make_directory(path)
            DeltaTable.create(
                path,
                schema,
                mode="ignore",
                partition_by=list(partition_by),
                description=description,
                configuration={"delta.logRetentionDuration": LOG_KEPT},
                commit_properties=CommitProperties(custom_metadata={OURS: {VERSION: TABLE.newest}}),
            )
            sync_directory(path)
        except (OSError, DeltaError, pa.ArrowException) as error:
            raise StorageUnusable(f"create the table {path}", str(error)) from error
        table = cls(path)
        table._sync()
        return table

    def drop(self) -> None:
        """Remove the table and all that is in it."""
        with self._lock:
            try:
                aside = self.path.with_name(f"{self.path.name}.dropped")
                shutil.rmtree(aside, ignore_errors=True)
                os.rename(self.path, aside)
                sync_directory(self.path.parent)
                shutil.rmtree(aside, ignore_errors=True)
            except OSError as error:
                raise StorageUnusable(f"drop the table {self.path}", str(error)) from error

    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return pa.schema(self._delta.schema().to_arrow())

    def widen(self, schema: pa.Schema) -> None:
        """Add the columns that the table lacks: rows that are there have NULL in them."""
        with self._lock:
            known = set(self.schema().names)
            fields = [Field.from_arrow(each) for each in schema if each.name not in known]
            if not fields:
                return
            said = {OURS: {VERSION: TABLE.newest, **self.metadata()}}
            self._guard(
                "add columns to",
                lambda: self._delta.alter.add_columns(
                    fields,
                    commit_properties=CommitProperties(custom_metadata=said),
                    post_commithook_properties=_HOOKS,
                ),
            )
            self.refresh()
            self._sync()

    def refresh(self) -> None:
        """See what others have committed."""
        with self._lock:
            self._guard("read the log of", self._delta.update_incremental)

    @property
    def version(self) -> int:
        """The version of the log, as far as it is seen."""
        return self._delta.version()

    def transaction(self, application: str) -> int | None:
        """The newest number that was committed under an application id."""
        with self._lock:
            return self._guard("read the log of", lambda: self._delta.transaction_version(application))

    def seen(self, *applications: str) -> tuple[tuple[int, ...], tuple[DataFile, ...]]:
        """Refresh; then the newest number under each application id (0: none) and the files, as of the same entry."""
        with self._lock:
            self.refresh()
            return tuple(self.transaction(each) or 0 for each in applications), self.files()

    def files(self) -> tuple[DataFile, ...]:
        """The files that make up the table, as far as it is seen."""
        with self._lock:
            if self._files is None or self._files[0] != self.version:
                actions = self._guard("read the log of", lambda: self._delta.get_add_actions(flatten=True))
                self._files = (self.version, tuple(_data_files(pa.table(actions))))
            return self._files[1]

    def metadata(self) -> dict[str, Any]:
        """The table's metadata: the newest commit's, which includes those of earlier commits."""
        with self._lock:
            if self._metadata is None or self._metadata[0] != self.version:
                newest = self._guard("read the log of", lambda: self._delta.history(1))
                found = newest[0].get(OURS, {}) if newest else {}
                _check(found.get(VERSION), self.path)
                self._metadata = (
                    self.version,
                    {key: each for key, each in found.items() if key not in _EACH},
                )
            return self._metadata[1]

    def commit(
        self,
        adds: Sequence[DataFile],
        *,
        removes: Sequence[DataFile] = (),
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any] | None = None,
        data_change: bool = True,
        now_us: int = 0,
    ) -> None:
        """Add and remove files at once. ``Overtaken`` if one of the transactions, or a later one, is there already.

        Metadata that are not named stay as they are.
        """
        at_ms = now_us // 1_000
        actions: list[AddAction | RemoveAction] = [_add(each, at_ms, data_change) for each in adds]
        actions += [
            RemoveAction(each.path, data_change, at_ms, each.size, dict(each.partition)) for each in removes
        ]
        with self._lock:
            said = {**self.metadata(), **(metadata or {})}
            properties = CommitProperties(
                custom_metadata={
                    OURS: {VERSION: TABLE.newest, **said, _ACTIONS: len(actions) + len(transactions)}
                },
                app_transactions=[Transaction(name, number, at_ms) for name, number in transactions.items()],
            )
            self._present(adds)
            for name, number in transactions.items():
                if (self.transaction(name) or 0) >= number:
                    raise Overtaken(f"{self.path.name}: {name} {number} is committed")
            self._guard("commit to", lambda: self._write(actions, properties))
            self.refresh()
            self._metadata = (self.version, said)
            self._sync()
            if self.version - self._checkpoint >= CHECKPOINT_EVERY:
                self.checkpoint()

    def checkpoint(self) -> None:
        """Gather the log in one file, and forget entries before it that are old."""
        with self._lock:
            version = self.version
            self._guard("checkpoint", self._delta.create_checkpoint)
            log = self.path / _LOG
            for name in (f"{version:020}.checkpoint.parquet", "_last_checkpoint"):
                if (log / name).exists():
                    sync_file(log / name)
            sync_directory(log)
            self._checkpoint = version
            self._guard("clean the log of", self._delta.cleanup_metadata)

    def _write(self, actions: list[AddAction | RemoveAction], properties: CommitProperties) -> None:
        schema = self._delta.schema()
        partition_by = self._delta.metadata().partition_columns
        self._delta.create_write_transaction(
            actions,
            "append",
            schema,
            partition_by,
            commit_properties=properties,
            post_commithook_properties=_HOOKS,
        )

    def _present(self, adds: Sequence[DataFile]) -> None:
        for each in adds:
            path = self.path / each.path
            if not path.is_file() or path.stat().st_size != each.size:
                raise StorageUnusable(
                    f"commit to {self.path}", f"the file {each.path} is gone, or is not as it was written"
                )

    def _sync(self) -> None:
        """Flush all entries of the log that may not be on the disk yet, also those of other writers."""
        log = self.path / _LOG
        try:
            for version in range(max(self._synced + 1, 0), self.version + 1):
                entry = log / f"{version:020}.json"
                if entry.exists():  # else a checkpoint has it, which was flushed before the entry went
                    sync_file(entry)
            sync_directory(log)
        except OSError as error:
            raise StorageUnusable(f"flush the log of {self.path}", str(error)) from error
        self._synced = self.version

    def _guard(self, verb: str, call: Callable[[], _T]) -> _T:
        """Foreign exceptions end here."""
        try:
            return call()
        except CommitFailedError as error:
            raise Overtaken(f"{self.path.name}: {error}") from None
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise StorageUnusable(f"{verb} {self.path}", str(error)) from error


def mend(path: Path) -> None:
    """Put aside what a power failure has cut: the newest checkpoint of a log, or its newest entries.

    Nobody was told of an entry that is cut, nor of one behind it: each is flushed after those before it.
    """
    log = path / _LOG
    if not log.is_dir():
        return
    pointer = log / "_last_checkpoint"
    for checkpoint in sorted(log.glob("*.checkpoint.parquet"))[-1:]:
        if not _is_parquet(checkpoint):
            checkpoint.rename(checkpoint.with_name(checkpoint.name + _TORN))
            pointer.unlink(missing_ok=True)
    if pointer.exists() and _last_checkpoint(path) < 0:
        pointer.unlink()
    checkpoint_version = _last_checkpoint(path)
    entries = [entry for entry in sorted(log.glob("*.json")) if int(entry.stem) > checkpoint_version]
    whole = [_is_whole(entry) for entry in entries]
    torn = entries[whole.index(False) :] if False in whole else []
    for entry in torn:
        entry.rename(entry.with_name(entry.name + _TORN))
    sync_directory(log)


def _is_whole(entry: Path) -> bool:
    """Whether every line of an entry is JSON, and, if it is one of ours, all of them are there."""
    try:
        lines = [json.loads(line) for line in entry.read_bytes().splitlines() if line.strip()]
    except ValueError:
        return False
    ours = next((line["commitInfo"].get(OURS) for line in lines if "commitInfo" in line), None)
    if isinstance(ours, dict):
        _check(ours.get(VERSION), entry)
    if not isinstance(ours, dict) or _ACTIONS not in ours:
        return bool(lines)
    return bool(sum("commitInfo" not in line for line in lines) == ours[_ACTIONS])


def _check(version: object, where: Path) -> None:
    """``FormatNewer`` if a newer release of ours wrote this: it may mean something else by it."""
    try:
        TABLE.check(version)
    except FormatNewer as error:
        raise FormatNewer(error.what, error.version, error.newest, str(where)) from None
    except Malformed as error:
        raise StorageUnusable(f"open {where}", error.problem) from None


def _is_parquet(path: Path) -> bool:
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) < 12:
            return False
        file.seek(-4, os.SEEK_END)
        return file.read() == b"PAR1"


def _last_checkpoint(path: Path) -> int:
    """The version of the newest checkpoint; -1 if there is none, or it cannot be read."""
    try:
        return int(json.loads((path / _LOG / "_last_checkpoint").read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1


def _add(file: DataFile, at_ms: int, data_change: bool) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": file.least,
        "maxValues": file.greatest,
        "nullCount": dict.fromkeys(file.least, 0),
    }
    text = msgspec.json.encode(stats).decode()
    return AddAction(file.path, file.size, file.partition, at_ms, data_change, text)


def _data_files(actions: pa.Table) -> list[DataFile]:
    names = actions.schema.names
    kept = ("min.", "max.", "partition.")
    wanted = [
        name for name in names if name in ("path", "size_bytes", "num_records") or name.startswith(kept)
    ]
    found = []
    for row in actions.select(wanted).to_pylist():
        least = {
            name[4:]: value for name, value in row.items() if name.startswith("min.") and value is not None
        }
        greatest = {
            name[4:]: value for name, value in row.items() if name.startswith("max.") and value is not None
        }
        partition = {name[10:]: value for name, value in row.items() if name.startswith("partition.")}
        found.append(
            DataFile(row["path"], row["size_bytes"], row["num_records"] or 0, least, greatest, partition)
        )
    return found

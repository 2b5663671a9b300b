"""A backup: everything that a network stores, as files in one directory, and a network made of it again.

    DIR/manifest.json        what there is, with sizes and SHA-256; written last: without it a backup is not whole
    DIR/manifest.sha256      the SHA-256 of that, as sha256sum has it; older backups have none
    DIR/streams/NAME         each log and table, as JetStream saves it: every position stays what it is
    DIR/datasets/…           the Delta tables

**One point.** The network goes on during the backup, so parts are of different moments. They are taken in an order in
which what refers to something is older than what it refers to:

    tables ──► snapshots, commands ──► notices ──► datasets ──► feeds ──► messages
    (cells name positions of logs, notices name files of results, records of feeds go into datasets)

So nothing in a backup points to what is not there, and everything that was acknowledged before it began is in it. It
has some of the messages that came during the backup. Three things could still be trimmed or written in between, and
are looked at: then the parts concerned are taken again (``TRIES``).

- the coordinators' newest snapshot, and the commands behind it, must be those that the manifest of the snapshot names;
- records that left the log of feeds must be in the datasets as they were copied;
- no feed may have gone on between its cell and the log of feeds: its records would be appended again.

**Not in it**: leases and lives, which say who runs now; settings, users, certificates and keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import importlib.util
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from tocsin.config import Settings
from tocsin.core.coordination.leader import lease
from tocsin.core.coordination.leader import snapshot_writer as archivist
from tocsin.core.shared.stored_group import INCARNATION_KEYS
from tocsin.errors import FormatNewer, Malformed, OperatorError, Refused, StoreError
from tocsin.model.versions import Document
from tocsin.runtime.network import moving
from tocsin.runtime.network import plan as network
from tocsin.runtime.network.directory import NetworkFile, StateDirectory, datasets_directory
from tocsin.runtime.security.followed_files import NO_FILE, Signature, signature
from tocsin.store.jetstream import snapshots
from tocsin.store.jetstream.snapshots import Saved
from tocsin.store.jetstream.store import JetStreamStore

MANIFEST: Final = "manifest.json"
CHECKSUM: Final = "manifest.sha256"
STREAMS: Final = "streams"
DATASETS: Final = "datasets"
LOG: Final = "_delta_log"
ENTRY: Final = re.compile(r"\d{20}(\.checkpoint(\.\d+\.\d+)?\.parquet|\.json)")  # of such a log
TRIES: Final = 5
FEED_TRIES: Final = 20  # of datasets and feeds, which are quick but for the first
TABLE_TRIES: Final = 20  # of one Delta table
READ_BYTES: Final = 1 << 20
DAMAGED: Final = "Use another backup; this one is damaged"
MANIFEST_MAX_BYTES: Final = 256 << 20  # a line for each file of every dataset
PIPELINE_LEASE: Final = "lease"
# Logs in the order in which they are taken; others come before the last.
FIRST: Final = ("-sessions", "-groups")  # of the tables: their cells refer to others'
BEFORE_DATASETS: Final = ("snapshots", "commands", "notices")
AFTER_DATASETS: Final = ("feeds", "messages")

Say = Callable[[str], None]  # told what is being done


class Copied(msgspec.Struct, frozen=True):
    """A file of a dataset."""

    path: str  # within the backup
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The manifest of a backup."""

    network: str
    began: str  # when, ISO 8601 in UTC: what was acknowledged before is in it
    ended: str
    release: str  # of the program that made it
    streams: tuple[Saved, ...]  # in the order in which they were taken
    files: tuple[Copied, ...]
    versions: dict[str, int]  # of each Delta table, by its directory
    doubts: tuple[str, ...] = ()  # the parts that could not be copied at one point, as text

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.streams) + sum(each.bytes for each in self.files)


FORMAT: Final = Document("the manifest of a backup", msgspec.json.Decoder(Manifest))


class BackupUnusable(OperatorError):
    """A backup cannot be made, or used."""


# ── making one ──────────────────────────────────────────────────────────────────────────────────────────────


async def create(store: JetStreamStore, settings: Settings, target: Path, say: Say) -> Manifest:
    """Save a network into an empty or new directory."""
    began = _now()
    with _private():
        _prepare(target)
        maker = _Maker(store, settings, target, say)
        try:
            await maker.take_all()
        except OSError as error:
            problem = f"the backup cannot be written: {error.filename or target}: {error.strerror}"
            raise BackupUnusable(problem, "Make room, or name another directory") from None
        manifest = Manifest(
            network=settings.network,
            began=began,
            ended=_now(),
            release=version("tocsin"),
            streams=tuple(maker.saved.values()),
            files=tuple(maker.files.values()),
            versions=maker.versions,
            doubts=tuple(maker.doubts),
        )
        partial, checksum = target / f".{MANIFEST}", target / CHECKSUM
        partial.write_bytes(msgspec.json.format(FORMAT.write(manifest), indent=1) + b"\n")
        checksum.write_text(f"{_digest(partial)[1]}  {MANIFEST}\n")
        _sync(target, partial, checksum)
        partial.rename(target / MANIFEST)
        _sync(target)
    return manifest


class _Maker:
    """One backup in the making."""

    def __init__(self, store: JetStreamStore, settings: Settings, target: Path, say: Say) -> None:
        self._store = store
        self._network = settings.network
        self._datasets = datasets_directory(settings)
        self._target = target
        self._say = say
        self.saved: dict[str, Saved] = {}
        self.files: dict[str, Copied] = {}
        self._copied: dict[str, tuple[Signature, Copied]] = {}  # what was copied, and of which file
        self.versions: dict[str, int] = {}
        self.doubts: list[str] = []

    async def take_all(self) -> None:
        names = await snapshots.stream_names(self._store, self._network)
        if not names:
            raise BackupUnusable(
                f"the store has nothing of a network called {self._network!r}",
                "Name the network's settings with -c, or its state directory with --state",
            )
        logs = [name for name in names if not name.startswith("KV_")]
        known = [f"{self._network}-{each}" for each in (*BEFORE_DATASETS, *AFTER_DATASETS)]
        tables = [name for name in names if name.startswith("KV_")]
        await self._take(sorted(tables, key=lambda name: not name.endswith(FIRST)))
        await self._take_commands(set(logs))
        notices = f"{self._network}-notices"
        await self._take([*(name for name in logs if name not in known), *({notices} & set(logs))])
        await self._take_feeds(set(names))
        await self._take([name for name in (f"{self._network}-messages",) if name in logs])

    async def _take(self, names: Iterable[str]) -> None:
        for name in names:
            file = f"{STREAMS}/{name}"
            (self._target / file).unlink(missing_ok=True)
            self._say(name)
            self.saved[name] = await snapshots.save(self._store, name, self._target / file, file)
            _sync(self._target / file)

    async def _take_commands(self, logs: set[str]) -> None:
        """The coordinators' state: a snapshot that is there whole, and the commands behind it."""
        table, pieces, commands = (
            f"{self._network}-{each}" for each in ("coordination", "snapshots", "commands")
        )
        if commands not in logs:
            return
        for _ in range(TRIES):
            cell = await snapshots.cell(self._store, table, archivist.KEY)
            found = None if cell is None else archivist.decode_manifest(cell)
            await self._take([f"KV_{table}", *({pieces} & logs), commands])
            if found is None or (
                pieces in self.saved
                and self.saved[pieces].first <= found.first
                and self.saved[commands].first <= found.position + 1
            ):
                return
        raise BackupUnusable(
            "the coordinators write snapshots faster than they can be saved",
            "Try again when there is less load",
        )

    async def _take_feeds(self, names: set[str]) -> None:
        """Datasets, then the records that are on their way into them."""
        feeds, cells = f"{self._network}-feeds", f"KV_{self._network}-feeder"
        await self._copy_datasets()  # most of it: files do not change, so that what follows is quick
        gap = False
        for _ in range(FEED_TRIES):
            oldest = await self._oldest(feeds) if feeds in names else 0
            await self._copy_datasets()
            if feeds not in names:
                return
            await self._take([*({cells} & names), feeds])
            # Records that had left the log before the datasets were copied are in them; later ones may be in neither.
            gap = self.saved[feeds].first > oldest
            if gap:
                continue
            if cells not in names or await self._is_as_saved(cells):
                return
        if gap:
            raise BackupUnusable(
                "records of feeds go into their datasets faster than both can be saved",
                "Try again when there is less load, or stop the pipeline for the backup",
            )
        self.doubts.append("records that feeds took while the backup was made may be in their datasets twice")

    async def _oldest(self, log: str) -> int:
        """The position of the oldest record that a log has, or will have."""
        return (await (await self._store.stream(log)).bounds("look at the feeds")).oldest

    async def _is_as_saved(self, stream: str) -> bool:
        now = await (await self._store.stream(stream)).bounds("look at the feeds")
        return now.newest == self.saved[stream].last

    async def _copy_datasets(self) -> None:
        self.files, self.versions = {}, {}
        if not self._datasets.is_dir():
            return
        self._say(DATASETS)
        for table in sorted(each.parent for each in self._datasets.rglob(LOG)):
            await asyncio.to_thread(self._copy_table, table)

    def _copy_table(self, table: Path) -> None:
        """A Delta table: its log first, whose entries never change, then the files that it names."""
        inside = table.relative_to(self._datasets)
        for _ in range(TABLE_TRIES):
            before = len(self.files)
            try:
                log = sorted(each for each in (table / LOG).iterdir() if ENTRY.fullmatch(each.name))
                newest = _newest(each.name for each in log)
                if newest is None:  # entries were gathered in a checkpoint while we looked
                    continue
                for path in log:
                    self._copy(path, f"{DATASETS}/{inside}/{LOG}/{path.name}")
                for path in sorted(table.rglob("*")):
                    if path.is_file() and LOG not in path.parts and not path.name.startswith("."):
                        self._copy(path, f"{DATASETS}/{inside}/{path.relative_to(table)}")
            except FileNotFoundError:  # it was compacted during the copy
                self.files = dict(list(self.files.items())[:before])
                continue
            self.versions[str(inside)] = newest
            return
        raise BackupUnusable(f"the dataset {inside} changes faster than it can be copied", "Try again")

    def _copy(self, source: Path, name: str) -> None:
        """Copy a file, unless it is there: files of Delta tables are written once."""
        now = signature(source)
        was, copied = self._copied.get(name, (NO_FILE, None))
        if copied is not None and now == was:
            self.files[name] = copied
            return
        target = self._target / name
        target.parent.mkdir(parents=True, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        with source.open("rb") as read, target.open("wb") as out:
            while chunk := read.read(READ_BYTES):
                out.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            out.flush()
            os.fsync(out.fileno())
        self.files[name] = Copied(name, size, digest.hexdigest())
        self._copied[name] = now, self.files[name]


# ── looking at one ──────────────────────────────────────────────────────────────────────────────────────────


def read_manifest(source: Path) -> Manifest:
    """The manifest of a backup; ``BackupUnusable``, or ``FormatNewer`` if a newer release made it."""
    remedy = "Name the directory that `tocsin backup create` wrote"
    try:
        with (source / MANIFEST).open("rb") as file:
            data = file.read(MANIFEST_MAX_BYTES)
        if (source / CHECKSUM).exists() and not _is_of(source / CHECKSUM, data):
            raise BackupUnusable(
                f"{source / MANIFEST} is not what was saved: its SHA-256 is another", DAMAGED
            )
        return FORMAT.read(data)
    except FileNotFoundError:
        problem = f"{source} has no {MANIFEST}: it is no backup, or an unfinished one"
        raise BackupUnusable(problem, remedy) from None
    except OSError as error:
        raise BackupUnusable(f"{source / MANIFEST}: {error.strerror}", remedy) from None
    except Malformed as error:
        raise BackupUnusable(f"{source / MANIFEST}: {error}", remedy) from None
    except FormatNewer:
        raise


def verify(source: Path, say: Say = lambda what: None) -> Manifest:
    """Read a backup whole, and compare everything with what the manifest says."""
    manifest = read_manifest(source)
    found: Sequence[Saved | Copied] = (*manifest.streams, *manifest.files)
    for each in found:
        name = each.file if isinstance(each, Saved) else each.path
        say(name)
        path = source / name
        if not path.resolve().is_relative_to(source.resolve()):
            raise BackupUnusable(f"the manifest names a file outside of the backup: {name}", "Do not use it")
        size, digest = _digest(path)
        if (size, digest) != (each.bytes, each.sha256):
            raise BackupUnusable(
                f"{name} is not what was saved: it has {size} bytes, and {each.bytes} were written"
                if size != each.bytes
                else f"{name} is not what was saved: its SHA-256 is another",
                DAMAGED,
            )
    _check_tables(source, manifest)
    return manifest


def _check_tables(source: Path, manifest: Manifest) -> None:
    """That every file which a Delta table names is there, where the library that knows is installed."""
    if importlib.util.find_spec("deltalake") is None:
        return
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    for name, number in manifest.versions.items():
        try:
            files = DeltaTable(source / DATASETS / name, version=number).file_uris()
        except DeltaError as error:
            raise BackupUnusable(f"the dataset {name} cannot be read: {error}", "Use another") from None
        for path in files:
            if not Path(path.removeprefix("file://")).is_file():
                raise BackupUnusable(
                    f"the dataset {name} names a file that is not there: {path}", "Use another"
                )


def _newest(names: Iterable[str]) -> int | None:
    """The version that a Delta log of these files has; None if some are missing: it has to begin with 0 or a
    checkpoint, and go on without a gap.

    ``_last_checkpoint``, which is replaced, is none of them: it might name a checkpoint that is not copied, and readers
    find the checkpoint without it.
    """
    entries: set[int] = set()
    checkpoints = {-1}
    for name in names:
        (checkpoints if name.endswith(".parquet") else entries).add(int(name.partition(".")[0]))
    first = max(checkpoints) + 1
    newest = max((first - 1, *entries))
    whole = newest >= 0 and entries >= set(range(first, newest + 1))
    return newest if whole else None


def _is_of(checksum: Path, data: bytes) -> bool:
    return checksum.read_bytes().split()[:1] == [hashlib.sha256(data).hexdigest().encode()]


def _digest(path: Path) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(READ_BYTES):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise BackupUnusable(f"{path}: {error.strerror}", DAMAGED) from None
    return size, digest.hexdigest()


# ── making a network of one ─────────────────────────────────────────────────────────────────────────────────


async def restore(
    store: JetStreamStore, settings: Settings, source: Path, manifest: Manifest, say: Say
) -> None:
    """Fill an empty store, and an empty directory of datasets; both are empty again if that fails."""
    check_name(settings, manifest)
    datasets = datasets_directory(settings)
    if there := await snapshots.stream_names(store, settings.network):
        raise BackupUnusable(
            f"the store is not empty: it has {there[0]} and {len(there) - 1} other streams of this network",
            "Restore into a new state directory, or into NATS servers that have nothing of it",
        )
    if manifest.files and datasets.is_dir() and any(datasets.rglob("*.parquet")):
        raise BackupUnusable(f"{datasets} has datasets already", "Restore into a new state directory")
    done: list[str] = []
    try:
        for saved in manifest.streams:
            say(saved.stream)
            done.append(saved.stream)
            path = source / saved.file
            await snapshots.load(store, saved, path, replicas=settings.nats.replicas())
        await _forget_who_ran(store, settings.network, {each.stream for each in manifest.streams})
        if manifest.files:
            say(DATASETS)
            await asyncio.to_thread(_put_datasets, source, manifest, datasets)
    except (StoreError, OSError) as error:
        for name in done:
            with contextlib.suppress(StoreError):
                await snapshots.remove(store, name)
        shutil.rmtree(datasets, ignore_errors=True)
        if isinstance(error, OSError):
            problem = f"the backup cannot be restored: {error.filename}: {error.strerror}"
            raise BackupUnusable(problem, "Nothing was left; make room, and try again") from None
        if isinstance(error, Refused):
            problem = f"the backup cannot be restored: {error}"
            raise BackupUnusable(problem, "Nothing was left; use another backup") from None
        raise


def check_name(settings: Settings, manifest: Manifest) -> None:
    if manifest.network != settings.network:
        raise BackupUnusable(
            f"the backup is of the network {manifest.network!r}, and this one is called {settings.network!r}",
            f"Give it that name with --set network={manifest.network}",
        )


async def _forget_who_ran(store: JetStreamStore, name: str, streams: set[str]) -> None:
    """Remove what says who runs: nobody does."""
    for table, keys in (
        (f"{name}-coordination", (lease.KEY, "status.>")),
        (f"{name}-groups", (f"{INCARNATION_KEYS}>",)),
        (f"{name}-pipeline", (PIPELINE_LEASE,)),
    ):
        for key in keys if f"KV_{table}" in streams else ():
            await snapshots.forget(store, table, key)


def _put_datasets(source: Path, manifest: Manifest, datasets: Path) -> None:
    with _private():
        for each in manifest.files:
            target = datasets / Path(each.path).relative_to(DATASETS)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / each.path, target)
            _sync(target)


# ── a store to do it with ───────────────────────────────────────────────────────────────────────────────────


async def open_store(settings: Settings) -> JetStreamStore:
    """The store that these settings name, with the rights of an operator."""
    return await JetStreamStore.open(settings.nats, "operator", name="tocsin backup")


def as_it_was(settings: Settings, file: NetworkFile) -> Settings:
    """Settings for a network that ran on the state directory, and is stopped."""
    moved = not Path(file.storage).is_dir()  # the state directory, to another place
    storage = settings.pipeline.storage or ("" if moved else file.storage)
    pipeline = msgspec.structs.replace(settings.pipeline, storage=storage)
    return msgspec.structs.replace(settings, network=file.network, pipeline=pipeline)


@contextlib.asynccontextmanager
async def servers(settings: Settings) -> AsyncIterator[Settings]:
    """The embedded servers of a state directory, for as long as this lasts, and nothing else; the settings to reach
    them with. ``StateInUse`` while a network runs there."""
    directory = StateDirectory.hold(Path(settings.state))
    try:
        settings = network.prepare(settings, directory, auto_ports=True)
        await moving.move(settings, directory)
        async with moving.running(settings, directory, "backup.log"):
            yield settings
    finally:
        directory.release()


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _private() -> Iterator[None]:
    """Files of the backup are readable by their owner alone: a backup has every message."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _prepare(target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(target.iterdir()):
            raise BackupUnusable(f"{target} is not empty", "Name a directory that is empty, or not there yet")
        target.chmod(0o700)
        (target / STREAMS).mkdir()
    except OSError as error:
        raise BackupUnusable(f"{target}: {error.strerror}", "Name a directory that can be written") from None


def _sync(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

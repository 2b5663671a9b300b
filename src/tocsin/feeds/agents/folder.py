"""Files that appear in a folder, each record of them once.

A file is taken when it is the same at two looks a second or more apart; better, write it elsewhere on the same disk and
rename it into place. It is known by its name and a hash of its content. Records go out in their order, and the feed's
mark says how many of the file did. A file that was read to its end is moved to ``done/``, one that cannot be read to
``failed/`` with a text beside it that says why. One whose name and content are those of a file in ``done/`` is not
taken again, and is put beside it.

    new ──the same for a second──► taken, mark = records so far ──the end──► mark settled ──► moved ──► mark forgotten

The move is on the disk before the mark is forgotten: a process that was killed anywhere in between goes on there.

Files whose names begin with a dot, or end in ``.tmp``, ``.part`` or ``.partial``, are left alone, and so are folders
and links.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import structlog

from tocsin.errors import FileUnreadable, SourceUnusable
from tocsin.feeds.agents.agent import Work
from tocsin.feeds.files import records_of
from tocsin.feeds.outlet import BATCH_MAX_BYTES
from tocsin.feeds.packing import pack
from tocsin.model.catalogue import FolderSource
from tocsin.model.feeding import Marks
from tocsin.ports import BATCH_MAX
from tocsin.runtime.faults.kill_points import IN_FOLDER, reach
from tocsin.runtime.security.folders import REMEDY, Folders

DONE: Final = "done"
FAILED: Final = "failed"
UNFINISHED: Final = (".tmp", ".part", ".partial")
STABLE_S: Final = 1.0
FILES_MAX: Final = 10_000  # of one look; what is beyond is seen when these are gone
HASH_BYTES: Final = 12
READ_BYTES: Final = 1 << 20

T = TypeVar("T")
Sight = tuple[int, int, int]  # size, time of the last change, inode


class Seen(msgspec.Struct, frozen=True):
    """A file at a look."""

    name: str
    sight: Sight

    @property
    def order(self) -> tuple[int, str]:
        """The files that changed first are taken first."""
        return self.sight[1], self.name


class Watch:
    """Which files are there to be taken: those that have not changed for a while. Pure."""

    def __init__(self, stable_s: float = STABLE_S) -> None:
        self._stable_s = stable_s
        self._since: dict[str, tuple[Sight, float]] = {}

    def look(self, files: list[Seen], now: float) -> list[Seen]:
        """Look at the folder; return the files to take, the oldest first."""
        since: dict[str, tuple[Sight, float]] = {}
        ready: list[Seen] = []
        for each in files:
            before = self._since.get(each.name)
            same = before is not None and before[0] == each.sight
            since[each.name] = before if same and before is not None else (each.sight, now)
            if now - since[each.name][1] >= self._stable_s:
                ready.append(each)
        self._since = since
        return sorted(ready, key=lambda each: each.order)


class FolderAgent:
    """Reads the files of one folder for a feed, each record once."""

    def __init__(self, work: Work, *, poll_s: float, folders: Folders | None = None) -> None:
        """``folders``: where files may be read; None: anywhere."""
        assert isinstance(work.feed.source, FolderSource)
        self._work = work
        self._path = Path(work.feed.source.path)
        self._poll_s = poll_s
        self._folders = folders
        self._watch = Watch()
        self._waiting = 0  # files that were there at the last look

    async def lag(self) -> int:
        return self._waiting

    async def run(self) -> None:
        await self._work.outlet.open(_nothing)
        await self._call(self._check)
        await self._call(self._prepare)
        while True:
            await self._call(self._check)
            files = await self._call(self._look)
            self._work.counts.error = ""
            self._waiting = len(files)
            for each in self._watch.look(files, asyncio.get_running_loop().time()):
                await self._take(each)
                self._waiting -= 1
            await asyncio.sleep(self._poll_s)

    async def _call(self, work: Callable[..., T], *arguments: Any) -> T:
        """In a thread: disks are slow. An error of the system is the source's failure."""
        try:
            return await asyncio.to_thread(work, *arguments)
        except OSError as error:
            raise SourceUnusable(
                f"folder {self._path}",
                f"{error.strerror or error} ({error.filename or self._path})",
                "Make the folder, on the machine of the feeder, and let the feeder read, write and rename there",
            ) from None

    def _check(self) -> None:
        if self._folders is not None and (problem := self._folders.problem(self._path)):
            raise SourceUnusable(f"folder {self._path}", problem, REMEDY)

    def _prepare(self) -> None:
        for name in (DONE, FAILED):
            (self._path / name).mkdir(exist_ok=True)

    def _look(self) -> list[Seen]:
        found: list[Seen] = []
        with os.scandir(self._path) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name.lower().endswith(UNFINISHED):
                    continue
                if len(found) == FILES_MAX:
                    break
                with contextlib.suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        found.append(Seen(entry.name, _sight(about)))
        return found

    async def _take(self, seen: Seen) -> None:
        """Read one file to its end."""
        path, counts = self._path / seen.name, self._work.counts
        digest = await self._call(_digest, path)
        if await self._call(self._repeated, seen.name, digest):
            structlog.get_logger().warning(
                "a file was there before", feed=self._work.feed.name, file=str(path)
            )
            await self._leave(seen, digest, DONE)
            return
        try:
            await self._read(path, seen, digest)
        except FileUnreadable as error:
            taken = self._work.outlet.marks.get(_mark(digest, seen.name), 0)
            counts.failed_files += 1
            await self._leave(seen, digest, FAILED, f"{error}\n{taken} records of it were taken.\n")
        else:
            counts.files += 1
            await self._leave(seen, digest, DONE)

    async def _read(self, path: Path, seen: Seen, digest: str) -> None:
        outlet, counts = self._work.outlet, self._work.counts
        mark = _mark(digest, seen.name)
        number = outlet.marks.get(mark, 0)
        dataset = self._work.dataset()
        columns = {each.name: each.type for each in dataset.columns} if dataset is not None else {}
        records = islice(records_of(path, columns), number, None)
        while chunk := await self._call(_chunk, records):
            out: list[tuple[str, bytes]] = []
            upto = number
            for each in pack(chunk):
                out.append((f"{digest}.{upto + 1}", each.payload))
                upto += each.records
            await outlet.put(out, {mark: upto})
            counts.add(upto - number, sum(map(len, chunk)))
            number = upto
        if _sight(await self._call(os.stat, path)) != seen.sight:
            raise FileUnreadable(
                str(path), "it changed while it was read", "Write it elsewhere and rename it into the folder"
            )

    def _repeated(self, name: str, digest: str) -> bool:
        done = self._path / DONE
        if (done / f"{name}.{digest}").exists():
            return True
        return (done / name).is_file() and _digest(done / name) == digest

    async def _leave(self, seen: Seen, digest: str, where: str, problem: str = "") -> None:
        """Move a file out of the way, for good, and forget its mark."""
        outlet = self._work.outlet
        await outlet.settle()
        reach(IN_FOLDER)
        await self._call(self._move, seen.name, digest, where, problem)
        await outlet.put((), {})
        await outlet.settle()

    def _move(self, name: str, digest: str, where: str, problem: str) -> None:
        folder = self._path / where
        target = folder / name
        if target.exists():
            target = folder / f"{name}.{digest}"
        if problem:
            target.with_name(f"{target.name}.error").write_text(problem)
        (self._path / name).rename(target)
        for each in (folder, self._path):
            handle = os.open(each, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


async def _nothing() -> Marks:
    return {}


def _mark(digest: str, name: str) -> str:
    return f"{digest}.{name}"


def _sight(about: os.stat_result) -> Sight:
    return about.st_size, about.st_mtime_ns, about.st_ino


def _digest(path: Path) -> str:
    found = hashlib.blake2b(path.name.encode(errors="surrogateescape"), digest_size=HASH_BYTES)
    with open(path, "rb") as file:
        while data := file.read(READ_BYTES):
            found.update(data)
    return found.hexdigest()


def _chunk(records: Iterator[bytes]) -> list[bytes]:
    """The next records, no more than one append takes."""
    chunk: list[bytes] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += len(record)
        if len(chunk) == BATCH_MAX or size >= BATCH_MAX_BYTES:
            break
    return chunk

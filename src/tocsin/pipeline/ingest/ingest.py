"""Records of feeds, out of their log and into datasets, each once.

An entry of the log is one record (a JSON object), or several (a JSON array of objects), under the subject of its
feed. They are followed in the background, up to a bound, and landed in slices between ticks, so that a backlog does
not hold up channels, nor they it. While no pipeline runs, the log grows; nothing is lost.

A slice of a feed is one append to its dataset, which carries the position of its last entry: what a dataset has is
known from the dataset. After a restart entries come again, and those that are there are left out. Records that do not
fit go to the dataset's quarantine, which is written first; if the pipeline was killed in between, the first slice
afterwards ends at the same record, so that neither has anything twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from tocsin.errors import StorageUnusable, StoreError, Trimmed
from tocsin.model.catalogue import Feed
from tocsin.model.feeding import RECORDS
from tocsin.pipeline.storage.landing import Landing
from tocsin.ports import Entry, Log
from tocsin.runtime.faults import kill_points as points

HELD_MAX_BYTES: Final = 64 << 20  # of entries that wait in memory; the log has the others
RETRY_S: Final = 1.0  # after the storage refused

_several = msgspec.json.Decoder(list[msgspec.Raw])


class FeedFigures(msgspec.Struct):
    """A feed as an operator sees it; since the pipeline started."""

    position: int = 0
    records: int = 0
    quarantined: int = 0
    ignored: tuple[str, ...] = ()  # fields of its records that the dataset does not have
    error: str = ""


class Slice(msgspec.Struct, frozen=True):
    """The outcome of a slice: the new versions of datasets."""

    versions: dict[str, int]
    entries: int


class Ingest:
    """The log of feeds of one network."""

    def __init__(
        self,
        landing: Landing,
        log: Log,
        pattern: str,
        *,
        batch: int,
        start: int,
        clock: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self._landing = landing
        self._feeds_log = log
        self._pattern = pattern
        self._batch = batch
        self._clock = clock
        self._wake = wake
        self._held: deque[Entry] = deque()
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._reading = start  # the next position to read
        self._log = structlog.get_logger()
        self._unknown: set[str] = set()
        self.position = start - 1 if start else 0  # everything up to here is landed, or belongs to no feed
        self.figures: dict[str, FeedFigures] = {}
        self.error = ""

    # ── the log ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def follow(self) -> None:
        """Read entries until cancelled, never further ahead than the bound."""
        while True:
            try:
                async for entry in self._feeds_log.follow(self._pattern, self._reading):
                    self._reading = entry.position + 1
                    self._held.append(entry)
                    self._held_bytes += len(entry.payload)
                    self._wake()
                    if self._full():
                        self._room.clear()
                        await self._room.wait()
            except Trimmed as error:
                # Somebody trimmed the log by hand: the remaining records are taken.
                self._log.error("records of feeds were removed before they were read", problem=str(error))
                self._reading = error.oldest
            except StoreError as error:
                self._log.warning("the log of feeds cannot be read yet", problem=str(error))
                await asyncio.sleep(RETRY_S)

    def _full(self) -> bool:
        return len(self._held) >= 2 * self._batch or self._held_bytes >= HELD_MAX_BYTES

    @property
    def waiting(self) -> int:
        return len(self._held)

    def take(self) -> list[Entry]:
        """The entries of the next slice; ``land`` them, or ``give_back``."""
        taken = [self._held.popleft() for _ in range(min(self._batch, len(self._held)))]
        self._held_bytes -= sum(len(entry.payload) for entry in taken)
        if not self._full():
            self._room.set()
        return taken

    def give_back(self, entries: Sequence[Entry]) -> None:
        self._held.extendleft(reversed(entries))
        self._held_bytes += sum(len(entry.payload) for entry in entries)

    # ── a slice; in the thread of the storage ───────────────────────────────────────────────────────────────────

    def land(self, entries: Sequence[Entry], feeds: Mapping[str, Feed]) -> Slice:
        """Put entries into datasets; ``StorageUnusable`` if that cannot be done now, and is to be done again."""
        of_feed: dict[str, list[Entry]] = {}
        for entry in entries:
            of_feed.setdefault(entry.subject.rpartition(".")[2], []).append(entry)
        versions: dict[str, int] = {}
        for name, some in of_feed.items():
            feed = feeds.get(name)
            if feed is None:
                self._nobodys(name, some)
                continue
            figures = self.figures.setdefault(name, FeedFigures())
            try:
                versions |= self._land(feed, some, figures)
            except StorageUnusable as error:
                figures.error = self.error = str(error)
                raise
            figures.error = self.error = ""
        if entries:
            self.position = max(self.position, entries[-1].position)
        return Slice(versions, len(entries))

    def _land(self, feed: Feed, entries: Sequence[Entry], figures: FeedFigures) -> dict[str, int]:
        application = f"feed.{feed.name.lower()}"
        dataset = feed.dataset.lower()
        landed = self._landing.data.transaction(dataset, application) or 0
        in_quarantine = self._landing.quarantine.transaction(dataset, application) or 0
        fresh = [entry for entry in entries if entry.position > landed]
        version: int | None = None
        # The records that a killed run had put into quarantine, and no more: then the repetition is recognised.
        for some in (
            [entry for entry in fresh if entry.position <= in_quarantine],
            [entry for entry in fresh if entry.position > in_quarantine],
        ):
            if some:
                version = self._append(feed, application, some, figures)
        figures.position = max(figures.position, entries[-1].position)
        return {} if version is None else {dataset: version}

    def _append(self, feed: Feed, application: str, entries: Sequence[Entry], figures: FeedFigures) -> int:
        records: list[bytes] = []
        positions: list[int] = []
        for entry in entries:
            for record in split(RECORDS.open(entry.payload)):
                records.append(record)
                positions.append(entry.position)
        fitted = self._landing.fitter(feed.dataset).fit(records)
        points.reach(points.IN_INGEST)
        landed = self._landing.land(
            feed.dataset,
            fitted,
            feed=feed.name,
            now_us=self._clock(),
            positions=positions,
            transactions={application: entries[-1].position},
        )
        figures.records += len(records)
        figures.quarantined += landed.quarantined
        if fitted.ignored:
            figures.ignored = tuple(sorted({*figures.ignored, *fitted.ignored})[:20])
        return landed.version

    def _nobodys(self, name: str, entries: Iterable[Entry]) -> None:
        if name not in self._unknown:
            self._unknown.add(name)
            count = sum(1 for _ in entries)
            self._log.warning("records of a feed that is not defined are left out", feed=name, records=count)


def split(payload: bytes) -> list[bytes]:
    """The records of an entry. Anything but a JSON array is one record, for the fitter to judge."""
    if payload.lstrip()[:1] != b"[":
        return [payload]
    try:
        return [bytes(each) for each in _several.decode(payload)]
    except msgspec.DecodeError:
        return [payload]

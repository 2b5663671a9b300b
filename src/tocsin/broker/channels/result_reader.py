"""Where a broker reads results: the files of the results dataset, or, where it cannot reach them, the pipeline.

    rows = source.rows(notice, broker, ks, start)       an iterator of results, in the order of ordinals, each once
    some = await source.some(rows, 500)                 the next ones

``ResultFiles`` is the port to the files. ``broker.main`` gives the real ones, which are read in threads, and the
simulator simulated ones. The pipeline is asked on ``{network}.pipeline.results`` (``model.questions``).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import heapq
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Protocol

from tocsin.errors import ResultsUnreachable, Trimmed
from tocsin.model.questions import FETCHED, WANTED, AskedResults, Fetched
from tocsin.model.results import Notice, encode_notice
from tocsin.ports import Bus
from tocsin.results.reader import NO_CACHE, Result, ResultsReader

FETCH_DEADLINE_S: Final = 10.0
SOME_BYTES: Final = 8 << 20  # of payloads that are read at once, but for the last: results may be large
RESULT_MAX_BYTES: Final = 256 << 20  # of one result that is fetched in pieces: as much as a packet can have


class Rows:
    """A notice's results, from an ordinal on."""

    __slots__ = ("broker", "files", "ks", "notice", "start")

    def __init__(self, notice: Notice, broker: str, ks: Collection[str], start: int) -> None:
        self.notice = notice
        self.broker = broker
        self.ks = ks
        self.start: int | None = start  # None: there are no more
        self.files: Iterator[Result] | None = None  # what is left of the files, while they are read


class ResultFiles(Protocol):
    """The files of the results dataset, as a broker reads them."""

    def warm(self) -> None:
        """Get ready: results will be read soon."""
        ...

    async def some(self, rows: Rows, limit: int) -> list[Result]:
        """Read the next results, at most ``limit`` and about SOME_BYTES; none if there are no more.

        ``Trimmed`` if they are gone; ``ResultsUnreachable`` if the files cannot be read from here.
        """
        ...

    def statistics(self) -> dict[str, int]:
        """How the cache of results does: ``results_cache_bytes``, ``…_hits``, ``…_misses``."""
        ...


class DatasetFiles:
    """``ResultFiles`` on a disk that the broker reaches, read in threads."""

    def __init__(self, reader: ResultsReader) -> None:
        self._reader = reader
        self._warm = False

    def warm(self) -> None:
        """Load the library that reads files, which takes a second, in a thread."""
        if not self._warm:
            self._warm = True
            asyncio.get_running_loop().run_in_executor(None, _load)

    async def some(self, rows: Rows, limit: int) -> list[Result]:
        try:
            found, more = await asyncio.to_thread(self._read, rows, limit)
        except ResultsUnreachable:
            rows.files = None
            raise
        rows.start = found[-1].ordinal + 1 if more else None
        return found

    def statistics(self) -> dict[str, int]:
        return self._reader.statistics()

    def _read(self, rows: Rows, limit: int) -> tuple[list[Result], bool]:
        """The next results, and whether there may be more."""
        if rows.files is None:
            start = rows.start or 0
            own = self._reader.read(rows.notice, rows.broker, start=start) if rows.broker else iter(())
            found = self._reader.find(rows.notice, rows.ks, start=start) if rows.ks else None
            rows.files = own if found is None else _merged(own, found)
        taken, room = list[Result](), SOME_BYTES
        for each in rows.files:
            taken.append(each)
            room -= len(each.payload)
            if len(taken) == limit or room <= 0:
                return taken, True
        return taken, False


class ResultSource:
    """Reads the results of notices for one broker. Without ``files`` everything comes over the bus."""

    def __init__(self, files: ResultFiles | None, bus: Bus, subject: str) -> None:
        self._files = files
        self._bus = bus
        self._subject = subject

    def warm(self) -> None:
        """Results will be read soon."""
        if self._files is not None:
            self._files.warm()

    def rows(self, notice: Notice, broker: str, ks: Collection[str], start: int) -> Rows:
        """The results for a broker (none, if it is empty), and those of some ks from any broker's files."""
        return Rows(notice, broker, ks, start)

    async def some(self, rows: Rows, limit: int) -> list[Result]:
        """The next ones, none if there are no more. ``Trimmed`` if they are gone; others may go well later."""
        if rows.start is None:
            return []
        if self._files is None:
            return await self._fetch(rows, limit)
        try:
            return await self._files.some(rows, limit)
        except ResultsUnreachable:
            return await self._fetch(rows, limit)

    def statistics(self) -> dict[str, int]:
        """How the cache of results does; nothing is cached of what comes over the bus."""
        return NO_CACHE if self._files is None else self._files.statistics()

    async def _fetch(self, rows: Rows, limit: int) -> list[Result]:
        fetched = await self._ask(rows, 0)
        if fetched.piece_of:
            first = Result(*fetched.rows[0][:5], await self._rest(rows, fetched))
            rows.start = fetched.next
            return [first]
        found = [Result(*row[:5], row[5].encode()) for row in fetched.rows[:limit]]
        rows.start = found[-1].ordinal + 1 if len(fetched.rows) > limit else fetched.next
        return found

    async def _ask(self, rows: Rows, from_byte: int) -> Fetched:
        notice, ks = encode_notice(rows.notice).hex(), tuple(sorted(rows.ks))
        asked = AskedResults(notice, rows.broker, ks, rows.start or 0, pieces=True, from_byte=from_byte)
        answer = await self._bus.request(self._subject, WANTED.write(asked), deadline_s=FETCH_DEADLINE_S)
        fetched = FETCHED.read(answer)
        if fetched.gone:
            raise Trimmed("results", rows.notice.tick, rows.notice.tick + 1)
        if fetched.error is not None:
            raise ResultsUnreachable(self._subject, fetched.error)
        return fetched

    async def _rest(self, rows: Rows, fetched: Fetched) -> bytes:
        """The payload of a result that is larger than a message of the bus; ``fetched`` has its first piece."""
        whole = bytearray(base64.b64decode(fetched.rows[0][5]))
        rows.start = fetched.rows[0][0]
        size = fetched.piece_of
        while len(whole) < size <= RESULT_MAX_BYTES:
            piece = await self._ask(rows, len(whole))
            if piece.piece_of != size or not piece.rows or not piece.rows[0][5]:
                break
            whole += base64.b64decode(piece.rows[0][5])
        if len(whole) != size:
            raise ResultsUnreachable(self._subject, f"a result of {size} bytes came as {len(whole)}")
        return bytes(whole)


def _load() -> None:
    with contextlib.suppress(ImportError):  # who reads says so
        import pyarrow.parquet  # noqa: F401


def _merged(*sorted_results: Iterable[Result]) -> Iterator[Result]:
    """Both in one order, and what is in both once."""
    last = -1
    for result in heapq.merge(*sorted_results, key=lambda each: each.ordinal):
        if result.ordinal != last:
            last = result.ordinal
            yield result

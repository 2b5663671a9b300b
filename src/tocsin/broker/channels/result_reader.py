"""Where a broker reads results: the files of the results dataset, or, where it cannot reach them, the pipeline.

    rows = source.rows(notice, broker, ks, start)       an iterator of results, in the order of ordinals, each once
    some = await source.some(rows, 500)                 the next ones

``ResultFiles`` is the port to the files. ``broker.main`` gives the real ones, which are read in threads, and the
simulator simulated ones. The pipeline is asked on ``{network}.pipeline.results`` (``model.questions``).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

from tocsin.errors import ResultsUnreachable, Trimmed
from tocsin.model.questions import FETCHED, WANTED, AskedResults
from tocsin.model.results import Notice, encode_notice
from tocsin.ports import Bus
from tocsin.results.reader import Result, ResultsReader

FETCH_DEADLINE_S: Final = 10.0


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
        """Read the next results, at most ``limit``; none if there are no more.

        ``Trimmed`` if they are gone; ``ResultsUnreachable`` if the files cannot be read from here.
        """
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
            found = await asyncio.to_thread(self._read, rows, limit)
        except ResultsUnreachable:
            rows.files = None
            raise
        rows.start = found[-1].ordinal + 1 if len(found) == limit else None
        return found

    def _read(self, rows: Rows, limit: int) -> list[Result]:
        if rows.files is None:
            start = rows.start or 0
            own = self._reader.read(rows.notice, rows.broker, start=start) if rows.broker else iter(())
            found = self._reader.find(rows.notice, rows.ks, start=start) if rows.ks else None
            rows.files = own if found is None else _merged(own, found)
        return list(islice(rows.files, limit))


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

    async def _fetch(self, rows: Rows, limit: int) -> list[Result]:
        ks = tuple(sorted(rows.ks))
        asked = AskedResults(encode_notice(rows.notice).hex(), rows.broker, ks, rows.start or 0)
        answer = await self._bus.request(self._subject, WANTED.write(asked), deadline_s=FETCH_DEADLINE_S)
        fetched = FETCHED.read(answer)
        if fetched.gone:
            raise Trimmed("results", rows.notice.tick, rows.notice.tick + 1)
        if fetched.error is not None:
            raise ResultsUnreachable(self._subject, fetched.error)
        found = [Result(*row[:5], row[5].encode()) for row in fetched.rows[:limit]]
        rows.start = found[-1].ordinal + 1 if len(fetched.rows) > limit else fetched.next
        return found


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

"""The broker's side of results: follows the notices, reads what they name, and reads for clients that are behind.

A notice is read in a thread, in parts, from the files of this broker; what the tick did not know to be held here is
looked for in those of the others (``core.channels.machine``). A read that fails is tried again until it succeeds, or
the results are known to be gone. Meanwhile nothing waits for it but results.

While nobody here wants results, and nobody has since the broker began, no notices are read (``expected``): the broker
asks now and then where they end. It is then as far behind as if it read slowly.

``tail`` is where the results are, as a place: everything up to it is, or is being, dispatched. ``done``: everything up
to it was. A client that begins while a notice is being dispatched is behind, and reads that notice by itself: the
notice's rows were chosen before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec
import structlog

from tocsin.broker.channels.result_reader import ResultSource
from tocsin.core.channels.pull import newest_within
from tocsin.errors import Malformed, StoreError, TocsinError, Trimmed
from tocsin.model.priority import CRITICAL
from tocsin.model.results import ORDINALS, Execution, Notice, decode_notice, notice_position, result_position
from tocsin.ports import Entry, Log
from tocsin.results.reader import Result

ROWS: Final = 500  # that are read, and dispatched, at once: a few milliseconds of the loop
BATCH_ROWS: Final = 1_000  # for a client that is behind; no window is larger
BATCH_BYTES: Final = 1 << 20  # of their payloads, but for the last
BATCH_NOTICES: Final = 256  # same
LOOK_BACK: Final = 16 * BATCH_NOTICES  # notices that the newest results are looked for in
AGAIN_S: Final = 1.0
STAND_BY_S: Final = 10.0  # between looks where the notices end, while nobody wants them

Dispatch = Callable[[int, Notice, Result], None]


class ResultBatch(msgspec.Struct, frozen=True):
    """Results with their places and notices; everything below ``next`` is among them or before."""

    results: list[tuple[int, Notice, Result]]
    next: int
    more: bool = False  # there are notices behind them, or more results of the last


class Results:
    """Follows the notices of results for one broker, and reads old ones for clients that are behind."""

    def __init__(
        self,
        log: Log,
        subject: str,
        source: ResultSource,
        broker: str,
        *,
        unseen: Callable[[Notice], Collection[str]],
    ) -> None:
        self.tail = self.done = result_position(1, 0) - 1
        self.dispatched = 0  # results
        self._newest = 0  # the position of the newest notice, at the last look
        self._expected = asyncio.Event()  # somebody here was, or is to be, subscribed to a channel
        self._log = log
        self._subject = subject
        self._source = source
        self._broker = broker
        self._unseen = unseen  # the ks of which the own files may have nothing, for what a notice's tick knew
        self._logger = structlog.get_logger()

    def statistics(self) -> dict[str, int]:
        return {"notices_behind": self.behind, "results": self.dispatched, **self._source.statistics()}

    def expected(self) -> None:
        """Somebody here is, or is about to be, subscribed to a channel: what is behind the ``tail`` is dispatched."""
        if not self._expected.is_set():
            self._expected.set()
            self._source.warm()

    async def open(self) -> None:
        """Find where the notices end: what comes after is dispatched."""
        self.tail = self.done = result_position(await self._log.last() + 1, 0) - 1

    async def end(self) -> int:
        """A place that everything whose notice is there by now is at or before, whatever was dispatched here."""
        return result_position(await self._log.last(fresh=True) + 1, 0) - 1

    async def look(self) -> None:
        """See how many notices there are, to report how far behind we are, if anybody here waits for results."""
        if not self._expected.is_set():
            return
        with contextlib.suppress(StoreError):
            self._newest = await self._log.last()

    @property
    def behind(self) -> int:
        """Notices that were there at the last look, and are not dispatched yet."""
        return max(0, self._newest + 1 - notice_position(self.done + 1))

    # ── following ───────────────────────────────────────────────────────────────────────────────────────────

    async def follow(self, dispatch: Dispatch) -> None:
        """Dispatch each result of every notice, with its place and notice, for as long as the broker lives; from when
        somebody here wants any."""
        while not self._expected.is_set():
            await self._stand_by()
        while True:
            try:
                async for entry in self._log.follow(self._subject, notice_position(self.done + 1)):
                    await self._take(entry, dispatch)
            except Trimmed as error:  # we were away for longer than notices are kept
                self._logger.error("results were trimmed before they were delivered", problem=str(error))
                self.tail = self.done = max(self.done, result_position(error.oldest, 0) - 1)

    async def _stand_by(self) -> None:
        """Nobody wants results: move on to where they end, if that is so after a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STAND_BY_S):
                await self._expected.wait()
        with contextlib.suppress(StoreError):
            end = await self._log.last()
            if not self._expected.is_set():
                self.tail = self.done = max(self.tail, result_position(end + 1, 0) - 1)

    async def _take(self, entry: Entry, dispatch: Dispatch) -> None:
        self.tail = result_position(entry.position + 1, 0) - 1
        notice = self._notice(entry)
        if notice is not None:
            await self._pass_on(entry.position, notice, frozenset(self._unseen(notice)), dispatch)
        self.done = self.tail

    async def _pass_on(
        self, position: int, notice: Notice, unseen: frozenset[str], dispatch: Dispatch
    ) -> None:
        """Dispatch the results of a notice, however long it takes to read them."""
        if not unseen and all(file.broker != self._broker for file in notice.files):
            return
        while True:
            start = max(0, self.done + 1 - result_position(position, 0))
            try:
                rows = self._source.rows(notice, self._broker, unseen, start)
                while some := await self._source.some(rows, ROWS):
                    self._dispatch_each(position, notice, some, dispatch)
                    await asyncio.sleep(0)
                return
            except Trimmed as error:
                words = "results are gone before they were delivered"
                self._logger.error(words, problem=str(error), tick=notice.tick)
                return
            except TocsinError as error:
                self._logger.warning("results cannot be read yet", problem=str(error), tick=notice.tick)
            await asyncio.sleep(AGAIN_S)

    def _dispatch_each(
        self, position: int, notice: Notice, results: list[Result], dispatch: Dispatch
    ) -> None:
        for result in results:
            where = result_position(position, result.ordinal)
            dispatch(where, notice, result)
            self.done = where
        self.dispatched += len(results)

    def _notice(self, entry: Entry) -> Notice | None:
        try:
            return decode_notice(entry.payload)
        except Malformed as error:
            self._logger.error("a notice is unreadable", position=entry.position, problem=str(error))
            return None

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────

    async def read(
        self, ks: Mapping[str, str], start: int, *, critical: bool | None = None, limit: int = BATCH_ROWS
    ) -> ResultBatch:
        """The next critical results, or the others, of these ks from a place on, whichever broker had them.

        Each k comes with its channel, in small letters; ``critical`` None: critical or not. ``Trimmed``, in places, if
        the notices are no longer kept.
        """
        try:
            page = await self._log.read(self._subject, notice_position(start), limit=BATCH_NOTICES)
        except Trimmed as error:
            raise Trimmed(error.log, start, result_position(error.oldest, 0)) from None
        found: list[tuple[int, Notice, Result]] = []
        size = 0
        for entry in page.entries:
            notice = self._notice(entry)
            if notice is None:
                continue
            first = start % ORDINALS if entry.position == notice_position(start) else 0
            room = limit - len(found)
            executed = {each.channel.lower() for each in notice.executions if _has(each, critical)}
            wanted = [k for k, name in ks.items() if name in executed]
            some = await self._found(notice, wanted, first, room, BATCH_BYTES - size, critical)
            some, cut = _within(some, BATCH_BYTES - size)
            size += sum(len(each.payload) for each in some)
            found += [(result_position(entry.position, each.ordinal), notice, each) for each in some]
            if cut or len(some) == room:
                return ResultBatch(found, found[-1][0] + 1, more=True)
        return ResultBatch(found, result_position(page.next, 0), more=page.next <= page.last)

    async def newest(self, k: str, channel: str, limit: int) -> ResultBatch:
        """The newest results of a k, oldest first; ``next`` is the place behind the newest notice that was looked at.

        It looks back over LOOK_BACK notices at most. The channel is in small letters.
        """
        end = await self._log.last() + 1
        until, oldest, found = end, max(1, end - LOOK_BACK), list[tuple[int, Notice, Result]]()
        while until > oldest and len(found) < limit and _size(found) < BATCH_BYTES:
            begin = max(oldest, until - BATCH_NOTICES)
            try:
                page = await self._log.read(self._subject, begin, limit=until - begin)
            except Trimmed as error:
                oldest = error.oldest
                continue
            for entry in reversed([each for each in page.entries if each.position < until]):
                notice = self._notice(entry)
                if notice is None or all(each.channel.lower() != channel for each in notice.executions):
                    continue
                last = newest_within(await self._last(notice, k, limit), limit - len(found))
                found = [
                    (result_position(entry.position, each.ordinal), notice, each) for each in last
                ] + found
                if len(found) >= limit or _size(found) >= BATCH_BYTES:
                    break
            until = begin
        return ResultBatch(found, result_position(end, 0))

    async def _last(self, notice: Notice, k: str, limit: int) -> list[Result]:
        """The last results of a k in a notice."""
        last: list[Result] = []
        rows = self._source.rows(notice, "", (k,), 0)
        with contextlib.suppress(Trimmed):
            while notice.files and (some := await self._source.some(rows, ROWS)):
                last = list(newest_within([*last, *some], limit, BATCH_BYTES))
        return last

    async def _found(
        self,
        notice: Notice,
        ks: Collection[str],
        start: int,
        room: int,
        room_bytes: int,
        critical: bool | None,
    ) -> list[Result]:
        """The next of a notice, at most ``room``, or until they fill ``room_bytes``; else there are no more."""
        if not notice.files or not ks:
            return []
        try:
            rows, found = self._source.rows(notice, "", ks, start), list[Result]()
            while len(found) < room and room_bytes > 0:
                some = await self._source.some(rows, room - len(found))
                if not some:
                    break
                fit = [each for each in some if critical is None or (each.priority >= CRITICAL) is critical]
                room_bytes -= sum(len(each.payload) for each in fit)
                found += fit
            return found
        except Trimmed as error:
            words = "results are gone before a client got them"
            self._logger.warning(words, problem=str(error), tick=notice.tick)
            return []


def _within(results: list[Result], room: int) -> tuple[list[Result], bool]:
    """The first results, up to the one that fills the room; and whether one does."""
    for index, each in enumerate(results):
        room -= len(each.payload)
        if room <= 0:
            return results[: index + 1], True
    return results, False


def _size(results: list[tuple[int, Notice, Result]]) -> int:
    return sum(len(each.payload) for _, _, each in results)


def _has(execution: Execution, critical: bool | None) -> bool:
    """Whether an execution may have critical results, or others."""
    if critical is None or execution.critical < 0:
        return True
    return execution.critical > 0 if critical else execution.critical < execution.results

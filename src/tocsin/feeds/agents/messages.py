"""Messages of the network as records: of streams that satisfy a query, or of a topic filter.

Messages above QoS 0, critical or not, are read from the network's message log by position, one **lane** for each
subject pattern of the filter, and judged by what they carry. A lane is named after the pattern of those that are not
critical. Their record's id is their position, and the marks of the feed are the positions
of its lanes: each is taken once, also those of the time when the feeder was away, for as long as the message log keeps
them. (The expiry of a message is for subscribers; a feed takes it whenever it comes to it.)

Messages that were published at QoS 0 are in no log. They are heard by a subscription (``feeds.agents.live``), best
effort.

Messages that come during an append are the next append.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from tocsin.errors import Malformed, Trimmed
from tocsin.feeds.agents.agent import Work, together
from tocsin.feeds.agents.live import Heard, LiveSubscriber
from tocsin.feeds.filling import Filling
from tocsin.feeds.outlet import BATCH_MAX_BYTES
from tocsin.feeds.packing import cut
from tocsin.model.catalogue import StreamSource, TopicSource
from tocsin.model.feeding import Marks
from tocsin.model.publication import Publication, decode_publication
from tocsin.model.subjects import MESSAGES, all_of, patterns_of
from tocsin.ports import BATCH_MAX, Entry, Log
from tocsin.query import parse
from tocsin.runtime.machines.resolving import Resolver

HELD_MAX: Final = 4 * BATCH_MAX  # entries that were read and wait for an append
HELD_MAX_BYTES: Final = 16 << 20
SETTLE_S: Final = 0.5  # of quiet, before the last append's intent is settled
LOOK_S: Final = 30.0  # of quiet, before the lanes' marks are moved behind what did not concern them
NOTE_S: Final = 5.0  # between two writes of the cell while nothing is appended


class MessageAgent:
    """Reads the messages of one feed and appends them to the log of feeds."""

    def __init__(
        self, work: Work, log: Log, network: str, *, live_max: int, live: LiveSubscriber | None = None
    ) -> None:
        source = work.feed.source
        assert isinstance(source, StreamSource | TopicSource)
        self._work = work
        self._log = log
        self._live = live
        self._resolver = Resolver(log, network)
        self._judges = isinstance(source, StreamSource)  # by the metadata of a message's stream
        self._matches: Callable[[Publication], bool] = lambda publication: True
        if isinstance(source, StreamSource):
            query = parse(source.query)
            self._matches = lambda publication: query.matches(publication.metadata)
            self._lanes = {all_of(network, MESSAGES): all_of(network)}  # → the pattern of all its messages
        else:
            names = patterns_of(source.topic_filter, network, MESSAGES)
            self._lanes = dict(zip(names, patterns_of(source.topic_filter, network), strict=True))
        self._held: deque[tuple[str, Entry]] = deque()  # with their lanes
        self._held_bytes = 0
        self._heard: deque[tuple[int, Heard]] = deque(maxlen=live_max)  # with their numbers
        self._number = 0  # of the QoS 0 messages so far
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._noted = 0.0
        self._logger = structlog.get_logger()

    async def run(self) -> None:
        outlet = self._work.outlet
        marks = await outlet.open(self._beginning)
        assert marks.keys() == self._lanes.keys(), "the lanes follow from the definition, which is the same"
        self._work.counts.error = ""
        lanes = [self._follow(lane, pattern) for lane, pattern in self._lanes.items()]
        ears = [] if self._live is None else [self._live.listen(self._hear)]
        await together(self._write(), *lanes, *ears)

    async def _beginning(self) -> Marks:
        since = self._work.feed.since
        start = await self._log.last(fresh=True) if since is None else since
        return dict.fromkeys(self._lanes, start)

    async def lag(self) -> int:
        found = 0
        for lane, mark in list(self._work.outlet.marks.items()):
            pattern = self._lanes[lane]
            try:
                page = await self._log.read(pattern, mark + 1, limit=1)
            except Trimmed as error:
                page = await self._log.read(pattern, error.oldest, limit=1)
            if page.entries:
                found += page.last - page.entries[0].position + 1
        return found

    # ── the message log ─────────────────────────────────────────────────────────────────────────────────────────

    async def _follow(self, lane: str, pattern: str) -> None:
        start = self._work.outlet.marks[lane] + 1
        while True:
            try:
                async for entry in self._log.follow(pattern, start):
                    start = entry.position + 1
                    self._held.append((lane, entry))
                    self._held_bytes += len(entry.payload)
                    self._filled.set()
                    if len(self._held) >= HELD_MAX or self._held_bytes >= HELD_MAX_BYTES:
                        self._room.clear()
                        await self._room.wait()
            except Trimmed as error:
                self._work.counts.missed += 1
                self._logger.error(
                    "messages were trimmed before a feed had them",
                    feed=self._work.feed.name,
                    problem=str(error),
                )
                start = error.oldest

    async def _record(self, entry: Entry, filling: Filling) -> bytes | None:
        """The record of an entry, if it concerns this feed."""
        try:
            publication = decode_publication(entry.payload)
        except Malformed as error:
            self._logger.error(
                "an entry of the log is unreadable", position=entry.position, problem=str(error)
            )
            return None
        if publication.topic.startswith("$"):
            return None
        if self._judges or filling.wants_metadata:
            publication = await self._resolver.resolve(publication, entry.position)
        if not self._matches(publication):
            return None
        metadata = publication.metadata if filling.wants_metadata else None
        return cut(filling.record(publication.payload, publication.topic, entry.at_us, metadata))

    # ── QoS 0 ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _hear(self, heard: Heard) -> None:
        if len(self._heard) == self._heard.maxlen:
            self._work.counts.dropped += 1
        self._number += 1
        self._heard.append((self._number, heard))
        self._filled.set()

    # ── out ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _write(self) -> None:
        while True:
            if not self._held and not self._heard:
                await self._rest()
            await self._put()

    async def _put(self) -> None:
        outlet, counts = self._work.outlet, self._work.counts
        filling = Filling(self._work.dataset())
        records: list[tuple[str, bytes]] = []
        marks = dict(outlet.marks)
        size = live = 0
        while self._held and len(records) < BATCH_MAX and size < BATCH_MAX_BYTES:
            lane, entry = self._held.popleft()
            self._held_bytes -= len(entry.payload)
            marks[lane] = entry.position
            record = await self._record(entry, filling)
            if record is not None:
                records.append((str(entry.position), record))
                size += len(record)
        self._room.set()
        while self._heard and len(records) < BATCH_MAX and size < BATCH_MAX_BYTES:
            number, heard = self._heard.popleft()
            assert self._live is not None
            record = cut(filling.record(heard.payload, heard.topic, heard.at_us, heard.metadata))
            records.append((f"live.{self._live.run}.{number}", record))
            size += len(record)
            live += 1
        await outlet.put(records, marks)
        now = asyncio.get_running_loop().time()
        if records:
            self._noted = now
            counts.add(len(records), size)
            counts.live += live
        elif now - self._noted > NOTE_S:
            self._noted = now
            await outlet.settle()

    async def _rest(self) -> None:
        """Wait until there is something to do, and write down how far we are."""
        wait_s = SETTLE_S
        while True:
            self._filled.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._filled.wait()
                return
            except TimeoutError:
                if wait_s == LOOK_S:
                    await self._look()
                await self._work.outlet.settle()
                wait_s = LOOK_S
                if self._held or self._heard:
                    return

    async def _look(self) -> None:
        """Move the marks of lanes that are quiet, so that what is trimmed later is not taken for missed."""
        marks = dict(self._work.outlet.marks)
        for lane, mark in marks.items():
            pattern = self._lanes[lane]
            try:
                page = await self._log.read(pattern, mark + 1, limit=1)
            except Trimmed as error:
                page = await self._log.read(pattern, error.oldest, limit=1)
            if not page.entries:
                marks[lane] = max(mark, page.next - 1)
        await self._work.outlet.put((), marks)

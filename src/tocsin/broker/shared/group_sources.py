"""Where the entries of groups come from: the message log, or the results of channels.

To a group (``core.shared.machine``) both are the same: entries by position, which arrive as they are dispatched, or are
read. A result's position is its place, and its publication has the topic that the group's filter names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from tocsin.broker.channels.channels import Channels
from tocsin.broker.delivery.message_log import MessageLog
from tocsin.core.channels.standby_cells import channel_of
from tocsin.core.shared.signals import Matched, PartRead, ReadPart
from tocsin.core.shared.stored_group import ResultsSource
from tocsin.model.publication import Publication
from tocsin.model.results import Notice
from tocsin.ports import Entry
from tocsin.results.reader import Result

RESULTS_BYTES: Final = 2 << 20  # of a page of results: what is read at once, and a result that goes beyond


class GroupSource(Protocol):
    """The entries of one group, as its broker has them."""

    followed: ResultsSource | None  # what the group's cell says

    @property
    def tail(self) -> int:
        """The newest position that was dispatched, or is being."""
        ...

    @property
    def horizon(self) -> int:
        """Whatever matches behind this position will arrive."""
        ...

    @property
    def done(self) -> int:
        """Everything up to here was dispatched."""
        ...

    @property
    def page_bytes(self) -> int:
        """What one read may bring."""
        ...

    def topic(self, publication: Publication) -> str:
        """The topic that the rules of access are about."""
        ...

    def note_sent(self) -> None:
        """An entry was sent to a member."""
        ...

    async def read(self, asked: ReadPart) -> PartRead: ...

    async def end(self) -> int:
        """A position that everything which is committed by now is at or before, by the store's own account."""
        ...


class LogEntries:
    """The entries of the message log that match a filter."""

    def __init__(self, message_log: MessageLog, pattern: str) -> None:
        self.followed: ResultsSource | None = None
        self._log = message_log
        self._filters = (pattern,)

    @property
    def tail(self) -> int:
        return self._log.tail

    @property
    def horizon(self) -> int:
        return self._log.reading.horizon(self._filters)

    @property
    def done(self) -> int:
        return self._log.tail

    @property
    def page_bytes(self) -> int:
        return self._log.pages_of(self._filters)[1]

    def topic(self, publication: Publication) -> str:
        return publication.topic

    def note_sent(self) -> None:
        """Messages are not counted here."""

    async def read(self, asked: ReadPart) -> PartRead:
        await self._log.cover(self._filters)
        batch = await self._log.read(self._filters, asked.start, limit=asked.limit)
        matched = [
            Matched(entry, publication)
            for entry in batch.entries
            if (publication := self._log.publication(entry)) is not None
        ]
        return PartRead(matched=matched, next=batch.next, tail=self._log.tail, cause=asked.cause)

    async def end(self) -> int:
        return await self._log.end()


class ResultEntries:
    """The results of the backend subscription that the group's cell names."""

    def __init__(self, channels: Channels, pattern: str) -> None:
        self.followed: ResultsSource | None = None
        self.channel = channel_of(pattern)
        self._channels = channels
        self._pattern = pattern

    @property
    def tail(self) -> int:
        return self._channels.results.tail

    @property
    def horizon(self) -> int:
        return self._channels.results.tail

    @property
    def done(self) -> int:
        return self._channels.results.done

    @property
    def page_bytes(self) -> int:
        return RESULTS_BYTES

    def topic(self, publication: Publication) -> str:
        return self._pattern if self.followed is None else self.followed.bound.topic

    def note_sent(self) -> None:
        self._channels.sent += 1

    def is_of(self, channels: Collection[str]) -> bool:
        """Whether its channel is among these, which have executed, in small letters."""
        return self.followed is not None and self.followed.channel.lower() in channels

    def matched(self, place: int, notice: Notice, result: Result) -> Matched:
        """A result, as an entry of the group."""
        publication = self._channels.publication(self._pattern, place, notice, result)
        entry = Entry(place, self._pattern, result.payload, f"{notice.tick}-{result.ordinal}", notice.at_us)
        return Matched(entry, publication)

    async def read(self, asked: ReadPart) -> PartRead:
        followed, results = self.followed, self._channels.results
        if followed is None:  # the group ended while this waited for room
            return PartRead(matched=(), next=asked.start, tail=results.tail, cause=asked.cause)
        ks = {followed.bound.k: followed.channel.lower()}
        batch = await results.read(ks, asked.start, limit=asked.limit)
        matched = [self.matched(*each) for each in batch.results]
        return PartRead(matched=matched, next=batch.next, tail=results.tail, cause=asked.cause)

    async def end(self) -> int:
        return await self._channels.results.end()

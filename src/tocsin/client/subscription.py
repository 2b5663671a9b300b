"""A subscription as a program reads it: an iterator, a context manager, something to wait for.

    async for message in client.subscribe("alerts/#"): …          subscribes, and goes on for ever
    alerts = await client.subscribe("alerts/#", qos=1)            granted from here on
    async with client.subscribe("alerts/#") as alerts: …          and unsubscribed at the end

Messages wait in an inbox. At QoS 0 the oldest goes when it is full, and ``dropped`` counts it. Above, nothing goes: a
message is acknowledged when the reader asks for the next one (or closes), and the broker holds back what is beyond the
client's ``receive_max``, for all of its subscriptions together. One task reads a subscription.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import msgspec
from mqtt5 import PublishPacket, TopicFilter

from tocsin.client.message import Message
from tocsin.client.streamset import StreamSet
from tocsin.client.values import Change, Set
from tocsin.errors import ClientClosed, DeadlineExceeded, TocsinError
from tocsin.model.demand_news import DEMAND_NEWS
from tocsin.model.stream import Metadata
from tocsin.model.versions import UNREADABLE
from tocsin.wire.mqtt.topics import WANTED_PREFIX

if TYPE_CHECKING:
    from tocsin.client.aio import AsyncClient

Item = TypeVar("Item")


class Inbox(ABC, Generic[Item]):
    """The base of subscriptions to messages and to sets of streams."""

    def __init__(self, client: AsyncClient, filters: Sequence[TopicFilter], size: int) -> None:
        self.filters = {each.pattern: each for each in filters}
        self.dropped = 0
        self._client = client
        self._size = size
        self._items: deque[tuple[Item, PublishPacket | None]] = deque()
        self._unsettled: PublishPacket | None = None  # what the reader was given last, if it is above QoS 0
        self._news = asyncio.Event()
        self._open = False
        self._end: TocsinError | None = None  # why nothing more comes

    # ── the reader ──────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> Self:
        """Return once the broker has granted it; ``SubscriptionRefused`` if it does not."""
        if not self._open:
            if self._end is not None:
                raise self._end
            await self._client.open_inbox(self)
            self._open = True
        return self

    def __await__(self) -> Generator[object, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(settle=kind is None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        try:
            return await self.get()
        except ClientClosed:
            raise StopAsyncIteration from None

    async def get(self, deadline_s: float | None = None) -> Item:
        """The next one. ``DeadlineExceeded`` if none comes in time; ``ClientClosed`` when there will be none."""
        await self.open()
        self.settle()
        try:
            async with asyncio.timeout(deadline_s):
                while not self._items:
                    if self._end is not None:
                        raise self._end
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise DeadlineExceeded(" ".join(self.filters), deadline_s or 0) from None
        item, packet = self._items.popleft()
        self._unsettled = packet if packet is not None and packet.packet_id else None
        return item

    def settle(self) -> None:
        """The last one has been dealt with: acknowledge it, without asking for the next."""
        if self._unsettled is not None:
            self._client.settle((self._unsettled,))
            self._unsettled = None

    async def close(self, *, settle: bool = True) -> None:
        """Unsubscribe. Waiting messages are dropped and acknowledged; so is the last one that was read, if
        ``settle``.
        """
        if self._end is None:
            if settle:
                self.settle()
            self._client.settle([packet for _, packet in self._items if packet is not None])
            self._items.clear()
            self.end(ClientClosed("this subscription"))
            await self._client.close_inbox(self)

    # ── the client ──────────────────────────────────────────────────────────────────────────────────────────

    def end(self, error: TocsinError) -> None:
        """Nothing more comes; what is here can still be read."""
        self._end = self._end or error
        self._news.set()

    def begin(self) -> None:
        """There is a new connection."""

    @abstractmethod
    def take(self, topic_filter: str, packet: PublishPacket) -> None:
        """A message has come for one of the filters."""

    def _drop(self, messages: int) -> None:
        self.dropped += messages
        self._client.dropped += messages

    def _put(self, item: Item, packet: PublishPacket | None) -> None:
        self._items.append((item, packet))
        self._news.set()


class Subscription(Inbox[Message]):
    """Messages: of topic filters, or of a query."""

    def __init__(
        self,
        client: AsyncClient,
        filters: Sequence[TopicFilter],
        size: int,
        *,
        streams: TopicFilter | None = None,
    ) -> None:
        super().__init__(client, filters if streams is None else [streams, *filters], size)
        self._streams = None if streams is None else streams.pattern  # where their metadata comes from
        self._set = None if streams is None else StreamSet()

    @property
    def streams(self) -> Mapping[str, Metadata]:
        """The newest set, by topic; empty unless the query is ``with_streams``."""
        return {} if self._set is None else self._set.streams

    def begin(self) -> None:
        if self._set is not None:
            self._set.begin()

    def take(self, topic_filter: str, packet: PublishPacket) -> None:
        message = Message.of(packet)
        if self._set is not None:
            if topic_filter == self._streams:
                try:
                    self._set.take(packet.payload)
                except UNREADABLE as error:
                    self.end(error)
                return
            message = msgspec.structs.replace(message, metadata=self._set.streams.get(packet.topic))
        if len(self._items) >= self._size and not packet.packet_id:
            self._drop(1)
            oldest = self._items.popleft()
            if oldest[1] is not None and oldest[1].packet_id:
                self._items.appendleft(oldest)  # it is acknowledged only when it is read
                return
        self._put(message, packet)


class Streams(Inbox[Change]):
    """The changes of a set of streams. A reader that is too far behind gets the whole set again."""

    def __init__(self, client: AsyncClient, topic_filter: TopicFilter, size: int) -> None:
        super().__init__(client, [topic_filter], size)
        self._set = StreamSet()

    @property
    def streams(self) -> Mapping[str, Metadata]:
        """The newest set, by topic; changes that were not read yet are in it."""
        return self._set.streams

    def begin(self) -> None:
        self._set.begin()

    def take(self, topic_filter: str, packet: PublishPacket) -> None:
        try:
            changes = self._set.take(packet.payload)
        except UNREADABLE as error:
            self.end(error)
            return
        for change in changes:
            self._put(change, None)
        if len(self._items) > self._size:
            self._drop(len(self._items))
            self._items.clear()
            self._put(Set(dict(self._set.streams)), None)


class Wanted(Inbox[bool]):
    """Whether anybody else wants topics of a filter; only the newest answer waits for the reader."""

    def __init__(self, client: AsyncClient, topic_filter: TopicFilter, size: int) -> None:
        super().__init__(client, [topic_filter], size)
        self._now = True

    @property
    def now(self) -> bool:
        """The newest answer; true before there was one."""
        return self._now

    def take(self, topic_filter: str, packet: PublishPacket) -> None:
        try:
            news = DEMAND_NEWS.read(bytes(packet.payload or b""))
        except UNREADABLE as error:
            self.end(error)
            return
        if WANTED_PREFIX + news.filter in self.filters:  # another answer's topic may match this filter, too
            self._now = news.wanted
            self._items.clear()
            self._put(self._now, None)

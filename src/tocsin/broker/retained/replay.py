"""Retained messages on their way to one client that has just subscribed, as fast as it takes them.

Nothing is copied for it. A **cursor** for each filter says how far it is (``core.retained.topics``), and the next
messages are taken from the broker's copy when the client has taken those before. A filter that is subscribed to again
begins again, in the place of the cursor that it had. So a client that subscribes and does not read costs a cursor for
each of its filters, whatever is retained, and no message is kept alive for it.

Messages are many small ones more often than not, so that they are joined before they are queued. After a page of them
the others of the broker have their turn, and the client has shown whether it takes more.

Of some messages the copy has a stub. They are fetched when their turn comes, some at a time, and are sent from the copy
at once; the replays of the client wait meanwhile.

A filter waits until the broker's copy is complete, and has what was retained before the filter came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, Protocol
from weakref import ref

from tocsin.broker.client import Recipient
from tocsin.broker.links.link import NO_MAXIMUM
from tocsin.core.delivery.grant import Grant, frame_of
from tocsin.core.delivery.machine import ClientDelivery
from tocsin.core.delivery.window import WAIT
from tocsin.core.retained.kept import Kept, Stub
from tocsin.runtime.machines.clock import wall_s

CHUNK_BYTES: Final = 64 << 10  # joined at once
PAGE_BYTES: Final = (
    256 << 10
)  # queued in one turn of the broker; a client that takes no more is noticed after it
FETCH_MAX: Final = 64  # messages fetched at once …
FETCH_BYTES: Final = PAGE_BYTES  # … and their bytes, but for a larger one that is the first
VISITS_MAX: Final = 2_000  # messages looked at in one turn: some are not for the client

# The retained messages of one filter behind a topic (None: all), in order; one without a grant is not for the client.
Pages = Callable[[str | None], Iterator[tuple[Kept, Grant | None]]]


class Copy(Protocol):
    """The broker's retained messages, as they are seen from here."""

    def await_settled(self, waiting: Replay, name: str) -> None:
        """``begin`` a filter when all that was retained until now is there; at once, if it is."""
        ...

    def fetch(self, topics: Sequence[str], done: Callable[[Collection[str]], None]) -> None:
        """Have what is retained of these topics in the copy, and call ``done`` in that moment, with those of which
        nothing is."""
        ...


class _Cursor:
    """How far the messages of one filter are sent."""

    __slots__ = ("after", "done", "gone", "pages")

    def __init__(self, pages: Pages, done: Callable[[], None] | None = None) -> None:
        self.pages = pages
        self.done = done  # to be called when all is sent, or nobody wants it any more
        self.after: str | None = None  # the topic that came last
        self.gone: Collection[str] = ()  # topics of which the table has nothing any more


def _soon(act: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(act)


class Replay:
    """The waiting replays, filter by filter, in order."""

    __slots__ = (
        "__weakref__",
        "_copy",
        "_early",
        "_fetching",
        "_later",
        "_machine",
        "_reader",
        "_scheduled",
        "_waiting",
    )

    def __init__(
        self,
        reader: Recipient,
        machine: ClientDelivery,
        copy: Copy,
        later: Callable[[Callable[[], None]], None] = _soon,
    ) -> None:
        self._reader = reader
        self._machine = machine
        self._later = later
        self._copy = copy
        self._early: dict[str, _Cursor] = {}  # by filter, which wait for the copy
        self._waiting: dict[str, _Cursor] = {}  # by filter
        self._scheduled = False  # there is a turn to come
        self._fetching = False  # messages are fetched for the filter that is first

    def __len__(self) -> int:
        return len(self._early) + len(self._waiting)

    def add(self, name: str, pages: Pages) -> None:
        """Send what is retained for a filter, from the beginning."""
        self.cancel(name)
        self._early[name] = _Cursor(pages)
        self._copy.await_settled(self, name)

    def add_now(self, name: str, pages: Pages, done: Callable[[], None]) -> None:
        """Send messages that are no retained ones, under the name of a subscription."""
        self.cancel(name)
        self._waiting[name] = _Cursor(pages, done)
        self.more()

    def is_early(self, name: str) -> bool:
        """Whether a filter still waits for the copy, and so for everything that comes to it."""
        return name in self._early

    def begin(self, name: str) -> None:
        """The broker's copy has what the filter waits for."""
        if (cursor := self._early.pop(name, None)) is not None:
            self._waiting[name] = cursor
            self.more()

    def cancel(self, name: str) -> None:
        """The client is not subscribed any more."""
        self._early.pop(name, None)
        self._end(name)

    def _end(self, name: str) -> None:
        cursor = self._waiting.pop(name, None)
        if cursor is not None and cursor.done is not None:
            cursor.done()

    def more(self) -> None:
        """Send what the client takes now: at QoS 0 a page, above as the window has room too."""
        if not self._scheduled and not self._fetching:
            self._send_page()

    def _send_page(self) -> None:
        room = PAGE_BYTES
        visits = VISITS_MAX
        while self._waiting and not self._machine.congested:
            if room <= 0 or visits <= 0:
                self._scheduled = True
                self._later(self._turn)
                return
            name, cursor = next(iter(self._waiting.items()))
            sent, seen, ended = self._send(cursor, room, visits)
            room -= sent
            visits -= seen
            if ended:
                self._end(name)
            elif self._fetching:
                return
            elif room > 0 and visits > 0:
                return  # the window is full

    def _turn(self) -> None:
        self._scheduled = False
        self.more()

    def _send(self, cursor: _Cursor, room: int, visits: int) -> tuple[int, int, bool]:
        """Send up to so many bytes of one filter's messages, and one more; how many, how many were seen, and whether
        that was all."""
        reader, machine, version = self._reader, self._machine, self._reader.version
        now_s = wall_s()
        limited = reader.send_max_bytes < NO_MAXIMUM
        chunk: list[bytes] = []
        size = sent = seen = 0
        ended = True
        for kept, granted in cursor.pages(cursor.after):
            if sent + size >= room or seen >= visits:
                ended = False
                break
            seen += 1
            if granted is not None and kept.__class__ is Stub and kept.publication.topic not in cursor.gone:
                self._fetch(cursor)
                ended = False
                break
            if granted is None or kept.__class__ is Stub or (limited and self._too_large(kept, granted)):
                cursor.after = kept.publication.topic
                continue
            packet_id = machine.extra(granted.qos) if granted.qos else 0
            if packet_id == WAIT:
                ended = False
                break
            cursor.after = kept.publication.topic
            frame = frame_of(kept.publication, version, granted, packet_id, waited_s=kept.waited_s(now_s))
            chunk.append(frame)
            size += len(frame)
            if size > CHUNK_BYTES:
                reader.queue(*chunk)
                sent += size
                chunk, size = [], 0
        if chunk:
            reader.queue(*chunk)
        return sent + size, seen, ended

    def _fetch(self, cursor: _Cursor) -> None:
        """Have the messages fetched that come next."""
        topics: list[str] = []
        size = 0
        for seen, (kept, granted) in enumerate(cursor.pages(cursor.after)):
            size += kept.size
            if len(topics) >= FETCH_MAX or seen > VISITS_MAX or (topics and size > FETCH_BYTES):
                break
            if granted is not None and kept.__class__ is Stub and kept.publication.topic not in cursor.gone:
                topics.append(kept.publication.topic)
        self._fetching = True
        self._copy.fetch(topics, partial(_fetched, ref(self), cursor))

    def fetched(self, cursor: _Cursor, gone: Collection[str]) -> None:
        """The copy has what was fetched for a filter."""
        cursor.gone = gone
        self._fetching = False
        self.more()

    def _too_large(self, kept: Kept, granted: Grant) -> bool:
        """Whether the client takes no packet of that size: it is then as good as delivered (MQTT 5, 3.1.2.11.4)."""
        packet_id = 1 if granted.qos else 0
        frame = frame_of(
            kept.publication, self._reader.version, granted, packet_id, waited_s=kept.waited_s(wall_s())
        )
        return len(frame) > self._reader.send_max_bytes


def _fetched(replay: ref[Replay], cursor: _Cursor, gone: Collection[str]) -> None:
    """What is fetched must not keep a client."""
    if (found := replay()) is not None:
        found.fetched(cursor, gone)

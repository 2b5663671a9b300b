"""The shell of ``core.retained.machine``: this broker's copy of the table of retained messages, kept by a watch.

Of two brokers that write the same topic, or remove what is there, the later in the log wins, whoever is there first
(``put``). A message from before a removal that is still to be written is written.

The copy has the payloads of as many messages as its budget for that allows; the others are fetched from the table when
a client is to have them (``fetch``).

A broker whose copy is not complete (``known``) lets clients in all the same: who subscribes is subscribed, and gets
what is retained when all of it is here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary, ref

import structlog

from tocsin.core.machine import Event, Say, Watched
from tocsin.core.retained.kept import KEPT, Kept, size_of
from tocsin.core.retained.latecomers import Latecomers
from tocsin.core.retained.machine import (
    CopyComplete,
    MessageFetched,
    MessageRemoved,
    MessageSeen,
    MessageWritten,
    OwnSaid,
    RetainedCopy,
    RetainedLate,
)
from tocsin.core.retained.topics import Room
from tocsin.core.retained.write_order import WriteBarrier
from tocsin.errors import Conflict, Malformed, StoreFull, StoreUnavailable, TocsinError
from tocsin.model.publication import Publication
from tocsin.model.subjects import tokens_of
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Table, TableSpec
from tocsin.runtime.machines.clock import now_us, wall_s


def retained_table(network: str) -> TableSpec:
    """Where a network's retained messages are; keys are topics (``model.subjects``), values ``Kept``."""
    return TableSpec(name=f"{network}-{TABLE}")


TABLE: Final = "retained"
PUT_ATTEMPTS: Final = 8  # against other brokers that write the same topic
SETTLE_S: Final = 2.0  # a subscriber waits for messages that are being written; hundreds are within that
FETCH_AGAIN_S: Final = 1.0  # after the table could not be asked
LATE_S: Final = 5.0  # a copy of a gigabyte is here within that; then the log says that it is not
LATE_AGAIN_S: Final = 60.0  # how often it says so


def _position(value: bytes) -> int:
    try:
        return KEPT.read(value).position
    except Malformed:
        return 0  # damaged: whatever replaces it is better


class Waiting(Protocol):
    """A client that waits for the copy, with some of its filters."""

    def begin(self, name: str) -> None: ...


class Retained:
    """One broker's copy of the retained messages of the network, and the table behind it."""

    def __init__(
        self,
        table: Table,
        topics_max: int,
        bytes_max: int = 1 << 40,
        user_max: int = 1 << 40,
        *,
        held_max: int = 1 << 40,
        spawn: Callable[[Coroutine[Any, Any, None]], object] = asyncio.ensure_future,
    ) -> None:
        self._machine = RetainedCopy(topics_max, bytes_max, user_max, held_max)
        self._table = table
        self._held_max = held_max
        self._spawn = spawn
        self.fetched = 0  # messages that were asked of the table for a client
        self.known = asyncio.Event()  # the copy is complete
        # Filters that wait for that, as long as their clients are there.
        self._waiting: WeakKeyDictionary[Waiting, list[str]] = WeakKeyDictionary()
        self._barrier: WriteBarrier[tuple[ref[Waiting], str]] = WriteBarrier()
        self._latecomers: Latecomers[Callable[[Kept], None]] = Latecomers()
        self._log = structlog.get_logger()
        self.refused = 0  # messages that were not retained for want of room

    def __len__(self) -> int:
        return len(self._machine)

    @property
    def room(self) -> Room:
        return self._machine.room

    @property
    def held(self) -> int:
        """Bytes of the messages in the copy that are there as a whole."""
        return self._machine.held

    @property
    def missing(self) -> int:
        """Messages of the network that this broker's copy has no room for."""
        return self._machine.missing

    def _post(self, event: Event) -> None:
        for effect in self._machine.handle(event, 0):
            match effect:
                case CopyComplete():
                    self.all_here()
                case RetainedLate(kept=kept):
                    topic = kept.publication.topic
                    for send in self._latecomers.late_for(topic, kept.position, now_us()):
                        send(kept)
                case Say(text=text, level=level, facts=facts):
                    getattr(self._log, level)(text, **facts)

    def refusal(self, publication: Publication, user: str, reserved: int, reserver: str) -> str | None:
        """Why a user's message cannot be retained; None: it can. ``reserved``: bytes of its topic, by whom."""
        if not publication.payload:
            return None
        there = self._machine.get(publication.topic)
        if there is None and self._machine.full:
            return f"the network has {self._machine.count} retained messages already (limits.retained_max)"
        places = [(reserved, reserver), (0, "") if there is None else (there.size, there.user)]
        own = sum(size for size, whose in places if whose == user)
        return self.room.refusal(user, size_of(publication), over=sum(size for size, _ in places), own=own)

    def size(self, topic: str) -> int:
        """Of what is retained of a topic."""
        kept = self._machine.get(topic)
        return 0 if kept is None else kept.size

    async def put(self, publication: Publication, position: int = 0, user: str = "") -> None:
        """Keep a message as its topic's newest, or with an empty payload keep none; returns when it is durable.

        ``position`` is its own. A message of a later one, of another broker, is left in its place.
        """
        topic = publication.topic
        if publication.payload and self._machine.full and self._machine.get(topic) is None:
            self.refused += 1  # others were faster: the table would grow without bound
            raise StoreFull("retain", "limits.retained_max is reached")
        key, kept = tokens_of(topic), Kept(publication, wall_s(), position, user)
        revision, there = self._machine.stored(topic)
        for _ in range(PUT_ATTEMPTS):
            if there > position:
                return
            try:
                await self._write(key, kept, revision)
                return
            except Conflict:
                cell = await self._table.get(key)
                revision, there = (0, 0) if cell is None else (cell.revision, _position(cell.value))
        raise StoreUnavailable("retain", f"{PUT_ATTEMPTS} others wrote {topic!r} in between")

    async def _write(self, key: str, kept: Kept, revision: int) -> None:
        """Write, or remove, if the table has that revision; ``Conflict`` if not."""
        publication = kept.publication
        if publication.payload:
            ttl_s = None if publication.expiry_s is None else float(max(1, publication.expiry_s))
            value = KEPT.write(kept)
            revision = await self._table.compare_and_set(key, value, revision=revision, ttl_s=ttl_s)
            self._post(MessageWritten(kept=kept, revision=revision))
        elif revision:
            await self._table.delete(key, revision=revision)
            self._post(MessageRemoved(topic=publication.topic))
        elif (cell := await self._table.get(key, fresh=True)) is not None:
            raise Conflict("remove", 0, cell.revision)
        else:
            self._post(MessageRemoved(topic=publication.topic))

    def has(self, topic: str) -> bool:
        """Whether anything is retained of a topic, as far as it is known here."""
        return self._machine.get(topic) is not None or not self.known.is_set()

    def position(self, topic: str) -> int:
        """Of what is retained of a topic, as far as it is known here; 0: nothing is."""
        return self._machine.position(topic)

    def saw(self, publication: Publication, position: int, at_s: float) -> None:
        """The log has brought a message that is to be retained."""
        self._post(MessageSeen(kept=Kept(publication, at_s, position)))

    def remember(self, publication: Publication) -> None:
        """Keep a message of this broker's own, here and nowhere else."""
        self._post(OwnSaid(kept=Kept(publication, wall_s())))

    def matching(self, topic_filter: str) -> Iterator[Kept]:
        """What is retained of the topics that a filter matches."""
        return (kept for kept in self._machine.matching(topic_filter) if not kept.over(wall_s()))

    def all(self, topic_filter: str, after: str | None) -> Iterator[Kept]:
        """What is retained of the topics that a filter matches, in order, behind one of them; also what is over."""
        return self._machine.matching(topic_filter, after)

    def of(self, topics: Sequence[str], after: str | None) -> Iterator[Kept]:
        """The same of these topics, which are sorted."""
        return self._machine.of(topics, after)

    def fetch(self, topics: Sequence[str], done: Callable[[Collection[str]], None]) -> None:
        """Have the messages of these topics, or of the first of them, in the copy, and call ``done`` in that moment,
        with the topics of which the table has none. If the table cannot be asked, ``done`` is called after a while."""
        self._spawn(self._fetch(self._fitting(topics), done))

    def _fitting(self, topics: Sequence[str]) -> Sequence[str]:
        """As many as the copy can have at once: those that come first must not go before they are sent."""
        size = 0
        for count, topic in enumerate(topics):
            size += self.size(topic)
            if count and size > self._held_max:
                return topics[:count]
        return topics

    async def _fetch(self, topics: Sequence[str], done: Callable[[Collection[str]], None]) -> None:
        try:
            found = await self._ask(topics)
        except TocsinError as error:
            self._log.debug("retained messages cannot be fetched yet", problem=str(error))
            await asyncio.sleep(FETCH_AGAIN_S)
            done(())
            return
        for kept, revision in found.values():
            self._post(MessageFetched(kept=kept, revision=revision))
        self.fetched += len(found)
        done([each for each in topics if each not in found])

    async def _ask(self, topics: Sequence[str]) -> dict[str, tuple[Kept, int]]:
        """The messages that the table has of these topics; none that is older than what is known here."""
        cells = await self._table.get_many([tokens_of(each) for each in topics])
        found: dict[str, tuple[Kept, int]] = {}
        for topic in topics:
            cell, least = cells.get(tokens_of(topic)), self._machine.stored(topic)[0]
            if cell is None or cell.revision < least:  # a replica that is behind has answered
                cell = await self._table.get(tokens_of(topic), fresh=True)
            if cell is not None:
                with suppress(*UNREADABLE):
                    found[topic] = (KEPT.read(cell.value), cell.revision)
        return found

    def await_settled(self, waiting: Waiting, name: str) -> None:
        """``begin`` a filter when the copy is complete and has what was taken until now, if its client is still there;
        at once, if that is so."""
        if not self.known.is_set():
            self._waiting.setdefault(waiting, []).append(name)
        elif self._barrier.wait(item := (ref(waiting), name)):
            asyncio.get_running_loop().call_later(SETTLE_S, self._skip, item)
        else:
            waiting.begin(name)

    def await_late(self, topic_filter: str, since: int, send: Callable[[Kept], None]) -> None:
        """``send`` what is retained late: it was in the log up to a position, where a subscription began."""
        self._latecomers.add(topic_filter, since, send, now_us())

    def _skip(self, item: tuple[ref[Waiting], str]) -> None:
        if self._barrier.skip(item):
            self._begin(*item)

    @staticmethod
    def _begin(waiting: ref[Waiting], name: str) -> None:
        if (client := waiting()) is not None:
            client.begin(name)

    def taken(self) -> int:
        """A message was delivered that is in the copy only when it is written; ``settled`` follows with the number."""
        return self._barrier.begin()

    def settled(self, number: int) -> None:
        """Such a message is written, or was given up."""
        for item in self._barrier.end(number):
            self._begin(*item)

    async def watch(self) -> None:
        """Keep the copy true, for as long as the broker lives, and say so if that takes long to begin with."""
        self._say_late(LATE_S)
        try:
            async for change in self._table.watch():
                self._post(Watched(table=TABLE, change=change))
        finally:
            self._late.cancel()

    def _say_late(self, after_s: float) -> None:
        def look() -> None:
            if problem := self.problem():
                self._log.warning("clients are let in without retained messages", problem=problem)
                self._say_late(LATE_AGAIN_S)

        self._late = asyncio.get_running_loop().call_later(after_s, look)

    def problem(self) -> str | None:
        """What keeps those waiting who ask for retained messages; None: nothing."""
        if self.missing:
            return "there is no room for all retained messages (budgets.retained_bytes): some are not delivered here"
        if self.known.is_set():
            return None
        return (
            f"the retained messages are not all here yet: {len(self)} so far; who asks for them waits, "
            "everybody else is served"
        )

    def all_here(self) -> None:
        """The copy is complete: who waits for that goes on."""
        self.known.set()
        waiting, self._waiting = list(self._waiting.items()), WeakKeyDictionary()
        for each, names in waiting:
            for name in names:
                self.await_settled(each, name)

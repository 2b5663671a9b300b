"""Retained messages: one table for the whole network, and a copy of it in every broker, kept by a watch.

Each has its position in the log, or that of its time (``broker.retained.writer``): if two brokers write or clear the
same topic, the later position in the log wins, whichever write comes first. A removal leaves no tombstone: an older
message that is still to be written is written.

A message of the log is in the copy as soon as the log has brought it (``saw``), whatever the watch lags behind: who
subscribes gets what comes after, and must not miss what was before. When the watch starts again the old copy stays
until the new one is there. A broker whose copy is not complete (``known``) lets clients in all the same: who subscribes
is subscribed, and gets what is retained when all of it is here.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, Protocol
from weakref import WeakSet

import msgspec
import structlog

from tocsin.core.retained.topics import OVERHEAD_BYTES, RetainedTopics, Room
from tocsin.errors import Conflict, Malformed, StoreFull, StoreUnavailable
from tocsin.model.publication import Publication
from tocsin.model.subjects import tokens_of
from tocsin.model.versions import UNREADABLE, Packed
from tocsin.ports import Change, Table, TableSpec
from tocsin.runtime.machines.clock import wall_s


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A retained message and when it was taken."""

    publication: Publication
    at_s: float
    position: int = 0  # in the log; of one at QoS 0, of the log when it came
    user: str = ""  # whose budget it counts against

    @property
    def size(self) -> int:
        """The bytes that it costs a broker to keep it."""
        return size_of(self.publication)

    @property
    def waited_s(self) -> float:
        return max(0.0, wall_s() - self.at_s)

    @property
    def over(self) -> bool:
        """Whether its time is over."""
        return self.publication.expiry_s is not None and self.publication.expired(self.waited_s)


def retained_table(network: str) -> TableSpec:
    """Where a network's retained messages are; keys are topics (``model.subjects``), values ``Kept``."""
    return TableSpec(name=f"{network}-retained")


def size_of(publication: Publication) -> int:
    """The bytes that it costs a broker to keep a message; 0, if it removes one."""
    if not publication.payload:
        return 0
    properties = sum(len(key) + len(value) for key, value in publication.user_properties)
    others = len(publication.correlation or b"") + len(publication.response_topic or "")
    return OVERHEAD_BYTES + len(publication.payload) + 2 * len(publication.topic) + properties + others


KEPT: Final = Packed("a retained message", msgspec.msgpack.Decoder(Kept))

PUT_ATTEMPTS: Final = 8  # against other brokers that write the same topic
LATE_S: Final = 5.0  # a copy of a gigabyte is here within that; then the log says that it is not
LATE_AGAIN_S: Final = 60.0  # how often it says so


def _position(value: bytes) -> int:
    try:
        return KEPT.read(value).position
    except Malformed:
        return 0  # damaged: whatever replaces it is better


class Waiting(Protocol):
    """The waiters for the copy."""

    def begin(self) -> None: ...


class Retained:
    """One broker's copy of the retained messages of the network, and the table behind it."""

    def __init__(
        self, table: Table, topics_max: int, bytes_max: int = 1 << 40, user_max: int = 1 << 40
    ) -> None:
        self.room = Room(bytes_max, user_max)
        self._table = table
        self._topics: RetainedTopics[Kept] = RetainedTopics(topics_max)
        self._by_key: dict[
            str, tuple[str, int, int]
        ] = {}  # the table's key → topic, and of what the table has the revision and the position
        self._own: dict[str, Kept] = {}  # what is not in the table, by topic
        self._stale: set[str] = set()  # keys that the restarted watch has not named again
        self.known = asyncio.Event()  # the copy is complete
        self._waiting: WeakSet[Waiting] = WeakSet()  # for that, as long as their clients are there
        self._log = structlog.get_logger()
        self.refused = 0  # messages that were not retained for want of room
        self.missing = 0  # messages of the network that this broker's copy has no room for

    def __len__(self) -> int:
        return len(self._topics) - len(self._own)

    def refusal(self, publication: Publication, user: str, reserved: int, reserver: str) -> str | None:
        """Why a user's message cannot be retained; None: it can. ``reserved``: bytes of its topic, by user."""
        if not publication.payload:
            return None
        there = self._topics.get(publication.topic)
        if there is None and self._topics.full:
            return f"the network has {len(self._topics)} retained messages already (limits.retained_max)"
        places = [(reserved, reserver), (0, "") if there is None else (there.size, there.user)]
        own = sum(size for size, whose in places if whose == user)
        return self.room.refusal(user, size_of(publication), over=sum(size for size, _ in places), own=own)

    def size(self, topic: str) -> int:
        """The bytes of a topic's retained message; 0: there is none."""
        kept = self._topics.get(topic)
        return 0 if kept is None else kept.size

    async def put(self, publication: Publication, position: int = 0, user: str = "") -> None:
        """Keep a message as its topic's newest, or with an empty payload keep none; returns when it is durable.

        ``position`` is its own. A message of a later one, of another broker, is left in its place.
        """
        topic = publication.topic
        if publication.payload and self._topics.full and self._topics.get(topic) is None:
            self.refused += 1  # others were faster: the table would grow without bound
            raise StoreFull("retain", "limits.retained_max is reached")
        key, kept = tokens_of(topic), Kept(publication, wall_s(), position, user)
        _, revision, there = self._by_key.get(key, ("", 0, 0))
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
            self._keep(key, kept, revision)
        elif revision:
            await self._table.delete(key, revision=revision)
            self._forget(key)
        elif (cell := await self._table.get(key, fresh=True)) is not None:
            raise Conflict("remove", 0, cell.revision)
        else:
            self._forget(key)

    def has(self, topic: str) -> bool:
        """Whether anything is retained of a topic, as far as it is known here."""
        return self._topics.get(topic) is not None or not self.known.is_set()

    def position(self, topic: str) -> int:
        """The position of a topic's retained message, as far as it is known here; 0: there is none."""
        kept = self._topics.get(topic)
        return max(0 if kept is None else kept.position, self._by_key.get(tokens_of(topic), ("", 0, 0))[2])

    def saw(self, publication: Publication, position: int, at_s: float) -> None:
        """The log has brought a message that is to be retained."""
        topic, key = publication.topic, tokens_of(publication.topic)
        current = self._topics.get(topic)
        if current is not None and current.position >= position:
            return
        if not publication.payload:
            self._forget(key)
        elif self._hold(
            topic, Kept(publication, at_s, position)
        ):  # the broker that took it wrote it to the table
            self._by_key.setdefault(key, (topic, 0, 0))
            self._stale.discard(key)

    def remember(self, publication: Publication) -> None:
        """Keep a message of this broker's own, here and nowhere else."""
        self._own[publication.topic] = Kept(publication, wall_s())
        self._topics.put(publication.topic, self._own[publication.topic])

    def matching(self, topic_filter: str) -> Iterator[Kept]:
        """The retained messages of the topics that a filter matches."""
        return (kept for kept in self._topics.matching(topic_filter) if not kept.over)

    def all(self, topic_filter: str, after: str | None) -> Iterator[Kept]:
        """The retained messages of the topics that a filter matches, in order, behind one of them; expired ones too."""
        return self._topics.matching(topic_filter, after)

    def of(self, topics: Sequence[str], after: str | None) -> Iterator[Kept]:
        """The same of these topics, which are sorted."""
        for i in range(0 if after is None else bisect_right(topics, after), len(topics)):
            kept = self._topics.get(topics[i])
            if kept is not None:
                yield kept

    def await_known(self, waiting: Waiting) -> None:
        """``begin`` something when the copy is complete, if it is still there; at once, if the copy is complete."""
        if self.known.is_set():
            waiting.begin()
        else:
            self._waiting.add(waiting)

    async def watch(self) -> None:
        """Keep the copy true, for as long as the broker lives, and say so if that takes long to begin with."""
        self._say_late(LATE_S)
        try:
            async for change in self._table.watch():
                self._apply(change)
        finally:
            self._late.cancel()

    def _say_late(self, after_s: float) -> None:
        def look() -> None:
            if problem := self.problem():
                self._log.warning("clients are let in without retained messages", problem=problem)
                self._say_late(LATE_AGAIN_S)

        self._late = asyncio.get_running_loop().call_later(after_s, look)

    def problem(self) -> str | None:
        """Why subscribers wait for retained messages; None: they do not."""
        if self.missing:
            return "there is no room for all retained messages (budgets.retained_bytes): some are not delivered here"
        if self.known.is_set():
            return None
        return (
            f"the retained messages are not all here yet: {len(self)} so far; subscribers to them "
            "wait, everybody else is served"
        )

    def _apply(self, change: Change) -> None:
        match change.kind:
            case "reset":
                self._stale = set(self._by_key)
                self.missing = 0
            case "put":
                try:
                    self._keep(change.key, KEPT.read(change.value), change.revision)
                except UNREADABLE as error:  # it stays in the table
                    self._log.error("a retained message is unreadable", key=change.key, problem=str(error))
            case "delete":
                self._forget(change.key)
            case "ready":
                for key in self._stale:
                    self._forget(key)
                self._stale = set()
                self._log.debug("retained messages are known", messages=len(self._topics))
                self.all_here()

    def all_here(self) -> None:
        """The copy is complete: its waiters go on."""
        self.known.set()
        waiting, self._waiting = list(self._waiting), WeakSet()
        for each in waiting:
            each.begin()

    def _keep(self, key: str, kept: Kept, revision: int) -> None:
        topic = kept.publication.topic
        self._stale.discard(key)
        if revision < self._by_key.get(key, ("", 0, 0))[1]:
            return  # the watch is behind what we wrote ourselves
        current = self._topics.get(topic)
        if current is not None and current.position > kept.position:
            self._by_key[key] = (topic, revision, kept.position)  # the table is behind the log
        elif self._hold(topic, kept):
            self._by_key[key] = (topic, revision, kept.position)

    def _forget(self, key: str) -> None:
        topic, *_ = self._by_key.pop(key, ("", 0, 0))
        if topic:
            self._let_go(topic)
            self._topics.remove(topic)

    def _hold(self, topic: str, kept: Kept) -> bool:
        """Put a message into the copy, in place of the topic's old one; False if the copy has no room for it."""
        before = self._topics.get(topic)
        grown = kept.size - (0 if before is None else before.size)
        if (grown > 0 and not self.room.fits(grown)) or (before is None and self._topics.full):
            if not self.missing:
                self._log.error(
                    "this broker has no room for all retained messages",
                    stream=topic,
                    bytes=self.room.kept,
                    remedy="raise budgets.retained_bytes, or remove some: tocsin retained remove FILTER",
                )
            self.missing += 1
            self._let_go(topic)  # an old one in its place would be wrong
            self._topics.remove(topic)
            return False
        self._let_go(topic)
        self.room.keep(kept.user, kept.size)
        return self._topics.put(topic, kept)

    def _let_go(self, topic: str) -> None:
        before = self._topics.get(topic)
        if before is not None and topic not in self._own:
            self.room.keep(before.user, -before.size)

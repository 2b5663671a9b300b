"""Retained messages: one table for the whole network, and a copy of it in every broker, kept by a watch.

Each has its position in the log, or that of its time (``broker.retaining``): of two brokers that write the same topic,
or remove what is there, the later in the log wins, whoever is there first. Of what was removed nothing is remembered:
a message from before that is still to be written is written.

A message of the log is in the copy as soon as the log has brought it (``saw``), whatever the watch lags behind: who
subscribes gets what comes after, and must not miss what was before. For the same reason nobody is let in before the
copy is complete (``known``), and when the watch begins anew the old copy stays until the new one is there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final

import msgspec
import structlog

from tocsin.core.retained import RetainedTopics
from tocsin.errors import Conflict, Malformed, StoreUnavailable
from tocsin.model.publication import Publication
from tocsin.model.subjects import tokens_of
from tocsin.model.versions import UNREADABLE, Packed
from tocsin.ports import Change, Table


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A retained message and when it was taken."""

    publication: Publication
    at_s: float
    position: int = 0  # in the log; of one at QoS 0, of the log when it came

    @property
    def waited_s(self) -> float:
        return max(0.0, time.time() - self.at_s)


KEPT: Final = Packed("a retained message", msgspec.msgpack.Decoder(Kept))

PUT_ATTEMPTS: Final = 8  # against other brokers that write the same topic


def _position(value: bytes) -> int:
    try:
        return KEPT.read(value).position
    except Malformed:
        return 0  # damaged: whatever replaces it is better


class Retained:
    """See the module's text."""

    def __init__(self, table: Table, topics_max: int) -> None:
        self._table = table
        self._topics: RetainedTopics[Kept] = RetainedTopics(topics_max)
        self._by_key: dict[
            str, tuple[str, int, int]
        ] = {}  # the table's key → topic, and of what the table has the revision and the position
        self._own: dict[str, Kept] = {}  # what is not in the table, by topic
        self._stale: set[str] = set()  # keys that the watch, which began anew, has not named again
        self.known = asyncio.Event()  # the copy is complete
        self._log = structlog.get_logger()
        self.refused = 0  # messages for which there was no room here

    def __len__(self) -> int:
        return len(self._topics) - len(self._own)

    async def put(self, publication: Publication, position: int = 0) -> None:
        """Keep a message as its topic's newest, or with an empty payload keep none; returns when it is durable.

        ``position`` is its own. A message of a later one, of another broker, is left in its place.
        """
        topic = publication.topic
        if publication.payload and self._topics.full and self._topics.get(topic) is None:
            self.refused += 1  # the table would grow without bound, and no broker could hold what is in it
            return
        key, kept = tokens_of(topic), Kept(publication, time.time(), position)
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

    def position(self, topic: str) -> int:
        """Of what is retained of a topic, as far as it is known here; 0: nothing is."""
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
        elif self._topics.put(topic, Kept(publication, at_s, position)):  # the table has it from who took it
            self._by_key.setdefault(key, (topic, 0, 0))
            self._stale.discard(key)

    def remember(self, publication: Publication) -> None:
        """Keep a message of this broker's own, here and nowhere else."""
        self._own[publication.topic] = Kept(publication, time.time())
        self._topics.put(publication.topic, self._own[publication.topic])

    def matching(self, topic_filter: str) -> Iterator[Kept]:
        """What is retained of the topics that a filter matches."""
        for kept in self._topics.matching(topic_filter):
            if kept.publication.expiry_s is None or not kept.publication.expired(kept.waited_s):
                yield kept

    async def watch(self) -> None:
        """Keep the copy true, for as long as the broker lives."""
        async for change in self._table.watch():
            self._apply(change)

    def _apply(self, change: Change) -> None:
        match change.kind:
            case "reset":
                self._stale = set(self._by_key)
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
                self.known.set()
                self._log.debug("retained messages are known", messages=len(self._topics))

    def _keep(self, key: str, kept: Kept, revision: int) -> None:
        topic = kept.publication.topic
        self._stale.discard(key)
        if revision < self._by_key.get(key, ("", 0, 0))[1]:
            return  # the watch is behind what we wrote ourselves
        current = self._topics.get(topic)
        if current is not None and current.position > kept.position:
            self._by_key[key] = (topic, revision, kept.position)  # the table is behind the log
        elif self._topics.put(topic, kept):
            self._by_key[key] = (topic, revision, kept.position)
        else:
            self.refused += 1

    def _forget(self, key: str) -> None:
        topic, *_ = self._by_key.pop(key, ("", 0, 0))
        if topic:
            self._topics.remove(topic)

"""Retained messages: one table for the whole network, and a copy of it in every broker, kept by a watch."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import structlog

from tocsin.core.retained import RetainedTopics
from tocsin.model.publication import Publication
from tocsin.model.subjects import tokens_of
from tocsin.ports import Change, Table


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A retained message and when it was taken."""

    publication: Publication
    at_s: float

    @property
    def waited_s(self) -> float:
        return max(0.0, time.time() - self.at_s)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Kept)


class Retained:
    """See the module's text."""

    def __init__(self, table: Table, topics_max: int) -> None:
        self._table = table
        self._topics: RetainedTopics[Kept] = RetainedTopics(topics_max)
        self._by_key: dict[
            str, tuple[str, int]
        ] = {}  # the table's key → topic, and the revision that is kept
        self._own: dict[str, Kept] = {}  # what is not in the table, by topic
        self._log = structlog.get_logger()
        self.refused = 0  # messages for which there was no room here

    def __len__(self) -> int:
        return len(self._topics) - len(self._own)

    async def put(self, publication: Publication) -> None:
        """Keep a message as its topic's newest, or with an empty payload keep none; returns when it is durable."""
        key = tokens_of(publication.topic)
        if not publication.payload:
            await self._table.delete(key)
            self._forget(key)
            return
        if self._topics.full and self._topics.get(publication.topic) is None:
            self.refused += 1  # the table would grow without bound, and no broker could hold what is in it
            return
        kept = Kept(publication, time.time())
        ttl_s = None if publication.expiry_s is None else float(max(1, publication.expiry_s))
        self._keep(key, kept, await self._table.put(key, _encoder.encode(kept), ttl_s=ttl_s))

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
                self._topics.clear()
                self._by_key.clear()
                for topic, kept in self._own.items():
                    self._topics.put(topic, kept)
            case "put":
                try:
                    self._keep(change.key, _decoder.decode(change.value), change.revision)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    self._log.error("a retained message is unreadable", key=change.key, problem=str(error))
            case "delete":
                self._forget(change.key)
            case "ready":
                self._log.debug("retained messages are known", messages=len(self._topics))

    def _keep(self, key: str, kept: Kept, revision: int) -> None:
        topic = kept.publication.topic
        if revision < self._by_key.get(key, ("", 0))[1]:
            return  # the watch is behind what we wrote ourselves
        if self._topics.put(topic, kept):
            self._by_key[key] = (topic, revision)
        else:
            self.refused += 1

    def _forget(self, key: str) -> None:
        topic, _ = self._by_key.pop(key, ("", 0))
        if topic:
            self._topics.remove(topic)

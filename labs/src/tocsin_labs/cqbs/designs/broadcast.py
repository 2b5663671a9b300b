"""No coordinator: brokers tell each other of every change, and each holds it against the queries of its own clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tocsin.model.stream import Metadata
from tocsin.ports import Bus
from tocsin.query import Query
from tocsin.query.index.index import QueryIndex
from tocsin_labs.cqbs.changes import Change
from tocsin_labs.cqbs.dummies import Ears

SUBJECT: Final = "broadcast.changes"


class Evaluator:
    """One broker.

    A new query need not be told here: a broker that keeps what it heard of all streams knows the answer. In the paper's
    words the others would be asked, which takes longer and less memory.
    """

    def __init__(self, bus: Bus, ears: Ears) -> None:
        self._bus = bus
        self._ears = ears
        self._index: QueryIndex[int] = QueryIndex()
        self._streams: dict[str, Metadata] = {}
        self._held: dict[str, set[int]] = {}  # by topic: the queries that its stream satisfies
        self._sending: set[asyncio.Task[None]] = set()
        self.ready = asyncio.Event()

    def ask(self, asked: Sequence[tuple[int, Query]]) -> None:
        for number, query in asked:
            self._index.add(number, query)

    def say(self, change: Change) -> int:
        """Send a change; when that was."""
        sent_ns = time.monotonic_ns()
        sending = asyncio.create_task(self._bus.publish(SUBJECT, msgspec.msgpack.encode(change)))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        return sent_ns

    async def run(self) -> None:
        """Hear all brokers, this one too."""
        async with self._bus.subscribe(SUBJECT) as told:
            self.ready.set()
            async for message in told:
                self._apply(msgspec.msgpack.decode(message.payload, type=Change))

    def known(self, number: int) -> Mapping[str, Metadata]:
        """The set of a query of this broker."""
        return {topic: self._streams[topic] for topic, held in self._held.items() if number in held}

    def _apply(self, change: Change) -> None:
        before, held = self._streams.get(change.topic, {}), self._held.setdefault(change.topic, set())
        turned = self._index.change(before, change.metadata, held)
        self._streams[change.topic] = change.metadata
        held.difference_update(turned.left)
        for number in held:
            self._ears.hear((change.mark, number, "changed"))
        held.update(turned.entered)
        for numbers, kind in ((turned.entered, "joined"), (turned.left, "left")):
            for number in numbers:
                self._ears.hear((change.mark, number, kind))

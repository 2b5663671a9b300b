"""Writing retained messages: in the order in which they came, topic by topic (``core.retained.write_order``), with
patience.

A message above QoS 0 is written with its own position in the log: if two brokers write one topic, the later message in
the log stays, whichever write comes first. A message at QoS 0 is in no log. It is written as if it were just behind all
that this broker knew of the log, and of its topic, when it came: so it replaces what was retained before, as far as
that was known here, and gives way to whatever the log takes later. If two brokers take a QoS 0 message for one topic,
either may stay.

A topic's additional bytes are reserved in the budget of retained messages (``core.retained.topics.Room``) until it is
written; messages at QoS 0 that wait are bounded beside that, by a part of the budget (``SLACK``): the others are in the
budget of commits. Above QoS 0 a message without room is refused before anything is done with it (``refusal``). At QoS
0 nobody can be told: the message is delivered and not retained, and what was retained of its topic is removed, because
it is no longer true. Of messages at QoS 0 of one topic that wait to be written only the newest does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from tocsin.broker.delivery.message_log import Done, MessageLog
from tocsin.broker.retained.table import Retained
from tocsin.core.retained.kept import size_of
from tocsin.core.retained.topics import SLACK
from tocsin.core.retained.write_order import RetainLines, WriteTurn
from tocsin.errors import TocsinError
from tocsin.model.publication import Publication
from tocsin.model.subjects import fits
from tocsin.runtime.machines.clock import monotonic_s

ATTEMPTS: Final = 5
RETRY_S: Final = 0.5

SAY_S: Final = 10.0  # at most so often the log says that a message was not retained


class Waiting(NamedTuple):
    """A message that may be written."""

    publication: Publication
    position: int
    done: Done
    user: str = ""  # whose it is
    waiting: int = 0  # its bytes, if nobody waits for it
    taken: int = 0  # its number among those at QoS 0 (``Retained.taken``)


class _Reserved:
    """The additional bytes of a topic, while some of its messages are on their way."""

    __slots__ = ("bytes", "messages", "user")

    def __init__(self, user: str) -> None:
        self.user = user  # the first user
        self.bytes = 0
        self.messages = 0


def _nobody(error: TocsinError | None) -> None:
    """Nobody is told."""


class RetainedWriter:
    """Writes what one broker's clients have retained, topic by topic in order."""

    def __init__(
        self,
        retained: Retained,
        message_log: MessageLog,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._retained = retained
        self._message_log = message_log
        self._spawn = spawn
        self._lines: RetainLines[Waiting] = RetainLines()
        self._reserved: dict[str, _Reserved] = {}  # by topic
        self._waiting = 0  # bytes of messages at QoS 0 that are to be written
        self._said_s = -SAY_S  # when the log said last that there is no room
        self._log = structlog.get_logger()

    def refusal(self, publication: Publication, user: str) -> str | None:
        """Why a message of a user's cannot be retained, which is counted; None: ``expect`` it."""
        held = self._reserved.get(publication.topic)
        reserved, reserver = (0, "") if held is None else (held.bytes, held.user)
        problem = self._retained.refusal(publication, user, reserved, reserver)
        if publication.qos == 0 and not self._may_wait(publication):
            problem = "too many retained messages wait for the store"
        if problem is not None:
            self._retained.refused += 1
            now_s = monotonic_s()
            if now_s - self._said_s >= SAY_S:
                self._said_s = now_s
                self._log.warning(
                    "messages are not retained", stream=publication.topic, user=user, problem=problem
                )
        return problem

    def _may_wait(self, publication: Publication) -> bool:
        place = self._lines.last(publication.topic)
        instead = 0 if place is None or place.item is None else place.item.waiting
        waiting = self._waiting - instead + size_of(publication)
        return waiting <= self._retained.room.bytes_max // SLACK

    def expect(
        self, topic: str, publication: Publication | None = None, user: str = ""
    ) -> WriteTurn[Waiting]:
        """A message to be retained is on its way into the log; ``keep`` or ``withdraw`` follows."""
        held = self._reserved.get(topic)
        if held is None:
            held = self._reserved[topic] = _Reserved(user)
        held.messages += 1
        if publication is not None:
            self._grow(topic, held, size_of(publication))
        return self._lines.enter(topic)

    def _grow(self, topic: str, held: _Reserved, size: int) -> None:
        if (more := size - self._retained.size(topic) - held.bytes) > 0:
            held.bytes += more
            self._retained.room.reserve(held.user, more)

    def withdraw(self, place: WriteTurn[Waiting]) -> None:
        """It will not be retained."""
        self._lines.settle(place, None)
        self._leave(place.topic, 1)
        self._go(place.topic)

    def _leave(self, topic: str, messages: int) -> None:
        held = self._reserved[topic]
        held.messages -= messages
        if not held.messages:
            self._retained.room.reserve(held.user, -held.bytes)
            del self._reserved[topic]

    def keep(
        self,
        publication: Publication,
        done: Done = _nobody,
        *,
        position: int = 0,
        place: WriteTurn[Waiting] | None = None,
        user: str = "",
    ) -> None:
        """Keep a message as its topic's newest; ``done`` when that is durable or has failed. ``position`` is where the
        log has it; 0: nowhere."""
        topic = publication.topic
        if publication.keys is not None:  # nobody asks a retained message for them
            publication = msgspec.structs.replace(publication, keys=None)
        if not fits(topic):
            if place is not None:
                self.withdraw(place)
            done(None)
            return
        if place is None:
            if self._replace(publication, user, done):
                return
            place = self.expect(topic, publication, user)
        if not position:
            known = self._retained.position(topic)
            position = max(self._message_log.newest, self._message_log.tail, known)
        waiting, taken = (0, 0) if publication.qos else (size_of(publication), self._retained.taken())
        self._waiting += waiting
        self._lines.settle(place, Waiting(publication, position, done, user, waiting, taken))
        # Soon, not now: the others of its batch that may be written as well are then written with it.
        asyncio.get_running_loop().call_soon(self._go, topic)

    def keep_if_room(self, publication: Publication, user: str) -> None:
        """Keep a message at QoS 0, of which nobody is told; if there is no room, what was kept of its topic goes."""
        if self.refusal(publication, user) is not None:
            if not self._retained.has(publication.topic) and self._lines.last(publication.topic) is None:
                return
            publication = msgspec.structs.replace(publication, payload=b"")
        self.keep(publication, user=user)

    def _replace(self, publication: Publication, user: str, done: Done) -> bool:
        """Write a QoS 0 message instead of a waiting one, as the newer."""
        place = self._lines.last(publication.topic)
        if place is None or place.item is None or place.item.publication.qos:
            return False
        before, topic = place.item, publication.topic
        if before.done is not _nobody or done is not _nobody:
            return False
        size = size_of(publication)
        self._grow(topic, self._reserved[topic], size)
        self._waiting += size - before.waiting
        position = max(before.position, self._message_log.newest, self._message_log.tail)
        place.item = Waiting(publication, position, done, user, size, before.taken)
        return True

    def _go(self, topic: str) -> None:
        if items := self._lines.start(topic):
            self._spawn(self._write(topic, items))

    async def _write(self, topic: str, items: list[Waiting]) -> None:
        newest = items[-1]
        position = self._lines.position(topic, max(each.position for each in items))
        error = await self._put(newest.publication, position, newest.user)
        self._waiting -= sum(each.waiting for each in items)
        self._leave(topic, len(items))
        self._lines.finish(topic)
        for each in items:
            each.done(error)
            if each.taken:
                self._retained.settled(each.taken)
        self._go(topic)

    async def _put(self, publication: Publication, position: int, user: str) -> TocsinError | None:
        attempt = 1
        while True:
            try:
                await self._retained.put(publication, position, user)
                return None
            except TocsinError as error:
                if not error.retryable or attempt == ATTEMPTS:
                    self._log.warning(
                        "a message was not retained", stream=publication.topic, problem=str(error)
                    )
                    return error
            attempt += 1
            await asyncio.sleep(RETRY_S)

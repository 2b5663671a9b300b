"""Writing retained messages: in the order in which they came, topic by topic (``core.retain_line``), with patience.

A message above QoS 0 is written with its own position in the log: of two brokers that write one topic, whichever is
first, that one stays which the log has later. A message at QoS 0 is in no log. It is written as if it were just behind
all that this broker knew of the log, and of its topic, when it came: so it replaces what was retained before, as far as
that was known here, and gives way to whatever the log takes later. Of two at QoS 0, at two brokers, either may stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
import structlog

from tocsin.broker.journal import Done, Journal
from tocsin.broker.retained import Retained
from tocsin.core.retain_line import Place, RetainLines
from tocsin.errors import TocsinError
from tocsin.model.publication import Publication
from tocsin.model.subjects import fits

ATTEMPTS: Final = 5
RETRY_S: Final = 0.5

Waiting = tuple[Publication, int, Done]  # a message, its position, whom to tell


class Retaining:
    """See the module's text."""

    def __init__(
        self,
        retained: Retained,
        journal: Journal,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._retained = retained
        self._journal = journal
        self._spawn = spawn
        self._lines: RetainLines[Waiting] = RetainLines()
        self._log = structlog.get_logger()

    def expect(self, topic: str) -> Place[Waiting]:
        """A message to be retained is on its way into the log; ``keep`` or ``withdraw`` follows."""
        return self._lines.enter(topic)

    def withdraw(self, place: Place[Waiting]) -> None:
        """It will not be retained."""
        self._lines.settle(place, None)
        self._go(place.topic)

    def keep(
        self,
        publication: Publication,
        done: Done = lambda error: None,
        *,
        position: int = 0,
        place: Place[Waiting] | None = None,
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
            place = self._lines.enter(topic)
        if not position:
            known = self._retained.position(topic)
            position = max(self._journal.newest, self._journal.tail, known)
        self._lines.settle(place, (publication, position, done))
        # Soon, not now: the others of its batch that may be written as well are then written with it.
        asyncio.get_running_loop().call_soon(self._go, topic)

    def _go(self, topic: str) -> None:
        if items := self._lines.start(topic):
            self._spawn(self._write(topic, items))

    async def _write(self, topic: str, items: list[Waiting]) -> None:
        publication = items[-1][0]
        position = self._lines.position(topic, max(position for _, position, _ in items))
        error = await self._put(publication, position)
        self._lines.finish(topic)
        for _, _, done in items:
            done(error)
        self._go(topic)

    async def _put(self, publication: Publication, position: int) -> TocsinError | None:
        attempt = 1
        while True:
            try:
                await self._retained.put(publication, position)
                return None
            except TocsinError as error:
                if not error.retryable or attempt == ATTEMPTS:
                    self._log.warning(
                        "a message was not retained", stream=publication.topic, problem=str(error)
                    )
                    return error
            attempt += 1
            await asyncio.sleep(RETRY_S)

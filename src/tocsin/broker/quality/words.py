"""What one broker says of quality to the others, and hears from them.

Words go over the bus, in order. They are news that are asked again or told again when they are lost. If more of them
wait for the bus than WORDS_MAX, the newest is dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import structlog

from tocsin.errors import TocsinError
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Bus, BusMessage

WORDS_MAX: Final = 1_000


class Words:
    """A broker's words of quality to the others."""

    def __init__(self, bus: Bus) -> None:
        self.dropped = 0  # words that did not get onto the bus
        self._bus = bus
        self._waiting: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(WORDS_MAX)
        self._log = structlog.get_logger()

    def say(self, subject: str, word: bytes) -> None:
        try:
            self._waiting.put_nowait((subject, word))
        except asyncio.QueueFull:
            self.dropped += 1

    async def speak(self) -> None:
        """Say what there is to say, for as long as the broker lives."""
        while True:
            subject, word = await self._waiting.get()
            try:
                await self._bus.publish(subject, word)
            except TocsinError as error:
                self.dropped += 1
                self._log.debug("a word of quality was not said", subject=subject, problem=str(error))

    async def hear(
        self, words: AsyncIterator[BusMessage], read: Callable[[bytes], Any], take: Callable[[Any], None]
    ) -> None:
        """Hear what others say on a subject, for as long as the broker lives."""
        async for word in words:
            try:
                said = read(word.payload)
            except UNREADABLE as error:
                self._log.warning("a word of quality is unreadable", subject=word.subject, problem=str(error))
                continue
            take(said)

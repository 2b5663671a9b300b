"""Answering requests from a bus: bounded, concurrent, and deaf to the mistakes of its answerer.

Every request runs in a task of its own, so that a slow answer holds up nobody. Over ``CONCURRENT_MAX`` running
answers a request is let go unanswered (its asker sees ``DeadlineExceeded`` and asks again). An answerer that raises
is logged; the asker is not answered, because there is nothing true to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from tocsin.ports import BusMessage

CONCURRENT_MAX: Final = 1_024

_log = structlog.get_logger("tocsin.store")


class Service:
    """The requests of one ``serve`` context."""

    def __init__(self, subject: str, answer: Callable[[BusMessage], Awaitable[bytes]]) -> None:
        self.subject = subject
        self._answer = answer
        self._running: set[asyncio.Task[None]] = set()

    def take(self, delivery: BusMessage, reply: Callable[[bytes], Awaitable[None]]) -> None:
        """Start to answer one request, or let it go if too many answers are under way: its asker does not wait long."""
        if len(self._running) >= CONCURRENT_MAX:
            return
        task = asyncio.get_running_loop().create_task(self._run(delivery, reply))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, delivery: BusMessage, reply: Callable[[bytes], Awaitable[None]]) -> None:
        try:
            await reply(await self._answer(delivery))
        except Exception:
            _log.exception("a request was not answered", subject=delivery.subject)

    async def close(self) -> None:
        """Stop what is still being answered."""
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

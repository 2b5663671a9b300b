"""Tasks beside a machine or a part, and what happens when one of them fails.

There is one policy. Work handles the errors that it expects (``TocsinError``: the store is away, a peer has gone). An
exception that escapes from a task, a machine or an effect is a bug, or an error that nobody can go on after. It is
never swallowed:

- ``raise_alarm`` makes it heard: a bug goes to the loop's exception handler, which logs it with its traceback and
  fails a run of the simulator; an operating error is logged.
- Then the owner is told, and ends what the failure happened in. A machine that serves **one client** (its session, its
  delivery, a link, a line) costs that connection: it is closed, and the client or peer comes back. A **part** that all
  clients share (a group, backend subscriptions, replication, gossip, the coordinator) costs the process: ``Ending``
  raises in the task that runs the part, the process ends, and the supervisor starts it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from tocsin.core.machine import IllegalEvent
from tocsin.errors import TocsinError

Failed = Callable[[BaseException], None]  # the owner: ends what the failure happened in


def raise_alarm(error: BaseException, where: str) -> None:
    """Make a failure heard."""
    if isinstance(error, TocsinError) and not isinstance(error, IllegalEvent):
        structlog.get_logger().error("a part failed", part=where, exc_info=error)
        return
    context = {"message": f"a bug in {where}", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)


class Ending:
    """How a part ends: stopped, or by its first failure. The task that runs the part waits for it."""

    __slots__ = ("_ended", "_error", "_is_over")

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._is_over = False
        self._ended: asyncio.Event | None = None  # made when somebody waits: there may be no loop before

    def fail(self, error: BaseException) -> None:
        """The part cannot go on."""
        if not self._is_over:
            self._error = error
            self.stop()

    def stop(self) -> None:
        """The part is done."""
        self._is_over = True
        if self._ended is not None:
            self._ended.set()

    @property
    def is_over(self) -> bool:
        return self._is_over

    async def wait(self) -> None:
        """Return when the part was stopped; raise its failure."""
        if not self._is_over:
            if self._ended is None:
                self._ended = asyncio.Event()
            await self._ended.wait()
        if self._error is not None:
            raise self._error


class Tasks:
    """A set of tasks that end with their owner; a task that fails is handled as the module describes."""

    __slots__ = ("_failed", "_running", "_where")

    def __init__(self, where: str, failed: Failed) -> None:
        self._where = where  # for the log
        self._failed = failed
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def drain(self, deadline_s: float) -> None:
        """Let those that run now come to their end, for so long."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=deadline_s)

    def close(self) -> None:
        """End them all; nobody waits for that."""
        for task in self._running:
            task.cancel()

    async def wait_closed(self) -> None:
        """End them all, and return when they have ended."""
        self.close()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise_alarm(error, self._where)
            self._failed(error)

"""An event loop of asyncio in virtual time: it runs until nothing is left to do, and never waits.

The world says what time it is whenever it lets the loop run. Nothing here depends on the real clock, on threads or on
the order of sets, so that one seed runs the same way every time. ``sockets`` does what asyncio's own loops do for
sockets. Work for a thread is done at once.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.sim.process.sockets import Sockets

STEPS_MAX = 1_000_000  # callbacks in one go: beyond that it would run for ever
MILLION = 1_000_000


class Endless(RuntimeError):
    """The loop does not come to rest."""


class _Handle(asyncio.Handle):
    """The same, made and cancelled without a look at whether the loop is debugged."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., Any], args: Any, loop: VirtualLoop, context: Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]  # what it would have called need not stay


class _Timer(asyncio.TimerHandle):
    """Likewise. The loop passes a cancelled one over when its time comes."""

    __slots__ = ()

    def __init__(
        self, at_us: int, callback: Callable[..., Any], args: Any, loop: VirtualLoop, context: Context | None
    ) -> None:
        self._when = at_us / MILLION
        self._scheduled = True
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    cancel = _Handle.cancel


class _Task(asyncio.Task[Any]):
    """A task that a set holds in the same place in every run, whatever its address in memory."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number  # first: a set has it already when ``super`` returns
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop of one simulated process."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []  # when due, in which order made
        self._made = 0
        self._now_us = 0
        self._dead = False
        self.failed: BaseException | None = None  # what nobody caught

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, now_us: int) -> None:
        """Do all that can be done at this time."""
        if now_us > self._now_us:
            self._now_us = now_us
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            ready, timers, now_us = self._ready, self._timers, self._now_us
            for _ in range(STEPS_MAX):
                if timers and timers[0][0] <= now_us:
                    self._wake()
                if not ready:
                    return
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                try:
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"exception": error})
            raise Endless(f"{STEPS_MAX} callbacks, and more wait")
        finally:
            events._set_running_loop(before)

    def _wake(self) -> None:
        timers, now_us = self._timers, self._now_us
        while timers and timers[0][0] <= now_us:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                self._ready.append(handle)

    @property
    def next_us(self) -> int | None:
        """When it has something to do again; None: only when it is told something."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def kill(self, tasks: list[asyncio.Task[Any]]) -> None:
        """The process is gone: unwind its tasks, whose last words nobody hears."""
        self._dead = True
        self._timers.clear()
        self._ready.clear()
        for _ in range(5):
            left = [task for task in tasks if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            self.run(self._now_us)
            self._timers.clear()
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # seen: nobody has to be told when it is collected

    # ── what asyncio asks of a loop ─────────────────────────────────────────────────────────────────────────

    def time(self) -> float:
        return self._now_us / MILLION

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        delay_us = round(delay * MILLION)
        return self._call_at_us(
            self._now_us + delay_us if delay_us > 0 else self._now_us, callback, args, context
        )

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._call_at_us(round(when * MILLION), callback, args, context)

    def _call_at_us(
        self, at_us: int, callback: Callable[..., Any], args: Any, context: Context | None
    ) -> asyncio.TimerHandle:
        handle = _Timer(at_us, callback, args, self, context)
        self._made += 1
        heapq.heappush(self._timers, (at_us, self._made, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        self._made += 1
        task = _Task(self._made, coro, loop=self, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._sockets.process.tasks[task] = None
        task.add_done_callback(self._sockets.process.tasks.pop)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """Nobody sends a signal here."""

    def remove_signal_handler(self, sig: int) -> bool:
        return True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._dead or self.failed is not None:
            return
        error = context.get("exception")
        self.failed = error if error is not None else RuntimeError(context.get("message", "a failure"))

    default_exception_handler = call_exception_handler

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._dead

    # ── sockets ─────────────────────────────────────────────────────────────────────────────────────────────

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        return self._sockets.serve(protocol_factory, options["sock"])

    async def create_connection(self, protocol_factory: Any, host: Any, port: Any, **options: Any) -> Any:  # type: ignore[override]
        return await self._sockets.dial(protocol_factory, host, port, secure=options.get("ssl") is not None)

    async def sock_accept(self, sock: Any) -> Any:
        return await sock.accept()

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **options: Any) -> Any:
        return self._sockets.attach(protocol_factory, sock)

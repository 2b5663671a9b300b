"""A load generator in a process of its own.

The parent starts it, hands it a **job** (one line of JSON on its standard input) and reads its **news** (a line of JSON
each on its standard output): *ready* once, then *progress*, and *done* at the end with what it found. In between it may
be given **orders**, a line of JSON each. When its input ends it finishes early, and still says *done*: that is how an
experiment is cut short without losing what it has. A worker does not outlive its parent.

A worker's module ends with ``worker.main({"name": (Job, work)})`` and is run with ``python -m``.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import msgspec
import uvloop

from tocsin.errors import DeadlineExceeded, OperatorError
from tocsin.runtime.network import leash
from tocsin.runtime.process import COLLECT_AFTER

JOB_MAX_BYTES: Final = 64 << 20
FINISH_S: Final = 60.0  # from being asked to finish to having written everything down


class News(msgspec.Struct, frozen=True):
    """A worker's message."""

    kind: Literal["ready", "progress", "done"]
    count: int = 0
    found: dict[str, Any] = {}


class Desk:
    """The worker's side: what it is told to do, when to finish, and a place for its news."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.orders: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def tell(self, kind: Literal["ready", "progress", "done"], count: int = 0, **found: Any) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(News(kind, count, found)) + b"\n")
        sys.stdout.buffer.flush()

    async def pause(self, seconds: float) -> bool:
        """Wait so long, or until asked to finish; whether to go on."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.stop.wait()
        return not self.stop.is_set()


Work = Callable[[Any, Desk], Awaitable[None]]


def main(
    works: Mapping[str, tuple[type[Any], Work]],
    loops: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> None:
    """Do the work that the command line names, on a loop of that kind."""
    leash.hold()
    job_type, work = works[sys.argv[1]]
    gc.set_threshold(COLLECT_AFTER)  # as a broker's process has it
    gc.freeze()
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(_do(job_type, work))


async def _do(job_type: type[Any], work: Work) -> None:
    reader = asyncio.StreamReader(limit=JOB_MAX_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    job = msgspec.json.decode(await reader.readline(), type=job_type)
    desk = Desk()

    async def listen() -> None:
        while line := await reader.readline():
            desk.orders.put_nowait(msgspec.json.decode(line, type=dict[str, Any]))
        desk.stop.set()

    watching = asyncio.create_task(listen())
    try:
        await work(job, desk)
    finally:
        watching.cancel()


class Worker:
    """The parent's side."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.count = 0  # as it last said
        self.counted = asyncio.Event()  # it reported again; for a caller that waits to clear
        self._process = process

    @classmethod
    async def start(cls, module: str, name: str, job: msgspec.Struct) -> Worker:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", module, name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=JOB_MAX_BYTES,
            start_new_session=True,  # a Ctrl-C on the terminal is the parent's to answer
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        await process.stdin.drain()
        return cls(name, process)

    async def news(self) -> News:
        """The next thing it says; ``OperatorError`` if it ended without being done."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            problem = f"the load generator {self.name!r} ended with code {code}; its words are above"
            raise OperatorError(problem, "Try with fewer clients, and look at `ulimit -n`")
        news = msgspec.json.decode(line, type=News)
        self.count = news.count
        self.counted.set()
        return news

    async def until(self, kind: str, hear: Callable[[News], None] = lambda news: None) -> News:
        """Read its news up to one of that kind."""
        while (news := await self.news()).kind != kind:
            hear(news)
        return news

    async def order(self, **facts: Any) -> None:
        """Send it a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(facts) + b"\n")
        await self._process.stdin.drain()

    def finish(self) -> None:
        """Ask it to come to an end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def finished(self) -> News:
        """Ask it to come to an end, and what it found."""
        self.finish()
        try:
            async with asyncio.timeout(FINISH_S):
                return await self.until("done")
        except TimeoutError:
            raise DeadlineExceeded(f"the load generator {self.name}", FINISH_S) from None

    async def close(self) -> None:
        """End it, wherever it is."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

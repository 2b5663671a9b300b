"""The frame of every process: one loop, one way to start, to report its health, and to stop.

A process stops when it gets SIGTERM or SIGINT, when its parent is gone, or when its ``main`` returns. The parent's
end is noticed in two ways: the **status line**, a socket that ``tocsin up`` hands to each child (TOCSIN_STATUS_FD),
reaches its end; and on Linux the kernel sends SIGTERM. The same socket carries the settings to the child, as the one
line down, and the child's reports to the parent, one JSON object a line. A process that was started by hand has no
status line: its reports go nowhere.

Asked to stop, ``main`` is expected to return; after STOP_GRACE_S, or when asked again, it is cancelled. A process whose
parent is gone, and which then does not stop by itself, is ended by the kernel (SIGALRM).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec
import structlog
import uvloop

from tocsin.config import Settings, from_json
from tocsin.errors import Malformed, OperatorError, TocsinError
from tocsin.model.versions import Document, Format
from tocsin.runtime import logs
from tocsin.runtime.faults import partition_socket as cut_socket
from tocsin.runtime.faults.partition import CuttableLoop
from tocsin.runtime.host.allocator import Allocator
from tocsin.runtime.network import leash

STATUS_VARIABLE = "TOCSIN_STATUS_FD"
HEARTBEAT_S = 1.0  # core.supervision calls a process silent after ten of these
STOP_GRACE_S = 8.0  # less than supervision's grace of 10 s, so that a hanging main is cancelled, not killed
ORPHAN_GRACE_S = 10  # the same as supervision's: nobody is left to count it
HANDOVER_MAX_BYTES = 1 << 20  # 256 brokers at 200 bytes are a twentieth of it
HANDOVER_DEADLINE_S = 30.0
REPORT_MAX_BYTES = 64 << 10
UNSENT_MAX_BYTES = 256 << 10  # unread reports to the parent; beyond it they are dropped, not piled up
# New objects between two rounds of the garbage collector: those of some 200 connections. At Python's 700 a rush of
# clients costs a quarter more.
COLLECT_AFTER = 10_000
GIVE_BACK_BEATS = 10  # heartbeats after which freed memory goes back to the system

State = Literal["starting", "ready", "degraded", "stopping"]


class Process:
    """A running process, as its ``main`` sees it."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.settings = settings
        self.stopping = asyncio.Event()
        self.line: StatusLine | None = None  # None: nobody listens
        self._last: dict[str, object] = {"state": "starting"}
        self._fresh = False  # said since the last heartbeat

    async def stopped(self) -> None:
        """Return once the process has been asked to stop."""
        await self.stopping.wait()

    @property
    def is_heard(self) -> bool:
        """Whether anybody hears the reports."""
        return self.line is not None

    def report(self, state: State, **facts: object) -> None:
        """Tell the parent how this process is; ``problem="…"`` among the facts says why it is degraded."""
        self._last = {**facts, "state": state}
        self._fresh = True
        if self.line is not None:
            self.line.send(self._last)

    def keep_reporting(self) -> None:
        """Repeat the last report, unless it was just now: silence means that something is wrong."""
        if self.line is not None and not self._fresh:
            self.line.send(self._last)
        self._fresh = False


class StatusLine(asyncio.Protocol):
    """The child's end of the socket. Its end is the parent's."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is none by inheritance

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._on_end()

    def send(self, report: dict[str, object]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        packed = REPORT.seal(msgspec.json.encode(report, enc_hook=str))
        if len(packed) < REPORT_MAX_BYTES and transport.get_write_buffer_size() < UNSENT_MAX_BYTES:
            transport.write(packed + b"\n")

    def close(self) -> None:
        """End the line, after what was sent."""
        if self._transport is not None:
            self._on_end = lambda: None
            self._transport.close()


SETTINGS: Final = Format("the settings of a parent")
REPORT: Final = Document("the report of a child", msgspec.json.Decoder(dict[str, object]))


def is_handed_down() -> bool:
    """Whether this process has its settings from a parent."""
    return STATUS_VARIABLE in os.environ


def inherited_settings() -> Settings | None:
    """The settings that a parent handed down, or None in a process that was started by hand. Call it once, first."""
    text = os.environ.get(STATUS_VARIABLE)
    if text is None:
        return None
    received = b""
    try:
        descriptor = int(text)
        os.set_inheritable(descriptor, False)
        while not received.endswith(b"\n") and len(received) <= HANDOVER_MAX_BYTES:
            readable, _, _ = select.select([descriptor], [], [], HANDOVER_DEADLINE_S)
            chunk = os.read(descriptor, 65_536) if readable else b""
            if not chunk:
                break
            received += chunk
        return from_json(SETTINGS.open(received))
    except (OSError, ValueError, msgspec.DecodeError, Malformed):
        raise OperatorError(
            f"{STATUS_VARIABLE}={text} does not lead to the settings of a running `tocsin up`",
            "Unset that variable to start this process by hand",
        ) from None


def run(name: str, settings: Settings, main: Callable[[Process], Awaitable[None]]) -> int:
    """Run ``main`` until it returns. The exit code: 0; 2 after an OperatorError and 1 after any other.

    A TocsinError costs one sentence on stderr, everything else a stack trace in the log.
    """
    logs.configure(name, settings.log)
    log = structlog.get_logger()
    _raise_file_limit()
    _spare_collector()
    log.info("process started", pid=os.getpid())
    try:
        loops = CuttableLoop if settings.chaos.enabled == "always" else uvloop.new_event_loop
        with asyncio.Runner(loop_factory=loops) as runner:
            code = runner.run(_serve(Process(name, settings), main))
        log.info("process stopped")
        return code
    except TocsinError as error:
        return _refuse(error)
    except Exception as error:
        if isinstance(error, ExceptionGroup) and (known := _operators(error)) is not None:
            return _refuse(known)
        log.error("process failed", exc_info=True)
        return 1


def _refuse(error: TocsinError) -> int:
    print(f"tocsin: {error}", file=sys.stderr, flush=True)
    return 2 if isinstance(error, OperatorError) else 1


def _operators(group: ExceptionGroup[Exception]) -> OperatorError | None:
    """The operator's error, if tasks that ended together have no other."""
    matched, rest = group.split(OperatorError)
    if matched is None or rest is not None:
        return None
    first = matched.exceptions[0]
    return first if isinstance(first, OperatorError) else _operators(first)


def _raise_file_limit() -> None:
    """As many open files, which is connections, as this user may have: the usual soft limit is 1 024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _spare_collector() -> None:
    """Let the garbage collector look less often, and never at what was imported: that stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


async def _serve(process: Process, main: Callable[[Process], Awaitable[None]]) -> int:
    async def body() -> None:
        async with cut_socket.serving(Path(process.settings.state), process.name):
            await main(process)

    stop = _Stop(process)
    await stop.listen()  # first: what main reports must find the line
    work = stop.work = asyncio.create_task(body(), name=process.name)
    heartbeat = asyncio.create_task(_heartbeat(process))
    try:
        await asyncio.wait([work])
        if work.cancelled():
            structlog.get_logger().warning(
                "process was cancelled: it did not stop in time, or was asked twice"
            )
            return 1
        work.result()
        return 0
    finally:
        heartbeat.cancel()
        await stop.close()


async def _heartbeat(process: Process) -> None:
    allocator = Allocator()
    for beat in count(1):
        process.keep_reporting()
        if beat % GIVE_BACK_BEATS == 0:
            allocator.give_back()
        await asyncio.sleep(HEARTBEAT_S)


class _Stop:
    """Everything that can ask a process to stop, and what happens then."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.work: asyncio.Task[None] | None = None  # None: main has not begun
        self._loop = asyncio.get_running_loop()
        self._parent: int | None = None  # None: started by hand, free to outlive its parent
        self._before: dict[int, Any] = {}

    async def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            # Not the loop's own handlers: these run between two instructions, even while the loop hangs.
            self._before[number] = signal.signal(number, self._on_signal)
        # A terminal that is gone ends no server; to who has files to read again it is the word to do so.
        self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        text = os.environ.get(STATUS_VARIABLE)
        if text is None:
            return
        self._parent = os.getppid()
        leash.hold(signal.SIGTERM)
        end = socket.socket(fileno=int(text))
        _, self._process.line = await self._loop.create_unix_connection(
            lambda: StatusLine(self._on_orphaned), sock=end
        )

    async def close(self) -> None:
        if self._process.line is not None:
            self._process.line.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            signal.alarm(ORPHAN_GRACE_S)
        self._loop.call_soon_threadsafe(self._ask)

    def _on_orphaned(self) -> None:
        signal.alarm(ORPHAN_GRACE_S)
        self._ask(first_only=True)  # the kernel's word of the same end may have come already

    def _ask(self, first_only: bool = False) -> None:
        if not self._process.stopping.is_set():
            self._process.stopping.set()
            self._process.report("stopping")
            self._loop.call_later(STOP_GRACE_S, self._cancel)
        elif not first_only:
            self._cancel()

    def _cancel(self) -> None:
        if self.work is not None:
            self.work.cancel()

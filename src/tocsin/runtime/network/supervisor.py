"""The shell of ``core.supervision.machine``: real processes, their status lines, their output, and a clock.

Each child runs in a session of its own, so that a Ctrl-C on the terminal reaches the parent only, which then stops them
in order. A child that reports gets one end of a socket pair (see ``runtime.process``); for other children, their plan's
``ready`` is asked. A child's output goes to ``logs/NAME.log``, with ``-`` for each ``/`` of its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec
import structlog

from tocsin.config import PREFIX
from tocsin.core.machine import Effect, Event, Started, Stop
from tocsin.core.supervision.machine import Child, Failure, Row, Supervision
from tocsin.core.supervision.reserves import FACT, heed
from tocsin.core.supervision.signals import (
    AllReady,
    ChildEnded,
    ChildReported,
    ChildStarted,
    Reported,
    SignalChild,
    StartChild,
    StopAsked,
)
from tocsin.errors import FormatNewer, Malformed, TocsinError
from tocsin.runtime.faults import kill_points as points
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Ending
from tocsin.runtime.network.child_output import BoundedFile, LastLine, last_words
from tocsin.runtime.process import REPORT, REPORT_MAX_BYTES, STATUS_VARIABLE

DRAIN_S = 1.0  # for what an ended child has written; somebody else may hold its output open
PROBE_PAUSE_S = 0.2
NOT_STARTED = 127  # the shell's exit code for a program that cannot be run
SIGNALS = {"terminate": signal.SIGTERM, "kill": signal.SIGKILL}


class Plan(msgspec.Struct, frozen=True):
    """A child and how to start it. ``handover`` is the first line of its status line, for a child that reports."""

    child: Child
    argv: tuple[str, ...]
    handover: bytes = b""
    ready: Callable[[], Awaitable[None]] | None = None  # returns when a child that does not report is ready
    variables: Mapping[str, str] = {}  # of its environment, beside ours


class Supervisor:
    """Runs the children of one network."""

    def __init__(
        self,
        plans: tuple[Plan, ...],
        *,
        logs: Path,
        inherit: tuple[int, ...] = (),
        tiers: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        on_ready: Callable[[], None] = lambda: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._plans = {plan.child.name: plan for plan in plans}
        self._machine = Supervision(tuple(plan.child for plan in plans))
        self._inherit = inherit
        self._tiers = tiers  # children that may be in reserve
        self._on_ready = on_ready
        self._on_change = on_change
        self._files = {name: BoundedFile(log_path(logs, name)) for name in self._plans}
        self._runs: dict[str, _Run] = {}
        self._ending = Ending()
        self._shell = Shell(self._machine, self._carry_out, self._ending.fail, answer=self.post)
        self.spawn = self._shell.spawn  # do something beside; a bug in it ends everything

    def rows(self) -> tuple[Row, ...]:
        return self._machine.rows()

    def stop(self, cause: str = "stop") -> None:
        """Stop everything in order; called again, at once."""
        self.post(StopAsked(cause=cause))

    async def run(self) -> Failure | None:
        """Start and look after the children until they are stopped; what made us give up, if we did."""
        try:
            self.post(Started(cause="start", incarnation=0))
            await self._ending.wait()
        finally:
            await self._clear()
        return self._machine.failure

    def post(self, event: Event) -> None:
        """Hand an event to the machine and do what it says."""
        if not self._ending.is_over:
            self._shell.post(event)
            if self._tiers and isinstance(event, ChildReported) and FACT in event.facts:
                for wanted in heed(self._tiers, event.facts[FACT], self.rows(), event.cause):
                    self._shell.post(wanted)
            self._on_change()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case StartChild(child=name, run=number):
                run = _Run(self, self._plans[name], number, self._files[name])
                self._runs[name] = run
                self.spawn(run.start(self._inherit))
            case SignalChild(child=name, signal=kind):
                self._runs[name].signal(SIGNALS[kind])
            case AllReady():
                self._on_ready()
            case Stop():
                self._ending.stop()
            case _:
                self._shell.carry_out(effect)

    async def _clear(self) -> None:
        """In any case no timer, no task and no process is left."""
        await self._shell.wait_closed()
        for run in self._runs.values():
            run.signal(signal.SIGKILL)
        await asyncio.gather(*(run.wait() for run in self._runs.values()))
        for file in self._files.values():
            file.close()


class _Run(asyncio.SubprocessProtocol):
    """One process of a child, from its start to its end. It posts ``ChildStarted`` first and ``ChildEnded`` last."""

    def __init__(self, supervisor: Supervisor, plan: Plan, number: int, file: BoundedFile) -> None:
        self._supervisor = supervisor
        self._plan = plan
        self._number = number
        self._file = file
        self._last_line = LastLine()
        self._process: asyncio.SubprocessTransport | None = None
        self._status: asyncio.Transport | None = None
        self._wanted: int | None = None  # a signal that came before there was a process
        self._over = asyncio.Event()  # the process is gone and its output is read
        self._cause = f"{plan.child.name}:run-{number}"

    async def start(self, inherit: tuple[int, ...]) -> None:
        loop = asyncio.get_running_loop()
        name = self._plan.child.name
        ours, theirs = socket.socketpair()
        try:
            if self._plan.handover:
                environment = child_environment(theirs.fileno())
                inherit = (*inherit, theirs.fileno())
            else:
                environment = child_environment(None)
            self._process, _ = await loop.subprocess_exec(
                lambda: self,
                *self._plan.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**environment, **self._plan.variables},
                pass_fds=inherit,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self._over.set()
            words = f"{self._plan.argv[0]} cannot be started: {error.strerror}"
            ended = ChildEnded(child=name, run=self._number, code=NOT_STARTED, words=words, cause=self._cause)
            self._supervisor.post(ended)
            return
        finally:
            theirs.close()
        pid = self._process.get_pid()
        self._supervisor.post(ChildStarted(child=name, run=self._number, pid=pid, cause=self._cause))
        if self._wanted is not None:
            self.signal(self._wanted)
        self._supervisor.spawn(self._finish())
        if self._plan.handover:
            self._status, _ = await loop.create_unix_connection(lambda: _Reports(self.report), sock=ours)
            self._status.write(self._plan.handover + b"\n")
        else:
            ours.close()
            if self._plan.ready is not None:
                self._supervisor.spawn(self._probe(self._plan.ready))

    async def _finish(self) -> None:
        assert self._process is not None
        await self._over.wait()
        if self._status is not None:
            self._status.close()
        code = self._process.get_returncode()
        assert code is not None
        self._process.close()
        words = last_words(code, self._last_line.text)
        name = self._plan.child.name
        self._supervisor.post(
            ChildEnded(child=name, run=self._number, code=code, words=words, cause=self._cause)
        )

    async def _probe(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Ask until it is ready or gone."""
        while not self._over.is_set():
            try:
                await ready()
            except TocsinError as error:
                self.report("starting", str(error), {})
                await asyncio.sleep(PROBE_PAUSE_S)
            else:
                return self.report("ready", "", {})

    def report(self, state: Reported, problem: str, facts: Mapping[str, object]) -> None:
        if not self._over.is_set():
            name = self._plan.child.name
            self._supervisor.post(
                ChildReported(
                    child=name, run=self._number, state=state, problem=problem, facts=facts, cause=self._cause
                )
            )

    def signal(self, number: int) -> None:
        if self._process is None:
            self._wanted = number
        elif not self._over.is_set():
            with contextlib.suppress(ProcessLookupError):
                if number == signal.SIGKILL:  # its own children too: it cannot end them any more
                    os.killpg(self._process.get_pid(), number)
                self._process.send_signal(number)

    async def wait(self) -> None:
        """Return when there is no process any more."""
        if self._process is not None:
            await self._over.wait()
            self._process.close()

    # ── asyncio.SubprocessProtocol ───────────────────────────────────────────────────────────────────────────

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        assert isinstance(data, bytes)
        self._file.write(data)
        self._last_line.feed(data)

    def process_exited(self) -> None:
        asyncio.get_running_loop().call_later(DRAIN_S, self._over.set)

    def connection_lost(self, error: Exception | None) -> None:
        self._over.set()  # it has exited, and its output has ended


class _Reports(asyncio.Protocol):
    """The parent's end of a status line."""

    def __init__(self, on_report: Callable[[Reported, str, Mapping[str, object]], None]) -> None:
        self._on_report = on_report
        self._begun = b""
        self._newer = False  # and that was reported

    def data_received(self, data: bytes) -> None:
        *lines, self._begun = (self._begun + data).split(b"\n")
        if len(self._begun) > REPORT_MAX_BYTES:
            self._begun = b""  # no child of ours sends this; its next line makes sense again
        for line in lines:
            try:
                facts = REPORT.read(line)
                state = msgspec.convert(facts.pop("state", None), Reported)
            except FormatNewer as error:
                if not self._newer:
                    self._newer = True
                    structlog.get_logger().error("a child is of a newer release", problem=str(error))
            except (Malformed, msgspec.ValidationError):
                pass  # no child of ours sends this
            else:
                facts.pop("v", None)
                self._on_report(state, str(facts.pop("problem", "")), facts)


def log_path(directory: Path, child: str) -> Path:
    """Where what a child writes is kept."""
    return directory / f"{child.replace('/', '-')}.log"


def child_environment(status: int | None) -> dict[str, str]:
    """Our environment without its settings, which the child gets otherwise, and which may hold a secret."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PREFIX) or name in points.VARIABLES
    }
    if status is not None:
        environment[STATUS_VARIABLE] = str(status)
    return environment

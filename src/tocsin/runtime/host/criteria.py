"""Criteria of the operator's: commands that say how fit this machine is, from 0 to 1.

Each criterion is run by itself, again ``every_s`` after it ended, never twice at once. The command is a list of texts
that no shell reads; it runs with less priority than the broker, in a session of its own, and ends with the broker. Its
first line is the answer. A run that takes too long is killed with all that it started; if it cannot be killed (it waits
for a dead disk), it is left alone, and no other is begun until it is gone.

Nothing is read while the command runs: what it writes waits in a pipe, which the kernel bounds, so that a command that
writes without end stands still and is killed when its time is over. Processes are started by ``subprocess`` and not by
the event loop: uvloop copies the page tables of the broker for that (100 ms at a gigabyte), this does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from typing import IO, Final

import structlog

from tocsin.config import Criterion
from tocsin.core.assignment.ranking.scoring import Criterion as Judged
from tocsin.runtime.network import leash
from tocsin.runtime.process import STATUS_VARIABLE

BROKER_VARIABLE: Final = "TOCSIN_BROKER"  # the broker for which a command runs: several may be on one machine
CLUSTER_VARIABLE: Final = "TOCSIN_CLUSTER"
OUTPUT_MAX_BYTES: Final = 4_096
WORDS_MAX: Final = 200  # characters of what a command says that are repeated
NICE: Final = 10
LOOK_FIRST_S: Final = 0.005
LOOK_LAST_S: Final = 0.1
KILLED_S: Final = 1.0  # for a killed process to be gone
NOT_ASKED: Final = "has not answered yet"
NUMBER: Final = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")


class Asked:
    """One criterion, and what it said last."""

    def __init__(self, criterion: Criterion, broker: str, cluster: str) -> None:
        self.name = criterion.name
        self.last = Judged(None, criterion.weight, NOT_ASKED)
        self._criterion = criterion
        self._environment = {key: value for key, value in os.environ.items() if key != STATUS_VARIABLE} | {
            BROKER_VARIABLE: broker,
            CLUSTER_VARIABLE: cluster,
        }
        self._stuck: subprocess.Popen[bytes] | None = None  # was killed, and is still there
        self._log = structlog.get_logger()

    @property
    def was_asked(self) -> bool:
        """Whether the first run is over."""
        return self.last.value is not None or self.last.problem != NOT_ASKED

    async def run(self) -> None:
        """Ask again and again."""
        while True:
            self._note(await self.ask())
            await asyncio.sleep(self._criterion.every_s)

    async def ask(self) -> Judged:
        """Ask once; what goes wrong is the answer's problem."""
        if self._stuck is not None:
            if self._stuck.poll() is None:
                return self._failed(f"the run before (process {self._stuck.pid}) cannot be killed")
            self._stuck = None
        try:
            process = self._start()
        except (OSError, ValueError) as error:
            return self._failed(f"cannot be run: {error}")
        try:
            ended = await _ended(process, self._criterion.timeout_ms / 1_000)
            said, complained = _waiting(process.stdout), _waiting(process.stderr)
            if not ended:
                _kill_all(process)
                if not await _ended(process, KILLED_S):
                    self._stuck = process
        finally:
            _kill_all(process)  # what it started, too
            if self._stuck is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_LAST_S)  # has ended already, unless this task is being stopped
            _close(process)
        if not ended:
            return self._failed(f"no answer within {self._criterion.timeout_ms} ms")
        value, problem = answer(said, complained, process.returncode)
        return self._failed(problem) if value is None else Judged(value, self._criterion.weight)

    def _start(self) -> subprocess.Popen[bytes]:
        program = self._criterion.command[0]
        found = shutil.which(program, path=self._environment.get("PATH"))
        if found is None:
            raise FileNotFoundError(f"there is no program {program!r} that may be run here")
        argv = leash.command(os.getpid(), (os.path.abspath(found), *self._criterion.command[1:]))
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )
        with contextlib.suppress(OSError):  # it has ended already
            os.setpriority(os.PRIO_PGRP, process.pid, min(os.getpriority(os.PRIO_PROCESS, 0) + NICE, 19))
        return process

    def _failed(self, problem: str) -> Judged:
        return Judged(None, self._criterion.weight, problem)

    def _note(self, judged: Judged) -> None:
        if judged.value is None and judged.problem != self.last.problem:
            self._log.warning("a criterion says nothing", criterion=self.name, problem=judged.problem)
        elif judged.value is not None and self.last.value is None and self.last.problem != NOT_ASKED:
            self._log.info("a criterion answers again", criterion=self.name, value=judged.value)
        self.last = judged


def answer(said: bytes, complained: bytes, code: int) -> tuple[float | None, str]:
    """The result of an ended command: a number from 0 to 1, or why there is none."""
    if code != 0:
        words = _words(complained.strip().rpartition(b"\n")[2])
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return None, f"{how}: {words}" if words else how
    line = said[:OUTPUT_MAX_BYTES].partition(b"\n")[0].strip()
    if not line:
        return None, "its first line is empty"
    if not NUMBER.fullmatch(line):
        return None, f"says {_words(line)!r}, which is no number"
    value = float(line)
    if not 0 <= value <= 1:
        return None, f"says {_words(line)}, not between 0 and 1"
    return value, ""


def _words(text: bytes) -> str:
    return text[:WORDS_MAX].decode("utf-8", "replace")


async def _ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    """Wait for the end, with looks that become rarer."""
    until, pause = time.monotonic() + within_s, LOOK_FIRST_S
    while process.poll() is None:
        left = until - time.monotonic()
        if left <= 0:
            return False
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, LOOK_LAST_S)
    return True


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left
        os.killpg(process.pid, signal.SIGKILL)


def _waiting(pipe: IO[bytes] | None) -> bytes:
    """The first of what waits in a pipe."""
    assert pipe is not None, "both are pipes"
    os.set_blocking(pipe.fileno(), False)
    try:
        return os.read(pipe.fileno(), OUTPUT_MAX_BYTES)
    except OSError:
        return b""  # nothing, and somebody holds its other end


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None, "both are pipes"
        pipe.close()

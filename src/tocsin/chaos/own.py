"""Faults of one's own: a program that begins a fault when it is called with ``begin``, and ends it with ``end``.

The program decides what it breaks: the plug of a machine, a switch, a disk. It says by its exit code whether it could.
Each call has a deadline; a program that lets something go on behind it must not keep us waiting for that.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final, Literal

from tocsin.errors import OperatorError, TocsinError

DEADLINE_S: Final = 30.0
Verb = Literal["begin", "end"]


class OwnFailed(TocsinError):
    """A program did not begin or end its fault."""

    def __init__(self, program: str, verb: Verb, problem: str) -> None:
        self.program = program
        self.verb = verb
        self.problem = problem
        super().__init__(f"{program} {verb}: {problem}")


def check(program: str) -> None:
    """``OperatorError`` if it cannot be run."""
    if not Path(program).is_file() or not os.access(program, os.X_OK):
        raise OperatorError(
            f"--own {program}: that is no program",
            "Name an executable file, with its path, that takes `begin` and `end` as its only argument",
        )


def _found(program: str) -> str:
    """Never looked for on the PATH."""
    return str(Path(program).absolute())


async def call(program: str, verb: Verb) -> int:
    """Run it; its process id. Raises ``OwnFailed``."""
    try:
        running = await asyncio.create_subprocess_exec(
            _found(program),
            verb,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise OwnFailed(program, verb, error.strerror or str(error)) from None
    try:
        async with asyncio.timeout(DEADLINE_S):
            code = await running.wait()
    except TimeoutError:
        raise OwnFailed(program, verb, f"not done within {DEADLINE_S:g} s") from None
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    if code:
        raise OwnFailed(program, verb, f"it ended with {code}")
    return running.pid

"""A process that must not outlive its parent.

The kernel sends a process a signal of its choice when its parent ends, however that happens (PR_SET_PDEATHSIG of
Linux). A process of ours asks for it itself with ``hold``. For a program that is not ours this file is run as a
script that asks for it, and then becomes that program; the request survives the change::

    python -I -S leash.py PARENT_PID PROGRAM ARGUMENT…

It imports nothing beyond the standard library, so that it runs without the site packages and starts quickly.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def hold(number: int = signal.SIGTERM) -> None:
    """Have the kernel send this process ``number`` when its parent ends; nothing where there is no such call."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def command(parent: int, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command that starts ``argv``, an absolute path and its arguments, on a leash."""
    return (sys.executable, "-I", "-S", __file__, str(parent), *argv)


def _become(arguments: list[str]) -> None:
    parent, program = int(arguments[0]), arguments[1:]
    hold()
    if os.getppid() == parent:  # else it ended before the request was made
        os.execv(program[0], program)


if __name__ == "__main__":
    _become(sys.argv[1:])

"""Removes an ephemeral network's directory when everybody who used it is gone, also if they were killed.

A script with a life of its own: it waits until its parent's end of a pipe (standard input) closes, then until nobody
holds the directory's lock, removes the directory and ends::

    python -I -S janitor.py DIRECTORY
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from pathlib import Path

PREFIX = "tocsin-ephemeral-"
WAIT_S = 60.0  # children of a killed parent have 10 s to end by themselves
POLL_S = 0.05


def remove(directory: Path, *, wait_s: float = 0.0) -> bool:
    """Remove an ephemeral directory once its lock is free; says whether it is gone."""
    if not directory.name.startswith(PREFIX) or directory.is_symlink():
        return False  # whatever this is, we did not make it
    deadline = time.monotonic() + wait_s
    while True:
        try:
            lock = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            break
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        finally:
            os.close(lock)
        time.sleep(POLL_S)
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def command(directory: Path) -> tuple[str, ...]:
    """The command that starts a janitor."""
    return (sys.executable, "-I", "-S", __file__, str(directory))


if __name__ == "__main__":
    sys.stdin.buffer.read()
    remove(Path(sys.argv[1]), wait_s=WAIT_S)

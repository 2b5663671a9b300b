"""A state directory that leaves nothing behind.

It is a temporary directory. A janitor, a process outside the network, removes it when the last process of the network
is gone; so it goes even if the parent is killed. If the janitor is killed as well, or the machine stops, the next
ephemeral network on the machine sweeps it away: its lock is free, and it is older than ABANDONED_AFTER_S.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tocsin.errors import DirectoryUnusable
from tocsin.runtime.network import janitor
from tocsin.runtime.network.directory import StateDirectory

ABANDONED_AFTER_S = 60.0  # longer than any start takes from making a directory to locking it
JANITOR_DEADLINE_S = 5.0


@contextlib.contextmanager
def ephemeral_directory() -> Iterator[StateDirectory]:
    """A directory of one's own while the context lasts; however the process ends, it is removed."""
    sweep(Path(tempfile.gettempdir()))
    try:
        path = Path(tempfile.mkdtemp(prefix=janitor.PREFIX))
    except OSError as error:
        raise DirectoryUnusable(tempfile.gettempdir(), error.strerror or str(error)) from None
    watcher = subprocess.Popen(
        janitor.command(path),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C on the terminal is not meant for it
    )
    try:
        directory = StateDirectory.hold(path)
        try:
            yield directory
        finally:
            directory.release()
    finally:
        assert watcher.stdin is not None
        watcher.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it goes on by itself
            watcher.wait(JANITOR_DEADLINE_S)


def sweep(parent: Path) -> None:
    """Remove abandoned ephemeral directories of this user."""
    for path in parent.glob(f"{janitor.PREFIX}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > ABANDONED_AFTER_S:
                janitor.remove(path)

"""Files that are followed: whether one has changed since it was read, and reminders of what is wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

Signature = tuple[int, int, int]
NO_FILE: Signature = (0, 0, 0)

AGAIN_S: Final = 3_600.0


def signature(path: str | Path) -> Signature:
    """The properties that change when a file is rewritten: its time, size and inode; NO_FILE if there is none."""
    if path == "":  # pathlib would take it for the working directory
        return NO_FILE
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return NO_FILE
    return (found.st_mtime_ns, found.st_size, found.st_ino)


class Reminder:
    """Warns in the log, under ``subject``, of a problem that does not go away: when it is new, and then every hour."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._said, self._said_s = "", 0.0  # what was said last, and when
        self._log = structlog.get_logger()

    def remind(self, problem: str | None, now_s: float) -> None:
        """There is this problem now, or none."""
        if problem is None:
            self._said = ""
        elif problem != self._said or now_s - self._said_s >= AGAIN_S:
            self._said, self._said_s = problem, now_s
            self._log.warning(self._subject, problem=problem)

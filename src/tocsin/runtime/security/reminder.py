"""Warns in the log of something that does not go away by itself: when it is new, and then every hour."""

from __future__ import annotations

from typing import Final

import structlog

AGAIN_S: Final = 3_600.0


class Reminder:
    """Says one kind of problem in the log, under ``subject``."""

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

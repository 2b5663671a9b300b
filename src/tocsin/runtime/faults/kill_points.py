"""Named points at which a test may have this process killed or stopped, to see what survives.

``TOCSIN_KILL_AT=POINT:COUNT:MARKER`` ends the process with SIGKILL when it comes to that point for the COUNT-th time,
once: the file MARKER is made first, with the process's id. While it exists nothing is counted, and nothing killed; a
test that makes it beforehand and removes it later chooses the time. ``TOCSIN_STOP_AT`` is the same with SIGSTOP, so
that another process can be killed during the stop. Either may hold several, separated by semicolons. Without the
variables a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

KILL: Final = "TOCSIN_KILL_AT"
STOP: Final = "TOCSIN_STOP_AT"
VARIABLES: Final = {KILL: signal.SIGKILL, STOP: signal.SIGSTOP}

BEFORE_APPEND: Final = "before append"
AFTER_APPEND: Final = "after append"
BEFORE_SEND: Final = "before send"
AFTER_SEND: Final = "after send"
IN_REPLAY: Final = "in replay"
IN_TASK: Final = "in task"
BEFORE_COMMIT: Final = "before commit"
AFTER_COMMIT: Final = "after commit"
AFTER_NOTICE: Final = "after notice"
IN_INGEST: Final = "in ingest"
AFTER_INTENT: Final = "after intent"
IN_FOLDER: Final = "in folder"


class _Trap:
    def __init__(self, count: int, marker: Path, number: signal.Signals) -> None:
        self._count = self._left = count
        self._marker = marker
        self._signal = number

    def spring(self) -> None:
        if self._marker.exists():
            return
        self._left -= 1
        if self._left == 0:
            self._left = self._count
            self._marker.write_text(str(os.getpid()))
            os.kill(os.getpid(), self._signal)


def _traps() -> dict[str, list[_Trap]]:
    found: dict[str, list[_Trap]] = {}
    for variable, number in VARIABLES.items():
        for text in filter(None, os.environ.get(variable, "").split(";")):
            point, count, marker = text.split(":", 2)
            found.setdefault(point, []).append(_Trap(int(count), Path(marker), number))
    return found


_set = _traps()


def reach(point: str) -> None:
    """This process is at a point."""
    if _set:
        for trap in _set.get(point, ()):
            trap.spring()

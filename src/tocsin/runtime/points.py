"""Named points at which a test may have this process killed, to see what survives.

``TOCSIN_KILL_AT=POINT:COUNT:MARKER`` ends the process with SIGKILL when it comes to that point for the COUNT-th time,
once: the file MARKER is made first, and while it exists nothing is killed. Without the variable a point costs one
comparison.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

VARIABLE: Final = "TOCSIN_KILL_AT"

BEFORE_APPEND: Final = "before append"
AFTER_APPEND: Final = "after append"
BEFORE_SEND: Final = "before send"
AFTER_SEND: Final = "after send"
IN_REPLAY: Final = "in replay"
BEFORE_COMMIT: Final = "before commit"
AFTER_COMMIT: Final = "after commit"
AFTER_NOTICE: Final = "after notice"
IN_INGEST: Final = "in ingest"
AFTER_INTENT: Final = "after intent"
IN_FOLDER: Final = "in folder"


class _Trap:
    def __init__(self, text: str) -> None:
        self.point, self._count, self._marker = "", 0, Path()
        if text:
            self.point, count, marker = text.split(":", 2)
            self._count, self._marker = int(count), Path(marker)

    def spring(self) -> None:
        self._count -= 1
        if self._count == 0 and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


_trap = _Trap(os.environ.get(VARIABLE, ""))


def reach(point: str) -> None:
    """This process is at a point."""
    if _trap.point == point:
        _trap.spring()

"""How busy this process is: how much of the time it works, or would if it were its turn.

A broker works in one thread, so that it can have one core, or less if its control group allows less. Where other
processes are busy too, it waits for its turn (Linux tells how long); that time counts, for it could not do more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tocsin.runtime.host.control_groups import ControlGroups

CORE: Final = 1.0
LEAST_S: Final = 0.001  # a shorter time says nothing
NANO: Final = 1e-9
_SCHEDULED: Final = Path("/proc/self/schedstat")


def _waited_s() -> float:
    """How long the main thread has waited for its turn, all in all; 0 where nobody tells."""
    try:
        return int(_SCHEDULED.read_text("ascii").split()[1]) * NANO
    except (OSError, ValueError, IndexError):
        return 0.0


class ProcessTime:
    """The use of this process between two looks."""

    def __init__(
        self,
        groups: ControlGroups | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
        waited: Callable[[], float] = _waited_s,
    ) -> None:
        self._groups = groups or ControlGroups()
        self._clock, self._used, self._waited = clock, used, waited
        self._before = clock(), used(), waited()

    def look(self) -> float:
        """The share of the time since the last look in which it worked or waited for its turn, from 0 to 1."""
        before, self._before = self._before, (self._clock(), self._used(), self._waited())
        span_s, used_s, waited_s = (now - then for now, then in zip(self._before, before, strict=True))
        if span_s < LEAST_S:
            return 0.0
        allowed = min((each.cores for each in self._groups.processor() if each.cores > 0), default=CORE)
        return min(1.0, max((used_s + waited_s) / span_s, used_s / (span_s * min(CORE, allowed))))

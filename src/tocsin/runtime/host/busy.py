"""How busy this process is: its processor time against what it could have had.

A broker works in one thread, so that it can have one core: or less, if its control group allows less, or if other
processes are busy. Where nothing is idle a process has all that it gets, however little that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from tocsin.runtime.host.control_groups import ControlGroups

CORE = 1.0
LEAST_S = 0.001  # a shorter time says nothing


def _idle_s() -> float:
    times = psutil.cpu_times()
    return times.idle + float(getattr(times, "iowait", 0.0))


class ProcessTime:
    """The use of this process between two looks."""

    def __init__(
        self,
        groups: ControlGroups | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
        idle: Callable[[], float] = _idle_s,
    ) -> None:
        self._groups = groups or ControlGroups()
        self._clock, self._used, self._idle = clock, used, idle
        self._before = clock(), used(), idle()

    def look(self) -> float:
        """The share that was used since the last look, from 0 to 1."""
        before, self._before = self._before, (self._clock(), self._used(), self._idle())
        span_s, used_s, idle_s = (now - then for now, then in zip(self._before, before, strict=True))
        if span_s < LEAST_S:
            return 0.0
        allowed = min((each.cores for each in self._groups.processor()), default=CORE)
        could_s = min(span_s * min(CORE, allowed), used_s + max(idle_s, 0.0))
        return min(1.0, used_s / could_s) if could_s > 0 else 0.0

"""A timer that rings when the first of several things is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tocsin.runtime.machines.clock import now_us


class Alarm:
    """``due`` is called once for each time that is set; an earlier time takes the place of a later one."""

    __slots__ = ("_at_us", "_closed", "_due", "_timer")

    def __init__(self, due: Callable[[], None]) -> None:
        self._due = due
        self._timer: asyncio.TimerHandle | None = None
        self._at_us = 0
        self._closed = False

    def set(self, *dues_us: int | None) -> None:
        """Ring when the first of these is due; None: it never is."""
        at_us = min((each for each in dues_us if each is not None), default=None)
        if at_us is None or self._closed or (self._timer is not None and self._at_us <= at_us):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at_us = at_us
        delay_s = max(0, at_us - now_us()) / 1e6
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def set_in(self, delay_s: float) -> None:
        """Ring so long from now, if it does not ring before."""
        self.set(now_us() + int(delay_s * 1e6))

    def _ring(self) -> None:
        self._timer = None
        self._due()

    def close(self) -> None:
        """It rings no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

"""The named timers that a machine asks for, on the running loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timers:
    """Timers by name; setting one that runs replaces it."""

    __slots__ = ("_fire", "_running")

    def __init__(self, fire: Callable[[str, str], None]) -> None:
        self._fire = fire  # called with the timer's name and cause
        self._running: dict[str, asyncio.TimerHandle] = {}

    def set(self, name: str, delay_us: int, cause: str) -> None:
        self.cancel(name)
        self._running[name] = asyncio.get_running_loop().call_later(
            delay_us / 1e6, self._ran_out, name, cause
        )

    def cancel(self, name: str) -> None:
        timer = self._running.pop(name, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        for timer in self._running.values():
            timer.cancel()
        self._running.clear()

    def _ran_out(self, name: str, cause: str) -> None:
        del self._running[name]
        self._fire(name, cause)

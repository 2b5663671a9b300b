"""The standby cells of the brokers that this broker backs, written and removed a few at a time.

A new backup hears of all clients of its primary within moments, and these may have tens of thousands of subscriptions
to channels. Nobody waits for standby cells, so they must not delay cells that somebody waits for: at most AT_ONCE are
asked of the store at a time. A cell that is given up before its turn comes is never written.

Before the first of them the broker gets ready to read results (``warm``): the library for that takes as much processor
time as a thousand clients, which would have to wait for it at the takeover.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final

from tocsin.broker.channels.backend_subscriptions import BackendSubscriptions

AT_ONCE: Final = 64  # cells
PAUSE_S: Final = 0.02  # between two lots: some 3 000 cells a second at most
STORED_S: Final = (
    10.0  # before the next lot is asked for though the last is not stored: the store is in trouble
)


class StandbyCellWriter:
    """Writes and removes the standby cells of one broker, a few at a time."""

    def __init__(self, backend: BackendSubscriptions, *, warm: Callable[[], None]) -> None:
        self._backend = backend
        self._warm = warm
        self._asked: dict[tuple[str, str], bool] = {}  # (primary, name) → wanted, or not; not told yet
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        """The waiting subscriptions."""
        return len(self._asked)

    def prepare(self, primary: str, names: tuple[str, ...]) -> None:
        self._ask(primary, names, wanted=True)

    def unprepare(self, primary: str, names: tuple[str, ...]) -> None:
        self._ask(primary, names, wanted=False)

    def _ask(self, primary: str, names: tuple[str, ...], *, wanted: bool) -> None:
        for name in names:
            if self._asked.pop((primary, name), wanted) is wanted:  # else the two cancel out
                self._asked[primary, name] = wanted
        if self._asked:
            self._filled.set()

    async def run(self) -> None:
        """Do what is asked, for as long as the broker lives."""
        while True:
            await self._filled.wait()
            await self._some()
            await asyncio.sleep(PAUSE_S)
            if not self._asked:
                self._filled.clear()

    async def _some(self) -> None:
        lots: dict[tuple[str, bool], list[str]] = {}
        for primary, name in tuple(islice(self._asked, AT_ONCE)):
            lots.setdefault((primary, self._asked.pop((primary, name))), []).append(name)
        stored: list[asyncio.Future[None]] = []
        for (primary, wanted), names in lots.items():
            if wanted:
                self._warm()
                stored.append(self._backend.stand_by(primary, tuple(names)))
            else:
                self._backend.stand_down(primary, tuple(names))
        if stored:
            await asyncio.wait(stored, timeout=STORED_S)

"""Clients that keep bytes here for too long: those that do not read, and those that do not finish a packet.

A client for which bytes wait has to read some of them within ``unread_deadline_s``; otherwise it is disconnected. An
incomplete packet may take as long as it likes while there is room in the budget. Without room, the broker drops the
client without progress for longest, if that is PATIENCE_S or more; a packet that we have stopped reading does not
count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from tocsin.core.budgets.budget import Account, Kind, Refusal

SWEEP_S: Final = 1.0
PATIENCE_S: Final = 5.0


class Outbound(Protocol):
    """A connection, as it is seen from here."""

    def __hash__(self) -> int: ...

    @property
    def account(self) -> Account: ...

    @property
    def kept_waiting(self) -> bool:
        """Whether it is we who do not read on."""
        ...

    def count_outbound(self) -> int:
        """Have the budget know what waits; how much the kernel has taken so far."""
        ...

    def stalled(self, seconds: float) -> None:
        """Nothing was read for so long."""
        ...

    def drop_packets(self, refusal: Refusal) -> None:
        """Give up what came of a packet, and the connection."""
        ...


class Unread:
    """Clients for which bytes wait."""

    def __init__(self, deadline_s: float, clock: Callable[[], float]) -> None:
        self._deadline_s = deadline_s
        self._clock = clock
        self._behind: dict[Outbound, tuple[int, float]] = {}  # → how much it had read when, last
        self._anyone = asyncio.Event()  # set while somebody is behind: nobody sweeps for no one

    def __len__(self) -> int:
        return len(self._behind)

    def began(self, holder: Outbound) -> None:
        """Bytes wait for it."""
        self._behind[holder] = (holder.count_outbound(), self._clock())
        self._anyone.set()

    def ended(self, holder: Outbound) -> None:
        """Nothing waits for it any more; harmless when repeated."""
        self._behind.pop(holder, None)
        if not self._behind:
            self._anyone.clear()

    async def run(self) -> None:
        while True:
            await self._anyone.wait()
            await asyncio.sleep(SWEEP_S)
            self.sweep()

    def sweep(self) -> None:
        now = self._clock()
        for holder, (before, since) in tuple(self._behind.items()):
            taken = holder.count_outbound()
            if taken != before:
                self._behind[holder] = (taken, now)
            elif now - since >= self._deadline_s:
                self.ended(holder)
                holder.stalled(now - since)


class Packets:
    """Clients of whose packets a part has come."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began: dict[Outbound, float] = {}  # → when it made progress last; the longest ago first

    def __len__(self) -> int:
        return len(self._began)

    def grow(self, holder: Outbound, size: int) -> Refusal | None:
        """So many bytes came."""
        now = self._clock()
        self._began.setdefault(holder, now)
        while True:
            refusal = holder.account.charge(Kind.PACKETS, size)
            if refusal is None:
                return None
            oldest = None if refusal.level == "client" else self._oldest(holder, refusal, now)
            if oldest is None:
                self.done(holder)
                return refusal
            self.done(oldest)
            oldest.drop_packets(refusal)

    def done(self, holder: Outbound) -> None:
        """It has finished a packet, or none is left; harmless when repeated."""
        self._began.pop(holder, None)

    def _oldest(self, holder: Outbound, refusal: Refusal, now: float) -> Outbound | None:
        for other, since in self._began.items():
            if now - since < PATIENCE_S:
                return None
            alike = refusal.level == "broker" or other.account.user == holder.account.user
            if other is not holder and alike and not other.kept_waiting:
                return other
        return None

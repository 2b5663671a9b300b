"""The shell of ``core.forwarding.rates``: counts what subscriptions bring to clients here, every now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tocsin.core.forwarding.rates import DeliveryRates, Rates
from tocsin.core.forwarding.tallies import Count, Tallies
from tocsin.runtime.machines.clock import now_us

COUNT_S: Final = 10.0  # a plan of backups is made every minute
AT_ONCE: Final = 2_000  # tallies or subscriptions: about a millisecond of the loop


class RateMeter:
    """Measures the bytes a second of each subscription. ``tallies`` has those of messages, ``others`` those of groups
    above QoS 0 and of channels."""

    def __init__(
        self, tallies: Tallies, *others: Callable[[], list[Count]], clock: Callable[[], int] = now_us
    ) -> None:
        self._tallies = tallies
        self._others = others
        self._clock = clock
        self._rates = DeliveryRates(clock())

    async def run(self) -> None:
        """Count for as long as the broker lives."""
        while True:
            await asyncio.sleep(COUNT_S)
            await self.count()

    async def count(self) -> None:
        """Count what was delivered since the last time, in parts."""
        for counts in self._tallies.take(AT_ONCE):
            self._rates.count(counts, self._clock())
            await asyncio.sleep(0)
        for other in self._others:
            self._rates.count(other(), self._clock())
        self._rates.counted(self._clock())

    def look(self) -> Rates:
        """The rates now."""
        return self._rates.look(self._clock())

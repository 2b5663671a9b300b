"""Bad weather on a connection: lag, loss and a rate, worked out for one direction (a ``Lane``).

A lane says when bytes that are written now arrive at the other side:

- **rate**: bytes leave one after the other, at so many a second;
- **lag**: each is so much longer on its way;
- **loss**: a segment is lost by chance. TCP repeats it, and hands on what came behind it only then: so a lost segment
  delays it and all that follows, by a round trip and a quarter, by RESEND_LEAST_S at least, and each time by twice as
  much if it is lost again.

Invariant: nothing arrives before what was written before it, also when the weather changes. A lane has no clock; it
asks for chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Final

import msgspec

SEGMENT_BYTES: Final = 1_448  # of TCP over Ethernet
RESEND_LEAST_S: Final = 0.2  # Linux's least time until it repeats a segment
RESENDS_MAX: Final = 6  # of one segment, one after the other
LAG_MAX_S: Final = 10.0
LOSS_MAX: Final = 0.5
RATE_LEAST: Final = 100  # bytes a second
HELD_HIGH_BYTES: Final = 64 << 10  # as asyncio's own transports: beyond it the writer is asked to pause
FLIGHT_MAX_BYTES: Final = 8 << 20  # under way at a time: a bound on memory


class Weather(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is wrong with a connection, in each direction."""

    lag_s: float = 0.0
    loss: float = 0.0  # the share of segments
    rate: int = 0  # bytes a second; 0: as many as there are

    @property
    def problem(self) -> str:
        """Why it cannot be had; empty if it can."""
        if not 0 <= self.lag_s <= LAG_MAX_S:
            return f"a lag is at most {LAG_MAX_S:g} s, not {self.lag_s:g}"
        if not 0 <= self.loss <= LOSS_MAX:
            return f"a loss is at most {LOSS_MAX:.0%}, not {self.loss:.3%}"
        if self.rate and self.rate < RATE_LEAST:
            return f"a rate is at least {RATE_LEAST} bytes a second, not {self.rate}"
        return ""


CALM: Final = Weather()


def together(each: Iterable[Weather]) -> Weather:
    """The weather where several are: lags add up, and the least rate counts."""
    return reduce(_both, each, CALM)


def _both(one: Weather, other: Weather) -> Weather:
    rates = [each.rate for each in (one, other) if each.rate]
    loss = 1 - (1 - one.loss) * (1 - other.loss)
    return Weather(one.lag_s + other.lag_s, loss, min(rates, default=0))


class Lane:
    """One direction of a connection."""

    def __init__(self, chance: Callable[[], float]) -> None:
        """``chance`` gives a number from 0 to 1 for each segment that may be lost."""
        self.weather = CALM
        self._chance = chance
        self._free_s = 0.0  # when the last byte has left
        self._last_s = 0.0  # when the last byte arrives

    def due_s(self, size: int, now_s: float) -> float:
        """When bytes arrive that are written now."""
        weather = self.weather
        self._free_s = max(self._free_s, now_s) + (size / weather.rate if weather.rate else 0.0)
        self._last_s = max(self._last_s, self._free_s + weather.lag_s + self._repeated_s(size))
        return self._last_s

    def waiting_bytes(self, now_s: float) -> int:
        """The bytes that have not left yet."""
        return int(max(0.0, self._free_s - now_s) * self.weather.rate)

    @property
    def room_bytes(self) -> int:
        """How many bytes may be in it before the writer is asked to pause."""
        if not self.weather.rate:
            return FLIGHT_MAX_BYTES
        return min(FLIGHT_MAX_BYTES, HELD_HIGH_BYTES + int(self.weather.rate * self.weather.lag_s))

    def _repeated_s(self, size: int) -> float:
        """How much later bytes come because segments of them are lost: those are repeated side by side."""
        loss = self.weather.loss
        if not loss:
            return 0.0
        first_s = max(RESEND_LEAST_S, 2.5 * self.weather.lag_s)
        longest = 0.0
        for _ in range(-(-size // SEGMENT_BYTES)):
            times = 0
            while times < RESENDS_MAX and self._chance() < loss:
                times += 1
            longest = max(longest, first_s * (2**times - 1))
        return longest

"""How many members a tier should have, by where its load is heading (pure).

The load is the messages a second that the tier carries; its forecast is Holt's: a level and a trend, both smoothed, and
the trend carried on for AHEAD_US. Its **use** is that forecast against what all members could carry together, as they
have been measured.

    use > GROW for GROW_AFTER_US    so many members more that their use would be TARGET, at once
    use < SHRINK for SHRINK_AFTER_US, by the forecast and by what is carried now    one member less

After each change nothing changes for the cooldown. While nobody has been busy enough for its speed to be known, nothing
grows: there is no need. A tier never has fewer members than ``least``, nor more than ``most``.
"""

from __future__ import annotations

from math import ceil
from typing import Final

import msgspec

AHEAD_US: Final = 60_000_000  # longer than a broker takes to start and to get its part
GROW, SHRINK, TARGET = 0.7, 0.3, 0.6
GROW_AFTER_US: Final = 5_000_000  # one window more than one that is out of line
SHRINK_AFTER_US: Final = 300_000_000
LEVEL_US: Final = 10_000_000  # of the smoothing: two windows in which members measure
TREND_US: Final = 30_000_000
SECOND_US: Final = 1_000_000


class GrowthRules(msgspec.Struct, frozen=True):
    """What the settings say. ``least`` 0: tiers are as large as they are."""

    least: int = 0
    most: int = 0
    cooldown_us: int = 60 * SECOND_US
    shrink_after_us: int = SHRINK_AFTER_US


class Forecast:
    """Holt's linear forecast of one rate, at times that need not be even."""

    def __init__(self) -> None:
        self.level = 0.0
        self.trend = 0.0  # a second
        self._at_us: int | None = None

    def see(self, value: float, now_us: int) -> None:
        if self._at_us is None:
            self.level = value
        elif now_us > self._at_us:
            span_us = now_us - self._at_us
            before, span_s = self.level, span_us / SECOND_US
            expected = self.level + self.trend * span_s
            self.level = expected + (value - expected) * min(1.0, span_us / LEVEL_US)
            self.trend += ((self.level - before) / span_s - self.trend) * min(1.0, span_us / TREND_US)
        self._at_us = now_us

    def ahead(self, span_us: int) -> float:
        return max(0.0, self.level + self.trend * span_us / SECOND_US)


class Elasticity:
    """Decides how many members one tier should have."""

    def __init__(self, rules: GrowthRules) -> None:
        self._rules = rules
        self.forecast = Forecast()
        self.use: float | None = None  # None: not known
        self._changed_us: int | None = None
        self._high_us: int | None = None  # since when the use is high …
        self._low_us: int | None = None  # … or low

    def look(self, messages: float, speed: float, members: int, now_us: int) -> int:
        """The number of members that is wanted. ``speed``: what one of them could carry in a second; 0: not known."""
        rules = self._rules
        self.forecast.see(messages, now_us)
        least, most = rules.least, max(rules.most, rules.least)
        if not rules.least or not members:
            return members
        if members < least:
            return least
        coming = max(self.forecast.ahead(AHEAD_US), 0.0)
        self.use = use = coming / (speed * members) if speed else None
        high = use is not None and use > GROW
        low = (use or 0.0) < SHRINK and (not speed or messages < SHRINK * speed * members)
        self._high_us = _since(self._high_us, high, now_us)
        self._low_us = _since(self._low_us, low, now_us)
        if self._changed_us is not None and now_us - self._changed_us < rules.cooldown_us:
            return members
        if self._high_us is not None and now_us - self._high_us >= GROW_AFTER_US and members < most:
            return self._change(min(most, max(members + 1, ceil(coming / (speed * TARGET)))), now_us)
        if (
            self._low_us is not None
            and now_us - self._low_us >= rules.shrink_after_us
            and members > least
            and coming <= GROW * speed * (members - 1)
        ):
            return self._change(members - 1, now_us)
        return members

    def _change(self, members: int, now_us: int) -> int:
        self._changed_us, self._high_us, self._low_us = now_us, None, None
        return members


def _since(since_us: int | None, holds: bool, now_us: int) -> int | None:
    """Since when something holds; None: it does not."""
    if not holds:
        return None
    return now_us if since_us is None else since_us

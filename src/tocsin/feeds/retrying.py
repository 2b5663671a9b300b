"""Back-off after a failure: soon at first, then less and less often.

A feed that fails is started again after ``FIRST_S``, then twice as long each time, up to ``LONGEST_S``. One that went
well for as long as the longest pause is as good as new.
"""

from __future__ import annotations

from typing import Final

FIRST_S: Final = 0.5
LONGEST_S: Final = 60.0


class Retrying:
    """The pauses of one feed."""

    def __init__(self) -> None:
        self.failures = 0  # in a row

    def failed(self, ran_s: float) -> float:
        """It ran so long, and failed: how long to wait."""
        if ran_s >= LONGEST_S:
            self.failures = 0
        self.failures += 1
        return min(LONGEST_S, FIRST_S * 2.0 ** min(self.failures - 1, 20))

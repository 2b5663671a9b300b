"""How long things take, as tables: a latency is 1 024 quantiles in integer microseconds.

A draw is one look-up with ten random bits, whatever the shape, so a constant, a uniform spread and a long tail cost
the same and none needs a logarithm. A measured distribution becomes a table by its percentiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

QUANTILE_BITS = 10
QUANTILES = 1 << QUANTILE_BITS
LATENCY_MAX_US = 3_600_000_000  # an hour: longer is a partition, and is to be said as one

Bits = Callable[[int], int]


class Latency:
    """A distribution of delays. ``quantiles`` is sorted and has QUANTILES entries."""

    __slots__ = ("quantiles",)

    def __init__(self, quantiles: Sequence[int]) -> None:
        table = tuple(quantiles)
        if len(table) != QUANTILES:
            raise ValueError(f"a latency has {QUANTILES} quantiles, not {len(table)}")
        if table[0] < 0 or table[-1] > LATENCY_MAX_US or any(a > b for a, b in pairwise(table)):
            raise ValueError(f"latency quantiles must rise from 0 or more to at most {LATENCY_MAX_US} µs")
        self.quantiles = table

    @classmethod
    def constant(cls, delay_us: int) -> Latency:
        return cls((delay_us,) * QUANTILES)

    @classmethod
    def uniform(cls, low_us: int, high_us: int) -> Latency:
        return cls.from_points(((0, low_us), (1_000, high_us)))

    @classmethod
    def long_tail(cls, median_us: int, p99_us: int, worst_us: int) -> Latency:
        """Half within the median, one in a hundred beyond ``p99_us``, up to ``worst_us``."""
        return cls.from_points(
            (
                (0, median_us // 2),
                (500, median_us),
                (900, median_us + (p99_us - median_us) // 4),
                (990, p99_us),
                (1_000, worst_us),
            )
        )

    @classmethod
    def from_points(cls, points: Sequence[tuple[int, int]]) -> Latency:
        """From (permille, µs) points, the first at 0 and the last at 1 000; straight lines in between."""
        if len(points) < 2 or points[0][0] != 0 or points[-1][0] != 1_000:
            raise ValueError("latency points must begin at 0 permille and end at 1000")
        if any(a[0] >= b[0] for a, b in pairwise(points)):
            raise ValueError("latency points must be given in rising order of permille")
        table = []
        segment = 0
        for index in range(QUANTILES):
            # Thousandths of a permille keep the division exact enough that both ends are hit.
            place = index * 1_000_000 // (QUANTILES - 1)
            while place > points[segment + 1][0] * 1_000:
                segment += 1
            (left, low), (right, high) = points[segment], points[segment + 1]
            table.append(low + (high - low) * (place - left * 1_000) // ((right - left) * 1_000))
        return cls(table)

    def draw(self, bits: Bits) -> int:
        return self.quantiles[bits(QUANTILE_BITS)]

    @property
    def least_us(self) -> int:
        return self.quantiles[0]

    @property
    def most_us(self) -> int:
        return self.quantiles[-1]

    def __repr__(self) -> str:
        return f"Latency({self.least_us}…{self.quantiles[QUANTILES // 2]}…{self.most_us} µs)"


# Round figures of what is measured on real networks of each kind.
LOCAL_NETWORK = Latency.long_tail(300, 2_000, 20_000)
WIDE_AREA = Latency.long_tail(30_000, 90_000, 400_000)

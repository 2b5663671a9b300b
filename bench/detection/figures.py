"""The figures of a detector."""

from __future__ import annotations

import statistics

import msgspec


class Figures(msgspec.Struct, kw_only=True):
    """The figures of one contender under one condition."""

    brokers: int  # that live
    seconds: float  # for which they did
    times_s: list[float] = []  # from a kill to the log's word
    missed: int = 0  # kills that nobody noticed before the broker was back
    false: int = 0  # suspicions of brokers that live

    @property
    def median_s(self) -> float:
        return statistics.median(self.times_s) if self.times_s else float("nan")

    @property
    def longest_s(self) -> float:
        return max(self.times_s, default=float("nan"))

    @property
    def false_per_hour(self) -> float:
        """False suspicions of one broker."""
        return self.false / (self.brokers * self.seconds / 3_600)

    def row(self) -> str:
        kills = len(self.times_s) + self.missed
        noticed = f"{len(self.times_s)}/{kills}"
        return f"{self.median_s:7.2f} {self.longest_s:7.2f}  {noticed:>7}  {self.false:6d} {self.false_per_hour:9.2f}"


HEAD = f"{'median s':>8} {'longest':>7}  {'noticed':>7}  {'false':>6} {'/broker/h':>9}"

"""Measurements beside a paper's figures: spreads, comparisons, and the tables made of them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """The spread of a number of samples."""

    samples: int
    mean: float
    p50: float
    p95: float
    p99: float
    longest: float
    deviation: float  # standard deviation of all of them

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """None if there is nothing to speak of."""
        ordered = sorted(values)
        if not ordered:
            return None
        mean = math.fsum(ordered) / len(ordered)
        return cls(
            samples=len(ordered),
            mean=mean,
            p50=percentile(ordered, 50),
            p95=percentile(ordered, 95),
            p99=percentile(ordered, 99),
            longest=ordered[-1],
            deviation=math.sqrt(math.fsum((value - mean) ** 2 for value in ordered) / len(ordered)),
        )


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The least value that is not below so many percent of them (nearest rank)."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


class Comparison(msgspec.Struct, frozen=True):
    """One figure, theirs and ours."""

    experiment: str
    figure: str
    unit: str
    paper: float | None  # None: the paper does not say
    ours: float | None  # None: not measured
    target: float | None = None  # ours should stay below it

    @property
    def ratio(self) -> float | None:
        """Ours over theirs: below 1 is better."""
        return self.ours / self.paper if self.paper and self.ours is not None else None

    def cells(self) -> tuple[str, ...]:
        target = "" if self.target is None else f"< {self.target:g}"
        figure = f"{self.figure} ({self.unit})"
        return self.experiment, figure, shown(self.paper), shown(self.ours), shown(self.ratio), target


HEADINGS = ("experiment", "figure", "paper", "ours", "ratio", "target")


def shown(value: float | None) -> str:
    """Three figures that count, four from ten on."""
    if value is None:
        return "–"
    size = abs(value)
    return f"{value:.0f}" if size >= 1_000 else f"{value:.4g}" if size >= 10 else f"{value:.3g}"


def markdown(rows: Iterable[Comparison]) -> str:
    lines = [HEADINGS, ("---", "---", "---:", "---:", "---:", "---:"), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def as_csv(rows: Iterable[Comparison]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("experiment", "figure", "unit", "paper", "ours", "ratio", "target"))
    for row in rows:
        writer.writerow((row.experiment, row.figure, row.unit, row.paper, row.ours, row.ratio, row.target))
    return text.getvalue()

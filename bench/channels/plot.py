"""The growth as a picture, and where the fixed cost goes, if matplotlib is there (the extra ``lab`` has it)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from bench.channels.figures import ALONE, DUCKDB, SPARK, Report
from tocsin_labs import drawing

STYLES: Final = {
    SPARK: ("#c0392b", "o", "all at once, on Spark"),
    DUCKDB: ("#e6b800", "s", "all at once, in DuckDB"),
    ALONE: ("#7f8c8d", "^", "one query each (extrapolated)"),
}
TARGETS: Final = {"equality": {100_000: 0.6, 1_000_000: 1.2}}


def plot(report: Report, path: Path) -> str:
    """Draw time over subscriptions for each workload; returns a sentence that says what was drawn."""
    if not drawing.available():
        return drawing.MISSING
    if not report.growth:
        return "no plot: nothing was measured at two sizes"
    workloads = [each for each in ("equality", "distance") if any(e.workload == each for e in report.growth)]
    news = sorted({each.publications for each in report.growth})
    figure, grid = drawing.pyplot().subplots(
        len(news), len(workloads) + 1, figsize=(4.4 * (len(workloads) + 1), 4.2 * len(news)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for row, publications in enumerate(news):
        for column, workload in enumerate(workloads):
            _curves(grid[row][column], report, workload, publications)
    _costs(grid[0][-1], report)
    for row in range(1, len(news)):
        _due(grid[row][-1], report)
    drawing.save(figure, path)
    return f"drawn in {path}"


def _curves(axes: Any, report: Report, workload: str, publications: int) -> None:
    slopes = {(g.workload, g.how, g.publications): g.slope for g in report.growth}
    for how, (colour, marker, label) in STYLES.items():
        curve = [
            e
            for e in report.executions
            if (e.workload, e.publications, e.how) == (workload, publications, how)
        ]
        curve.sort(key=lambda e: e.subscriptions)
        if len(curve) < 2:
            continue
        sizes = [e.subscriptions for e in curve]
        medians = [e.ms.median / 1e3 for e in curve]
        axes.plot(
            sizes, medians, color=colour, marker=marker,
            label=f"{label}: n^{slopes[workload, how, publications]:.2f}",
        )  # fmt: skip
        lows, highs = [e.ms.low / 1e3 for e in curve], [e.ms.high / 1e3 for e in curve]
        axes.fill_between(sizes, lows, highs, color=colour, alpha=0.15)
    if publications == 1_000:
        for size, seconds in TARGETS.get(workload, {}).items():
            axes.plot(size, seconds, marker="_", markersize=18, color="black")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1e-3, 1e6)
    axes.grid(alpha=0.3)
    axes.set_title(f"{workload}, {publications:,} new publications", fontsize=10)
    axes.set_xlabel("subscriptions")
    axes.set_ylabel("seconds an execution")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(0.01, 0.54))  # between the curves


def _costs(axes: Any, report: Report) -> None:
    parts = [each for each in report.costs if not each.part.startswith("the whole")]
    if not parts:
        axes.axis("off")
        return
    places = range(len(parts))
    axes.barh(list(places), [each.ms.median for each in parts], color="#c0392b")
    axes.barh(list(places), [each.ms.low for each in parts], color="#7b241c")
    axes.set_yticks(list(places), [each.part for each in parts], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("ms (dark: the least)")
    axes.set_title("where the fixed cost goes", fontsize=10)


def _due(axes: Any, report: Report) -> None:
    if not report.due:
        axes.axis("off")
        return
    labels = [f"{each.channels} due, {each.shapes} shape{'s' * (each.shapes > 1)}" for each in report.due]
    medians = [each.ms.median for each in report.due]
    below = [each.ms.median - each.ms.low for each in report.due]
    above = [each.ms.high - each.ms.median for each in report.due]
    axes.barh(labels, medians, xerr=(below, above), color="#c0392b", error_kw={"lw": 1})
    axes.invert_yaxis()
    axes.set_xlabel("ms a tick (least..most)")
    axes.set_title("channels side by side", fontsize=10)

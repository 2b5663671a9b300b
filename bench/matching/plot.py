"""The growth as a picture, if matplotlib is there (the extra ``lab`` has it)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.matching.figures import Report
from tocsin_labs import drawing

STYLES: Final = {
    "index": ("#c0392b", "o", "index"),
    "keys": ("#27aae1", "s", "queries that mention the key"),
    "all": ("#7f8c8d", "^", "ask all"),
}
TITLES: Final = {"change": "a change against standing queries", "query": "a new query against streams"}


def plot(report: Report, path: Path) -> str:
    """Draw time over number for each workload and task; returns a sentence that says what was drawn."""
    if not drawing.available():
        return drawing.MISSING
    workloads = list(dict.fromkeys(point.workload for point in report.points))
    figure, grid = drawing.pyplot().subplots(
        2, len(workloads), figsize=(3.4 * len(workloads), 7), sharex=True, sharey="row", squeeze=False,
        layout="constrained",
    )  # fmt: skip
    slopes = {(each.workload, each.task, each.how): each.slope for each in report.growth}
    for row, task in enumerate(TITLES):
        for column, workload in enumerate(workloads):
            axes = grid[row][column]
            for how, (colour, marker, label) in STYLES.items():
                curve = [p for p in report.points if (p.workload, p.task, p.how) == (workload, task, how)]
                if not curve:
                    continue
                axes.plot(
                    [each.size for each in curve],
                    [each.p50_us for each in curve],
                    color=colour,
                    marker=marker,
                    label=f"{label}: n^{slopes[workload, task, how]:.2f}",
                )
            if task == "change":
                axes.axhline(report.target_us, color="black", lw=0.8, ls=":")
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.grid(alpha=0.3)
            axes.set_title(f"{workload}: {TITLES[task]}", fontsize=9)
            axes.set_ylim(10, 3e8)  # room for the legend above the curves
            axes.legend(fontsize=8, loc="upper left")
            if column == 0:
                axes.set_ylabel("µs (median)")
            axes.set_xlabel("standing queries" if task == "change" else "streams")
    drawing.save(figure, path)
    return f"drawn in {path}"

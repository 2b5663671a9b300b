"""Quality and growth as a picture, if matplotlib is there (the extra ``lab`` has it)."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Final

from bench.assignment.figures import Report, Row

STYLES: Final = {
    "random": ("#7f8c8d", "RND"),
    "lcs_mmcs": ("#27aae1", "LCS / MMCS"),
    "search": ("#c0392b", "search"),
}
TIMES: Final = {
    "read_ms": ("#2c3e50", "reading the demand"),
    "random_ms": ("#7f8c8d", "RND"),
    "paper_ms": ("#27aae1", "LCS + MMCS"),
    "search_ms": ("#c0392b", "search"),
    "replan_ms": ("#27ae60", "replan, one broker lost"),
}


def plot(report: Report, path: Path) -> str:
    """Draw it; returns a sentence that says what was drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        return "no plot: matplotlib is not installed (pip install 'tocsin[lab]')"
    importlib.import_module("matplotlib").use("agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    sizes = list(dict.fromkeys(row.brokers for row in report.rows if row.network.startswith("paper")))
    kinds = list(dict.fromkeys(each.kind for each in report.timed))
    figure = pyplot.figure(figsize=(5.2 * (len(sizes) + 1), 9), layout="constrained")
    quality, growth = figure.subfigures(1, 2, width_ratios=(len(sizes), 1))
    grid = quality.subplots(2, len(sizes), squeeze=False)
    networks = list(dict.fromkeys(row.network for row in report.rows))
    blocks = [report.rows[at : at + len(networks)] for at in range(0, len(report.rows), len(networks))]
    for column, rows in enumerate(blocks):
        title = f"{sizes[column]} brokers"
        _bars(grid[0][column], rows, "overhead", f"ΣO, {title}", [row.bound for row in rows])
        _bars(grid[1][column], rows, "largest", f"max R, {title}", [row.largest_bound for row in rows])
    for axes, kind in zip(growth.subplots(len(kinds), 1, squeeze=False)[:, 0], kinds, strict=True):
        points = [each for each in report.timed if each.kind == kind]
        slopes = {each.what: each.slope for each in report.growth if each.kind == kind}
        for name, (colour, label) in TIMES.items():
            axes.plot(
                [each.pairs for each in points],
                [getattr(each, name) for each in points],
                color=colour,
                marker="o",
                label=label + (f": n^{slope:.2f}" if (slope := slopes.get(name.removesuffix("_ms"))) else ""),
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_minor_formatter(lambda value, position: "")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
        axes.set_title(f"time, {kind}", fontsize=10)
        axes.set_xlabel("(broker, subscription) pairs")
        axes.set_ylabel("ms of processor time")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return f"drawn in {path}"


def _bars(axes: Any, rows: list[Row], what: str, title: str, bounds: list[int]) -> None:
    width = 0.27
    for number, (strategy, (colour, label)) in enumerate(STYLES.items()):
        heights = [
            getattr(next(each for each in row.reached if each.strategy == strategy), what) for row in rows
        ]
        places = [at + (number - 1) * width for at in range(len(rows))]
        axes.bar(places, heights, width, color=colour, label=label)
    for at, bound in enumerate(bounds):
        axes.hlines(
            bound, at - 0.45, at + 0.45, color="black", lw=1.4, label="bound or optimum" if at == 0 else None
        )
    axes.set_xticks(range(len(rows)), [row.network for row in rows], rotation=40, ha="right", fontsize=8)
    axes.set_title(title, fontsize=10)
    axes.set_ylabel("subscriptions")
    axes.grid(alpha=0.3, axis="y")
    axes.legend(fontsize=8)

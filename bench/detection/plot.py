"""The figures as a picture, if matplotlib is there (the extra ``lab`` has it)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.detection.figures import Figures
from tocsin_labs import drawing

COLOURS: Final = ("#c0392b", "#e67e22", "#7f8c8d", "#2c5f8a", "#63a7d8")
NONE: Final = 0.05  # where a rate of 0 is drawn


def plot(table: Mapping[str, Mapping[str, Figures]], path: Path) -> str:
    """Draw time to detect and false suspicions of each contender under each condition; returns a sentence that says
    what was drawn."""
    if not drawing.available():
        return drawing.MISSING
    conditions = list(next(iter(table.values())))
    figure, (times, rates) = drawing.pyplot().subplots(
        1, 2, figsize=(13, 0.75 * len(conditions) + 1.6), sharey=True, layout="constrained"
    )
    height = 0.8 / len(table)
    for turn, (contender, row) in enumerate(table.items()):
        places = [place - 0.4 + height * (turn + 0.5) for place in range(len(conditions))]
        colour = COLOURS[turn % len(COLOURS)]
        medians = [row[each].median_s for each in conditions]
        above = [row[each].longest_s - row[each].median_s for each in conditions]
        zeros = [0.0] * len(above)
        times.barh(
            places, medians, height, xerr=(zeros, above), color=colour, label=contender, error_kw={"lw": 1}
        )
        rates.barh(places, [max(NONE, row[each].false_per_hour) for each in conditions], height, color=colour)
    times.set_xlabel("seconds from the kill to the log's word (bar: median, line: longest)")
    rates.set_xscale("log")
    rates.set_xlabel(f"false suspicions of a living broker an hour (left edge, {NONE:g}: none)")
    times.set_yticks(range(len(conditions)), conditions)
    times.invert_yaxis()
    for axes in (times, rates):
        axes.grid(axis="x", lw=0.3)
    figure.legend(*times.get_legend_handles_labels(), loc="outside upper center", ncols=len(table))
    drawing.save(figure, path)
    return f"drawn in {path}"

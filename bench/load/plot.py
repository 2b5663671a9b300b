"""The ratios as a picture, if matplotlib is there (the extra ``lab`` has it)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.load.figures import Ratio
from tocsin_labs import drawing

COLOURS: Final = {"mosquitto": "#3c5280", "nats": "#27aae1"}
TICKS: Final = (0.5, 1, 2, 5, 10, 20, 50)


def plot(ratios: Sequence[Ratio], path: Path) -> str:
    """Draw Tocsin's deliveries per CPU second over each peer's; returns a sentence that says what was drawn."""
    if not drawing.available():
        return drawing.MISSING
    loads = list(dict.fromkeys(each.load for each in ratios))
    figure, axes = drawing.pyplot().subplots(figsize=(9, 0.6 * len(loads) + 1.5), layout="constrained")
    for offset, (peer, colour) in zip((-0.2, 0.2), COLOURS.items(), strict=True):
        mine = [each for each in ratios if each.peer == peer]
        places = [loads.index(each.load) + offset for each in mine]
        medians = [each.ratio.median for each in mine]
        below = [each.ratio.median - each.ratio.low for each in mine]
        above = [each.ratio.high - each.ratio.median for each in mine]
        axes.barh(
            places, medians, 0.38, xerr=(below, above), color=colour, label=f"÷ {peer}", error_kw={"lw": 1}
        )
        for place, each in zip(places, mine, strict=True):
            if each.target is not None:
                axes.plot([each.target] * 2, [place - 0.2, place + 0.2], color="black", lw=2)
    axes.axvline(1, color="grey", lw=1)
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.set_yticks(range(len(loads)), loads)
    axes.invert_yaxis()
    axes.set_xlabel(
        "Tocsin's deliveries per broker CPU second ÷ the peer's (bars: least..most; black: target)"
    )
    axes.legend()
    drawing.save(figure, path)
    return f"drawn in {path}"

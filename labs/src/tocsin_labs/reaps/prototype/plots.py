"""The results as pictures like the paper's figure 3. Its text has no values, so no point of its curves is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tocsin_labs.drawing import finish, pyplot, save
from tocsin_labs.reaps.prototype.outcome import Outcome, by_size, typical
from tocsin_labs.reaps.prototype.plan import BY_SIZE, WAYS
from tocsin_labs.reaps.prototype.tables import fitted

COLOURS: Final = {
    "migration": "#c0392b",
    "local": "#2e5cb8",
    "remote": "#7d3c98",
    "frozen": "#1e8449",
    "frozen remote": "#222222",
}  # red, blue, purple as in the paper; the others are ours
OTHERS: Final = "#999999"
MARGIN: Final = 1.08  # beyond the last point


def steps(times: Sequence[float], before: float, until: float) -> tuple[list[float], list[float]]:
    """The share of those whose time has come, in percent, as a line from ``before`` to ``until``."""
    xs, ys = [before], [0.0]
    for rank, at_s in enumerate(times, 1):
        xs.append(at_s)
        ys.append(100 * rank / len(times))
    return [*xs, until], [*ys, ys[-1]]


def draw_progress(failures: Sequence[Outcome], out: Path) -> None:
    """Figure 3a: of the largest broker, after the failure and after its detection."""
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(13, 5), layout="constrained")
    drawn = {way: list(sizes.values())[-1] for way in WAYS if (sizes := by_size(failures, way))}
    _draw_shares(left, drawn)
    _draw_shares(right, {way: each for way, each in drawn.items() if way != "migration"}, detection=True)
    size = max(each.subscribers for each in failures)
    title = f"3a: a broker with {size} subscribers fails (the paper's text: local well before remote)"
    finish(left, title, "seconds after the failure", "% of its subscribers")
    finish(
        right, "the same, from when it is declared lost", "seconds after detection", "% of its subscribers"
    )
    save(figure, out / "progress.png")


def _draw_shares(axes: Any, drawn: dict[Any, list[Outcome]], *, detection: bool = False) -> None:
    ends = [(each.detected_s or 0.0) if detection else 0.0 for every in drawn.values() for each in every]
    latest = [max(each.all_told_s, each.all_served_s) for every in drawn.values() for each in every]
    if not latest:
        return
    until = max(last - zero for last, zero in zip(latest, ends, strict=True)) * MARGIN
    until = max(until, 0.5)
    for way, outcomes in drawn.items():
        chosen = typical([each for each in outcomes if each.missed] or outcomes)
        for each in outcomes:
            zero = (each.detected_s or 0.0) if detection else 0.0
            mine, colour = each is chosen, COLOURS[way]
            shown = [(each.served_s, "-", "served again")]
            if mine and each.missed:
                shown.append((each.told_s, "--", "told what they missed"))
            for times, dashes, words in shown:
                xs, ys = steps([at_s - zero for at_s in times], -zero, until)
                label = f"{way}: {words}" if mine else None
                width, alpha = (2.0, 1.0) if mine else (0.6, 0.3)
                axes.step(xs, ys, dashes, where="post", color=colour, lw=width, alpha=alpha, label=label)
            if mine and each.detected_s is not None and not detection:
                axes.axvline(each.detected_s, color=colour, ls=":", lw=1, label=f"{way}: declared lost")
    if detection:
        axes.axvline(0.0, color="#222222", ls=":", lw=1, label="declared lost")
    axes.set_ylim(0, 104)


def draw_failovers(failures: Sequence[Outcome], out: Path) -> None:
    """Figure 3b: until all are served again, and until all are told what they missed."""
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(13, 5), layout="constrained")
    for way in BY_SIZE:
        mine, colour = [each for each in failures if each.way == way], COLOURS[way]
        if not mine:
            continue
        sizes = [each.subscribers for each in mine]
        left.plot(sizes, [each.all_served_s for each in mine], "o", color=colour, ms=5, label=way)
        right.plot(sizes, [each.all_told_s for each in mine], "o", color=colour, ms=5, label=f"{way}: told")
        straight = fitted(failures, way)
        if straight is not None:
            ends = [0, max(sizes)]
            each_ms, none_ms = straight.slope * 1_000, straight.intercept * 1_000
            words = f"medians: {each_ms:.2f} ms each + {none_ms:.0f} ms, R² {straight.explained:.2f}"
            left.plot(ends, [straight.at(x) for x in ends], "-", color=colour, lw=1, label=words)
    others = [(each.subscribers, each.others_told_s[-1]) for each in failures if each.others_told_s]
    if others:
        xs, ys = zip(*others, strict=True)
        right.plot(xs, ys, "x", color=OTHERS, ms=5, label="subscribers of other brokers: told")
    for axes in (left, right):
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
    title = "3b: until all are served again (the paper's text: proportional, local well below remote)"
    along, up = "subscribers of the broker that fails", "seconds after the failure"
    finish(left, title, along, up)
    finish(right, "until all are told what they missed", along, up)
    save(figure, out / "failovers.png")

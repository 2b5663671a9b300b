"""Pictures from a ``summary.md``: the paper's values and ours, without running an experiment again.

A summary has a row for each figure (``figures.Comparison``). So its pictures show means, medians and extremes, and no
single samples: the curves of Fig 3a and Fig 8 need the samples of a run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tocsin.errors import OperatorError
from tocsin_labs.drawing import MISSING, available, finish, pyplot, save
from tocsin_labs.figures import Comparison

OURS: Final = "#c0392b"
SECOND: Final = "#2e5cb8"
THIRD: Final = "#e67e22"
THEIRS: Final = "#555555"
REPLACED: Final = "a standby in each place"  # as the rows of Table 4 say it
EMPTY: Final = "–"
RANGE: Final = re.compile(r"; (-?[\d.]+) to (-?[\d.]+)$")
ROW: Final = re.compile(r"^(?P<figure>.*) \((?P<unit>[^()]*(?:\([^()]*\)[^()]*)*)\)$")


def read(path: Path) -> list[Comparison]:
    """The rows of a summary; raises ``OperatorError`` if there are none."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"{path} cannot be read: {error}", "Name a summary.md of a lab") from None
    rows = [row for line in lines if (row := _row(line)) is not None]
    if not rows:
        raise OperatorError(f"{path} has no rows of figures", "Name a summary.md that a lab has written")
    return rows


def _row(line: str) -> Comparison | None:
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if len(cells) != 6 or (named := ROW.match(cells[1])) is None:
        return None
    try:
        theirs, ours = (None if cell == EMPTY else float(cell) for cell in cells[2:4])
    except ValueError:
        return None
    return Comparison(cells[0], named["figure"], named["unit"], theirs, ours)


def draw(path: Path, out: Path) -> list[Path]:
    """Draw all pictures that the rows of a summary allow into a directory."""
    if not available():
        raise OperatorError(MISSING, "Install it, and draw again")
    rows = read(path)
    drawn = [made for each in (_cqbs, _control, _objects, _latency, _failovers) if (made := each(rows, out))]
    if not drawn:
        raise OperatorError(f"no picture can be drawn of {path}", "Name the summary.md of a lab")
    return drawn


Points = list[tuple[int, float]]


def _points(rows: Sequence[Comparison], experiment: str, figure: str, theirs: bool = False) -> Points:
    """The values of a figure, by the number in the experiment's name."""
    pattern = re.compile(experiment)
    found: Points = []
    for row in rows:
        value = row.paper if theirs else row.ours
        if (match := pattern.fullmatch(row.experiment)) and row.figure == figure and value is not None:
            found.append((int(match[1]), value))
    return found


def _line(axes: Any, points: Points, style: str, colour: str, label: str) -> None:
    if points:
        axes.plot(*zip(*points, strict=True), style, color=colour, label=label)


def _cqbs(rows: Sequence[Comparison], out: Path) -> Path | None:
    """Figures 5, 6 and 7 of the CQBS paper: mean and 95th percentile of each experiment."""
    wanted = [
        row
        for row in rows
        if row.paper is not None and row.unit == "ms" and row.figure in ("mean", "95th percentile")
    ]
    names = list(dict.fromkeys(row.experiment for row in wanted if row.experiment.startswith("V-")))
    if not names:
        return None
    figure, panels = pyplot().subplots(1, 2, figsize=(12, 4.8), layout="constrained", sharey=True)
    for axes, name in zip(panels, ("mean", "95th percentile"), strict=True):
        mine = {row.experiment: row for row in wanted if row.figure == name}
        for shift, colour, label in ((-0.2, THEIRS, "paper"), (0.2, OURS, "ours")):
            heights = [
                (mine[each].paper if label == "paper" else mine[each].ours) or 0.0
                for each in names
                if each in mine
            ]
            bars = axes.bar(
                [at + shift for at in range(len(heights))], heights, 0.4, color=colour, label=label
            )
            axes.bar_label(bars, [f"{height:.3g}" for height in heights], fontsize=7)
        axes.set_xticks(range(len(names)), [each.replace(", ", ",\n") for each in names], fontsize=7)
        axes.set_yscale("log")
        finish(axes, f"{name} of the latency", "", "ms")
    return _saved(figure, out, "cqbs.png")


def _control(rows: Sequence[Comparison], out: Path) -> Path | None:
    """Table 1 of the Landmark paper."""
    experiment, total = r"Table 1, (\d+) brokers", "control traffic, with headers"
    if not _points(rows, experiment, total):
        return None
    figure, axes = pyplot().subplots(figsize=(8, 4.8), layout="constrained")
    _line(axes, _points(rows, experiment, total, theirs=True), "s--", THEIRS, "paper")
    _line(axes, _points(rows, experiment, total), "o-", OURS, "ours: everything, with headers")
    _line(axes, _points(rows, experiment, "the same without headers"), "^-", THIRD, "ours: without headers")
    _line(axes, _points(rows, experiment, "heartbeats alone"), "v-", SECOND, "ours: heartbeats alone")
    axes.set_ylim(bottom=0)
    finish(axes, "Table 1: control traffic while nothing happens", "brokers", "KB/s")
    return _saved(figure, out, "control.png")


def _objects(rows: Sequence[Comparison], out: Path) -> Path | None:
    """Tables 2 and 3 of the Landmark paper."""
    total = "recovery traffic"
    kinds = (("Table 2", "queues"), ("Table 3", "routes"))
    if not any(_points(rows, rf"{table}, (\d+) {kind}", total) for table, kind in kinds):
        return None
    figure, panels = pyplot().subplots(1, 2, figsize=(11, 4.6), layout="constrained", sharey=True)
    for axes, (table, kind) in zip(panels, kinds, strict=True):
        experiment = rf"{table}, (\d+) {kind}"
        _line(axes, _points(rows, experiment, total, theirs=True), "s--", THEIRS, "paper")
        _line(axes, _points(rows, experiment, total), "o-", OURS, "ours: between all processes")
        _line(
            axes, _points(rows, experiment, "the coordinator's part"), "v-", SECOND, "ours: the coordinator"
        )
        _line(
            axes, _points(rows, experiment, "clients that come back"), "^-", THIRD, "ours: returning clients"
        )
        axes.set_ylim(bottom=0)
        finish(axes, f"{table}: recovery traffic by {kind}", kind, "KB over what flows anyway")
    return _saved(figure, out, "objects.png")


def _latency(rows: Sequence[Comparison], out: Path) -> Path | None:
    """Table 4 of the Landmark paper: mean, shortest and longest."""
    places = {detect: rf"Table 4, {detect}, (\d+) at once" for detect in ("default", "aggressive")}
    shown = [each for each in (REPLACED, "recovered") if any(row.figure == f"{each}, mean" for row in rows)]
    if not shown:
        return None
    name = shown[0]  # a run without standbys has no places that one took
    figure, axes = pyplot().subplots(figsize=(8.5, 5), layout="constrained")
    _spans(axes, rows, places["default"], name, "s--", THEIRS, "paper: recovered", theirs=True)
    for (detect, experiment), colour in zip(places.items(), (OURS, SECOND), strict=True):
        _spans(axes, rows, experiment, name, "o-", colour, f"ours, {detect} detection: {name}")
        served = _points(rows, experiment, "all subscribers have a new message, mean")
        _line(axes, served, "^:", colour, f"ours, {detect} detection: all have a new message")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    title = "Table 4: from the kill of so many brokers at once (mean, shortest, longest)"
    finish(axes, title, "brokers that fail", "seconds")
    return _saved(figure, out, "latency.png")


def _spans(
    axes: Any,
    rows: Sequence[Comparison],
    experiment: str,
    figure: str,
    style: str,
    colour: str,
    label: str,
    *,
    theirs: bool = False,
) -> None:
    means, least, most = (
        dict(_points(rows, experiment, f"{figure}, {name}", theirs))
        for name in ("mean", "shortest", "longest")
    )
    counts = [count for count in means if count in least and count in most]
    if counts:
        spread = [
            [means[each] - least[each] for each in counts],
            [most[each] - means[each] for each in counts],
        ]
        middles = [means[each] for each in counts]
        axes.errorbar(counts, middles, yerr=spread, fmt=style, capsize=3, color=colour, label=label)


def _failovers(rows: Sequence[Comparison], out: Path) -> Path | None:
    """Figure 3b of the REAPS paper, whose text has no values: median, least and most of each number."""
    figure, axes = None, None
    for way, colour in (("local", OURS), ("remote", SECOND), ("frozen", THIRD)):
        pattern = re.compile(rf"{way}, (\d+) subscribers: all served again(; .*)")
        mine = [
            (int(match[1]), row.ours, float(span[1]), float(span[2]))
            for row in rows
            if row.experiment == "3b" and row.ours is not None
            if (match := pattern.fullmatch(row.figure)) and (span := RANGE.search(match[2]))
        ]
        if not mine:
            continue
        if axes is None:
            figure, axes = pyplot().subplots(figsize=(8, 4.6), layout="constrained")
        counts, middles, least, most = zip(*mine, strict=True)
        spread = [
            [max(middle - low, 0.0) for middle, low in zip(middles, least, strict=True)],
            [max(high - middle, 0.0) for middle, high in zip(middles, most, strict=True)],
        ]
        axes.errorbar(counts, middles, yerr=spread, fmt="o-", capsize=3, color=colour, label=f"ours, {way}")
    if axes is None:
        return None
    axes.set_ylim(bottom=0)
    title = "3b: until all are served again (the paper's text: proportional, local well below remote)"
    finish(axes, title, "subscribers at the broker that fails", "seconds: median, least, most")
    return _saved(figure, out, "failovers.png")


def _saved(figure: Any, out: Path, name: str) -> Path:
    save(figure, out / name)
    return out / name

"""The results as pictures like the paper's figures 5 to 7, with its values drawn in, and one of the designs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tocsin_labs.cqbs import coordinator, forwarding, paper, single
from tocsin_labs.cqbs.coordinator import Coordinated
from tocsin_labs.cqbs.crowd import CHANGED, FIRST
from tocsin_labs.cqbs.designs.run import Designed
from tocsin_labs.cqbs.paper import Published
from tocsin_labs.drawing import finish, pyplot, save

OURS: Final = "#c0392b"
CHANGING: Final = "#27aae1"
FIRSTS: Final = "#e67e22"
REPLICATED: Final = "#1e8449"
THEIRS: Final = "#555555"
ORIGINAL: Final = "#8899aa"
DESIGNS: Final = ("#c0392b", "#e67e22", "#1e8449", "#7d3c98", "#27aae1")  # a line each


def _dots(axes: Any, points: list[tuple[float, float]], colour: str, label: str, size: float = 3.0) -> None:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    axes.plot(xs, ys, ".", color=colour, ms=size, alpha=0.5, mew=0, rasterized=True, label=label)


def _theirs(axes: Any, published: Published | None, name: str = "paper", colour: str = THEIRS) -> None:
    if published is not None:
        axes.axhline(
            published.mean, color=colour, lw=1.2, ls="--", label=f"{name}: mean {published.mean:g} ms"
        )
        axes.axhline(published.p95, color=colour, lw=1.2, ls=":", label=f"{name}: 95 % {published.p95:g} ms")


def _finish(axes: Any, title: str, label: str, legend: str = "upper right") -> None:
    axes.set_yscale("log")
    finish(axes, title, "seconds", label)
    axes.legend(fontsize=8, loc=legend, markerscale=3)


def _of(rows: list[tuple[float, float, int]], kind: int) -> list[tuple[float, float]]:
    return [(sent, latency) for sent, latency, each in rows if each == kind]


def draw_single(sizes: list[int], originals: list[int], samples: Path, out: Path) -> None:
    """Figure 5: a panel for each number of subscribers, with the paper's own broker's messages if it was there."""
    figure, panels = pyplot().subplots(
        len(sizes), figsize=(9, 3 * len(sizes)), squeeze=False, sharey=True, layout="constrained"
    )
    for axes, subscribers in zip(panels[:, 0], sizes, strict=True):
        if subscribers in originals:
            rows = forwarding.read(single.samples(samples, subscribers, original=True))
            _dots(
                axes,
                [(sent, latency) for sent, latency, _ in rows],
                ORIGINAL,
                "a message, the paper's broker",
            )
        rows = forwarding.read(single.samples(samples, subscribers, original=False))
        _dots(axes, [(sent, latency) for sent, latency, _ in rows], OURS, "a message")
        _dots(axes, _of(rows, FIRST), FIRSTS, "a stream's first", 6)
        _theirs(axes, paper.SINGLE.get(subscribers))
        _finish(axes, f"single broker, subscribers: {subscribers}", "forwarding latency (ms)")
    save(figure, out / "single.png")


def draw_coordinator(
    alone: Coordinated | None, replicated: Coordinated | None, samples: Path, out: Path
) -> None:
    """Figure 6: alone and replicated, the switch from new publishers to changes, and the kill."""
    figure, axes = pyplot().subplots(figsize=(10, 5.5), layout="constrained")
    for found, name, colour, published in (
        (replicated, "replicated", REPLICATED, paper.REPLICATED),
        (alone, "alone", OURS, paper.ALONE),
    ):
        if found is None:
            continue
        heard = coordinator.read(samples / f"coordinator-{name}.csv")
        _dots(axes, [(each.sent_s, each.latency_ms) for each in heard], colour, f"{name}: a notice")
        _theirs(axes, published, f"paper, {name}", colour)
    found = replicated or alone
    if found is not None and found.switched_s is not None:
        axes.axvline(found.switched_s, color="#2e5cb8", lw=1, label="from here on metadata change")
    if found is not None and found.killed_s is not None and found.gap_s is not None:
        label = f"leader killed: {found.gap_s:.1f} s of silence (paper: {paper.GAP_S:g} s)"
        axes.axvspan(found.killed_s, found.killed_s + found.gap_s, color="#bbbbbb", alpha=0.6, label=label)
    _finish(axes, "coordinator", "from a change until a subscriber's broker has heard (ms)", "upper left")
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top * 10)  # room for the legend
    save(figure, out / "coordinator.png")


def draw_full(samples: Path, out: Path) -> None:
    """Figure 7."""
    figure, axes = pyplot().subplots(figsize=(10, 4.5), layout="constrained")
    rows = forwarding.read(samples / "full.csv")
    _dots(axes, [(sent, latency) for sent, latency, _ in rows], OURS, "a message")
    _dots(axes, _of(rows, FIRST), FIRSTS, "a stream's first", 6)
    _dots(axes, _of(rows, CHANGED), CHANGING, "with a change", 6)
    _theirs(axes, paper.WHOLE)
    _finish(axes, "full system", "forwarding latency (ms)")
    save(figure, out / "full.png")


def draw_designs(designs: Sequence[Designed], samples: Path, out: Path) -> None:
    """The share of notices that were heard within a time, for each design, by load."""
    loads = [
        (words, mine)
        for words, equal in (("each subscriber asks something else", False), ("many ask the same", True))
        if (mine := [each.name for each in designs if each.equal == equal])
    ]
    figure, panels = pyplot().subplots(
        1, len(loads), figsize=(6.5 * len(loads), 4.8), squeeze=False, sharey=True, layout="constrained"
    )
    for axes, (words, names) in zip(panels[0], loads, strict=True):
        for name, colour in zip(names, DESIGNS, strict=False):
            heard = sorted(each.latency_ms for each in coordinator.read(samples / f"design-{name}.csv"))
            shares = [100 * rank / len(heard) for rank in range(1, len(heard) + 1)]
            axes.step(heard, shares, where="post", color=colour, label=name)
        axes.set_xscale("log")
        finish(axes, f"VI-B, by design and servers of the store: {words}", "ms until a notice is heard", "%")
    save(figure, out / "designs.png")

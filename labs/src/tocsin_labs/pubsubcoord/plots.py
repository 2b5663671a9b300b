"""The results as pictures, with the paper's values drawn in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tocsin_labs.drawing import finish, pyplot, save
from tocsin_labs.pubsubcoord import paper
from tocsin_labs.pubsubcoord.crowd import BIN_S
from tocsin_labs.pubsubcoord.failure import DOES, Failed
from tocsin_labs.pubsubcoord.joining import Joined
from tocsin_labs.pubsubcoord.locality import Point

OURS: Final = "#c0392b"
SECOND: Final = "#e67e22"
PEER: Final = "#2e5cb8"
THEIRS: Final = "#555555"
FLOOR: Final = "#27ae60"
LATE_MS: Final = 15.0  # 99th percentile of the load's own lateness: above it a point is drawn hollow
WINDOW: Final = 5  # bins that are summed, for a line that shows interruptions and not the load's beat


def draw_locality(points: Sequence[Point], out: Path) -> None:
    """Figure 6: a panel for each number of topics. Points are hollow at which the load itself was late."""
    sizes = sorted({each.topics for each in points})
    figure, panels = pyplot().subplots(
        1,
        len(sizes),
        figsize=(max(6.0, 4.2 * len(sizes)), 4.8),
        layout="constrained",
        sharey=True,
        squeeze=False,
    )
    for axes, size in zip(panels[0], sizes, strict=True):
        theirs = paper.MEANS_MS.get(size)
        if theirs:
            axes.plot(*zip(*theirs.items(), strict=True), "s--", color=THEIRS, label="paper's scripts, mean")
        mine = [each for each in points if each.topics == size]
        ours = [each for each in mine if each.system == "tocsin"]
        peers = [each for each in mine if each.system == "nats"]
        _line(axes, ours, "p99", "^:", SECOND, "ours, 99th percentile")
        _line(axes, peers, "mean", "x-", PEER, "NATS leaf nodes, mean")
        _line(axes, ours, "mean", "o-", OURS, "ours, mean")
        places = [each.locality for each in ours]
        axes.plot(places, [each.floor_ms for each in ours], "-", color=FLOOR, label="the delays alone", lw=1)
        finish(
            axes, f"Figure 6: {size} topics a LAN", "share of local topics", "ms from publisher to subscriber"
        )
    panels[0][0].set_ylim(bottom=0)
    save(figure, out / "locality.png")


def _line(axes: Any, points: Sequence[Point], name: str, style: str, colour: str, label: str) -> None:
    if points:
        heights = [getattr(each.heard.all_ms, name) for each in points]
        axes.plot([each.locality for each in points], heights, style, color=colour, label=label)
        late = [
            (each, up) for each, up in zip(points, heights, strict=True) if each.heard.late_ms.p99 > LATE_MS
        ]
        axes.plot(
            [each.locality for each, _ in late], [up for _, up in late], "o", color="white", mec=colour, ms=9
        )


def draw_failure(found: Sequence[Failed], out: Path) -> None:
    """Messages between LANs, as they arrive, around each failure."""
    figure, panels = pyplot().subplots(
        len(found), 1, figsize=(9, 2.1 * len(found)), layout="constrained", sharex=True, squeeze=False
    )
    for axes, each in zip(panels[:, 0], found, strict=True):
        bins = each.heard.bins
        sums = [sum(bins[at : at + WINDOW]) / (WINDOW * BIN_S) for at in range(len(bins) - WINDOW + 1)]
        times = [(at + WINDOW / 2) * BIN_S - each.happened_s for at in range(len(sums))]
        axes.plot(times, sums, "-", color=OURS, lw=1.2)
        if each.way != "nothing":
            axes.axvline(0.0, color=THEIRS, ls="--", lw=1)
        heard = each.heard
        words = f"{heard.lost:,} lost, {heard.doubled:,} doubled, {heard.disordered:,} out of order"
        longest = 1e3 * max(heard.silences_s)
        axes.set_title(f"{DOES[each.way]}: {words}; longest silence {longest:,.0f} ms", fontsize=10)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("messages/s")
        axes.grid(alpha=0.3)
    panels[-1, 0].set_xlabel("seconds from when it happened; messages between LANs as they arrive")
    save(figure, out / "failure.png")


def draw_joining(found: Sequence[Joined], out: Path) -> None:
    """Figure 7c."""
    figure, (times, costs) = pyplot().subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    joins = [each.told.joins for each in found]
    times.plot(
        *zip(*paper.JOINS_MS.items(), strict=True), "s--", color=THEIRS, label="paper: the server's answer"
    )
    times.plot(
        joins, [each.told.force_ms.p50 for each in found], "o-", color=OURS, label="ours: in force, median"
    )
    p95 = [each.told.force_ms.p95 for each in found]
    times.plot(joins, p95, "^:", color=SECOND, label="ours: in force, 95th percentile")
    times.set_ylim(bottom=0)
    finish(times, "Figure 7c: subscribers that join", "joins", "ms")
    costs.plot(
        joins, [each.log_bytes / 1e3 for each in found], "o-", color=OURS, label="the coordinators' log, KB"
    )
    costs.plot(
        joins,
        [1e3 * each.leader_s for each in found],
        "v-",
        color=PEER,
        label="the leader's processor time, ms",
    )
    costs.set_ylim(bottom=0)
    finish(costs, "What the joins cost", "joins", "")
    save(figure, out / "joining.png")

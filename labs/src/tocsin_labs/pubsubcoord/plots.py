"""The results as pictures, with the paper's values drawn in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tocsin_labs.drawing import finish, pyplot, save
from tocsin_labs.pubsubcoord import paper
from tocsin_labs.pubsubcoord.crowd import BIN_S
from tocsin_labs.pubsubcoord.deadline import CASES, Flow
from tocsin_labs.pubsubcoord.deadline import SAID as SAYS
from tocsin_labs.pubsubcoord.failure import DOES, Failed
from tocsin_labs.pubsubcoord.hubs import WITHIN, Stand
from tocsin_labs.pubsubcoord.joining import Joined
from tocsin_labs.pubsubcoord.locality import Point
from tocsin_labs.pubsubcoord.topics import Weighed
from tocsin_labs.pubsubcoord.virtual import Virtual

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


def draw_topics(weighed: Sequence[Weighed], virtual: Sequence[Virtual], out: Path) -> None:
    """Figures 7a and 7d."""
    figure, (times, shares, model) = pyplot().subplots(1, 3, figsize=(15, 4.4), layout="constrained")
    plain = [each for each in weighed if each.shape.is_plain]
    counts = [each.shape.topics for each in plain]
    for name, style, colour, label in (
        ("longest", "v:", PEER, "longest"),
        ("p99", "^:", SECOND, "99th percentile"),
        ("mean", "o-", OURS, "mean"),
    ):
        times.plot(
            counts, [getattr(each.heard.all_ms, name) for each in plain], style, color=colour, label=label
        )
    times.plot(counts, [each.floor_ms for each in plain], "-", color=FLOOR, lw=1, label="the delays alone")
    times.set_ylim(bottom=0)
    finish(times, "Figure 7a: real brokers", "topics, 20 messages/s each", "ms from publisher to subscriber")
    rates = [each.messages_s for each in plain]
    brokers = (
        ("source", "s-", SECOND, "publishers' edge broker"),
        ("target", "o-", OURS, "subscribers' edge broker"),
        ("hub", "v-", PEER, "hub"),
    )
    for name, style, colour, label in brokers:
        shares.plot(
            rates, [100 * getattr(each, name).share for each in plain], style, color=colour, label=label
        )
    shares.set_ylim(bottom=0)
    finish(shares, "Figure 7d: what they take", "messages/s", "% of a processor")
    each_network = [each.size.topics * each.size.networks // each.size.targets for each in virtual]
    for name, style, colour, label in (
        ("source_share", "s-", SECOND, "publishers' edge brokers"),
        ("target_share", "o-", OURS, "subscribers' edge brokers"),
        ("hub_share_most", "v-", PEER, "busiest hub"),
    ):
        heights = [100 * getattr(each, name) for each in virtual]
        model.plot(each_network, heights, style, color=colour, label=label)
    model.set_ylim(bottom=0)
    finish(model, "Figure 7d, virtual: 120 edge brokers, 40 hubs", "topics a network", "% of a processor")
    save(figure, out / "topics.png")


def draw_hubs(stands: Sequence[Stand], virtual: Sequence[Virtual], out: Path) -> None:
    """Figures 7b and 7e."""
    figure, (carried, course, model) = pyplot().subplots(1, 3, figsize=(15, 4.4), layout="constrained")
    counts = [each.hubs for each in stands]
    one = stands[0].capacity_s / stands[0].hubs
    carried.plot(
        counts,
        [each.capacity_s for each in stands],
        "o-",
        color=OURS,
        label="ours: the highest rate followed",
    )
    carried.plot(
        counts, [one * count for count in counts], "--", color=THEIRS, label="so many times one hub's"
    )
    carried.set_ylim(bottom=0)
    share = 100 * stands[0].share
    finish(carried, f"Figure 7b: hubs of {share:g} % of a processor", "hubs", "messages/s")
    for (before, each), colour in zip(pairwise(stands), (OURS, SECOND, PEER), strict=False):
        if each.added is not None:
            windows = each.added.windows
            label = f"to {each.hubs} hubs, {each.added.offered_s:,.0f} messages/s"
            times = [window.at_s for window in windows]
            course.plot(times, [window.p99_ms for window in windows], "-", color=colour, label=label)
            course.axhline(WITHIN * before.rest_p99_ms, color=colour, ls=":", lw=1)
    course.set_ylim(bottom=0)
    finish(course, "Hubs are added under too much load", "seconds since the order", "ms, 99th percentile")
    sizes = [each.size.hubs for each in virtual]
    model.plot(
        sizes,
        [100 * each.hub_share_most for each in virtual],
        "v-",
        color=PEER,
        label="ours: the busiest hub",
    )
    model.axhline(100.0, color=THEIRS, ls="--", lw=1, label="saturated, as the paper's are with 5")
    model.set_ylim(bottom=0)
    finish(model, "Figure 7e, virtual: 20,000 messages/s in, 200,000 out", "hubs", "% of a processor")
    save(figure, out / "hubs.png")


def draw_deadline(flows: Sequence[Flow], out: Path) -> None:
    """Figure 8."""
    figure, (single, table, costs) = pyplot().subplots(1, 3, figsize=(16, 4.8), layout="constrained")
    paths = [each for each in flows if not each.case]
    for loss, colour in ((0.0, PEER), (0.01, OURS)):
        mine = [each for each in paths if each.paths.up.loss == loss]
        delays = [1e3 * each.paths.up.delay_s for each in mine]
        for name, style, label in (("longest", "^:", "longest"), ("mean", "o-", "mean")):
            heights = [getattr(each.own.all_ms, name) for each in mine]
            single.plot(delays, heights, style, color=colour, label=f"{100 * loss:g} % lost, {label}")
    floor = sorted({(1e3 * each.paths.up.delay_s, each.floor_ms) for each in paths})
    if floor:
        single.plot(*zip(*floor, strict=True), "-", color=FLOOR, lw=1, label="the delays alone")
    single.set_ylim(bottom=0)
    finish(
        single, "Figure 8a: one path over the routing broker", "ms of delay on each of its two links", "ms"
    )
    worst = next((each.own.all_ms.mean for each in paths[::-1] if each.paths.up.loss), None)
    kinds = [kind for kind in SAYS if any(each.kind == kind and each.case for each in flows)]
    width = 0.8 / max(1, len(kinds))
    colours = dict(zip(SAYS, (THEIRS, SECOND, OURS), strict=False))
    for place, kind in enumerate(kinds):
        mine = [each for each in flows if each.kind == kind and each.case]
        at = [each.case + (place - (len(kinds) - 1) / 2) * width for each in mine]
        means = [each.own.all_ms.mean for each in mine]
        bars = table.bar(at, means, width, color=colours[kind], label=SAYS[kind])
        table.bar_label(bars, [f"{mean:.0f}" for mean in means], fontsize=6)
        costs.bar(at, [each.message_bytes for each in mine], width, color=colours[kind], label=SAYS[kind])
    if worst is not None:
        table.axhline(worst, color=PEER, ls="--", lw=1, label="one path of 125 ms and 1 %")
    for axes in (table, costs):
        axes.set_xticks(range(1, 1 + len(CASES)), [f"{at}\n{case}" for at, case in enumerate(CASES, 1)])
    finish(table, "Figure 8b: mean by the case of Table 1 (L1 direct, L2 and L3 relayed)", "", "ms")
    for axes in (table, costs):
        axes.set_ylim(top=1.3 * axes.get_ylim()[1])
    finish(costs, "Figure 8c: on all links, for a message of 64 bytes", "", "bytes, with headers")
    save(figure, out / "deadline.png")

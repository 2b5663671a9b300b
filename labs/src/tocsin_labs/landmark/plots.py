"""The results as pictures, with the paper's values drawn in."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any, Final

from tocsin_labs.drawing import finish, pyplot, save
from tocsin_labs.landmark import paper
from tocsin_labs.landmark.bandwidth import Narrowed
from tocsin_labs.landmark.control import Controlled
from tocsin_labs.landmark.latency import Trial
from tocsin_labs.landmark.objects import Kind, Recovered, slope
from tocsin_labs.landmark.scale import Kill, Rest
from tocsin_labs.landmark.sequence import FROZEN, Sequenced
from tocsin_labs.landmark.tables import mean, mean_of_all

OURS: Final = "#c0392b"
SECOND: Final = "#e67e22"
THIRD: Final = "#2e5cb8"
THEIRS: Final = "#555555"
PLACES: Final = (
    "#d5e8d4",
    "#dae8fc",
    "#ffe6cc",
    "#e1d5e7",
)  # behind a time sequence: where the subscriber is
SIZES: Final = (OURS, SECOND, THIRD, "#27ae60")  # of simulated networks
DETECTS: Final = {"default": OURS, "aggressive": THIRD}


def draw_control(found: Sequence[Controlled], out: Path) -> None:
    """Table 1."""
    figure, axes = pyplot().subplots(figsize=(8, 4.8), layout="constrained")
    axes.plot(*zip(*paper.CONTROL.items(), strict=True), "s--", color=THEIRS, label="paper")
    brokers = [each.brokers for each in found]
    deviations = [each.total.deviation for each in found]
    axes.errorbar(
        brokers,
        [each.total.mean for each in found],
        yerr=deviations,
        fmt="o-",
        capsize=3,
        color=OURS,
        label="ours: all between processes, with headers",
    )
    axes.plot(
        brokers, [each.payload for each in found], "^-", color=SECOND, label="ours: the same without headers"
    )
    axes.plot(brokers, [each.heartbeats for each in found], "v-", color=THIRD, label="ours: heartbeats alone")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    finish(axes, "Table 1: control traffic while nothing happens", "brokers", "KB/s")
    save(figure, out / "control.png")


def draw_objects(found: Sequence[Recovered], out: Path) -> None:
    """Tables 2 and 3."""
    figure, panels = pyplot().subplots(1, 2, figsize=(11, 4.6), layout="constrained", sharey=True)
    kinds: tuple[tuple[Kind, str, dict[int, float]], ...] = (
        ("queues", "Table 2: recovering queues (sessions)", paper.QUEUES),
        ("routes", "Table 3: recovering routes (subscriptions)", paper.ROUTES),
    )
    for axes, (kind, title, published) in zip(panels, kinds, strict=True):
        mine = [each for each in found if each.kind == kind]
        counts = sorted({each.count for each in mine})
        some = {count: [each for each in mine if each.count == count] for count in counts}
        axes.plot(*zip(*published.items(), strict=True), "s--", color=THEIRS, label="paper")
        axes.plot([each.count for each in mine], [each.total for each in mine], ".", color=OURS, alpha=0.5)
        for name, colour, mark, words in (
            ("total", OURS, "o-", "ours: all between processes"),
            ("coordinator", THIRD, "v-", "ours: the coordinator's part"),
            ("clients", SECOND, "^-", "ours: clients that come back"),
        ):
            axes.plot(counts, [mean(some[count], name) for count in counts], mark, color=colour, label=words)
        finish(axes, title, kind, "KB over what flows anyway")
    panels[0].set_ylim(bottom=0)
    save(figure, out / "objects.png")


def draw_latency(trials: Sequence[Trial], out: Path) -> None:
    """Table 4."""
    figure, axes = pyplot().subplots(figsize=(8.5, 5.2), layout="constrained")
    theirs = paper.LATENCY
    axes.errorbar(
        list(theirs),
        [each.mean for each in theirs.values()],
        yerr=[
            [each.mean - each.shortest for each in theirs.values()],
            [each.longest - each.mean for each in theirs.values()],
        ],
        fmt="s--",
        capsize=3,
        color=THEIRS,
        label="paper: recovered, a standby in each place (mean, shortest, longest)",
    )
    for detect in dict.fromkeys(trial.detect for trial in trials):
        mine = [trial for trial in trials if trial.detect == detect]
        _recovered(axes, mine, DETECTS[detect], f"ours, {detect} detection")
    axes.set_ylim(bottom=0)
    axes.set_xticks(sorted({*theirs, *(trial.failures for trial in trials)}))
    finish(axes, "Table 4: from the kill of so many brokers at once", "brokers that fail", "seconds")
    save(figure, out / "latency.png")


def _recovered(axes: Any, trials: Sequence[Trial], colour: str, words: str) -> None:
    for name, mark, label in (
        ("replaced_s", "o-", "a standby in each place (mean, shortest, longest)"),
        ("recovered_s", "x-.", "its backup stands in, and all its subscribers are served"),
        ("served_s", "^:", "all subscribers have a new message"),
    ):
        times: dict[int, list[float]] = {}
        for trial in trials:
            found = trial.last(name)
            if found is not None:
                times.setdefault(trial.failures, []).append(found)
        counts = sorted(times)
        if not counts:
            continue
        means = [sum(times[count]) / len(times[count]) for count in counts]
        spans = [
            [middle - min(times[count]) for count, middle in zip(counts, means, strict=True)],
            [max(times[count]) - middle for count, middle in zip(counts, means, strict=True)],
        ]
        axes.errorbar(counts, means, yerr=spans, fmt=mark, capsize=3, color=colour, label=f"{words}: {label}")


def draw_bandwidth(found: Sequence[Narrowed], out: Path) -> None:
    """Table 4 under each condition; a panel for each number of failures."""
    counts = sorted({trial.failures for each in found for trial in each.trials})
    figure, panels = pyplot().subplots(
        1, max(1, len(counts)), figsize=(6.5 * max(1, len(counts)), 4.8), layout="constrained", squeeze=False
    )
    for axes, failures in zip(panels[0], counts, strict=True):
        for name, mark, colour, label in (
            ("replaced_s", "o-", OURS, "ours: a standby in each place"),
            ("served_s", "^:", THIRD, "ours: all subscribers have a new message"),
        ):
            heights = [
                mean_of_all([trial for trial in each.trials if trial.failures == failures], name)
                for each in found
            ]
            shown = [nan if height is None else height for height in heights]  # a gap: not in all runs
            axes.plot(range(len(found)), shown, mark, color=colour, label=label)
        theirs = paper.LATENCY.get(failures)
        if theirs is not None:
            axes.axhline(theirs.mean, color=THEIRS, ls="--", label="paper, links of 10 Mbit/s: recovered")
        axes.set_xticks(range(len(found)), [each.condition.words.replace(", ", ",\n") for each in found])
        axes.tick_params(axis="x", labelsize=7)
        axes.set_ylim(bottom=0)
        finish(axes, f"Table 4: {failures} killed at once", "what the network carries", "seconds")
    save(figure, out / "bandwidth.png")


def draw_sequence(found: Sequence[Sequenced], out: Path) -> None:
    """Figure 8: a panel for each way."""
    figure, panels = pyplot().subplots(
        len(found), figsize=(10, 4.6 * len(found)), squeeze=False, layout="constrained"
    )
    for axes, each in zip(panels[:, 0], found, strict=True):
        _sequence(axes, each)
    save(figure, out / "sequence.png")


def _sequence(axes: Any, found: Sequenced) -> None:
    numbers = [each.number for each in found.messages]
    axes.plot([each.sent_s for each in found.messages], numbers, "-", color=THEIRS, lw=1, label="sent")
    arrived = [each for each in found.messages if each.arrived_s is not None]
    axes.plot(
        [each.arrived_s for each in arrived],
        [each.number for each in arrived],
        "o",
        color=OURS,
        ms=3,
        label="arrived",
    )
    expired = [each for each in found.messages if each.expires and each.arrived_s is None]
    if expired:
        axes.plot(
            [each.sent_s for each in expired],
            [each.number for each in expired],
            "x",
            color=THIRD,
            ms=5,
            label="expired, given to nobody",
        )
    end = max([each.arrived_s for each in arrived if each.arrived_s is not None], default=0.0)
    colours: dict[str, str] = {}
    for at, visit in enumerate(found.visits):
        until = found.visits[at + 1].at_s if at + 1 < len(found.visits) else end
        label = None if visit.broker in colours else f"subscriber at {visit.broker}"
        colour = colours.setdefault(visit.broker, PLACES[len(colours) % len(PLACES)])
        axes.axvspan(max(visit.at_s, 0.0), max(until, 0.0), color=colour, alpha=0.8, lw=0, label=label)
    for moment, style, words in (
        (found.killed_s, "-", "its broker is frozen" if found.way in FROZEN else "its broker is killed"),
        (found.detected_s, "--", "detected, backup stands in"),
        (found.replaced_s, "-.", "a standby has its place"),
        (found.back_s, ":", "the broker is back"),
    ):
        if moment is not None:
            axes.axvline(moment, color="black", lw=1, ls=style, label=words)
    lost = f"{found.account.lost} of {found.account.due} messages lost"
    finish(axes, f"Fig 8, {found.way}: {lost}", "seconds", "message")
    axes.legend(fontsize=8, loc="upper left")


def draw_scale(rests: Sequence[Rest], kills: Sequence[Kill], out: Path) -> None:
    """Tables 1 and 4 in virtual time: time by failures, traffic by brokers, and what the leader takes."""
    figure, panels = pyplot().subplot_mosaic(
        [["falls", "falls"], ["traffic", "leader"]], figsize=(11, 10), layout="constrained"
    )
    _falls(panels["falls"], kills)
    _traffic(panels["traffic"], rests)
    _leader(panels["leader"], rests, kills)
    save(figure, out / "scale.png")


def _falls(axes: Any, kills: Sequence[Kill]) -> None:
    means = [each.mean for each in paper.LATENCY.values()]
    axes.plot(list(paper.LATENCY), means, "s--", color=THEIRS, label="paper, 24 brokers: recovered")
    sizes = list(dict.fromkeys(kill.brokers for kill in kills))
    for detect, marks in (("default", "o-"), ("aggressive", "^:")):
        for brokers in sizes:
            mine = [kill for kill in kills if (kill.brokers, kill.detect) == (brokers, detect)]
            colour = SIZES[sizes.index(brokers) % len(SIZES)]
            for name, mark, words in (
                ("taken_over_s", marks, "taken over"),
                ("planned_s", "x" + marks[1:], "backups again"),
            ):
                points = _by_failures(mine, name)
                if points and (detect == "default" or name == "taken_over_s"):
                    label = f"{brokers} brokers, {detect}: {words}"
                    axes.plot(*zip(*points, strict=True), mark, color=colour, ms=4, lw=1, label=label)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    finish(
        axes, "Table 4, simulated: from the kill of so many at once", "brokers that fail", "virtual seconds"
    )
    axes.legend(fontsize=8, ncols=2)


def _by_failures(kills: Sequence[Kill], name: str) -> list[tuple[int, float]]:
    times: dict[int, list[float]] = {}
    for kill in kills:
        found = getattr(kill, name)
        if found is not None:
            times.setdefault(len(kill.fates), []).append(found)
    return [(count, sum(some) / len(some)) for count, some in sorted(times.items())]


def _traffic(axes: Any, rests: Sequence[Rest]) -> None:
    axes.plot(*zip(*paper.CONTROL.items(), strict=True), "s", color=THEIRS, label="paper")
    line = slope([(float(brokers), kb) for brokers, kb in paper.CONTROL.items()])
    most = max([*paper.CONTROL, *(rest.brokers for rest in rests)])
    if line is not None:
        ends = (min(paper.CONTROL), most)
        heights = [line[0] + line[1] * each for each in ends]
        axes.plot(ends, heights, "--", color=THEIRS, lw=1, label=f"its line: {line[1]:.2g} KB/s a broker")
    for detect in dict.fromkeys(rest.detect for rest in rests):
        points = sorted((rest.brokers, rest.heartbeats) for rest in rests if rest.detect == detect)
        colour = DETECTS[detect]
        axes.plot(*zip(*points, strict=True), "o-", color=colour, label=f"ours: heartbeats, {detect}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    finish(axes, "Table 1, simulated: at rest", "brokers", "KB/s")


def _leader(axes: Any, rests: Sequence[Rest], kills: Sequence[Kill]) -> None:
    for detect in dict.fromkeys(rest.detect for rest in rests):
        points = sorted((rest.brokers, 100 * rest.effort.share) for rest in rests if rest.detect == detect)
        axes.plot(*zip(*points, strict=True), "o-", color=DETECTS[detect], label=f"at rest, {detect}")
        spent: dict[int, tuple[float, float]] = {}
        for kill in kills:
            if kill.detect == detect:
                leader_s, span_s = spent.get(kill.brokers, (0.0, 0.0))
                spent[kill.brokers] = leader_s + kill.effort.leader_s, span_s + kill.effort.span_s
        busy = [(brokers, 100 * leader_s / span_s) for brokers, (leader_s, span_s) in sorted(spent.items())]
        if busy:
            label = f"while brokers recover, {detect}"
            axes.plot(*zip(*busy, strict=True), "^:", color=DETECTS[detect], label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    finish(axes, "The leader (measured)", "brokers", "% of one processor")

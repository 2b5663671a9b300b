"""The results as pictures like the paper's figures 4 and 5.

Where the paper's text has a value it is drawn in. Where it has none, the title quotes its statement: no point of its
curves is made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tocsin_labs.drawing import finish, pyplot, save
from tocsin_labs.reaps import paper
from tocsin_labs.reaps.failures import ONE_BY_ONE, ONE_EACH, Failed
from tocsin_labs.reaps.overheads import Overhead
from tocsin_labs.reaps.rates import Rates
from tocsin_labs.reaps.replication import Replicated
from tocsin_labs.reaps.retrieval import REAPS, Retrieved

ORIGINAL: Final = "#c0392b"  # red, green and black as in the paper
GREEN: Final = "#1e8449"
BLACK: Final = "#222222"
OURS: Final = "#2e5cb8"
BOUND: Final = "#999999"
THEIRS: Final = "#e67e22"
COLOURS: Final = {"RND": BLACK, "LCS/MMCS": GREEN, "ours": OURS}
MARKS: Final = {"RND": "s", "LCS/MMCS": "o", "ours": "^"}
FAILED_COLOURS: Final = {**COLOURS, ONE_BY_ONE: ORIGINAL, ONE_EACH: BOUND}  # of Figs 5a and 5b
FAILED_MARKS: Final = {**MARKS, ONE_BY_ONE: "v", ONE_EACH: "x"}
TIMES: Final = ("served_s", "longest_s")  # which differ if subscriptions are created one by one
FAILED_NAMES: Final = {"LCS/MMCS": "REAPS", ONE_BY_ONE: "REAPS, created one by one", ONE_EACH: "one each"}


def draw_retrieval(rows: Sequence[Retrieved], out: Path) -> None:
    """Figure 4a."""
    figure, axes = pyplot().subplots(figsize=(8, 4.8), layout="constrained")
    styles = {
        REAPS: (GREEN, "o", "-"),
        "AR, RND": (BLACK, "s", "-"),
        "AR, LCS/MMCS": (ORIGINAL, "v", "-"),
        "AR, ours": (OURS, "^", "--"),
    }
    for scheme, (colour, mark, line) in styles.items():
        series = [each for each in rows if each.scheme == scheme]
        where = [each.subscribers for each in series]
        axes.plot(where, [each.mean_mb_s for each in series], line, color=colour, marker=mark, label=scheme)
    own = [each for each in rows if each.scheme == REAPS]
    theirs = [each.mean_mb_s * (1 + paper.NOTIFICATION_OVERHEAD) for each in own]
    label = "paper: REAPS adds nothing to what is asked for"
    axes.plot([each.subscribers for each in own], theirs, ":", color=THEIRS, lw=3, zorder=0, label=label)
    axes.set_ylim(bottom=0)
    title = (
        "4a: fetched from the backend (the paper's text: AR more than REAPS, less so with similar backups)"
    )
    finish(axes, title, "subscribers", "MB/s, mean of a broker")
    save(figure, out / "retrieval.png")


def draw_subscriptions(rows: Sequence[Overhead], out: Path) -> None:
    """Figure 4b: totals, and beside it what backups add, where the differences can be seen."""
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    where = [each.subscribers for each in rows]
    original = [each.original for each in rows]
    left.plot(where, original, color=ORIGINAL, marker=".", label="original")
    series = {
        "RND": [each.random.overhead for each in rows],
        "LCS/MMCS": [each.paper.overhead for each in rows],
        "ours": [each.ours.overhead for each in rows],
    }
    for name, added in series.items():
        label = "REAPS (LCS)" if name == "LCS/MMCS" else name
        line = "--" if name == "ours" else "-"
        totals = [own + more for own, more in zip(original, added, strict=True)]
        left.plot(where, totals, line, color=COLOURS[name], marker=MARKS[name], ms=4, label=f"+ {label}")
        right.plot(where, added, line, color=COLOURS[name], marker=MARKS[name], ms=4, label=label)
    active = [each.active for each in rows]
    left.plot(where, active, ":", color=THEIRS, lw=2, label="active replication, backups of REAPS")
    at_random = [each.active_random for each in rows]
    left.plot(where, at_random, ":", color=BLACK, label="active replication, backups of RND")
    right.plot(where, [each.bound for each in rows], ":", color=BOUND, label="no plan can have less")
    right.set_yscale("log")
    for axes in (left, right):
        axes.set_xlabel("subscribers")
    finish(
        left,
        "4b: subscriptions at the backend (the paper's text: REAPS below RND)",
        "subscribers",
        "all brokers",
    )
    finish(right, "what local backups add", "subscribers", "subscriptions")
    save(figure, out / "subscriptions.png")


def draw_remote(rows: Sequence[Overhead], conditions: Sequence[Overhead], out: Path) -> None:
    """Figure 4c, and the same where brokers have little room."""
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(13, 4.8), layout="constrained")
    where = [each.subscribers for each in rows]
    left.plot(
        where, [each.mean_original for each in rows], color=ORIGINAL, marker=".", label="original, mean"
    )
    left.plot(where, [each.random.largest for each in rows], color=BLACK, marker="s", ms=4, label="RND")
    left.plot(
        where, [each.paper.largest for each in rows], color=GREEN, marker="o", ms=6, label="REAPS (MMCS)"
    )
    left.plot(where, [each.ours.largest for each in rows], "--", color=OURS, marker="^", ms=4, label="ours")
    left.axhline(
        paper.REMOTE_MAX, color=THEIRS, ls=":", lw=3, zorder=0, label=f"paper, REAPS: {paper.REMOTE_MAX}"
    )
    finish(left, "4c: remote subscriptions that the worst broker creates", "subscribers", "subscriptions")
    places = range(len(conditions))
    for number, (name, label) in enumerate((("random", "RND"), ("paper", "REAPS (MMCS)"), ("ours", "ours"))):
        colour = (BLACK, GREEN, OURS)[number]
        heights = [getattr(each, name).largest for each in conditions]
        bars = right.bar(
            [at + (number - 1) * 0.27 for at in places], heights, 0.27, color=colour, label=label
        )
        right.bar_label(bars, [f"{height:.0f}" for height in heights], fontsize=7)
    for at, each in enumerate(conditions):
        said = "no plan with our locals can have less" if at == 0 else None
        right.hlines(each.largest_bound, at - 0.42, at + 0.42, color=THEIRS, lw=1.6, label=said)
    right.set_xticks(places, [each.condition.replace(", ", "\n") for each in conditions], fontsize=8)
    finish(right, "the same with little room, or regional interests", "", "subscriptions")
    save(figure, out / "remote.png")


def draw_replication(rows: Sequence[Replicated], out: Path) -> None:
    """Figure 4d."""
    figure, axes = pyplot().subplots(figsize=(8, 5), layout="constrained")
    for mode, colour, mark, label in (
        ("periodic", GREEN, "o", "periodic (s between two)"),
        ("clients", OURS, "^", "threshold: clients that differ"),
        ("volume", BLACK, "s", "threshold: MB delivered and out of sync"),
        ("ideal", BOUND, "x", "threshold: MB fetched and out of sync, at once (a model)"),
    ):
        series = [each for each in rows if each.mode == mode]
        xs, ys = [each.messages_min for each in series], [each.retrieved_mb for each in series]
        axes.plot(xs, ys, color=colour, marker=mark, ms=5, label=label)
        if mode == "periodic":
            for each in series:
                where = (each.messages_min, each.retrieved_mb)
                axes.annotate(
                    f"{each.setting:g} s", where, xytext=(5, 4), textcoords="offset points", fontsize=7
                )
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    title = "4d: replication of positions (the paper's text: threshold slightly below periodic)"
    finish(axes, title, "updates a minute, one broker to both backups", "MB fetched twice if it failed, mean")
    save(figure, out / "replication.png")


def _microseconds(costs: Sequence[float]) -> str:
    return ", ".join(f"{each * 1e6:.0f}" for each in costs)


def _panels(rows: Sequence[Failed], name: str, titles: str, up: str, axes: Sequence[Any]) -> None:
    """One panel for each room."""
    for panel, room in zip(axes, dict.fromkeys(each.room for each in rows), strict=True):
        for scheme, colour in FAILED_COLOURS.items():
            series = [each for each in rows if each.scheme == scheme and each.room == room]
            if not series or (scheme == ONE_BY_ONE and name not in TIMES):
                continue
            xs, ys = [each.failed for each in series], [getattr(each, name) for each in series]
            line = "--" if scheme == "ours" else "-"
            label = FAILED_NAMES.get(scheme, scheme)
            panel.plot(xs, ys, line, color=colour, marker=FAILED_MARKS[scheme], ms=4, label=label)
        panel.set_ylim(bottom=0)
        bound = "no bound on load" if room is None else f"room for {room:g} mean loads"
        finish(panel, f"{titles}, {bound}", "failed brokers of one cluster", up)


def draw_duplicates(rows: Sequence[Failed], out: Path) -> None:
    """Figure 5a: what is fetched twice, and what is delivered twice."""
    rooms = len({each.room for each in rows})
    figure, grid = pyplot().subplots(2, rooms, figsize=(6 * rooms, 8), squeeze=False, layout="constrained")
    _panels(rows, "retrieved_mb", "5a: fetched twice", "MB", grid[0])
    _panels(rows, "delivered_mb", "delivered twice", "MB, all subscribers", grid[1])
    save(figure, out / "duplicates.png")


def draw_failovers(rows: Sequence[Failed], rates: Rates, out: Path) -> None:
    """Figure 5b: remote fail-overs, and how long it takes."""
    rooms = len({each.room for each in rows})
    figure, grid = pyplot().subplots(4, rooms, figsize=(6 * rooms, 14), squeeze=False, layout="constrained")
    _panels(rows, "remote_brokers", "5b: remote fail-overs", "brokers", grid[0])
    _panels(rows, "created", "created for them", "subscriptions", grid[1])
    _panels(rows, "served_s", "5b: until all are served again", "s from the word of the loss", grid[2])
    _panels(rows, "longest_s", "5b: until all have what they missed", "s from the word of the loss", grid[3])
    broker = (rates.client_s, rates.prepared_s, rates.created_s)
    store = (rates.client_store_s, rates.prepared_store_s, rates.created_store_s)
    figure.supxlabel(
        "measured processor time of a client, a prepared and a created subscription: "
        f"{_microseconds(broker)} µs of the broker, {_microseconds(store)} µs of the store; one by one "
        f"{rates.single_s * 1e3:.1f} ms each; links of {rates.fetched_bytes_s / 1e6:g} MB/s",
        fontsize=8,
    )
    save(figure, out / "failovers.png")

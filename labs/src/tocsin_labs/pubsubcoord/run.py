"""The experiments one after the other, and what is written down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from tocsin_labs import drawing, record
from tocsin_labs.figures import Comparison, markdown
from tocsin_labs.pubsubcoord import failure, joining, locality, plots, tables
from tocsin_labs.pubsubcoord.failure import Failed
from tocsin_labs.pubsubcoord.joining import Joined
from tocsin_labs.pubsubcoord.locality import Kept, Point
from tocsin_labs.pubsubcoord.plan import Plan
from tocsin_labs.stage import Stage

EXPERIMENTS: Final = ("locality", "failure", "joining")
COMMAND: Final = "tocsin lab pubsubcoord"


class Results(msgspec.Struct):
    """All that was found, and where."""

    plan: Plan
    command: str  # that was given
    day: str
    machine: dict[str, str | int]
    points: list[Point] = []  # Figure 6
    kept: list[Kept] = []  # what of local traffic is on the links between LANs
    failures: list[Failed] = []
    joined: list[Joined] = []  # Figure 7c
    partial: bool = False  # it was cut short


def begin(plan: Plan, command: str = COMMAND) -> Results:
    """Nothing found yet."""
    return Results(plan, command, record.today(), record.machine())


async def run(
    plan: Plan, stage: Stage, only: Collection[str] = EXPERIMENTS, command: str = COMMAND
) -> Results:
    """Those experiments, in order; what was found is written after each, however it ends."""
    results = begin(plan, command)
    write(results, stage.out)
    acts: dict[str, Callable[[], Awaitable[None]]] = {
        "locality": lambda: locality.run(plan, stage, results.points, results.kept),
        "failure": lambda: failure.run(plan, stage, results.failures),
        "joining": lambda: joining.run(plan, stage, results.joined),
    }
    for name in EXPERIMENTS:
        if name in only and not stage.is_cut:
            results.partial = True
            try:
                await acts[name]()
                results.partial = stage.is_cut
            finally:
                write(results, stage.out)
    return results


def comparisons(results: Results) -> list[Comparison]:
    """Paper and ours, of all that was measured."""
    return [
        *tables.locality_rows(results.points, results.kept),
        *tables.failure_rows(results.failures),
        *tables.joining_rows(results.joined),
    ]


def heading(results: Results) -> str:
    """One sentence: the run that the figures are of."""
    cut = " It was cut short: the figures are of what there was by then." if results.partial else ""
    wan, processors = results.plan.wan, results.machine["processors"]
    lans = f"{wan.lans} LANs with an edge broker each and {wan.hubs} routing brokers"
    lags = f"round trips of {2e3 * wan.lan_lag_s:g} ms in a LAN and {2e3 * wan.wan_lag_s:g} ms to the cloud"
    where = f"one machine of {processors} processors"
    return (
        f"Measured with {results.plan.words}, seed {results.plan.seed}: {lans}, emulated {lags}, "
        f"real processes, all on {where}.{cut}"
    )


def summary(results: Results) -> str:
    """A page of its own: what was done, and the table."""
    wrote = f"`{results.command}` wrote this page on {results.day}."
    table = markdown(comparisons(results))
    return f"# Figures of the PubSubCoord experiments\n\n{wrote} {heading(results)}\n\n{table}"


# ── what is written ──────────────────────────────────────────────────────────────────────────────────────────

LOCALITY: Final = (
    "system", "topics", "locality", "floor_ms", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "longest_ms", "local_ms",
    "across_ms", "between_p99_ms", "sent", "lost", "doubled", "disordered", "edge_share", "edge_mb", "hub_share",
    "hub_mb", "late_p99_ms",
)  # fmt: skip
FAILURE: Final = (
    "way", "part", "flight", "empty_s", "sent", "lost", "doubled", "disordered", "interrupted", "longest_ms",
    "mean_ms", "p99_ms",
)  # fmt: skip

JOINING: Final = (
    "joins", "missing", "p50_ms", "p95_ms", "p99_ms", "longest_ms", "took_s", "log_entries", "log_bytes", "leader_s",
    "leader_mb",
)  # fmt: skip


def write(results: Results, out: Path) -> None:
    record.write_results(out, results, comparisons(results), summary(results))
    if results.points:
        record.write_rows(out / "locality.csv", LOCALITY, map(_point, results.points))
    if results.failures:
        record.write_rows(out / "failure.csv", FAILURE, map(_failed, results.failures))
    if results.joined:
        record.write_rows(out / "joining.csv", JOINING, map(_joined, results.joined))


def _point(each: Point) -> tuple[Any, ...]:
    heard, spread = each.heard, each.heard.all_ms
    means = (None if some is None else some.mean for some in (heard.local_ms, heard.across_ms))
    times = spread.mean, spread.p50, spread.p95, spread.p99, spread.longest, *means, heard.between_ms.p99
    counts = heard.sent, heard.lost, heard.doubled, heard.disordered
    costs = each.edges.share, each.edges.mb, each.hubs.share, each.hubs.mb
    own = each.system, each.topics, each.locality, each.floor_ms
    return *own, *times, *counts, *costs, heard.late_ms.p99


def _failed(each: Failed) -> tuple[Any, ...]:
    heard = each.heard
    counts = heard.sent, heard.lost, heard.doubled, heard.disordered, len(each.interrupted)
    times = 1e3 * max(heard.silences_s), heard.all_ms.mean, heard.all_ms.p99
    return each.way, each.part, each.flight, each.empty_s, *counts, *times


def _joined(each: Joined) -> tuple[Any, ...]:
    told, spread = each.told, each.told.force_ms
    times = spread.p50, spread.p95, spread.p99, spread.longest, told.took_s
    return told.joins, told.missing, *times, each.log_entries, each.log_bytes, each.leader_s, each.leader_mb


def draw(results: Results, out: Path) -> str:
    """Draw the results; returns a sentence that says what was drawn."""
    if not drawing.available():
        return drawing.MISSING
    if results.points:
        plots.draw_locality(results.points, out)
    if results.failures:
        plots.draw_failure(results.failures, out)
    if results.joined:
        plots.draw_joining(results.joined, out)
    return f"pictures are in {out}"

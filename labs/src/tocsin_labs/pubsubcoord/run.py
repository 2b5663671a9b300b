"""The experiments one after the other, and what is written down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from tocsin_labs import drawing, record, statements
from tocsin_labs.figures import Comparison, markdown
from tocsin_labs.pubsubcoord import (
    claims,
    deadline,
    failure,
    hubs,
    joining,
    locality,
    places,
    plots,
    quota,
    tables,
    topics,
)
from tocsin_labs.pubsubcoord.deadline import Flow
from tocsin_labs.pubsubcoord.failure import Failed
from tocsin_labs.pubsubcoord.hubs import Stand, Step
from tocsin_labs.pubsubcoord.joining import Joined
from tocsin_labs.pubsubcoord.locality import Kept, Point
from tocsin_labs.pubsubcoord.plan import Plan
from tocsin_labs.pubsubcoord.topics import Weighed
from tocsin_labs.pubsubcoord.virtual import Virtual
from tocsin_labs.stage import Stage
from tocsin_labs.statements import Claim

EXPERIMENTS: Final = ("locality", "topics", "hubs", "joining", "deadline", "failure")
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
    weighed: list[Weighed] = []  # Figures 7a and 7d: what topics take …
    crowded: list[Virtual] = []  # … and the paper's network, with ever more of them
    stands: list[Stand] = []  # Figures 7b and 7e: what so many hubs carry …
    clouds: list[Virtual] = []  # … and the paper's network, with ever more hubs
    flows: list[Flow] = []  # Figure 8, Table 1
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
        "topics": lambda: topics.run(plan, stage, results.weighed, results.crowded),
        "hubs": lambda: hubs.run(plan, stage, results.weighed, results.stands, results.clouds),
        "deadline": lambda: deadline.run(plan, stage, results.flows),
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


def impossible() -> dict[str, str]:
    """The experiments that this machine, or this user, cannot run, and why."""
    found = {
        "deadline": places.problem(),
        "hubs": "" if quota.place() else "no control group can be made here",
    }
    return {name: why for name, why in found.items() if why}


def stated(results: Results) -> list[Claim]:
    """What the paper says in words, held against what was measured."""
    return [
        *claims.of_topics(results.weighed),
        *claims.of_hubs(results.stands, results.clouds),
        *claims.of_deadlines(results.flows),
    ]


def comparisons(results: Results) -> list[Comparison]:
    """Paper and ours, of all that was measured."""
    return [
        *tables.locality_rows(results.points, results.kept),
        *tables.topics_rows(results.weighed, results.crowded),
        *tables.hubs_rows(results.stands, results.clouds),
        *tables.joining_rows(results.joined),
        *tables.deadline_rows(results.flows),
        *tables.failure_rows(results.failures),
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
    said, table = stated(results), markdown(comparisons(results))
    paper = f"{statements.markdown(said)}\n" if said else ""
    return f"# Figures of the PubSubCoord experiments\n\n{wrote} {heading(results)}\n\n{paper}{table}"


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
TOPICS: Final = (
    "topics", "readers", "lans", "messages_s", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "longest_ms", "lost", "doubled",
    "disordered", "source_share", "hub_share", "target_share", "late_p99_ms",
)  # fmt: skip
HUBS: Final = (
    "hubs", "share", "offered_s", "follows", "p50_ms", "p99_ms", "lost", "hub_share", "hub_share_most", "late_p99_ms",
)  # fmt: skip
VIRTUAL: Final = (
    "topics", "hubs", "in_s", "out_s", "floor_ms", "mean_ms", "p50_ms", "p99_ms", "longest_ms", "source_share",
    "hub_share", "hub_share_most", "target_share", "uneven",
)  # fmt: skip
DEADLINE: Final = (
    "kind", "case", "direct_ms", "direct_loss", "up_ms", "up_loss", "down_ms", "down_loss", "floor_ms", "mean_ms",
    "p50_ms", "p95_ms", "p99_ms", "longest_ms", "sent", "lost", "doubled", "disordered", "message_bytes",
    "further_bytes", "direct_bytes", "packets_lost", "late_p99_ms", "budget_ms",
)  # fmt: skip


def write(results: Results, out: Path) -> None:
    record.write_results(out, results, comparisons(results), summary(results))
    tables: tuple[tuple[str, tuple[str, ...], list[tuple[Any, ...]]], ...] = (
        ("topics", TOPICS, [_weighed(each) for each in results.weighed]),
        ("hubs", HUBS, [_step(stand, step) for stand in results.stands for step in stand.steps]),
        ("virtual", VIRTUAL, [_virtual(each) for each in (*results.crowded, *results.clouds)]),
        ("deadline", DEADLINE, [_flow(each) for each in results.flows]),
    )
    for name, heads, rows in tables:
        if rows:
            record.write_rows(out / f"{name}.csv", heads, rows)
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


def _weighed(each: Weighed) -> tuple[Any, ...]:
    heard, spread, shape = each.heard, each.heard.all_ms, each.shape
    times = spread.mean, spread.p50, spread.p95, spread.p99, spread.longest
    counts = heard.lost, heard.doubled, heard.disordered
    shares = each.source.share, each.hub.share, each.target.share
    return (
        shape.topics,
        shape.readers,
        shape.lans,
        each.messages_s,
        *times,
        *counts,
        *shares,
        heard.late_ms.p99,
    )


def _step(stand: Stand, each: Step) -> tuple[Any, ...]:
    what = stand.hubs, stand.share, each.offered_s, int(each.follows)
    return *what, each.p50_ms, each.p99_ms, each.lost, each.hub.share, each.hub.share_most, each.late_p99_ms


def _virtual(each: Virtual) -> tuple[Any, ...]:
    spread, size = each.all_ms, each.size
    times = each.floor_ms, spread.mean, spread.p50, spread.p99, spread.longest
    shares = each.source_share, each.hub_share, each.hub_share_most, each.target_share
    return size.topics, size.hubs, each.in_s, each.out_s, *times, *shares, each.uneven


def _flow(each: Flow) -> tuple[Any, ...]:
    own, spread, paths = each.own, each.own.all_ms, each.paths
    legs = [value for leg in (paths.direct, paths.up, paths.down) for value in (1e3 * leg.delay_s, leg.loss)]
    times = each.floor_ms, spread.mean, spread.p50, spread.p95, spread.p99, spread.longest
    counts = own.sent, own.lost, own.doubled, own.disordered
    wire = each.message_bytes, each.further_bytes, each.direct_bytes, each.sent.lost
    return each.kind, each.case, *legs, *times, *counts, *wire, each.late_p99_ms, 1e3 * each.budget_s


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
    if results.weighed:
        plots.draw_topics(results.weighed, results.crowded, out)
    if results.stands:
        plots.draw_hubs(results.stands, results.clouds, out)
    if results.flows:
        plots.draw_deadline(results.flows, out)
    return f"pictures are in {out}"

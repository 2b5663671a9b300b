"""The experiments one after the other, and what is written down of them.

    OUT/single-N.csv  original-N.csv  full.csv    every sample
    OUT/coordinator-*.csv  design-*.csv           every sample
    OUT/summary.csv  summary.md                   paper, ours, ratio
    OUT/results.json                              all that is known
    OUT/*.png                                     with matplotlib

What an experiment found is written as soon as it ends, so that nothing is lost with a later one.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from tocsin.client.address import Server
from tocsin_labs import drawing, record, statements
from tocsin_labs.cqbs import claims, coordinator, paper, plots, single, size, whole
from tocsin_labs.cqbs.coordinator import Coordinated
from tocsin_labs.cqbs.designs import run as designs
from tocsin_labs.cqbs.designs.run import Designed
from tocsin_labs.cqbs.forwarding import Forwarded
from tocsin_labs.cqbs.paper import Published
from tocsin_labs.cqbs.plan import Plan
from tocsin_labs.figures import Comparison, Spread, markdown
from tocsin_labs.stage import Stage
from tocsin_labs.statements import Claim

EXPERIMENTS: Final = ("single", "coordinator", "full", "designs", "size")
PARTS: Final = ("alone", "replicated")  # of the second
# This project's own targets.
REPLICATED_TARGET: Final = (15.0, 40.0)  # mean and 95th percentile, ms
WHOLE_TARGET: Final = (5.0, 5.0)
GAP_TARGET_S: Final = 4.0


class Results(msgspec.Struct):
    """All that was found, and where."""

    plan: Plan
    command: str  # that was given
    day: str
    machine: dict[str, str | int]
    single: dict[int, Forwarded] = {}
    alone: Coordinated | None = None
    replicated: Coordinated | None = None
    full: Forwarded | None = None
    designs: list[Designed] = []
    lines: dict[str, dict[str, int]] = {}  # of small clients: language → part → lines of code
    original: dict[int, Forwarded] = {}  # V-A's load at the paper's own broker

    @property
    def partial(self) -> bool:
        """An experiment was cut short."""
        parts = (
            *self.single.values(),
            *self.original.values(),
            *(each.found for each in self.designs),
            self.alone,
            self.replicated,
            self.full,
        )
        return any(part is not None and part.partial for part in parts)


async def run(
    plan: Plan,
    stage: Stage,
    only: Collection[str] = EXPERIMENTS,
    command: str = "tocsin lab cqbs",
    peer: Server | None = None,
) -> Results:
    """Those experiments, in order; what was found is written after each. ``peer``: a broker of the paper's."""
    results = Results(plan, command, record.today(), record.machine())
    if "size" in only:
        results.lines = size.measure()
    write(results, stage.out)
    if "single" in only and not stage.is_cut:
        results.single, results.original = await single.run(plan.single, plan.seed, stage, peer)
        write(results, stage.out)
    if {"coordinator", "alone"} & {*only} and not stage.is_cut:
        results.alone = await coordinator.run(plan.coordination, plan.seed, stage, coordinators=1, servers=1)
        write(results, stage.out)
    if {"coordinator", "replicated"} & {*only} and not stage.is_cut:
        results.replicated = await coordinator.run(
            plan.coordination,
            plan.seed,
            stage,
            coordinators=plan.coordination.coordinators,
            servers=plan.servers,
        )
        write(results, stage.out)
    if "full" in only and not stage.is_cut:
        results.full = await whole.run(plan.whole, plan.servers, plan.seed, stage)
        write(results, stage.out)
    if "designs" in only and not stage.is_cut:
        await designs.run(plan.designs, plan.seed, stage, results.designs)
        write(results, stage.out)
    return results


def comparisons(results: Results) -> list[Comparison]:
    """Paper and ours, of all that was measured."""
    rows: list[Comparison] = []
    for subscribers, found in results.single.items():
        name = f"V-A, subscribers: {subscribers}"
        rows += _latencies(name, paper.SINGLE.get(subscribers), found.all)
        rows.append(_lost(name, found))
        if (theirs := results.original.get(subscribers)) is not None:
            name = f"{name}; the paper's broker on this machine"
            rows += _latencies(name, None, theirs.all)
            rows.append(_lost(name, theirs))
    for name, published, coordinated, targets in (
        ("V-B, one coordinator", paper.ALONE, results.alone, (None, None)),
        ("V-B, replicated", paper.REPLICATED, results.replicated, REPLICATED_TARGET),
    ):
        if coordinated is None:
            continue
        rows += _latencies(name, published, coordinated.undisturbed, targets)
        rows += _latencies(f"{name}, the first to hear", None, coordinated.first)
        if coordinated.killed_s is not None:
            rows += _latencies(f"{name}, with changes made in the gap", None, coordinated.all)
            rows.append(
                Comparison(name, "gap after the kill", "s", paper.GAP_S, coordinated.gap_s, GAP_TARGET_S)
            )
        rows.append(Comparison(name, "notices lost", f"of {coordinated.expected}", None, coordinated.lost))
        wrong = coordinated.sets_wrong
        rows.append(Comparison(name, "queries with a wrong set", f"of {coordinated.queries}", None, wrong))
    if results.full is not None:
        rows += _latencies("V-C", paper.WHOLE, results.full.all, WHOLE_TARGET)
        rows += _latencies("V-C, a stream's first message", None, results.full.first)
        rows += _latencies("V-C, messages with a change", None, results.full.changing)
        rows.append(_lost("V-C", results.full))
    for design in results.designs:
        rows += _design(design)
    for language, part, published_lines, lines in size.table(results.lines):
        name = f"Table II, {language}" + (" (theirs: Go)" if language == "C" else "")
        target = paper.LINES["Python"]["total"] if (language, part) == ("Python", size.TOTAL) else None
        rows.append(Comparison(name, part, "lines", published_lines, lines, target))
    return rows


def _latencies(
    name: str,
    published: Published | None,
    found: Spread | None,
    targets: tuple[float | None, float | None] = (None, None),
) -> list[Comparison]:
    theirs = (None, None, None) if published is None else (published.mean, published.p95, published.deviation)
    ours = (None, None, None) if found is None else (found.mean, found.p95, found.deviation)
    figures = ("mean", "95th percentile", "standard deviation")
    return [
        Comparison(name, figure, "ms", *each)
        for figure, *each in zip(figures, theirs, ours, (*targets, None), strict=True)
    ]


def _lost(name: str, found: Forwarded) -> Comparison:
    return Comparison(name, "messages lost", f"of {found.sent}", None, found.sent - found.arrived)


def _design(design: Designed) -> list[Comparison]:
    name, found = f"VI-B, {design.name}", design.found
    rows = _latencies(name, None, found.all)
    if design.equal:
        rows.append(Comparison(name, "until all queries were answered", "ms", None, design.asked_ms))
        rows.append(Comparison(name, "processor until then", "ms", None, design.asking_cpu_ms))
    rows += _latencies(f"{name}, the first to hear", None, found.first)
    rows.append(Comparison(name, "processor for a change", "ms", None, design.cpu_ms))
    if design.behind is not None:
        rows.append(Comparison(name, "on disk after it was told, mean", "ms", None, design.behind.mean))
        rows.append(Comparison(name, "on disk after it was told, longest", "ms", None, design.behind.longest))
    rows.append(Comparison(name, "notices lost", f"of {found.expected}", None, found.lost))
    rows.append(Comparison(name, "queries with a wrong set", f"of {found.queries}", None, found.sets_wrong))
    return rows


def stated(results: Results) -> list[Claim]:
    """The paper's statements, of all that was measured."""
    return [*claims.of_coordinators(results.alone, results.replicated), *claims.of_designs(results.designs)]


def heading(results: Results) -> str:
    """One sentence: the run that the figures are of."""
    cut = " An experiment was cut short: its figures are of what it had by then." if results.partial else ""
    processors = results.machine["processors"]
    return f"Measured with {results.plan.words}, all on one machine of {processors} processors.{cut}"


def summary(results: Results) -> str:
    """A page of its own: what was done, and the table."""
    wrote = f"`{results.command}` wrote this page on {results.day}."
    said = stated(results)
    held = (
        f"## What the paper states\n\n{statements.markdown(said)}\n## Paper, ours, ratio\n\n" if said else ""
    )
    return f"# Figures of the CQBS experiments\n\n{wrote} {heading(results)}\n\n{held}{markdown(comparisons(results))}"


def write(results: Results, out: Path) -> None:
    record.write_results(out, results, comparisons(results), summary(results))


def draw(results: Results, out: Path, samples: Path | None = None) -> str:
    """Draw the results, with samples from that directory or ``out``; returns a sentence that says what was drawn."""
    if not drawing.available():
        return drawing.MISSING
    samples = samples or out
    if results.single:
        plots.draw_single(list(results.single), list(results.original), samples, out)
    if results.alone or results.replicated:
        plots.draw_coordinator(results.alone, results.replicated, samples, out)
    if results.full:
        plots.draw_full(samples, out)
    if results.designs:
        plots.draw_designs(results.designs, samples, out)
    return f"pictures are in {out}"

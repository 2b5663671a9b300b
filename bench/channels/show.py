"""The figures as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as Grid

from bench.channels.figures import ALONE, DUCKDB, SPARK, Report
from bench.load.figures import Spread


def show(report: Report, console: Console) -> None:
    for grid in (_executions(report), _growth(report), _costs(report), _due(report), _end_to_end(report)):
        if grid.row_count:
            console.print(grid)
    if report.fairness is not None:
        f = report.fairness
        console.print(
            f"{f.channels} channels for {f.seconds:.0f} s: {f.executions:,} executions in {f.ticks} ticks, "
            f"{f.overruns} overruns; each had {f.least:.0%} of its intervals or more; late by {_ms(f.late_ms)}",
            highlight=False,
        )
    console.print(_targets(report))
    for note in report.notes:
        console.print(note)
    console.print(f"others on the machine: load {report.load[0]:.1f} … {report.load[1]:.1f}", highlight=False)


def _grid(title: str, words: Sequence[str], numbers: Sequence[str]) -> Grid:
    grid = Grid(title=title, title_justify="left")
    for heading in words:
        grid.add_column(heading)
    for heading in numbers:
        grid.add_column(heading, justify="right")
    return grid


def _ms(each: Spread) -> str:
    return f"{each.median:,.0f} ms ({each.low:,.0f}..{each.high:,.0f})"


def _executions(report: Report) -> Grid:
    grid = _grid(
        "whole executions: median (least..most)",
        ["workload"],
        ["subscriptions", "new", "results", "Spark", "CPU ms", "DuckDB", "Spark ÷ DuckDB", "one by one"],
    )
    by = {(e.workload, e.subscriptions, e.publications, e.how): e for e in report.executions}
    ratios = {(e.workload, e.subscriptions, e.publications): e.ratio for e in report.ratios}
    ordered = sorted(report.executions, key=lambda e: (e.workload, e.subscriptions, e.publications))
    for each in ordered:
        if each.how != SPARK:
            continue
        key = (each.workload, each.subscriptions, each.publications)
        duck, one, ratio = by.get((*key, DUCKDB)), by.get((*key, ALONE)), ratios.get(key)
        grid.add_row(
            each.workload,
            f"{each.subscriptions:,}",
            f"{each.publications:,}",
            f"{each.results:,.0f}",
            _ms(each.ms),
            f"{each.cpu_ms:,.0f}",
            "" if duck is None else _ms(duck.ms),
            "" if ratio is None else str(ratio),
            "" if one is None else f"{one.ms.median / 1e3:,.0f} s",
        )
    return grid


def _growth(report: Report) -> Grid:
    grid = _grid("growth: the power of the number of subscriptions", ["workload", "how"], ["new", "power"])
    for each in report.growth:
        grid.add_row(each.workload, each.how, f"{each.publications:,}", f"{each.slope:.2f}")
    return grid


def _costs(report: Report) -> Grid:
    grid = _grid("where the fixed cost goes (10 000 × 1 000, 1 000 results)", ["part"], ["ms"])
    for each in report.costs:
        grid.add_row(each.part, f"{each.ms.median:,.1f} ({each.ms.low:,.1f}..{each.ms.high:,.1f})")
    return grid


def _due(report: Report) -> Grid:
    grid = _grid("channels that are due at once", [], ["channels", "shapes", "a tick", "over a tick of one"])
    for each in report.due:
        grid.add_row(str(each.channels), str(each.shapes), _ms(each.ms), str(each.ratio))
    return grid


def _end_to_end(report: Report) -> Grid:
    grid = _grid("end to end", ["what"], ["of", "p50", "p95", "least"])
    for each in report.latencies:
        grid.add_row(
            each.what, str(each.count), f"{each.p50:,.0f} ms", f"{each.p95:,.0f} ms", f"{each.low:,.0f} ms"
        )
    for rate in report.rates:
        per_s = rate.per_s
        grid.add_row(
            rate.what,
            f"{rate.results:,}",
            f"{per_s.median:,.0f}/s",
            "",
            f"{per_s.low:,.0f}..{per_s.high:,.0f}/s",
        )
    return grid


def _targets(report: Report) -> Grid:
    grid = _grid("what we set out to reach", ["what"], ["wanted", "seen", "best", ""])
    for each in report.targets:
        grid.add_row(each.what, each.wanted, each.seen, each.best, "reached" if each.reached else "missed")
    return grid

"""All of the measurement of channels, or parts of it; see ``bench.channels``."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog
import uvloop
from rich.console import Console

from bench.channels import costs, executions, many, network, show
from bench.channels.figures import SPARK, Execution, Latency, Rate, Ratio, Report, Target, growth_of
from bench.channels.peers import HAS_DUCKDB
from bench.channels.plot import plot
from bench.channels.stage import started
from bench.channels.workloads import WORKLOADS

T = TypeVar("T")

RESULTS: Final = Path(__file__).parent.parent / "results"
CONSOLE: Final = Console(width=140)
PARTS: Final = ("executions", "emergencies", "costs", "many", "network")


class Plan(msgspec.Struct, frozen=True):
    """How much of everything."""

    executions: executions.Plan
    network: network.Plan
    warm: int
    turns: int
    fair_s: float


FULL: Final = Plan(
    executions.Plan((10_000, 100_000, 1_000_000), (1_000, 10_000), 10, 9, 8, 100_000, 100),
    network.Plan(15, 40, 200, 20, 50, 1_000, 5),
    20,
    9,
    60.0,
)
QUICK: Final = Plan(
    executions.Plan((1_000, 10_000), (1_000,), 6, 5, 5, 10_000, 100),
    network.Plan(5, 10, 30, 4, 25, 500, 2),
    4,
    5,
    8.0,
)


async def measure(plan: Plan, directory: Path, only: Sequence[str], quick: bool) -> Report:
    before = os.getloadavg()[0]
    report = Report(
        quick=quick,
        machine=f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}",
        load=(before, before),
        executions=[],
        ratios=[],
        growth=[],
        costs=[],
        due=[],
        fairness=None,
        latencies=[],
        rates=[],
        targets=[],
        notes=[] if HAS_DUCKDB else ["DuckDB is not installed: uv sync --group bench"],
    )
    if set(only) - {"network"}:
        report = await _on_spark(report, plan, directory, only)
    if "network" in only:
        latencies, rates = await network.measure(directory / "network", plan.network)
        report.latencies.extend(latencies)
        report.rates.extend(rates)
    return msgspec.structs.replace(report, load=(before, os.getloadavg()[0]))


def merged(old: Report | None, new: Report) -> Report:
    """The new measurements with the earlier ones that they do not replace; and growth and targets of all."""
    if old is not None and old.quick == new.quick:
        new = msgspec.structs.replace(
            new,
            executions=_joined(old.executions, new.executions, _size),
            ratios=_joined(old.ratios, new.ratios, lambda each: _size(each)[1:]),
            costs=new.costs or old.costs,
            due=new.due or old.due,
            fairness=new.fairness or old.fairness,
            latencies=_joined(old.latencies, new.latencies, lambda each: each.what),
            rates=_joined(old.rates, new.rates, lambda each: each.what),
            load=(min(old.load[0], new.load[0]), max(old.load[1], new.load[1])),
        )
    rates = [each for each in new.rates if not each.what.startswith(executions.COMMITTED)]
    if any(each.how == SPARK for each in new.executions):
        rates.append(executions.committed_rate(new.executions))
    new = msgspec.structs.replace(new, rates=rates, growth=growth_of(new.executions))
    return msgspec.structs.replace(new, targets=targets(new))


def _size(each: Execution | Ratio) -> tuple[str, str, int, int]:
    return (getattr(each, "how", ""), each.workload, each.subscriptions, each.publications)


def _joined(old: Sequence[T], new: Sequence[T], key: Callable[[T], object]) -> list[T]:
    known = {key(each) for each in new}
    return [*(each for each in old if key(each) not in known), *new]


def stored(path: Path) -> Report | None:
    """The earlier measurements; None if there are none, or in another form."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


async def _on_spark(report: Report, plan: Plan, directory: Path, only: Sequence[str]) -> Report:
    async with started(directory / "spark") as spark:
        if "costs" in only:
            report.costs.extend(await costs.measure(spark, directory, plan.warm, plan.turns))
        if "many" in only:
            due, fairness = await many.measure(spark, directory, plan.warm, plan.turns, plan.fair_s)
            report.due.extend(due)
            report = msgspec.structs.replace(report, fairness=fairness)
        if "executions" in only:
            for workload in WORKLOADS:
                for count in plan.executions.subscriptions:
                    found, ratios = await executions.measure(
                        spark, directory, workload, count, plan.executions
                    )
                    report.executions.extend(found)
                    report.ratios.extend(ratios)
                    CONSOLE.print(f"  {workload.name}, {count:,} subscriptions: done", highlight=False)
        if "emergencies" in only:
            report.executions.append(await executions.measure_emergencies(spark, directory, plan.executions))
    return report


# ── what we set out to reach ─────────────────────────────────────────────────────────────────────────────────


def targets(report: Report) -> list[Target]:
    """Those of which there is something to say."""
    found: list[Target] = []
    for workload, subscriptions, publications, most_ms in (
        ("equality", 100_000, 1_000, 600.0),
        ("emergencies", 100_000, 100, 600.0),
        ("equality", 1_000_000, 1_000, 1_200.0),
    ):
        each = _execution(report.executions, workload, subscriptions, publications)
        if each is not None:
            what = f"{workload}, {subscriptions:,} × {publications:,}, {each.results:,.0f} results"
            found.append(_below(what, most_ms, each.ms.median, each.ms.low))
    for rate in report.rates:
        if rate.what.startswith(executions.COMMITTED):
            found.append(_above("results committed a second", 150_000, rate))
    for due in report.due:
        if due.channels == many.CHANNELS and due.shapes == 1:
            seen = due.ratio.median
            what = f"{due.channels} channels of one shape that are due, over one"
            found.append(Target(what, "< 2", f"{seen:.2f}", seen < 2, f"{due.ratio.low:.2f}"))
    for prefix, most_ms in (
        ("publication → notification, continuous", 500.0),
        ("SUBACK", 50.0),
        ("`tocsin up`", 12_000.0),
    ):
        found += [_latency(each, most_ms) for each in report.latencies if each.what.startswith(prefix)]
    return found


def _execution(
    found: Sequence[Execution], workload: str, subscriptions: int, publications: int
) -> Execution | None:
    wanted = (workload, SPARK, subscriptions, publications)
    return next(
        (
            each
            for each in found
            if (each.workload, each.how, each.subscriptions, each.publications) == wanted
        ),
        None,
    )


def _below(what: str, most_ms: float, seen_ms: float, best_ms: float) -> Target:
    return Target(what, f"< {most_ms:,.0f} ms", f"{seen_ms:,.0f} ms", seen_ms < most_ms, f"{best_ms:,.0f} ms")


def _above(what: str, least: float, rate: Rate) -> Target:
    seen = rate.per_s.median
    return Target(what, f"≥ {least:,.0f}", f"{seen:,.0f}", seen >= least, f"{rate.per_s.high:,.0f}")


def _latency(each: Latency, most_ms: float) -> Target:
    return _below(f"{each.what}, p50", most_ms, each.p50, each.low)


def _chosen(plan: Plan, arguments: argparse.Namespace) -> Plan:
    """A plan with what was said otherwise."""
    turns = {
        name: getattr(arguments, name) for name in ("warm", "turns") if getattr(arguments, name) is not None
    }
    sizes = {
        name: tuple(found)
        for name in ("subscriptions", "publications")
        if (found := getattr(arguments, name))
    }
    inner = msgspec.structs.replace(plan.executions, **turns, **sizes)
    return msgspec.structs.replace(plan, executions=inner, **turns)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench channels", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller and rougher, in two minutes")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; the others stay as they were")
    parser.add_argument("--turns", type=int, help="how often each is measured, where it is")
    parser.add_argument("--warm", type=int, help="turns before those that count")
    parser.add_argument("--subscriptions", type=int, action="append", help="of the executions")
    parser.add_argument("--publications", type=int, action="append", help="of the executions")
    parser.add_argument("--directory", type=Path, help="where the data is kept (default: a temporary one)")
    arguments = parser.parse_args(argv)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    only = tuple(arguments.only or PARTS)
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-", dir=arguments.directory) as directory:
        plan = _chosen(QUICK if arguments.quick else FULL, arguments)
        report = uvloop.run(measure(plan, Path(directory), only, arguments.quick))
    path = RESULTS / "channels.json"
    report = merged(stored(path), report)
    show.show(report, CONSOLE)
    RESULTS.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    CONSOLE.print(plot(report, RESULTS / "channels.png"), markup=False)
    return 0

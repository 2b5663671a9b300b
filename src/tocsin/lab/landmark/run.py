"""The experiments one after the other, and what is written down of them.

    OUT/control.csv  objects.csv  latency.csv  sequence.csv           Table 1; Tables 2 and 3; Table 4; Figure 8
    OUT/summary.csv  summary.md                                       paper, ours, ratio
    OUT/results.json                                                  all that is known
    OUT/control.png  objects.png  latency.png  sequence.png           if matplotlib is there

What an experiment found is written when it ends, also if it ends badly. A seed decides which brokers fail and when;
how long things take is the machine's.
"""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from tocsin.lab.figures import Comparison, as_csv, markdown
from tocsin.lab.landmark import control, latency, objects, plots, sequence, tables
from tocsin.lab.landmark.control import Controlled
from tocsin.lab.landmark.latency import Trial
from tocsin.lab.landmark.objects import Recovered
from tocsin.lab.landmark.plan import Plan
from tocsin.lab.landmark.sequence import Sequenced
from tocsin.lab.stage import Stage

EXPERIMENTS: Final = ("control", "objects", "latency", "sequence")
COMMAND: Final = "tocsin lab landmark"


class Results(msgspec.Struct):
    """All that was found, and where."""

    plan: Plan
    command: str  # that was given
    day: str
    machine: dict[str, str | int]
    control: list[Controlled] = []  # Table 1
    objects: list[Recovered] = []  # Tables 2 and 3
    latency: list[Trial] = []  # Table 4
    resting: dict[str, float] = {}  # share of one processor that its networks took at rest
    sequence: list[Sequenced] = []  # Figure 8
    partial: bool = False  # it was cut short


def begin(plan: Plan, command: str = COMMAND) -> Results:
    """Nothing found yet."""
    machine: dict[str, str | int] = {
        "tocsin": metadata.version("tocsin"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count() or 0,
    }
    return Results(plan, command, f"{datetime.now(UTC):%d %B %Y}", machine)


async def run(
    plan: Plan, stage: Stage, only: Collection[str] = EXPERIMENTS, command: str = COMMAND
) -> Results:
    """Those experiments, in order; what was found is written after each, however it ends."""
    results = begin(plan, command)
    write(results, stage.out)
    acts: dict[str, Callable[[], Awaitable[None]]] = {
        "control": lambda: control.run(plan.control, stage, results.control),
        "objects": lambda: objects.run(plan.objects, stage, results.objects),
        "latency": lambda: latency.run(plan.latency, plan.seed, stage, results.latency, results.resting),
        "sequence": lambda: sequence.run(plan.sequence, stage, results.sequence),
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
        *tables.control_rows(results.control),
        *tables.object_rows(results.objects),
        *tables.latency_rows(results.latency, results.resting),
        *tables.sequence_rows(results.sequence),
    ]


def heading(results: Results) -> str:
    """What the figures are of, in words."""
    cut = " It was cut short: the figures are of what there was by then." if results.partial else ""
    processors = results.machine["processors"]
    return (
        f"Measured with {results.plan.words}, seed {results.plan.seed}, on real processes, all on one machine of "
        f"{processors} processors.{cut}"
    )


def summary(results: Results) -> str:
    """A page of its own: what was done, and the table."""
    wrote = f"`{results.command}` wrote this page on {results.day}."
    table = markdown(comparisons(results))
    return f"# Figures of the Landmark experiments\n\n{wrote} {heading(results)}\n\n{table}"


# ── what is written ──────────────────────────────────────────────────────────────────────────────────────────


def write(results: Results, out: Path) -> None:
    rows = comparisons(results)
    text = msgspec.json.format(msgspec.json.encode(results), indent=2)
    (out / "results.json").write_bytes(text + b"\n")
    (out / "summary.csv").write_text(as_csv(rows))
    (out / "summary.md").write_text(summary(results))
    if results.control:
        _write(out / "control.csv", CONTROL, map(_control, results.control))
    if results.objects:
        fields = Recovered.__struct_fields__
        _write(out / "objects.csv", fields, (msgspec.structs.astuple(each) for each in results.objects))
    if results.latency:
        _write(out / "latency.csv", LATENCY, (row for trial in results.latency for row in _latency(trial)))
    if results.sequence:
        rows_of = (
            (each.way, message.number, message.sent_s, message.arrived_s)
            for each in results.sequence
            for message in each.messages
        )
        _write(out / "sequence.csv", ("way", "number", "sent_s", "arrived_s"), rows_of)


CONTROL: Final = (
    "brokers", "total_kb_s", "deviation", "payload_kb_s", "coordinator_kb_s", "heartbeats_kb_s", "busy",
)  # fmt: skip
LATENCY: Final = (
    "detect", "failures", "run", "broker", "detected_s", "taken_over_s", "by", "back_s", "first_s", "served_s",
    "recovered_s", "replaced_s", "bereft", "at_backup", "subscribers",
)  # fmt: skip


def _control(each: Controlled) -> tuple[Any, ...]:
    spread = each.total.mean, each.total.deviation
    return each.brokers, *spread, each.payload, each.coordinator, each.heartbeats, each.busy


def _latency(trial: Trial) -> list[tuple[Any, ...]]:
    own = trial.detect, trial.failures, trial.run
    return [(*own, *(getattr(each, name) for name in LATENCY[3:])) for each in trial.outcomes]


def _write(path: Path, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heads)
        writer.writerows([_shown(cell) for cell in row] for row in rows)


def _shown(cell: Any) -> Any:
    return f"{cell:.6f}" if isinstance(cell, float) else cell


def draw(results: Results, out: Path) -> str:
    """Draw what there is; what was done, in words."""
    if not plots.available():
        return "no pictures: matplotlib is not installed (pip install 'tocsin[lab]')"
    if results.control:
        plots.draw_control(results.control, out)
    if results.objects:
        plots.draw_objects(results.objects, out)
    if results.latency:
        plots.draw_latency(results.latency, out)
    if results.sequence:
        plots.draw_sequence(results.sequence, out)
    return f"pictures are in {out}"

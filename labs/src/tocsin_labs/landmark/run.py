"""The experiments one after the other, and what is written down of them.

    OUT/control.csv  objects.csv  latency.csv  sequence.csv           Table 1; Tables 2 and 3; Table 4; Figure 8
    OUT/scale-rest.csv  scale.csv                                     Tables 1 and 4 in virtual time
    OUT/bandwidth.csv                                                 Table 4, where the network carries less
    OUT/summary.csv  summary.md                                       paper, ours, ratio
    OUT/results.json                                                  all that is known
    OUT/control.png  objects.png  latency.png  sequence.png           if matplotlib is there
    OUT/scale.png  bandwidth.png

What an experiment found is written when it ends, also if it ends badly. A seed decides which brokers fail and when;
how long things take is the machine's, but for virtual time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from tocsin_labs import drawing, record
from tocsin_labs.figures import Comparison, markdown
from tocsin_labs.landmark import bandwidth, control, latency, objects, plots, scale, sequence, tables
from tocsin_labs.landmark.bandwidth import Narrowed
from tocsin_labs.landmark.control import Controlled
from tocsin_labs.landmark.latency import Trial
from tocsin_labs.landmark.objects import Recovered
from tocsin_labs.landmark.plan import Plan
from tocsin_labs.landmark.scale import Kill, Rest
from tocsin_labs.landmark.sequence import Sequenced
from tocsin_labs.stage import Stage

EXPERIMENTS: Final = ("control", "objects", "latency", "sequence", "scale", "bandwidth")
DEFAULT: Final = EXPERIMENTS[:-1]  # the last needs a network namespace of its own
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
    rests: list[Rest] = []  # Table 1, simulated
    kills: list[Kill] = []  # Table 4, simulated
    bandwidth: list[Narrowed] = []  # Table 4, where the network carries less
    partial: bool = False  # it was cut short


def begin(plan: Plan, command: str = COMMAND) -> Results:
    """Nothing found yet."""
    return Results(plan, command, record.today(), record.machine())


async def run(plan: Plan, stage: Stage, only: Collection[str] = DEFAULT, command: str = COMMAND) -> Results:
    """Those experiments, in order; what was found is written after each, however it ends."""
    results = begin(plan, command)
    write(results, stage.out)
    acts: dict[str, Callable[[], Awaitable[None]]] = {
        "control": lambda: control.run(plan.control, stage, results.control),
        "objects": lambda: objects.run(plan.objects, stage, results.objects),
        "latency": lambda: latency.run(plan.latency, plan.seed, stage, results.latency, results.resting),
        "sequence": lambda: sequence.run(plan.sequence, stage, results.sequence),
        "scale": lambda: scale.run(plan.scale, plan.seed, stage, results.rests, results.kills),
        "bandwidth": lambda: bandwidth.run(plan.bandwidth, plan.seed, stage, results.bandwidth),
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
        *tables.bandwidth_rows(results.bandwidth),
        *tables.scale_rows(results.rests, results.kills),
    ]


def heading(results: Results) -> str:
    """One sentence: the run that the figures are of."""
    cut = " It was cut short: the figures are of what there was by then." if results.partial else ""
    processors = results.machine["processors"]
    own = f"{results.plan.words}, seed {results.plan.seed}"
    where = f"one machine of {processors} processors"
    virtual = "virtual time, which the seed repeats; only the processor's share is measured in them"
    if results.rests and not (results.control or results.objects or results.latency or results.sequence):
        return f"Simulated with {own}, in one process on {where}. All rows are of {virtual}.{cut}"
    rest = f" Rows that say *simulated* are of one process and {virtual}." if results.rests else ""
    return f"Measured with {own}, on real processes, all on {where}.{rest}{cut}"


def summary(results: Results) -> str:
    """A page of its own: what was done, and the table."""
    wrote = f"`{results.command}` wrote this page on {results.day}."
    table = markdown(comparisons(results))
    return f"# Figures of the Landmark experiments\n\n{wrote} {heading(results)}\n\n{table}"


# ── what is written ──────────────────────────────────────────────────────────────────────────────────────────


def write(results: Results, out: Path) -> None:
    record.write_results(out, results, comparisons(results), summary(results))
    if results.control:
        record.write_rows(out / "control.csv", CONTROL, map(_control, results.control))
    if results.objects:
        found = map(msgspec.structs.astuple, results.objects)
        record.write_rows(out / "objects.csv", Recovered.__struct_fields__, found)
    if results.latency:
        outcomes = (row for trial in results.latency for row in _latency(trial))
        record.write_rows(out / "latency.csv", LATENCY, outcomes)
    if results.bandwidth:
        narrowed = (
            (each.condition.mbit, each.condition.background, *row)
            for each in results.bandwidth
            for trial in each.trials
            for row in _latency(trial)
        )
        record.write_rows(out / "bandwidth.csv", ("mbit", "background", *LATENCY), narrowed)
    if results.sequence:
        messages = (
            (each.way, message.number, message.sent_s, message.arrived_s, int(message.expires))
            for each in results.sequence
            for message in each.messages
        )
        record.write_rows(out / "sequence.csv", ("way", "number", "sent_s", "arrived_s", "expires"), messages)
    if results.rests:
        record.write_rows(out / "scale-rest.csv", REST, map(_rest, results.rests))
    if results.kills:
        record.write_rows(out / "scale.csv", SCALE, map(_scale, results.kills))


CONTROL: Final = (
    "brokers", "total_kb_s", "deviation", "payload_kb_s", "coordinator_kb_s", "heartbeats_kb_s", "busy",
)  # fmt: skip
LATENCY: Final = (
    "detect", "failures", "run", "broker", "detected_s", "taken_over_s", "by", "back_s", "first_s", "served_s",
    "recovered_s", "replaced_s", "bereft", "at_backup", "subscribers",
)  # fmt: skip

REST: Final = ("brokers", "detect", "messages_s", "heartbeats_kb_s", "wrongly", "leader")
SCALE: Final = (
    "brokers", "detect", "what", "run", "failed", "lost_s", "taken_over_s", "bereft", "places", "replaced",
    "replaced_s", "bereaved", "planned_s", "wrongly", "span_s", "leader_s", "longest_s", "plans", "planning_s",
)  # fmt: skip


def _rest(each: Rest) -> tuple[Any, ...]:
    return each.brokers, each.detect, each.messages, each.heartbeats, each.wrongly, each.effort.share


def _scale(each: Kill) -> tuple[Any, ...]:
    fates, replaced, effort = each.fates, each.replaced, each.effort
    bereft, places = sum(fate.bereft for fate in fates), sum(fate.serves for fate in fates)
    mean = sum(replaced) / len(replaced) if replaced else None
    own = each.brokers, each.detect, each.what, each.run, len(fates)
    times = each.lost_s, each.taken_over_s, bereft, places, len(replaced), mean
    return *own, *times, each.bereaved, each.planned_s, each.wrongly, *msgspec.structs.astuple(effort)


def _control(each: Controlled) -> tuple[Any, ...]:
    spread = each.total.mean, each.total.deviation
    return each.brokers, *spread, each.payload, each.coordinator, each.heartbeats, each.busy


def _latency(trial: Trial) -> list[tuple[Any, ...]]:
    own = trial.detect, trial.failures, trial.run
    return [(*own, *(getattr(each, name) for name in LATENCY[3:])) for each in trial.outcomes]


def draw(results: Results, out: Path) -> str:
    """Draw the results; returns a sentence that says what was drawn."""
    if not drawing.available():
        return drawing.MISSING
    if results.control:
        plots.draw_control(results.control, out)
    if results.objects:
        plots.draw_objects(results.objects, out)
    if results.latency:
        plots.draw_latency(results.latency, out)
    if results.sequence:
        plots.draw_sequence(results.sequence, out)
    if results.bandwidth:
        plots.draw_bandwidth(results.bandwidth, out)
    if results.rests or results.kills:
        plots.draw_scale(results.rests, results.kills, out)
    return f"pictures are in {out}"

"""The failures one after the other on one network, and what is written down of them.

    OUT/progress.csv                     Fig 3a: each subscriber of each failure
    OUT/failovers.csv                    Fig 3b: each failure
    OUT/summary.csv  summary.md          paper, ours, ratio; the paper's statements
    OUT/results.json                     all that is known
    OUT/progress.png  failovers.png      if matplotlib is there

What was found is written after each failure. A seed decides homes, movements and emergencies. Durations depend on the
machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from tocsin.errors import OperatorError
from tocsin_demo.city import disasters, movements
from tocsin_demo.scene import Account, Script, scene
from tocsin_demo.traces import Bounds, Trace, write
from tocsin_labs import drawing, record, statements
from tocsin_labs.figures import Comparison, markdown
from tocsin_labs.reaps.prototype import plots, tables
from tocsin_labs.reaps.prototype.failing import Failing
from tocsin_labs.reaps.prototype.outcome import Outcome
from tocsin_labs.reaps.prototype.plan import Plan
from tocsin_labs.stage import Stage
from tocsin_labs.statements import Claim

COMMAND: Final = "tocsin lab reaps prototype"
START_SHARE, END_SHARE = 0.12, 0.06  # of the bar: until the play begins, and the account


class Results(msgspec.Struct):
    """All that was found, and where."""

    plan: Plan
    command: str  # that was given
    day: str
    machine: dict[str, str | int]
    failures: list[Outcome] = []
    account: Account | None = None
    partial: bool = False  # it was cut short


def begin(plan: Plan, command: str = COMMAND) -> Results:
    """Nothing found yet."""
    return Results(plan, command, record.today(), record.machine())


async def run(results: Results, script: Script, stage: Stage) -> None:
    """All failures of the plan, and the account; what was found is written after each."""
    plan = results.plan
    waited = iter(range(1, 100))
    write_down(results, stage.out)

    def tell(words: str) -> None:
        stage.tell(words, START_SHARE * min(next(waited) / 8, 1.0))

    async with scene(script, tell) as played:
        await played.begin()
        failing = Failing(played, plan, bounds_of(script))
        done, wave = 0, -1
        for number, way, turn in plan.failures:
            if stage.is_cut:
                break
            at_victim = plan.waves[number].at_victim
            part = START_SHARE + (1 - START_SHARE - END_SHARE) * done / len(plan.failures)
            if number != wave:
                stage.tell(f"{plan.waves[number].subscribers} subscribers, {at_victim} at the broker", part)
                await failing.gather(plan.crowd(number))
                wave = number
            stage.tell(f"{at_victim} subscribers: {way}, {turn + 1} of {plan.waves[number].runs}", part)
            results.failures.append(await failing.fail(way, turn + 1))
            done += 1
            write_down(results, stage.out)
        stage.tell("the account", 1 - END_SHARE)
        results.partial = done < len(plan.failures)
        await played.finish()
        results.account = await played.account()
    write_down(results, stage.out)
    stage.tell("done", 1.0)


def bounds_of(script: Script) -> Bounds:
    """Where people can be."""
    return script.city.bounds if script.movements is None else Trace(script.movements).bounds


def check_traces(script: Script) -> None:
    """Read all of the files that were given, before anything starts. Raises ``OperatorError``."""
    script.places()
    script.happenings()


def write_traces(script: Script, directory: Path) -> tuple[Path, Path]:
    """Write what is played as traces: the movements, and the emergencies. Raises ``OperatorError``."""
    if script.movements is not None or script.emergencies is not None:
        raise OperatorError(
            "--write-traces writes traces that are made here, and others were given",
            "Leave --movement and --emergencies out",
        )
    city = script.city
    places, happenings = directory / "movements.txt", directory / "emergencies.txt"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"{directory} cannot be made: {error.strerror or error}"
        raise OperatorError(problem, "Give another place with --write-traces DIR") from None
    write(places, city.bounds, movements(city))
    write(happenings, city.bounds, disasters(city))
    return places, happenings


# ── what is written ──────────────────────────────────────────────────────────────────────────────────────────


def comparisons(results: Results) -> list[Comparison]:
    """Paper and ours, of all that was measured."""
    return tables.comparisons(results.failures, results.account)


def stated(results: Results) -> list[Claim]:
    """The paper's statements, of all that was measured."""
    return tables.stated(results.failures, results.account)


def heading(results: Results) -> str:
    """One sentence: the run that the figures are of."""
    plan, cut = results.plan, ""
    if results.partial or results.account is None:
        cut = " It was cut short: the figures are of what there was by then."
    waves = ", ".join(f"{wave.at_victim} of {wave.subscribers}" for wave in plan.waves)
    return (
        f"Measured with {plan.words}, seed {plan.seed}, on real processes, all on one machine of "
        f"{results.machine['processors']} processors: four brokers in two clusters, a channel every {plan.period_s} s "
        f"on Spark, {waves} subscribers at the broker that fails.{cut}"
    )


def summary(results: Results) -> str:
    """A page of its own: what was done, and the tables."""
    wrote = f"`{results.command}` wrote this page on {results.day}."
    return (
        f"# Figures of the REAPS prototype\n\n{wrote} {heading(results)}\n\n## What the paper states\n\n"
        f"{statements.markdown(stated(results))}\n## Paper, ours, ratio\n\n{markdown(comparisons(results))}"
    )


FAILURE: Final = (
    "way", "subscribers", "run", "detected_s", "stands_in", "taken_s", "first_broken_s", "last_broken_s",
    "first_served_s", "all_served_s", "after_detection_s", "all_told_s", "others_told_s", "all_returned_s", "at",
)  # fmt: skip
PROGRESS: Final = ("way", "subscribers", "run", "what", "rank", "at_s", "after_detection_s")


def write_down(results: Results, out: Path) -> None:
    record.write_results(out, results, comparisons(results), summary(results))
    if results.failures:
        record.write_rows(out / "failovers.csv", FAILURE, map(_failure, results.failures))
        progress = (row for each in results.failures for row in _progress(each))
        record.write_rows(out / "progress.csv", PROGRESS, progress)


def _failure(each: Outcome) -> tuple[Any, ...]:
    return (
        each.way, each.subscribers, each.run, each.detected_s, each.stands_in, each.taken_s,
        each.broken_s[0], each.broken_s[-1], each.served_s[0], each.all_served_s, each.after_detection_s,
        each.all_told_s, each.others_told_s[-1] if each.others_told_s else None,
        each.returned_s[-1] if each.returned_s else None,
        " ".join(f"{broker}:{count}" for broker, count in sorted(each.at.items())),
    )  # fmt: skip


def _progress(each: Outcome) -> list[tuple[Any, ...]]:
    series = (("broken", each.broken_s), ("served", each.served_s), ("told", each.told_s))
    detected = each.detected_s
    return [
        (
            each.way,
            each.subscribers,
            each.run,
            what,
            rank,
            at_s,
            None if detected is None else at_s - detected,
        )
        for what, times in series
        for rank, at_s in enumerate(times, 1)
    ]


def draw(results: Results, out: Path) -> str:
    """Draw the results; returns a sentence that says what was drawn."""
    if not drawing.available():
        return drawing.MISSING
    if results.failures:
        plots.draw_progress(results.failures, out)
        plots.draw_failovers(results.failures, out)
    return f"pictures are in {out}"

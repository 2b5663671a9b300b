"""``tocsin sim``: run production machines in the simulator, from many seeds or one, and read the story of a failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tocsin.errors import OperatorError
from tocsin.sim.runs import scenario as registry
from tocsin.sim.runs.runner import Outcome, Story, replay, run_many
from tocsin.sim.runs.scenario import Scenario

RUNS = 1_000  # about half a minute on two cores
JOBS_MAX = 256
LAST_LINES = 40  # of a failing run's story: what led to it is nearly always within a second of virtual time
TELL_S = 10.0  # between two lines of progress where no bar can be drawn
BROKE = 1  # exit code: an invariant broke
BAD_USAGE = 2

app = typer.Typer(
    help="Run Tocsin's machines in a simulated world, in virtual time, with faults from a seed.",
    no_args_is_help=True,
)
console = Console()
complaints = Console(stderr=True)

Source = Annotated[
    Path | None, typer.Option("--from", metavar="FILE", help="A Python file that registers scenarios.")
]


class BadSimOption(OperatorError):
    """Options that do not go together, or are out of range."""


@app.command("list")
def list_scenarios(source: Source = None) -> None:
    """Show the scenarios that can be run."""
    _words_for_errors(lambda: _list(source))


def _list(source: Path | None) -> None:
    if source is not None:
        registry.load(source)
    table = Table("scenario", "what it is", "trouble", "settling", box=None, pad_edge=False)
    for each in registry.scenarios().values():
        table.add_row(
            each.name, each.summary, f"{each.trouble_us // 1_000_000} s", f"{each.settle_us // 1_000_000} s"
        )
    console.print(table)


@app.command("run")
def run_scenario(
    name: Annotated[str, typer.Argument(metavar="SCENARIO", help="The scenario; see `tocsin sim list`.")],
    seed: Annotated[int | None, typer.Option(help="Run this seed only.")] = None,
    runs: Annotated[int | None, typer.Option(help=f"How many seeds to run; {RUNS} by default.")] = None,
    first_seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option(help="How many processes to use.")] = 1,
    source: Source = None,
    show_replay: Annotated[
        bool, typer.Option("--replay", help="Print the seed's story even if it passes.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Print the whole story, not only its end.")] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Run all seeds, and list those that broke.")
    ] = False,
) -> None:
    """Run a scenario from one seed or many; exit code 1 if an invariant broke."""
    _words_for_errors(lambda: _run(name, seed, runs, first_seed, jobs, source, show_replay, full, keep_going))


def _words_for_errors(act: Callable[[], None]) -> None:
    try:
        act()
    except OperatorError as error:
        complaints.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(BAD_USAGE) from None


def _run(
    name: str,
    seed: int | None,
    runs: int | None,
    first_seed: int,
    jobs: int,
    source: Path | None,
    show_replay: bool,
    full: bool,
    keep_going: bool,
) -> None:
    if seed is not None and runs is not None:
        raise BadSimOption("--seed and --runs do not go together", "Give one seed, or how many to run")
    if show_replay and seed is None:
        raise BadSimOption("--replay needs to know which run", "Say which with --seed N")
    if runs is not None and runs < 1:
        raise BadSimOption(f"--runs {runs} is not a number of runs", "Give 1 or more")
    if not 1 <= jobs <= JOBS_MAX:
        raise BadSimOption(f"--jobs {jobs} is not possible", f"Give 1 to {JOBS_MAX}")
    if source is not None:
        registry.load(source)
    scenario = registry.find(name)
    if show_replay and seed is not None:
        story = replay(scenario, seed)
        _tell_story(story, full=True)
        failed = [story.outcome] if story.outcome.broken else []
    else:
        first, count = (first_seed, runs or RUNS) if seed is None else (seed, 1)
        failed = _run_seeds(scenario, first, count, jobs, source, keep_going)
        if failed:
            _tell_story(replay(scenario, failed[0].seed), full=full)
    if failed:
        origin = "" if source is None else f" --from {source}"
        _say(f"replay it: tocsin sim run {name}{origin} --seed {failed[0].seed} --replay")
        raise typer.Exit(BROKE)


def _run_seeds(
    scenario: Scenario, first: int, count: int, jobs: int, source: Path | None, keep_going: bool
) -> list[Outcome]:
    """Run seeds up to the first failure, or all of them, and return the runs that failed."""
    done = events = virtual_us = 0
    began = told = time.perf_counter()
    failed: list[Outcome] = []
    progress = Progress(
        TextColumn(scenario.name),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=complaints,
        disable=not complaints.is_terminal,
    )
    with progress, closing(run_many(scenario.name, first, count, jobs=jobs, source=source)) as outcomes:
        task = progress.add_task(scenario.name, total=count)
        for outcome in outcomes:
            done += 1
            events += outcome.events
            virtual_us += outcome.virtual_us
            progress.update(task, completed=done)
            if outcome.broken is not None:
                failed.append(outcome)
                if not keep_going:
                    break
            if not complaints.is_terminal and time.perf_counter() - told >= TELL_S:
                told = time.perf_counter()
                typer.echo(f"{scenario.name}: {done} of {count} runs, {len(failed)} broken", err=True)
    took = max(time.perf_counter() - began, 1e-9)
    verdict = "no invariant broke"
    if failed:
        verdict = "an invariant broke in the last"
    if failed and keep_going:
        verdict = f"{len(failed)} broke: {', '.join(str(each.seed) for each in failed)}"
    _say(
        f"{done} runs in {took:.1f} s ({done / took:,.0f} runs/s, {events / took:,.0f} events/s), "
        f"{virtual_us / 3_600_000_000:.1f} hours of virtual time: {verdict}"
    )
    return failed


def _tell_story(story: Story, *, full: bool) -> None:
    outcome = story.outcome
    _say(f"\nseed {outcome.seed}, {outcome.events} events, digest {outcome.digest}")
    _say("faults:")
    for fault in story.plan:
        _say(f"  {fault}")
    if not story.plan:
        _say("  none")
    lines = list(story.transcript) if full else story.transcript.last(LAST_LINES)
    left_out = story.transcript.told - len(lines)
    _say("story:")
    if left_out:
        _say(f"  … {left_out} lines before; all of them with --full")
    for line in lines:
        _say(f"  {line}")
    if outcome.broken is not None:
        _say(f"\nBROKEN: {outcome.broken.invariant}\n  {outcome.broken.words}", style="bold red")


def _say(text: str, style: str | None = None) -> None:
    """Exactly this text: no markup, no folding, so that a story can be piped and compared."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

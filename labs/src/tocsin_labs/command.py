"""``tocsin lab``: the papers' experiments, on real processes of this machine or in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tocsin.client.address import read_address
from tocsin.errors import OperatorError
from tocsin.runtime import logs
from tocsin_demo.network import network_of
from tocsin_labs import recorded, statements, summaries
from tocsin_labs.cqbs import run as experiments
from tocsin_labs.cqbs.plan import plan as make_plan
from tocsin_labs.cqbs.run import EXPERIMENTS, PARTS
from tocsin_labs.figures import HEADINGS, Comparison
from tocsin_labs.landmark import run as landmarks
from tocsin_labs.landmark.plan import plan as plan_landmark
from tocsin_labs.landmark.run import EXPERIMENTS as LANDMARK_EXPERIMENTS
from tocsin_labs.pubsubcoord import run as clouds
from tocsin_labs.pubsubcoord.plan import plan as plan_cloud
from tocsin_labs.pubsubcoord.run import EXPERIMENTS as CLOUD_EXPERIMENTS
from tocsin_labs.stage import Stage, make_directory
from tocsin_labs.statements import Claim

app = typer.Typer(help="Repeat the papers' experiments and compare the results.", no_args_is_help=True)
app.callback()(lambda: None)  # without it, an app of one verb would not ask for the verb
reaps = typer.Typer(help="The experiments of the REAPS paper.", no_args_is_help=True)
reaps.callback()(lambda: None)
app.add_typer(reaps, name="reaps")
CUT_SHORT = 1  # the exit code
Done = TypeVar("Done")  # what experiments found
OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for the results.")]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of everything random.")]


def _quick(what: str) -> Any:
    """The option of a small run, which has so much."""
    return typer.Option("--quick", help=f"{what}; a smoke test.")


def _only(what: str, names: Iterable[str]) -> Any:
    """The option that chooses among experiments or figures."""
    return typer.Option("--only", metavar="NAME", help=f"Only this {what}: {', '.join(names)}. Repeatable.")


@app.command()
def cqbs(
    out: OutOption = Path("lab-cqbs"),
    quick: Annotated[bool, _quick("Few clients, half a minute")] = False,
    scale: Annotated[
        float, typer.Option("--scale", metavar="N", help="Multiply the number of clients and changes by N.")
    ] = 1.0,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            metavar="N",
            help="How long each load of `single` and `full` runs; 1 and 5 by default.",
        ),
    ] = None,
    only: Annotated[list[str] | None, _only("experiment", (*EXPERIMENTS, *PARTS))] = None,
    peer: Annotated[
        str | None,
        typer.Option(
            "--peer",
            metavar="HOST:PORT",
            help="A running broker of the paper's, that `single` measures as well.",
        ),
    ] = None,
    seed: SeedOption = 1,
) -> None:
    """Repeat the experiments of the CQBS paper on real processes, and compare the results with the paper's.

    `single`: one broker with 1, 10 and 100 subscribers. `coordinator`: 500 queries, 1 000 publishers that come and
    change; with one coordinator (`alone`), then with three whose leader is killed (`replicated`). `full`: three
    brokers and three coordinators, 360 publishers that cycle among 30 subscribers. `designs`: what the paper only
    considers (VI-B), consensus off the hot path and no coordinator, beside ours. `size`: the lines of code of a small
    client (Table II). About half an hour in all.

        tocsin lab cqbs --out results

        tocsin lab cqbs --quick

        tocsin lab cqbs --only coordinator --scale 0.1

    Ctrl-C ends an experiment early and keeps what it has (twice: at once).
    """
    names = (*EXPERIMENTS, *PARTS)
    _check_names(only, names)
    plan = make_plan(quick=quick, scale=scale, minutes=minutes, seed=seed)
    chosen = tuple(only or EXPERIMENTS)
    other = None if peer is None else read_address(peer)
    results = _perform(out, lambda stage: experiments.run(plan, stage, chosen, _command(), other))
    words = f"{experiments.draw(results, out)}; samples and tables are in {out}"
    stated = experiments.stated(results)
    tables = (*([_claims(stated)] if stated else []), _table(experiments.comparisons(results)))
    _conclude(experiments.heading(results), tables, words, results.partial)


@reaps.command("rates")
def measure_rates(
    out: OutOption = Path("lab-reaps-rates"),
    quick: Annotated[bool, _quick("Few clients, half a minute")] = False,
) -> None:
    """Measure on this machine what a takeover costs: a client, a prepared and a created subscription, a byte.

    Real processes: three brokers, of which one is killed, again and again. `rates.json` is for `tocsin lab reaps
    simulation --rates FILE`. About four minutes.

        tocsin lab reaps rates --out results
    """
    from tocsin_labs.reaps import measuring
    from tocsin_labs.reaps import rates as measured_rates

    async def run(stage: Stage) -> measured_rates.Measured:
        return await measuring.measure(measuring.QUICK if quick else measuring.Plan(), _command(), stage.tell)

    measured = _perform(out, run)
    measured_rates.write(measured, out / "rates.json")
    table = Table("rate", "value")
    for name, value in msgspec.structs.asdict(measured.rates).items():
        table.add_row(name, f"{value:.3g}")
    _conclude(measured.words, (table,), f"the rates are in {out / 'rates.json'}", partial=False)


@reaps.command()
def creation(
    out: OutOption = Path("lab-reaps-creation"),
    quick: Annotated[bool, _quick("Virtual time only, a second")] = False,
    rates: Annotated[
        Path | None,
        typer.Option("--rates", metavar="FILE", help="Rates of takeovers, from `tocsin lab reaps rates`."),
    ] = None,
) -> None:
    """Figure 3b of the REAPS paper without the machine's other work: why a takeover is as long as it is.

    23 to 400 subscribers at a broker that is killed: the processor time that its local or remote backup and the store
    need, four times each, on real processes; and the same in virtual time, where the remote backup creates
    subscriptions in bulk, as Tocsin does, or one by one, as in the paper. About eight minutes.

        tocsin lab reaps creation --out results
    """
    from tocsin_labs.reaps import creation as creations
    from tocsin_labs.reaps import rates as measured_rates

    measured = measured_rates.read() if rates is None else measured_rates.read(rates)

    async def run(stage: Stage) -> creations.Results:
        results = creations.begin(measured, _command())
        await creations.run(results, stage, 0 if quick else creations.ROUNDS)
        return results

    results = _perform(out, run)
    words = f"{creations.draw(results, out)}; tables are in {out}"
    tables = (_claims(creations.stated(results)), _table(creations.comparisons(results)))
    _conclude(creations.heading(results), tables, words, results.partial)


@reaps.command()
def simulation(
    out: OutOption = Path("lab-reaps-simulation"),
    quick: Annotated[bool, _quick("A small network, a few seconds")] = False,
    rates: Annotated[
        Path | None,
        typer.Option(
            "--rates",
            metavar="FILE",
            help="Rates of takeovers, from `tocsin lab reaps rates`; else kept ones.",
        ),
    ] = None,
    seed: SeedOption = 1,
) -> None:
    """Repeat the simulation of the REAPS paper in virtual time, and compare the results with the paper's.

    100 brokers in 3 clusters, 100 000 subscribers, 100 channels: figures 4a to 4d, 5a and 5b. The planner, the
    replication, the choice of backups that stand in and the takeover are those of the product. A quarter of an hour on
    one processor.

        tocsin lab reaps simulation --out results

        tocsin lab reaps simulation --rates rates.json

        tocsin lab reaps simulation --quick

    Ctrl-C ends it, and keeps the figures that are done.
    """
    from tocsin_labs.reaps import rates as measured_rates
    from tocsin_labs.reaps import run as simulations  # these need numpy, which takes a while to import
    from tocsin_labs.reaps.parameters import parameters

    given = parameters(quick=quick, seed=seed)
    measured = measured_rates.read() if rates is None else measured_rates.read(rates)
    results = simulations.begin(given, _command(), measured)
    make_directory(out)
    with contextlib.suppress(KeyboardInterrupt), _progress() as tell:
        simulations.run(results, out, tell)
    rows = simulations.comparisons(results)
    compared = _table(row for row in rows if row.paper is not None or row.target is not None)
    words = f"{simulations.draw(results, out)}; all figures and tables are in {out}"
    tables = (_claims(simulations.stated(results)), compared)
    _conclude(simulations.heading(results), tables, words, results.partial)


@reaps.command()
def prototype(
    out: OutOption = Path("lab-reaps-prototype"),
    quick: Annotated[bool, _quick("Few subscribers, about a minute")] = False,
    only: Annotated[list[str] | None, _only("figure", ("3a", "3b"))] = None,
    movement: Annotated[
        Path | None,
        typer.Option(
            "--movement", metavar="FILE", help="A trace of people's movements; a generated one by default."
        ),
    ] = None,
    emergencies: Annotated[
        Path | None,
        typer.Option(
            "--emergencies", metavar="FILE", help="A trace of emergencies; a generated one by default."
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs", metavar="N", help="Failures of each kind for each number of subscribers; 20 by default."
        ),
    ] = None,
    traces: Annotated[
        Path | None, typer.Option("--write-traces", metavar="DIR", help="Write the generated traces to DIR.")
    ] = None,
    seed: SeedOption = 1,
) -> None:
    """Repeat the measurements of the REAPS paper on real processes, and compare the results with the paper's.

    Four brokers in two clusters, 400 people who walk through a city, and a channel on Spark that tells each of them of
    emergencies nearby. One broker is stopped, killed, or frozen, and killed or frozen while its neighbour is down: how
    soon are its subscribers served again (3a), and how does that grow with their number (3b)? About three hours; ten
    minutes with `--runs 1`.

        tocsin lab reaps prototype --out results

        tocsin lab reaps prototype --quick

        tocsin lab reaps prototype --runs 5

        tocsin lab reaps prototype --only 3a --movement movements.txt --emergencies emergencies.txt

    Ctrl-C ends it after the failure that runs, and keeps what there is (twice: at once).
    """
    from tocsin.runtime import extra
    from tocsin_labs.reaps.prototype import run as prototypes  # these need numpy: a while to import
    from tocsin_labs.reaps.prototype.plan import FIGURES
    from tocsin_labs.reaps.prototype.plan import plan as plan_prototype

    _check_names(only, FIGURES)
    extra.check_installed()
    plan = plan_prototype(quick=quick, seed=seed, figures=only, runs=runs)
    script = plan.script(0, movement, emergencies)
    if traces is not None:
        places, happenings = prototypes.write_traces(script, traces)
        typer.echo(f"traces are in {places} and {happenings}", err=True)
    prototypes.check_traces(script)
    results = prototypes.begin(plan, _command())
    _perform(out, lambda stage: prototypes.run(results, script, stage))
    words = f"{prototypes.draw(results, out)}; samples and tables are in {out}"
    tables = (_claims(prototypes.stated(results)), _table(prototypes.comparisons(results)))
    _conclude(prototypes.heading(results), tables, words, results.partial)


@app.command()
def landmark(
    out: OutOption = Path("lab-landmark"),
    quick: Annotated[bool, _quick("Few brokers, about a minute")] = False,
    only: Annotated[list[str] | None, _only("experiment", LANDMARK_EXPERIMENTS)] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs", metavar="N", min=1, max=1_000, help="Runs of `latency`, of each number of failures."
        ),
    ] = None,
    seed: SeedOption = 1,
) -> None:
    """Repeat the experiments of the Landmark paper on real processes, and compare the results with the paper's.

    `control`: the traffic of 10 to 40 idle brokers (Table 1). `objects`: the traffic that the loss of a broker
    causes, by what it had (Tables 2 and 3). `latency`: 1 to 5 of 24 brokers are killed at once (Table 4). `sequence`:
    every message of a publisher while its subscriber's broker fails and is replaced (Figure 8). `scale`: Tables 1 and
    4 with up to 1 000 brokers, in virtual time and one process. About 45 minutes in all. `bandwidth`: Table 4 over a
    network that carries less; only if it is named, and in a network namespace of its own.

        tocsin lab landmark --out results

        tocsin lab landmark --quick

        tocsin lab landmark --only latency --seed 2

        tocsin lab landmark --only scale

        unshare --map-root-user --net tocsin lab landmark --only bandwidth

    Ctrl-C ends it after the part that runs, and keeps what there is (twice: at once).
    """
    _check_names(only, LANDMARK_EXPERIMENTS)
    plan, chosen = plan_landmark(quick=quick, seed=seed, runs=runs), tuple(only or landmarks.DEFAULT)
    results = _perform(out, lambda stage: landmarks.run(plan, stage, chosen, _command()))
    words = f"{landmarks.draw(results, out)}; samples and tables are in {out}"
    _conclude(landmarks.heading(results), (_table(landmarks.comparisons(results)),), words, results.partial)


@app.command()
def pubsubcoord(
    out: OutOption = Path("lab-pubsubcoord"),
    quick: Annotated[bool, _quick("Few brokers and topics, some minutes")] = False,
    only: Annotated[list[str] | None, _only("experiment", CLOUD_EXPERIMENTS)] = None,
    seed: SeedOption = 1,
) -> None:
    """Repeat the experiments of the PubSubCoord paper, and compare the results with the paper's.

    Edge brokers in LANs, routing brokers in a cloud, and the delays between them emulated. `locality`: 60, 80 and 100
    topics a LAN, of which a share is local (Figure 6), and the same with NATS leaf nodes. `topics`: ever more topics
    (7a, 7d). `hubs`: ever more routing brokers, each with a share of a processor, added under load (7b, 7e); both also
    for the paper's 160 brokers in virtual time. `joining`: 2 000 to 10 000 subscribers join (7c). `deadline`: paths
    with delay and loss, and second ways beside them (8, Table 1). `failure`: a hub is drained, killed and frozen. About
    35 minutes. `deadline` needs TUN devices, `hubs` control groups: as root, or they are left out.

        tocsin lab pubsubcoord --out results

        tocsin lab pubsubcoord --quick

        tocsin lab pubsubcoord --only deadline --seed 2

    Ctrl-C ends it after the point that runs, and keeps what there is (twice: at once).
    """
    _check_names(only, CLOUD_EXPERIMENTS)
    left_out = {} if only else clouds.impossible()
    for name, why in left_out.items():
        typer.echo(f"left out: {name} ({why})", err=True)
    plan = plan_cloud(quick=quick, seed=seed)
    chosen = tuple(only or (name for name in CLOUD_EXPERIMENTS if name not in left_out))
    results = _perform(out, lambda stage: clouds.run(plan, stage, chosen, _command()))
    words = f"{clouds.draw(results, out)}; samples and tables are in {out}"
    stated = clouds.stated(results)
    tables = (*([_claims(stated)] if stated else []), _table(clouds.comparisons(results)))
    _conclude(clouds.heading(results), tables, words, results.partial)


@app.command()
def draw(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="The directory of a run, or a summary.md that a lab has written, or a page of the docs.",
        ),
    ],
    out: OutOption = Path("."),
) -> None:
    """Draw the figures of a run or a summary again, the paper's values beside ours, without running anything.

        tocsin lab draw lab-landmark --out docs/assets/landmark

        tocsin lab draw docs/explanation/landmark-summary.md --out docs/assets/landmark

    The directory of a run gives every picture of its lab. A summary has no single samples: without Figures 3a and 8,
    and with means in place of the samples of CQBS.
    """
    out.mkdir(parents=True, exist_ok=True)
    for path in recorded.draw(source, out) if source.is_dir() else summaries.draw(source, out):
        typer.echo(f"drew {path}")


def _check_names(only: list[str] | None, names: tuple[str, ...]) -> None:
    """Refuse what is no experiment."""
    unknown = [name for name in only or () if name not in names]
    if unknown:
        raise OperatorError(f"--only {unknown[0]!r} is no experiment", f"Name one of {', '.join(names)}")


def _command() -> str:
    """The command as it was given, without the directory of the results."""
    words = iter(sys.argv[1:])
    kept: list[str] = []
    for word in words:
        if word == "--out":
            next(words, None)
        elif not word.startswith("--out="):
            kept.append(word)
    return shlex.join(["tocsin", *kept])


def _perform(out: Path, run: Callable[[Stage], Coroutine[Any, Any, Done]]) -> Done:
    """Run experiments on real processes to their end; what they found."""
    make_directory(out)
    logs.configure("lab", network_of().log)
    try:
        return asyncio.run(_staged(out, run))
    except asyncio.CancelledError:
        raise typer.Exit(CUT_SHORT) from None


def _conclude(heading: str, tables: Iterable[Table], words: str, partial: bool) -> NoReturn:
    """Print what was found and where it is, and leave."""
    console = Console()
    console.print(heading, markup=False, highlight=False)
    for table in tables:
        console.print(table)
    console.print(words, markup=False, highlight=False)
    raise typer.Exit(CUT_SHORT if partial else 0)


async def _staged(out: Path, run: Callable[[Stage], Coroutine[Any, Any, Done]]) -> Done:
    """Run experiments with a bar; the first Ctrl-C cuts them short, the second ends them."""
    with _progress() as tell:
        stage = Stage(out, tell)
        running = asyncio.create_task(run(stage))

        def interrupt() -> None:
            if stage.is_cut:
                running.cancel()
            stage.cut()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt)
        return await running


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A bar for people; elsewhere a line on standard error whenever something new begins."""
    console = Console(stderr=True)
    if not console.is_terminal:
        said: list[str] = []

        def tell_once(words: str, part: float) -> None:
            if words not in said:
                said.append(words)
                typer.echo(words, err=True)

        yield tell_once
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda words, part: progress.update(task, description=words, completed=part)


def _claims(stated: Iterable[Claim]) -> Table:
    table = Table(*statements.HEADINGS)
    for claim in stated:
        table.add_row(*claim.cells())
    return table


def _table(rows: Iterable[Comparison]) -> Table:
    table = Table()
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("experiment", "figure") else "right")
    for row in rows:
        table.add_row(*row.cells())
    return table

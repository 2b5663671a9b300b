"""The simulation figure by figure, and what is written down of it.

    OUT/retrieval.csv  subscriptions.csv  conditions.csv  replication.csv  failures.csv      the figures' points
    OUT/summary.md  summary.csv                                          paper, ours, ratio; the paper's statements
    OUT/results.json                                                                         all that is known
    OUT/retrieval.png  subscriptions.png  remote.png  replication.png  duplicates.png  failovers.png

What was found is written after each figure. One seed gives the same points on every machine.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tocsin_labs import drawing, record, statements
from tocsin_labs.figures import Comparison, markdown
from tocsin_labs.reaps import claims, failures, overheads, paper, plots, rates, replication, retrieval
from tocsin_labs.reaps.failures import Failed
from tocsin_labs.reaps.overheads import Overhead
from tocsin_labs.reaps.parameters import Parameters
from tocsin_labs.reaps.rates import Measured
from tocsin_labs.reaps.replication import Replicated
from tocsin_labs.reaps.retrieval import REAPS, Retrieved
from tocsin_labs.reaps.workload import Workload
from tocsin_labs.statements import Claim

Tell = Callable[[str, float], None]
COMMAND: Final = "tocsin lab reaps simulation"


class Results(msgspec.Struct):
    """All that was found, and where."""

    parameters: Parameters
    command: str
    day: str
    machine: dict[str, str | int]
    measured: Measured  # the rates of takeovers
    retrieval: list[Retrieved] = []  # Fig 4a
    sweep: list[Overhead] = []  # Figs 4b and 4c
    conditions: list[Overhead] = []
    replication: list[Replicated] = []  # Fig 4d
    failures: list[Failed] = []  # Figs 5a and 5b

    @property
    def partial(self) -> bool:
        """Something is not there yet."""
        return not all((self.retrieval, self.sweep, self.conditions, self.replication, self.failures))


def begin(given: Parameters, command: str = COMMAND, measured: Measured | None = None) -> Results:
    """Nothing found yet. Without rates of their own, takeovers have those that are kept with the package."""
    return Results(given, command, record.today(), record.machine(), measured or rates.read())


def run(results: Results, out: Path, tell: Tell) -> None:
    """All figures, in order; what was found is written after each."""
    given = results.parameters
    workload = Workload(given)
    # Each step, its share of the time (about), and the list for its results.
    parts: list[tuple[str, float, str, Callable[[Callable[[float], None]], list[Any]]]] = [
        ("Fig 4a: retrieval", 0.04, "retrieval", lambda part: retrieval.run(workload, given, part)),
        ("Figs 4b, 4c: backups", 0.36, "sweep", lambda part: overheads.sweep(workload, given, part)),
        ("Figs 4b, 4c: other conditions", 0.15, "conditions", lambda part: overheads.conditions(given, part)),
        ("Fig 4d: replication", 0.2, "replication", lambda part: replication.run(workload, given, part)),
        (
            "Figs 5a, 5b: failures",
            0.25,
            "failures",
            lambda part: failures.run(workload, given, part, results.measured.rates),
        ),
    ]
    done = 0.0
    for words, share, name, act in parts:
        setattr(results, name, act(_telling(tell, words, done, share)))
        done += share
        write(results, out)


def _telling(tell: Tell, words: str, done: float, share: float) -> Callable[[float], None]:
    return lambda part: tell(words, done + share * part)


# ── what is written ──────────────────────────────────────────────────────────────────────────────────────────


def comparisons(results: Results) -> list[Comparison]:
    """The paper and ours, of all that was found."""
    rows: list[Comparison] = []
    if results.retrieval:
        last = {each.scheme: each for each in results.retrieval[-4:]}
        own = last[REAPS].mean_mb_s
        for scheme, each in last.items():
            published = paper.NOTIFICATION_OVERHEAD if scheme == REAPS else None
            rows.append(Comparison("4a", f"{scheme}: fetched by a broker", "MB/s", None, each.mean_mb_s))
            overhead = 100 * (each.mean_mb_s / own - 1)
            rows.append(
                Comparison("4a", f"{scheme}: fetched for nobody", "% of its own", published, overhead)
            )
    if results.sweep:
        rows += _overheads("4b, 4c", results.sweep[-1], paper.REMOTE_MAX)
    for condition in results.conditions[1:]:
        rows += _overheads(f"4b, 4c, {condition.condition}", condition, None)
    for replicated in results.replication:
        unit = {"periodic": "s", "clients": "clients", "volume": "MB", "ideal": "MB"}[replicated.mode]
        name = f"{replicated.mode}, {replicated.setting:g} {unit}"
        rows.append(Comparison("4d", f"{name}: messages", "a minute", None, replicated.messages_min))
        rows.append(Comparison("4d", f"{name}: fetched twice", "MB", None, replicated.retrieved_mb))
    for failed in _ends(results.failures):
        name = f"{failed.failed} failed, {failed.scheme}, {_room(failed.room)}"
        rows.append(Comparison("5a", f"{name}: fetched twice", "MB", None, failed.retrieved_mb))
        rows.append(Comparison("5a", f"{name}: delivered twice", "MB", None, failed.delivered_mb))
        rows.append(Comparison("5b", f"{name}: remote fail-overs", "brokers", None, failed.remote_brokers))
        rows.append(Comparison("5b", f"{name}: created for them", "subscriptions", None, failed.created))
        rows.append(Comparison("5b", f"{name}: all served again after", "s", None, failed.served_s))
        rows.append(Comparison("5b", f"{name}: all recovered after", "s", None, failed.longest_s))
    return rows


def _overheads(figure: str, row: Overhead, published: int | None) -> list[Comparison]:
    found = [Comparison(figure, "original subscriptions", "of all brokers", None, row.original)]
    for name, chosen in (("RND", row.random), ("REAPS", row.paper), ("ours", row.ours)):
        target = row.paper.overhead + 1 if name == "ours" else None
        theirs = published if name == "REAPS" else None
        found.append(Comparison(figure, f"{name}: added", "subscriptions", None, chosen.overhead, target))
        found.append(
            Comparison(figure, f"{name}: the worst broker creates", "subscriptions", theirs, chosen.largest)
        )
    found.append(Comparison(figure, "bound: added", "subscriptions", None, row.bound))
    found.append(
        Comparison(
            figure,
            "bound with our locals: the worst broker creates",
            "subscriptions",
            None,
            row.largest_bound,
        )
    )
    return found


def _ends(rows: Sequence[Failed]) -> list[Failed]:
    """With one failed broker, and with all of the cluster."""
    counts = [each.failed for each in rows]
    return [each for each in rows if each.failed in (min(counts), max(counts))]


def _room(room: float | None) -> str:
    return "no bound" if room is None else f"room for {room:g}"


def stated(results: Results) -> list[Claim]:
    """The paper's statements, of all that was found."""
    found: list[Claim] = []
    if results.retrieval:
        found += claims.of_retrieval(results.retrieval)
    if results.sweep:
        found += claims.of_overheads(results.sweep)
    if results.replication:
        found += claims.of_replication(results.replication)
    if results.failures:
        found += claims.of_failures(results.failures)
    return found


def heading(results: Results) -> str:
    """One sentence: the run that the figures are of."""
    given = results.parameters
    cut = " It was cut short: what is missing was not simulated." if results.partial else ""
    return (
        f"Simulated with {given.words}, seed {given.seed}: {given.brokers} brokers in {given.clusters} clusters, "
        f"{given.subscribers} subscribers, {given.channels} channels of {given.subscriptions_each} subscriptions.{cut}"
    )


def summary(results: Results) -> str:
    """A page of its own: what was done, and the tables."""
    wrote = f"`{results.command}` wrote this page on {results.day}."
    begun = f"{wrote} {heading(results)} {results.measured.words}"
    return (
        f"# Figures of the REAPS simulation\n\n{begun}\n\n## What the paper states\n\n"
        f"{statements.markdown(stated(results))}\n## Paper, ours, ratio\n\n{markdown(comparisons(results))}"
    )


def write(results: Results, out: Path) -> None:
    record.write_results(out, results, comparisons(results), summary(results))
    for name, rows in (
        ("retrieval", results.retrieval),
        ("subscriptions", results.sweep),
        ("conditions", results.conditions),
        ("replication", results.replication),
        ("failures", results.failures),
    ):
        if rows:
            _write_rows(out / f"{name}.csv", [_flat(each) for each in rows])


def _flat(row: msgspec.Struct) -> dict[str, object]:
    """A row of numbers; what is nested gets both names."""
    flat: dict[str, object] = {}
    for name, value in msgspec.structs.asdict(row).items():
        if isinstance(value, msgspec.Struct):
            flat |= {f"{name}_{inner}": each for inner, each in msgspec.structs.asdict(value).items()}
        else:
            flat[name] = value
    return flat


def _write_rows(path: Path, rows: Sequence[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def draw(results: Results, out: Path) -> str:
    """Draw the results; returns a sentence that says what was drawn."""
    if not drawing.available():
        return drawing.MISSING
    if results.retrieval:
        plots.draw_retrieval(results.retrieval, out)
    if results.sweep:
        plots.draw_subscriptions(results.sweep, out)
        plots.draw_remote(results.sweep, results.conditions, out)
    if results.replication:
        plots.draw_replication(results.replication, out)
    if results.failures:
        plots.draw_duplicates(results.failures, out)
        plots.draw_failovers(results.failures, results.measured.rates, out)
    return f"pictures are in {out}"

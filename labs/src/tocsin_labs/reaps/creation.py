"""Fig 3b without the machine's other work: how a takeover's length follows from the number of subscribers, and why.

A broker fails with as many subscribers as the paper's, and with more, of one subscription each. Its local backup has
prepared these; its remote backup creates them.

- **On real processes**, in processor time of the backup and of the store (``measuring``): what else the machine does
  disturbs that little. The backup has a subscriber of its own, as all brokers of the prototype have.
- **In virtual time** the remote backup creates *in bulk*, as the product does, or *one by one*, as the paper has it.
  Machines of the product decide (``takeover``); measured rates say how long each step takes. All processes are on one
  machine, as in the prototype, so messages take next to no time. Time runs from the word of the loss until the last
  has its session.

    OUT/creation.csv                 each takeover
    OUT/summary.csv  summary.md      the paper's statements; each figure
    OUT/results.json                 all that is known
    OUT/creation.png                 if matplotlib is there
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from tocsin_labs import drawing, record, statements
from tocsin_labs.drawing import finish, pyplot, save
from tocsin_labs.figures import Comparison, markdown, shown
from tocsin_labs.reaps import measuring
from tocsin_labs.reaps.parameters import Parameters
from tocsin_labs.reaps.prototype.outcome import line
from tocsin_labs.reaps.prototype.plan import NEIGHBOUR, VICTIM
from tocsin_labs.reaps.prototype.tables import PROPORTIONAL, SIGNIFICANT, STRAIGHT
from tocsin_labs.reaps.rates import Measured
from tocsin_labs.reaps.takeover import Standing, Taken, recover
from tocsin_labs.reaps.workload import Workload
from tocsin_labs.stage import Stage
from tocsin_labs.statements import Claim

Way = Literal["local", "remote", "remote, one by one"]
WAYS: Final[tuple[Way, ...]] = ("local", "remote", "remote, one by one")
COLOURS: Final = {"local": "#2e5cb8", "remote": "#7d3c98", "remote, one by one": "#e67e22"}
PAPERS: Final = (23, 50, 74, 97)  # subscribers of the paper's figure
SIZES: Final = (*PAPERS, 200, 400)
ROUNDS: Final = 4
HOP_S: Final = 0.00005  # from one process of a machine to another
VIRTUAL: Final = "in virtual time"
COMMAND: Final = "tocsin lab reaps creation"


class Timed(msgspec.Struct, frozen=True):
    """One takeover."""

    way: Way
    subscribers: int
    created: int  # subscriptions that clients waited for
    served_s: float


class Needed(msgspec.Struct, frozen=True):
    """Takeovers on real processes; what else ran can only add to the least of them."""

    way: measuring.Way
    subscribers: int
    processor_s: list[float]  # of each round

    @property
    def least_s(self) -> float:
        return min(self.processor_s)


class Results(msgspec.Struct):
    """All that was found, and where."""

    command: str
    day: str
    machine: dict[str, str | int]
    measured: Measured  # the rates of virtual time
    takeovers: list[Timed]
    needed: list[Needed] = []
    partial: bool = False  # it was cut short


def begin(measured: Measured, command: str = COMMAND) -> Results:
    """What takes no time: all takeovers in virtual time, the same on every machine for the same rates."""
    takeovers = [_take_over(way, size, measured) for way in WAYS for size in SIZES]
    return Results(command, record.today(), record.machine(), measured, takeovers)


async def run(results: Results, stage: Stage, rounds: int) -> None:
    """All takeovers on real processes, ways and numbers by turns; what was found is written after each round."""
    found: dict[tuple[measuring.Way, int], list[float]] = {}
    write(results, stage.out)
    for turn in range(rounds):
        for size in SIZES:
            for way in measuring.BACKUPS:
                if stage.is_cut:
                    results.partial = True
                    write(results, stage.out)
                    return
                done = sum(map(len, found.values())) / (rounds * len(SIZES) * len(measuring.BACKUPS))
                stage.tell(f"{way} takeover of {size} clients, {turn + 1} of {rounds}", done)
                spent = await measuring.takeover(way, size, size, resident=True)
                found.setdefault((way, size), []).append(spent.broker + spent.store)
                results.needed = [Needed(way, size, each) for (way, size), each in found.items()]
        write(results, stage.out)


def _take_over(way: Way, subscribers: int, measured: Measured) -> Timed:
    workload = Workload(Parameters(subscribers=0, channels=1, subscriptions_each=subscribers))
    rates = msgspec.structs.replace(measured.rates, near_s=HOP_S, far_s=HOP_S)
    everything = range(subscribers)
    prepared = {VICTIM: frozenset(everything)} if way == "local" else {}
    taken = Taken(VICTIM, way != "local", everything, {})
    standing = Standing(NEIGHBOUR, frozenset(), prepared, [taken])
    (found,) = recover(workload, [standing], rates, one_by_one=way == "remote, one by one")
    return Timed(way, subscribers, found.created, found.served_s)


def points(results: Results) -> dict[str, list[tuple[int, float]]]:
    """Subscribers and seconds, by what they are of."""
    found: dict[str, list[tuple[int, float]]] = {}
    for each in results.needed:
        found.setdefault(f"{each.way}, processor", []).append((each.subscribers, each.least_s))
    for timed in results.takeovers:
        found.setdefault(f"{timed.way}, {VIRTUAL}", []).append((timed.subscribers, timed.served_s))
    return found


def stated(results: Results) -> list[Claim]:
    """The paper's statements about Fig 3b, with creation in bulk and without."""
    found: list[Claim] = []
    most = max(PAPERS)
    served = {each.way: each.served_s for each in results.takeovers if each.subscribers == most}
    for way, series in points(results).items():
        straight = line(series)
        if straight is None:
            continue
        linear = straight.slope > 0 and straight.explained >= STRAIGHT
        evidence = (
            f"{shown(straight.intercept * 1_000)} ms and {shown(straight.slope * 1_000)} ms for each subscriber; "
            f"a line explains {shown(100 * straight.explained)} % of the variance"
        )
        found.append(Claim("3b", f"{way}: fail-over time grows linearly with subscribers", linear, evidence))
        share = straight.intercept / straight.at(most)
        words = f"{way}: fail-over time is directly proportional to subscribers"
        evidence = f"{shown(100 * share)} % of the time with {most} is there with none"
        found.append(Claim("3b", words, linear and abs(share) <= PROPORTIONAL, evidence))
    for way in WAYS[1:]:
        words = f"in virtual time local fail-over takes significantly less time than {way}"
        near, far = shown(served["local"] * 1_000), shown(served[way] * 1_000)
        evidence = f"{near} ms against {far} ms with {most} subscribers"
        found.append(Claim("3a", words, served["local"] <= SIGNIFICANT * served[way], evidence))
    return found


def comparisons(results: Results) -> list[Comparison]:
    """Each takeover: the paper's text has no values."""
    needed = [
        Comparison(
            "3b, processor",
            f"{each.way}, {each.subscribers} subscribers: backup and store, {_range(each)}",
            "ms",
            None,
            each.least_s * 1_000,
        )
        for each in results.needed
    ]
    virtual = [
        Comparison(
            "3b, in virtual time",
            f"{each.way}, {each.subscribers} subscribers: all served again",
            "ms",
            None,
            each.served_s * 1_000,
        )
        for each in results.takeovers
    ]
    return [*needed, *virtual]


def _range(needed: Needed) -> str:
    """How much it needed in all rounds."""
    return f"{shown(needed.least_s * 1_000)} to {shown(max(needed.processor_s) * 1_000)}"


def heading(results: Results) -> str:
    """What the figures are of."""
    cut = " It was cut short." if results.partial else ""
    return f"Takeovers of one broker, without what else the machine did. {results.measured.words}{cut}"


def summary(results: Results) -> str:
    """A page of its own."""
    wrote = f"`{results.command}` wrote this page on {results.day}."
    return (
        f"# Figure 3b of the REAPS paper without the machine's other work\n\n{wrote} {heading(results)}\n\n"
        f"## What the paper states\n\n{statements.markdown(stated(results))}\n"
        f"## Figures\n\n{markdown(comparisons(results))}"
    )


def write(results: Results, out: Path) -> None:
    record.write_results(out, results, comparisons(results), summary(results))
    rows: list[tuple[object, ...]] = [
        ("virtual", each.way, each.subscribers, each.created, each.served_s) for each in results.takeovers
    ]
    rows += [
        ("processor", each.way, each.subscribers, "", spent)
        for each in results.needed
        for spent in each.processor_s
    ]
    record.write_rows(out / "creation.csv", ("time", "way", "subscribers", "created", "seconds"), rows)


def draw(results: Results, out: Path) -> str:
    """Draw the results; returns a sentence that says what was drawn."""
    if not drawing.available():
        return drawing.MISSING
    times = {
        "processor": ("3b on real processes: processor time (lines: the least)", "ms of backup and store"),
        VIRTUAL: (
            "3b in virtual time (the paper: proportional, local well below remote)",
            "ms from the loss",
        ),
    }
    shown_times = [time for time in times if time == VIRTUAL or results.needed]
    figure, panels = pyplot().subplots(
        1, len(shown_times), figsize=(6.5 * len(shown_times), 4.8), squeeze=False, layout="constrained"
    )
    by_time = dict(zip(shown_times, panels[0], strict=True))
    for name, series in points(results).items():
        way, _, time = name.rpartition(", ")
        axes, straight = by_time[time], line(series)
        xs, ys = zip(*series, strict=True)
        axes.plot(xs, [1_000 * y for y in ys], "o", color=COLOURS[way], ms=5)
        if straight is not None:
            words = f"{way}: {straight.slope * 1_000:.2f} ms each + {straight.intercept * 1_000:.1f} ms"
            label = f"{words}, R² {straight.explained:.2f}"
            ends = [0, max(xs)]
            axes.plot(ends, [straight.at(x) * 1_000 for x in ends], color=COLOURS[way], lw=1, label=label)
    for each in results.needed:
        spent = [1_000 * spent for spent in each.processor_s]
        axes = by_time["processor"]
        axes.plot([each.subscribers] * len(spent), spent, "o", color=COLOURS[each.way], ms=3, alpha=0.4)
    for time, axes in by_time.items():
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        title, up = times[time]
        finish(axes, title, "subscribers of the broker that fails, a subscription each", up)
    save(figure, out / "creation.png")
    return f"pictures are in {out}"

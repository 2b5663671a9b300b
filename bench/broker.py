"""Messages that a broker handles in a CPU second, beside mosquitto and NATS under the same load in the same run.

One generator (``bench.load``) drives all of them on raw sockets from a core of its own; the brokers have the other.
Each pair is a turn of every broker in random order, and ratios are taken within a pair: the machine is shared.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import platform
import random
import resource
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table as Grid

from bench.load import idle, loads, servers, stored
from bench.load.dialect import LoadError, Mqtt
from bench.load.figures import Figure, Ratio, Reading, figure, ratio
from bench.load.plot import plot
from bench.load.servers import Server

RESULTS: Final = Path(__file__).parent / "results"
CONSOLE: Final = Console(width=130)
SPARE_FILES: Final = 500
BURST: Final = 32
RETAINED: Final = "retained replay of 1000"

# Our targets: ratios over mosquitto and over NATS.
TARGETS: Final[dict[str, dict[str, float]]] = {
    "fan-out 1000": {"mosquitto": 1.3, "nats": 2.0},
    "fan-out 1000, bursts of 32": {"mosquitto": 10.0, "nats": 2.0},
    "many-to-many pairs 100×100": {"mosquitto": 3.0, "nats": 0.6},
    "many-to-many mesh 100×100": {"mosquitto": 3.0, "nats": 0.6},
}


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    turn_s: float
    pairs: int
    fan_outs: tuple[int, ...]
    pairs_of_largest: int  # of crowds too large to be there three times at once
    cqbs_s: float
    idle: tuple[int, ...]


FULL: Final = Plan(0.8, 5, (1, 100, 1_000, 10_000), 2, 2.0, (3_750, 7_500, 15_000))
QUICK: Final = Plan(0.2, 2, (1, 1_000), 1, 0.5, (500, 1_000))


class Load(msgspec.Struct, frozen=True):
    """A stage, and the turns that are measured on it."""

    clients: int
    make: Callable[[Server], loads.Stage]
    turns: tuple[tuple[str, Callable[[loads.Stage, float], Reading]], ...]


class Report(msgspec.Struct, frozen=True):
    quick: bool
    seed: int
    machine: str
    payload_bytes: int
    figures: tuple[Figure, ...]
    ratios: tuple[Ratio, ...]
    idle: tuple[idle.Idle, ...]
    notes: tuple[str, ...]


def _rounds(each: int) -> Callable[[loads.Stage, float], Reading]:
    def turn(stage: loads.Stage, seconds: float) -> Reading:
        assert isinstance(stage, loads.Rounds)
        return stage.turn(seconds, each)

    return turn


def _steady(stage: loads.Stage, seconds: float) -> Reading:
    return stage.turn(seconds)


def plan_loads(plan: Plan) -> list[Load]:
    found = [
        Load(
            subscribers,
            lambda server, count=subscribers: loads.fan_out(server, count),  # type: ignore[misc]
            (
                (f"fan-out {subscribers}", _rounds(1)),
                (f"fan-out {subscribers}, bursts of 32", _rounds(BURST)),
            ),
        )
        for subscribers in plan.fan_outs
    ]
    at_a_time = loads.AT_A_TIME
    found.append(Load(200, loads.pairs, (("many-to-many pairs 100×100", _rounds(at_a_time)),)))
    found.append(Load(200, loads.mesh, (("many-to-many mesh 100×100", _rounds(at_a_time)),)))
    found.append(Load(1_100, loads.Cqbs, (("cqbs 1000×5/s → 100", lambda s, _: s.turn(plan.cqbs_s)),)))
    return found


class Bench:
    """All loads on all brokers."""

    def __init__(
        self, plan: Plan, seed: int, directory: Path, wanted: str = "", against: Path | None = None
    ) -> None:
        self.figures: list[Figure] = []
        self.ratios: list[Ratio] = []
        self.idle: list[idle.Idle] = []
        self.notes: list[str] = []
        self._plan = plan
        self._wanted = wanted  # part of the names of the loads to measure
        self._chance = random.Random(seed)
        self._directory = directory
        self._made = 0
        self._against = against
        self._mosquitto = servers.mosquitto_program()
        if self._mosquitto is None and against is None:
            self.notes.append("mosquitto is not installed: install the Debian package, or run as root")

    def run(self, chosen: Sequence[str]) -> None:
        if "loads" in chosen:
            with contextlib.ExitStack() as stack:
                brokers = self._start(stack)
                for load in plan_loads(self._plan):
                    if turns := tuple(turn for turn in load.turns if self._wanted in turn[0]):
                        self._measure(msgspec.structs.replace(load, turns=turns), brokers)
                if self._wanted in RETAINED:
                    self._retained(brokers)
        if "stored" in chosen:
            self._stored()
        if "idle" in chosen:
            self._idle()

    # ── brokers ─────────────────────────────────────────────────────────────────────────────────────────────

    def _starters(self, *, durable: bool) -> list[contextlib.AbstractContextManager[Server]]:
        self._made += 1
        home = self._directory / str(self._made)
        found: list[contextlib.AbstractContextManager[Server]] = [servers.tocsin(home / "tocsin")]
        if self._against is not None:
            other = servers.tocsin(home / "other", name="other", python=str(self._against))
            return [*found, other]
        if self._mosquitto is not None:
            found.append(servers.mosquitto(self._mosquitto, home / "mosquitto", durable=durable))
        found.append(servers.nats(home / "nats", durable=durable))
        return found

    def _start(self, stack: contextlib.ExitStack, *, durable: bool = False) -> list[Server]:
        return [stack.enter_context(each) for each in self._starters(durable=durable)]

    # ── loads ───────────────────────────────────────────────────────────────────────────────────────────────

    def _measure(self, load: Load, brokers: list[Server]) -> None:
        """Stages of all brokers at once if open files allow, so that turns can alternate; else one after another."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        together = load.clients * len(brokers) + SPARE_FILES < files
        if load.clients + SPARE_FILES > files:
            self.notes.append(f"{load.turns[0][0]} needs more open files than {files}: raise `ulimit -n`")
            return
        found: dict[str, dict[str, list[Reading]]] = {
            name: {b.name: [] for b in brokers} for name, _ in load.turns
        }
        try:
            if together:
                self._alternate(load, brokers, found)
            else:
                self._one_by_one(load, brokers, found)
        except LoadError as error:
            self.notes.append(f"{load.turns[0][0]}: {error}")
            CONSOLE.print(f"[red]{self.notes[-1]}[/red]")
            return
        for name, readings in found.items():
            self._sum_up(name, readings)

    def _alternate(
        self, load: Load, brokers: list[Server], found: dict[str, dict[str, list[Reading]]]
    ) -> None:
        with contextlib.ExitStack() as stack:
            stages = {}
            for broker in brokers:
                with naming(broker):
                    stages[broker.name] = stage = load.make(broker)
                stack.callback(stage.close)
            for name, turn in load.turns:
                for _ in range(self._plan.pairs):
                    for broker in self._shuffled(brokers):
                        with naming(broker):
                            found[name][broker.name].append(turn(stages[broker.name], self._plan.turn_s))

    def _one_by_one(
        self, load: Load, brokers: list[Server], found: dict[str, dict[str, list[Reading]]]
    ) -> None:
        for _ in range(self._plan.pairs_of_largest):
            for broker in self._shuffled(brokers):
                with naming(broker), contextlib.closing(load.make(broker)) as stage:
                    for name, turn in load.turns:
                        found[name][broker.name].append(turn(stage, self._plan.turn_s))

    def _shuffled(self, brokers: Sequence[Server]) -> list[Server]:
        return self._chance.sample(list(brokers), len(brokers))

    def _sum_up(self, name: str, readings: dict[str, list[Reading]]) -> None:
        targets = TARGETS.get(name, {})
        for broker, taken in readings.items():
            self.figures.append(figure(name, broker, taken))
            show_figure(self.figures[-1])
        for peer, taken in readings.items():
            if peer != "tocsin":
                self.ratios.append(ratio(name, peer, readings["tocsin"], taken, targets.get(peer)))
                show_ratio(self.ratios[-1])

    # ── what is kept ────────────────────────────────────────────────────────────────────────────────────────

    def _offered(self, broker: Server, what: str) -> bool:
        if not isinstance(broker.dialect, Mqtt):
            return False
        can = stored.capabilities(broker)
        return can.retain if what == "retained messages" else can.max_qos > 0

    def _note_absence(self, what: str) -> None:
        self.notes.append(f"{what}: not offered yet by tocsin (its CONNACK says so)")
        CONSOLE.print(self.notes[-1])

    def _retained(self, brokers: list[Server]) -> None:
        if not self._offered(brokers[0], "retained messages"):
            self._note_absence("retained messages")
            return
        keepers = [each for each in brokers if isinstance(each.dialect, Mqtt)]
        self._measure(Load(2, stored.Retained, ((RETAINED, _steady),)), keepers)

    def _stored(self) -> None:
        with contextlib.ExitStack() as stack:
            brokers = self._start(stack, durable=True)
            if self._offered(brokers[0], "QoS 1"):
                self._measure(Load(60, stored.Stored, (("QoS 1 stored, 50 publishers", _steady),)), brokers)
            else:
                self._note_absence("QoS 1 stored")

    # ── idle ────────────────────────────────────────────────────────────────────────────────────────────────

    def _idle(self) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        sizes = [each for each in self._plan.idle if each + SPARE_FILES < files]
        if len(sizes) < len(self._plan.idle):
            self.notes.append(
                f"idle connections: only {sizes}, as there may be no more than {files} open files"
            )
        for starter in self._starters(durable=False):
            try:
                with starter as broker:
                    self.idle.append(idle.measure(broker, sizes))
                    show_idle(self.idle[-1])
            except LoadError as error:
                self.notes.append(f"idle connections: {error}")
                CONSOLE.print(f"[red]{self.notes[-1]}[/red]")


@contextlib.contextmanager
def naming(broker: Server) -> Iterator[None]:
    """Say which broker a load failed at."""
    try:
        yield
    except LoadError as error:
        raise LoadError(f"{broker.name}: {error}") from None


# ── showing ──────────────────────────────────────────────────────────────────────────────────────────────────


def show_figure(each: Figure) -> None:
    """One line as soon as it is known: the whole takes minutes."""
    latency = each.latency_us
    times = f"p50 {latency.p50:,.0f} p95 {latency.p95:,.0f} p99 {latency.p99:,.0f} µs" if latency else ""
    CONSOLE.print(
        f"{each.load:30} {each.broker:10} {each.per_cpu_s.median:12,.0f} /cpu s {each.per_s:12,.0f} /s  {times}"
    )


def show_ratio(each: Ratio) -> None:
    target = f"  target ≥ {each.target:g}: {each.verdict}" if each.target is not None else ""
    CONSOLE.print(f"{'':30} ÷ {each.peer:10} [bold]{each.ratio}[/bold]{target}")


def show_idle(each: idle.Idle) -> None:
    weight = each.weight
    CONSOLE.print(
        f"idle {each.broker:10} {weight.connected:8,.0f} B a connection, {weight.subscribed:,.0f} B with two "
        f"subscriptions, at {weight.clients:,}"
    )
    for c in each.crossings:
        CONSOLE.print(
            f"     {c.clients:6,} connect {c.connect_s:6.2f} s, disconnect {c.disconnect_s:6.2f} s "
            f"(broker {c.disconnect_cpu_s:.2f}), reconnect with subscriptions {c.reconnect_s:6.2f} s "
            f"(broker {c.reconnect_cpu_s:.2f})"
        )
    gone, back = each.growth()
    CONSOLE.print(
        f"     broker time for each client, most ÷ fewest: disconnect {gone:.2f}, reconnect {back:.2f}"
    )


def summary(report: Report) -> Grid:
    grid = Grid(title="Tocsin ÷ peer: deliveries per broker CPU second", title_justify="left")
    for heading in ("load", "peer", "ratio (least..most)", "per s", "latency p50", "target", ""):
        grid.add_column(heading, justify="left" if heading in ("load", "peer", "") else "right")
    for each in report.ratios:
        grid.add_row(
            each.load,
            each.peer,
            str(each.ratio),
            f"{each.rate.median:.2f}",
            "" if each.latency is None else f"{each.latency:.2f}",
            "" if each.target is None else f"≥ {each.target:g}",
            each.verdict,
        )
    return grid


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.broker", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="smaller and rougher, in under a minute")
    parser.add_argument("--seed", type=int, default=1, help="of the order of turns (default: 1)")
    parser.add_argument(
        "--only", choices=("loads", "stored", "idle"), action="append", help="a part of it; may be repeated"
    )
    parser.add_argument("--load", default="", metavar="TEXT", help="only loads with this in their name")
    parser.add_argument("--pairs", type=int, help="how often each broker has its turn")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="PYTHON",
        help="beside another Tocsin, and nobody else: the Python of the environment that has it",
    )
    parser.add_argument(
        "--directory", type=Path, help="where the brokers keep their data (default: temporary)"
    )
    chosen = parser.parse_args(argv)
    plan = QUICK if chosen.quick else FULL
    if chosen.pairs:
        plan = msgspec.structs.replace(plan, pairs=chosen.pairs)
    generator, brokers_core = servers.cores()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {generator})
    gc.collect()
    try:
        with tempfile.TemporaryDirectory(prefix="tocsin-bench-", dir=chosen.directory) as directory:
            bench = Bench(plan, chosen.seed, Path(directory), chosen.load, chosen.against)
            if generator == brokers_core:
                bench.notes.append(
                    "there is one core only: the generator and the brokers take it from each other"
                )
            bench.run(chosen.only or (("loads",) if chosen.load else ("loads", "stored", "idle")))
    finally:
        os.sched_setaffinity(0, before)
    report = Report(
        chosen.quick,
        chosen.seed,
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        len(loads.PAYLOAD),
        tuple(bench.figures),
        tuple(bench.ratios),
        tuple(bench.idle),
        tuple(bench.notes),
    )
    CONSOLE.print(summary(report))
    for note in report.notes:
        CONSOLE.print(f"note: {note}")
    if chosen.load or chosen.against:
        return 0  # a part, which is not to take the place of the whole
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "broker.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    CONSOLE.print(f"written to {path}; {plot(report.ratios, RESULTS / 'broker.svg')}", markup=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

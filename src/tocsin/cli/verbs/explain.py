"""``tocsin explain``: why the network has decided as it has.

The leader wrote the explanation when it planned (``coordinator.planning``) or asked standbys
(``coordinator.standbys``), so that it can be read while nobody leads, and for a broker that is gone.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from tocsin.cli.layout import console, lay_out, printable
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, network_settings
from tocsin.cli.verbs import explain_door, explain_route, explain_standby
from tocsin.config import Settings
from tocsin.coordinator.planning import BYTES, EXPLANATION, PREFIX, Explanation, Shown
from tocsin.coordinator.status import Status, read_all
from tocsin.core.coordination.names import StoreNames
from tocsin.errors import OperatorError
from tocsin.ports import Table
from tocsin.runtime.network.directory import read_network
from tocsin.store.jetstream.store import JetStreamStore

app = typer.Typer(help="Explain the network's decisions.", no_args_is_help=True)
NOT_PLANNED: Final = 1  # the exit code where there is no plan yet
NAMED_MAX: Final = 20  # brokers that a refusal names
Kind = Literal["local", "remote"]
KINDS: Final[tuple[Kind, ...]] = ("local", "remote")


class Found(msgspec.Struct, frozen=True):
    """The coordinators' rows about a broker: the explanation, if there is a plan; other explained brokers; present
    brokers.
    """

    explanation: Explanation | None
    others: tuple[str, ...]
    coordinators: tuple[Status, ...]

    @property
    def leader(self) -> Status | None:
        return next((each for each in self.coordinators if each.role == "leader"), None)


@app.callback()
def explain() -> None:
    """Explain the network's decisions."""


@app.command()
def backup(
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="Id of the broker, as in the settings.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Show the candidates for a broker's backups, the score of each, and the choice (*).

        tocsin explain backup north-1

        tocsin explain backup north-1 --json -c tocsin.toml

    Weights are those of `[recovery]` and `[scoring]` in the settings. The exit code is 1 if there is no plan yet.
    """
    settings = network_settings(config, sets, state)
    found = asyncio.run(_read(settings, broker))
    if found.explanation is None:
        typer.echo(f"tocsin: {why_not(found, settings, broker)}", err=True)
        raise typer.Exit(NOT_PLANNED)
    if json:
        said = as_json(found.explanation, found.leader, time.time())
        typer.echo(msgspec.json.format(msgspec.json.encode(said), indent=2).decode())
    else:
        print_explanation(console(), found.explanation, found.leader, time.time())


@app.command()
def door(
    client: Annotated[
        str, typer.Argument(metavar="CLIENT", help="Client id; a new client if left out.")
    ] = "",
    home: Annotated[
        str, typer.Option("--home", metavar="BROKER", help="Id or address of the client's home.")
    ] = "",
    near: Annotated[
        str, typer.Option("--near", metavar="CLUSTER", help="Cluster that the client is near to.")
    ] = "",
    scheme: Annotated[
        str, typer.Option("--scheme", metavar="SCHEME", help="mqtt, mqtts, ws or wss.")
    ] = "mqtt",
    json: Annotated[bool, typer.Option("--json", help="One JSON object, as the door says it.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Show the brokers that the coordinators' door would give a client, best first, and why.

        tocsin explain door phone

        tocsin explain door phone --home north-1 --near north --json

    It asks the door of this machine's network, or those of the settings where none runs here.
    """
    settings = network_settings(config, sets, state)
    network = read_network(Path(settings.state))
    entrances = settings.door.entrances()
    if network is not None:
        entrances = network.door.entrances if network.door is not None else ()
    given = {"client": client, "home": home, "near": near, "scheme": scheme}
    answer = explain_door.ask(entrances, {name: value for name, value in given.items() if value})
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
    else:
        explain_door.print_order(console(), answer)


@app.command()
def route(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic, as publishers have it.")],
    broker: Annotated[
        str, typer.Option("--from", metavar="BROKER", help="Id of the broker at which it is published.")
    ],
    json: explain_route.JsonOption = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Show where the messages of a topic go at QoS 0: the brokers that want them, the slot, its carrier and deputy.

        tocsin explain route line/7 --from east-1

        tocsin explain route line/7 --from east-1 --json

    It shows what the coordinators' log says. A broker whose link to the carrier is down sends over the deputy. For a
    topic with a latency budget it also shows the ways of its copies: what the broker expects of them, and what came.
    """
    found, ways = asyncio.run(explain_route.read_route(network_settings(config, sets, state), topic, broker))
    if json:
        typer.echo(explain_route.as_json(found, ways).decode())
    else:
        explain_route.show(console(), found, ways)


@app.command()
def standby(
    broker: Annotated[
        str | None,
        typer.Argument(
            metavar="BROKER", help="Id of the broker, as in the settings; all brokers if left out."
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON array with an object for each broker.")
    ] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Show which standby would take a broker's place, the score of each, and which one was promoted last. Where
    standbys are in use: which broker is recruited as one, or why it cannot be.

        tocsin explain standby

        tocsin explain standby north-1 --json -c tocsin.toml

    Weights are those of `[scoring]` in the settings. Delay and bandwidth are what a standby has measured to the
    broker's peers: its links, its backups and its cluster. The exit code is 1 if nothing is known yet.
    """
    settings = network_settings(config, sets, state)
    rows, leads = asyncio.run(_read_standbys(settings))
    if broker is not None:
        rows = [each for each in rows if each.broker == broker]
    if not rows:
        typer.echo(f"tocsin: {explain_standby.why_not(settings, broker, leads)}", err=True)
        raise typer.Exit(NOT_PLANNED)
    if json:
        said = [explain_standby.as_json(each, time.time()) for each in rows]
        typer.echo(msgspec.json.format(msgspec.json.encode(said), indent=2).decode())
    else:
        for each in rows:
            explain_standby.show(console(), each, time.time())


async def _read_standbys(settings: Settings) -> tuple[list[explain_standby.Row], bool]:
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin explain standby")
    try:
        table = await store.table(StoreNames(settings.network).table)
        coordinators = await read_all(table)
        leads = any(each.role == "leader" for each in coordinators)
        return await explain_standby.look_up(table, coordinators), leads
    finally:
        await store.close()


async def _read(settings: Settings, broker: str) -> Found:
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin explain backup")
    try:
        return await look_up(await store.table(StoreNames(settings.network).table), broker)
    finally:
        await store.close()


async def look_up(table: Table, broker: str) -> Found:
    names = sorted(key.removeprefix(PREFIX) for key in await table.keys(PREFIX))
    cell = await table.get(f"{PREFIX}{broker}") if broker in names else None
    return Found(
        None if cell is None else EXPLANATION.read(cell.value),
        tuple(names),
        tuple(await read_all(table)),
    )


def why_not(found: Found, settings: Settings, broker: str) -> str:
    """Why there is no plan for a broker. ``OperatorError`` if there is no such broker, with those that there are."""
    known = sorted({each.id for each in settings.brokers} | set(found.others))
    if broker not in known:
        more = f" … ({len(known)} in all)" if len(known) > NAMED_MAX else ""
        raise OperatorError(
            f"there is no broker {broker!r}", f"Name one of {', '.join(known[:NAMED_MAX])}{more}"
        )
    leader = found.leader
    if leader is None:
        return f"{broker} has no plan of backups: no coordinator leads. Look at `tocsin coordinator status`."
    if found.others:
        return f"{broker} has no plan of backups: it was not there when the last was made. Is it running?"
    if leader.brokers < 2:
        return (
            f"{broker} has no plan of backups: there are {leader.brokers} brokers, and a backup is another one. "
            "Start more."
        )
    return f"{broker} has no plan of backups yet: {leader.id} makes one a few seconds after brokers come."


# ── for programs ────────────────────────────────────────────────────────────────────────────────────────────


def as_json(explanation: Explanation, leader: Status | None, now_s: float) -> dict[str, Any]:
    """The same facts as the tables."""
    return {
        "broker": explanation.broker,
        "planned_at_s": explanation.at_s,
        "age_s": round(max(now_s - explanation.at_s, 0.0), 3),
        "leader": None if leader is None else leader.id,
        "subscriptions": explanation.held,
        "load_bytes_per_s": explanation.load_bytes_per_s,
        "unit": explanation.unit,
        "strategy": explanation.strategy,
        **{
            kind: {
                "chosen": _chosen(getattr(explanation, kind)),
                "without_room": explanation.without_room.get(kind),
                "candidates": [_object(each) for each in getattr(explanation, kind)],
            }
            for kind in KINDS
        },
        "shortfalls": explanation.shortfalls,
    }


def _object(shown: Shown) -> dict[str, Any]:
    return {
        "name": shown.name,
        "score": shown.score,
        "chosen": shown.chosen,
        "terms": _terms(shown.terms),
        "adds": shown.added,
        "load": shown.load,
        "capacity": shown.capacity,
        "obstacle": shown.obstacle,
        "unanswered": shown.unanswered,
        "machine": _terms(shown.machine),
        "problems": shown.problems,
        "delay_ms": None if shown.delay_us is None else shown.delay_us / 1_000,
    }


def _terms(terms: dict[str, tuple[float, float]]) -> dict[str, dict[str, float]]:
    return {name: {"value": value, "weight": weight} for name, (value, weight) in terms.items()}


def _chosen(candidates: tuple[Shown, ...]) -> str | None:
    return next((each.name for each in candidates if each.chosen), None)


# ── for people ──────────────────────────────────────────────────────────────────────────────────────────────


def print_explanation(out: Console, explanation: Explanation, leader: Status | None, now_s: float) -> None:
    age = datetime.timedelta(seconds=int(max(now_s - explanation.at_s, 0)))
    head = f"{explanation.broker} holds {explanation.held:,} subscriptions"
    if explanation.load_bytes_per_s is not None:
        head += f", {_rate(explanation.load_bytes_per_s)} in all"
    head += f"; planned {age} ago"
    head += f" by {explanation.strategy}"
    out.print(printable(head if leader else f"{head}, and nobody leads just now"))
    for kind in KINDS:
        _print_kind(out, kind, explanation)
    _print_machines(out, explanation)
    for problem in explanation.shortfalls:
        out.print(Text("missing: ", style="bold red").append_text(printable(problem)))


def _print_kind(out: Console, kind: Kind, explanation: Explanation) -> None:
    candidates: tuple[Shown, ...] = getattr(explanation, kind)
    chosen = _chosen(candidates)
    out.print()
    out.print(Text(f"{kind} backup: ", style="bold").append_text(printable(chosen or "nobody")))
    if not candidates:
        return
    terms = candidates[0].terms
    obstacles = any(each.obstacle for each in candidates)
    data = explanation.unit == BYTES
    headings = [
        "candidate",
        "score",
        *(f"{name}\n× {weight:.2f}" for name, (_, weight) in terms.items()),
        "adds",
        *(("load", "capacity") if data else ()),
    ]
    rows = [
        [
            f"{'*' if each.chosen else ' '} {each.name}",
            f"{each.score:.3f}",
            *(_value(each, name) for name in terms),
            f"{each.added:,}",
            *((_rate(each.load), _rate(each.capacity)) if data else ()),
            *([each.obstacle or ""] if obstacles else ()),
        ]
        for each in candidates
    ]
    right = [False, *(True for _ in headings[1:]), False]
    _print_table(out, headings + ["obstacle"] * obstacles, rows, right)
    barred = explanation.without_room.get(kind)
    if barred is not None:
        out.print(printable(f"capacity decided: {barred} would add fewer subscriptions, and has no room"))
    if not candidates[0].chosen and chosen:
        reason = "a plan is made for all brokers at once, and moves a backup only where that saves enough"
        out.print(printable(f"{candidates[0].name} scores more than {chosen}: {reason}"))


def _rate(bytes_per_s: float) -> str:
    """A load as data a second."""
    for unit in ("B/s", "kB/s", "MB/s"):
        if bytes_per_s < 999.5:
            return f"{bytes_per_s:.3g} {unit}"
        bytes_per_s /= 1_000
    return f"{bytes_per_s:,.4g} GB/s"


def _value(shown: Shown, name: str) -> str:
    """A term's value, or that it is not known."""
    if name in shown.unanswered:
        return "unknown"
    measured = f" ({shown.delay_us / 1_000:.1f} ms)" if name == "nearness" and shown.delay_us else ""
    return f"{shown.terms[name][0]:.3f}{measured}"


def _print_machines(out: Console, explanation: Explanation) -> None:
    """The parts of ``resources`` for each candidate that reports them, and the unknown ones."""
    candidates = sorted((*explanation.local, *explanation.remote), key=lambda each: each.name)
    names = list(dict.fromkeys(name for each in candidates for name in each.machine))
    if names:
        rows = [[each.name, *(_part(each, name) for name in names)] for each in candidates]
        out.print()
        _print_table(out, ["resources of", *names], rows, [False, *(True for _ in names)])
    for line in _unknown(candidates):
        out.print(Text("unknown: ", style="yellow").append_text(printable(line)))


def _print_table(out: Console, headings: list[str], rows: list[list[str]], right: list[bool]) -> None:
    table = lay_out(headings, rows, right, out.width)
    if not out.is_terminal:
        table.box = None
    out.print(table)


def _part(shown: Shown, name: str) -> str:
    if name not in shown.machine:
        return ""
    value, weight = shown.machine[name]
    return f"{value:.3f} × {weight:.2f}"


def _unknown(candidates: list[Shown]) -> Iterator[str]:
    for each in candidates:
        for problem in each.problems:
            yield f"{each.name}, {problem}"

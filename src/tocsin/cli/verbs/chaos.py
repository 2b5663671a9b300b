"""``tocsin chaos``: break a network that runs, beside a load of one's own, and give the account."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.table import Table

from tocsin.chaos import breaking, plan, targets
from tocsin.chaos.breaking import Breaker
from tocsin.chaos.load import Access
from tocsin.chaos.parts import Running
from tocsin.chaos.plan import AMOUNTS, INSTANT, KINDS, ON_LINKS, OWN, WEATHER, WRITTEN, Fault, Kind
from tocsin.chaos.run import Choices, Outcome, Run
from tocsin.cli.layout import console
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, process_settings
from tocsin.cli.target import (
    AuthoritiesOption,
    CertificateOption,
    InsecureOption,
    KeyOption,
    PasswordOption,
    UserOption,
    password_of,
)
from tocsin.config import Settings
from tocsin.coordinator.status import read_all
from tocsin.core.coordination.names import StoreNames
from tocsin.errors import OperatorError, TocsinError
from tocsin.runtime.security.tls import client_context
from tocsin.store.jetstream.store import JetStreamStore

BROKEN: Final = 1  # the exit code: a promise was not kept
LEADER_S: Final = 2.0  # to find out who leads
MINUTES_MAX: Final = 24 * 60.0
RATE: Final = 5.0  # messages a second of each publisher
RATE_LEAST: Final = 0.1
RATE_MOST: Final = 1_000.0
RATE_MAX: Final = 2_000.0  # messages a second of all publishers: one process makes and counts them


def _fault_option(kind: Kind, words: str) -> object:
    target = "PROGRAM" if kind == OWN else "TARGET"
    lasting = "" if kind in INSTANT else "[:5s]"
    others = "[~OTHERS]" if kind in ON_LINKS else ""
    amount = f"={AMOUNTS[kind]}" if kind in WEATHER else ""
    return typer.Option(
        f"--{kind}",
        metavar=f"{target}{others}{amount}{lasting}[@TIME]",
        help=f"{words} Repeatable.",
        show_default=False,
    )


KillOption = Annotated[list[str] | None, _fault_option("kill", "End these with SIGKILL.")]
RestartOption = Annotated[
    list[str] | None, _fault_option("restart", "Ask these to stop; `tocsin up` starts them again.")
]
PauseOption = Annotated[list[str] | None, _fault_option("pause", "Stop these for a while (SIGSTOP).")]
SlowOption = Annotated[
    list[str] | None, _fault_option("slow", "Let these run only a fifth of the time, for a while.")
]
PartitionOption = Annotated[
    list[str] | None,
    _fault_option("partition", "Cut these off from others, or from everything."),
]
LagOption = Annotated[
    list[str] | None, _fault_option("lag", "Let links of these take so much longer, in each direction.")
]
LossOption = Annotated[
    list[str] | None, _fault_option("loss", "Let links of these lose so many of their packets.")
]
RateOption = Annotated[
    list[str] | None,
    _fault_option(
        "rate",
        "Hold links of these to so many bytes a second (B, KB, MB). A number alone is the load's: messages per second "
        "from each publisher, 5 unless said.",
    ),
]
OwnOption = Annotated[
    list[str] | None,
    _fault_option(
        "own", "A fault of your own: PROGRAM runs with `begin` at its start and with `end` at its end."
    ),
]


def chaos(
    kill: KillOption = None,
    restart: RestartOption = None,
    pause: PauseOption = None,
    slow: SlowOption = None,
    partition: PartitionOption = None,
    lag: LagOption = None,
    loss: LossOption = None,
    rate: RateOption = None,
    own: OwnOption = None,
    by_chance: Annotated[
        bool, typer.Option("--random", help="Break randomly chosen parts, one after the other.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed for `--random`.")] = 1,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            metavar="N",
            min=0.05,
            max=MINUTES_MAX,
            help="How long to inject faults: 1 with --random; otherwise until the last fault ends.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        str,
        typer.Option("--every", metavar="TIME", help="Time between two faults that state no time."),
    ] = "5s",
    kinds: Annotated[
        str,
        typer.Option(
            "--kinds",
            metavar="KIND,…",
            help=f"With --random: {', '.join(KINDS)}; by default all that the network allows.",
            show_default=False,
        ),
    ] = "",
    chosen: Annotated[
        list[str] | None,
        typer.Option(
            "--targets",
            metavar="TARGET",
            help="With --random: break only this target. Repeatable.",
            show_default=False,
        ),
    ] = None,
    subscribers: Annotated[
        int, typer.Option("--subscribers", metavar="N", min=1, max=2_000, help="Subscribers of the load.")
    ] = 24,
    publishers: Annotated[
        int, typer.Option("--publishers", metavar="N", min=1, max=500, help="Publishers of the load.")
    ] = 6,
    settle: Annotated[
        str,
        typer.Option(
            "--settle",
            metavar="TIME",
            help="How long to wait for outstanding messages before counting them lost.",
        ),
    ] = "60s",
    json: Annotated[
        bool, typer.Option("--json", help="Print the account as JSON; progress goes to standard error.")
    ] = False,
    heal: Annotated[
        bool,
        typer.Option("--heal", help="Only resume what an earlier, killed run left paused or partitioned."),
    ] = False,
    user: UserOption = "",
    password: PasswordOption = "",
    authorities: AuthoritiesOption = "",
    certificate: CertificateOption = "",
    key: KeyOption = "",
    insecure: InsecureOption = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Break parts of the network on this machine, and report what a load of our own saw.

    A TARGET is a process as `tocsin up` shows it (`broker/north-1`, `coordinator-1`, `store-1`), a whole
    `cluster/north`, or a role: `role/edge`, `role/routing`, `role/coordinator`, `role/leader`; or several of these at
    once, joined by `+`. A TIME is `500ms`, `5s` or `2m`.

        tocsin chaos --kill broker/north-1 --pause coordinator-1:5s

        tocsin chaos --kill cluster/north@10s --kill role/leader@12s

        tocsin chaos --random --seed 7 --minutes 5 --every 5s --kinds kill,pause

        tocsin chaos --partition cluster/north~cluster/south:10s

        tocsin chaos --lag cluster/north~cluster/south=100ms:30s --loss cluster/north~cluster/south=1%:30s@5s

        tocsin chaos --restart broker/north-1 --restart broker/north-2 --restart coordinator-1 --every 20s

    The exit code is 1 if an acknowledged message was lost, came twice at QoS 2, came out of order or came to a client
    that had unsubscribed, or if a subscriber heard nothing any more. Ctrl-C heals everything and prints the account
    (twice: at once).
    """
    settings = process_settings(config, sets, state)
    network = Running.find(Path(settings.state))
    if heal:
        names = asyncio.run(breaking.heal_all(network))
        typer.echo(f"let go on: {', '.join(names)}" if names else "nothing was stopped")
        return
    breaker = Breaker(network, lambda: _leader(settings, network))
    named = {
        "kill": kill,
        "restart": restart,
        "pause": pause,
        "slow": slow,
        "partition": partition,
        "lag": lag,
        "loss": loss,
        "rate": [each for each in rate or () if not _is_number(each)],
        "own": own,
    }
    load_rate = _load_rate([each for each in rate or () if _is_number(each)])
    written = [plan.read_fault(kind, text) for kind in WRITTEN for text in named[kind] or ()]
    seconds = minutes * 60 if minutes is not None else 60.0 if by_chance else 0.0
    chance = Chance(by_chance, seed, seconds, _kinds(kinds, network), tuple(chosen or ()))
    if not (written or by_chance or minutes):
        raise OperatorError(
            "there is nothing to break",
            "Give --kill, --restart, --pause, --slow, --partition, --lag, --loss, --rate or --own, --random; "
            "or --minutes for the load alone",
        )
    for fault in written:
        breaker.check(fault)
    faults = _faults(network, written, chance, _positive("--every", every))
    choices = Choices(
        subscribers=subscribers,
        publishers=publishers,
        rate=_rate(publishers, load_rate),
        seconds=max(seconds, plan.ends_s(faults)),
        settle_s=_positive("--settle", settle),
        access=Access(
            user or None,
            password_of(user, password),
            client_context(authorities=authorities, certificate=certificate, key=key, insecure=insecure),
        ),
    )
    outcome = asyncio.run(
        _perform(network, breaker, choices, faults, lambda words: typer.echo(words, err=json))
    )
    _show(outcome, json)
    raise typer.Exit(0 if outcome.kept else BROKEN)


class Chance(msgspec.Struct, frozen=True):
    """The value of ``--random``."""

    wanted: bool
    seed: int
    seconds: float
    kinds: tuple[Kind, ...]  # empty: all that the network allows
    targets: tuple[str, ...]  # empty: all that the load needs


def _kinds(text: str, network: Running) -> tuple[Kind, ...]:
    wanted = [each.strip() for each in text.split(",") if each.strip()]
    unknown = [each for each in wanted if each not in KINDS]
    if unknown:
        raise OperatorError(f"--kinds {unknown[0]!r} is no kind of fault", f"Name some of {', '.join(KINDS)}")
    if "partition" in wanted:
        network.check_partitions("--kinds partition")
    return tuple(kind for kind in KINDS if kind in wanted)


def _faults(network: Running, written: Sequence[Fault], chance: Chance, every_s: float) -> tuple[Fault, ...]:
    if not chance.wanted:
        if chance.kinds or chance.targets:
            raise OperatorError("--kinds and --targets are for --random", "Add --random, or leave them out")
        return plan.in_turn(written, every_s)
    possible = targets.candidates(chance.targets, network.parts, partitions=network.partitions)
    drawn = plan.by_chance(
        possible, chance.kinds or KINDS, seed=chance.seed, seconds=chance.seconds, every_s=every_s
    )
    return plan.in_turn([*plan.in_turn(written, every_s), *drawn], every_s)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _load_rate(given: Sequence[str]) -> float:
    """The last of the numbers given."""
    rate = float(given[-1]) if given else RATE
    if not RATE_LEAST <= rate <= RATE_MOST:
        raise OperatorError(
            f"--rate {given[-1]}: a publisher sends {RATE_LEAST:g} to {RATE_MOST:g} messages a second",
            f"Give such a number, or the bytes a second of links: --rate cluster/north={AMOUNTS['rate']}",
        )
    return rate


def _rate(publishers: int, rate: float) -> float:
    if publishers * rate > RATE_MAX:
        raise OperatorError(
            f"{publishers} publishers at {rate:g} messages a second are {publishers * rate:g}",
            f"Stay at {RATE_MAX:g} in all, or below",
        )
    return rate


def _positive(option: str, text: str) -> float:
    seconds = plan.read_time(option, text)
    if not 0.1 <= seconds <= 3_600:
        raise OperatorError(f"{option} {text} is out of bounds", "Give a time from 100ms to 60m")
    return seconds


async def _perform(
    network: Running, breaker: Breaker, choices: Choices, faults: Sequence[Fault], tell: Callable[[str], None]
) -> Outcome:
    run = Run(network, breaker, choices, tell)

    def interrupt() -> None:
        if run.stop.is_set():
            run.hurry.set()
        else:
            tell("stopping: everything is healed, then comes the account (again: at once)")
            run.stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    return await run.perform(faults)


async def _leader(settings: Settings, network: Running) -> str | None:
    """The coordinator that leads, by what it has written down itself; None if nobody knows."""
    try:
        nats = msgspec.structs.replace(settings.nats, urls=network.file.nats)
        store = await JetStreamStore.open(nats, "operator", name="tocsin chaos", deadline_s=LEADER_S)
        try:
            found = await read_all(await store.table(StoreNames(network.file.network).table))
        finally:
            await store.close()
    except TocsinError:
        return None
    return next((each.id for each in found if each.role == "leader"), None)


def _show(outcome: Outcome, json: bool) -> None:
    if json:
        shown = {**msgspec.to_builtins(outcome), "kept": outcome.kept}
        typer.echo(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode())
        return
    out = console()
    if outcome.faults:
        out.print(faults_table(outcome))
    out.print(account_table(outcome))
    ended = (f"{name}: {why}" for name, why in outcome.ended.items())
    unasked = (f"{name} got {count} that it had not asked for" for name, count in outcome.unasked.items())
    for words in (*outcome.totals.examples, *ended, *unasked):
        out.print(f"  {words}", markup=False)
    out.print(
        "every promise was kept" if outcome.kept else "BROKEN: see above",
        style="green" if outcome.kept else "red",
    )


def faults_table(outcome: Outcome) -> Table:
    table = Table()
    for heading in ("at", "fault", "clients there", "all hear again after"):
        table.add_column(heading, justify="left" if heading == "fault" else "right")
    for each in outcome.faults:
        words = str(Fault(each.kind, each.target, each.seconds, None, each.others, each.amount))
        after = (
            "missed" if each.missed else "never" if each.recovery_s is None else f"{each.recovery_s:.2f} s"
        )
        table.add_row(f"{each.at_s:.1f} s", words, str(each.clients), after)
    return table


def account_table(outcome: Outcome) -> Table:
    totals = outcome.totals
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    rows = {
        "published": totals.published,
        "acknowledged": totals.acknowledged,
        "refused, for want of room": totals.refused,
        "delivered, of what was promised": f"{totals.delivered:,} of {totals.expected:,}",
        "lost (acknowledged, and never delivered)": totals.lost,
        "twice at QoS 2": totals.repeated_once,
        "twice at QoS 1 (allowed), to one subscriber": totals.repeated,
        "… of these, to some who hear the stream": totals.repeated_to_some,
        "twice at QoS 1 (allowed), to a shared group": totals.repeated_shared,
        "repeats that clients dropped": outcome.dropped_repeats,
        "out of order": totals.out_of_order,
        "strange": totals.strange,
        "never asked for, or unsubscribed from": sum(outcome.unasked.values()),
        "turns that publishers let pass": outcome.skipped,
        "clients thrown out": len(outcome.ended),
        "faults without recovery": totals.unrecovered,
    }
    for words, value in rows.items():
        table.add_row(words, value if isinstance(value, str) else f"{value:,}")
    if totals.recovery is not None:
        spread = totals.recovery
        table.add_row(
            "recovery: p50, p95, longest", f"{spread.p50:.2f}, {spread.p95:.2f}, {spread.longest:.2f} s"
        )
    return table

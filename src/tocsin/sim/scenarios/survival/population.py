"""The clients of ``survival`` and of its long form, and the promises that are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec

from tocsin.config import Settings
from tocsin.model.network import Address
from tocsin.ports import Entry, LogSpec
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.process.messages import AcknowledgedIsDurable, Written
from tocsin.sim.process.stage import LOG, NAMES, NETWORK, SESSIONS, Stage, configured
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.balances import CROWD, Even, NoCircle
from tocsin.sim.scenarios.survival.drains import OPERATOR, Emptied, EmptyTakesNobody, Given, operate
from tocsin.sim.scenarios.survival.moves import Found, schedule_moves
from tocsin.sim.scenarios.survival.programs import (
    KIND,
    QUERY,
    Listener,
    Mortal,
    Pace,
    Program,
    Publisher,
    Resident,
    Subscriber,
    key_of,
)
from tocsin.sim.scenarios.survival.promises.bequests import NotOfTheLiving, WillsAreTold, WillsOnce
from tocsin.sim.scenarios.survival.promises.copies import BackupsKnow, CopiesAgree
from tocsin.sim.scenarios.survival.promises.covers import StandbyRoutesWait
from tocsin.sim.scenarios.survival.promises.deliveries import (
    Heard,
    Messages,
    NothingGivenUp,
    OnlyUnsettledAgain,
    Shared,
    ToldOnce,
)
from tocsin.sim.scenarios.survival.promises.looking import PLACE_TAKEN, STANDS_IN, Brokers
from tocsin.sim.scenarios.survival.promises.ownership import (
    LetsGo,
    OneOwner,
    OneStandsIn,
    SessionsLast,
    SubscriptionsAreStored,
)
from tocsin.sim.scenarios.survival.promises.promotion import BestStandby
from tocsin.sim.scenarios.survival.promises.recovery import (
    AtHome,
    Bounded,
    InPlace,
    NobodyIsOusted,
    Recovers,
    Settled,
)
from tocsin.sim.world import World
from tocsin.wire.internal.commands import Lost, decode_batch

BROKERS: Final = (
    configured("north-1", "north"),
    configured("north-2", "north"),
    configured("south-1", "south"),
    configured("south-2", "south"),
    configured("north-spare", "north", "standby"),
)
NODES: Final = tuple(each.id for each in BROKERS)
COORDINATORS: Final = ("coordinator-1", "coordinator-2")
PUBLISHERS: Final = (("dora", ("north-2", "south-2")), ("fred", ("south-1", "north-1")))
# With their servers, the home first; their filters, the first always; the QoS; whether they leave and come back; and
# whether their sessions last.
RESIDENTS: Final = (
    ("anna", ("north-1", "south-1"), ("dora/#", "fred/a"), 1, True, True),
    ("ben", ("north-1", "south-1"), ("+/b", "+/a"), 2, False, True),
    ("cleo", ("south-2", "north-2"), ("#", "fred/b"), 1, True, True),
    ("lena", ("south-1", "north-1"), ("fred/#", "dora/b"), 1, True, False),
)
# With what they ask for at which QoS, the topics that this comes to, and their group.
SUBSCRIBERS: Final = (
    ("gus", ("south-2", "north-1"), "$share/team/+/c", 2, "+/c", "team"),
    ("hugo", ("north-2", "south-1"), "$share/team/+/c", 2, "+/c", "team"),
    ("iris", ("north-1", "south-2"), f"{QUERY}Kind = '{KIND}'", 1, "+/a", ""),
)
# With the delay of their wills.
MORTALS: Final = (("emil", ("south-1", "north-1"), 0), ("gina", ("north-2", "south-2"), 3))
LOSS_RECORDED: Final = "leads while a loss is recorded"
SESSION_WRITTEN: Final = "writes a session"
MOMENTS: Final = (LOSS_RECORDED, LOSS_RECORDED, STANDS_IN, PLACE_TAKEN, SESSION_WRITTEN)
FAULTS: Final = Profile(
    kinds=(
        ("crash", 4),
        ("crash together", 2),
        ("pause", 4),
        ("skew", 1),
        ("partition", 3),
        ("cut off together", 2),
        ("store partition", 2),
        ("weather", 1),
        ("leader loss", 1),
        ("store trouble", 2),
        ("old news", 2),
        ("watch reset", 1),
        ("lag", 1),
        ("flapping", 2),
        ("halves", 1),
        ("crash in turn", 2),
        ("stale first", 1),
        ("moment", 2),
        ("storm", 1),
    ),
    most=10,
    shortest_us=MILLION // 2,
    longest_us=12 * MILLION,
    targets=(*NODES, *NODES, *COORDINATORS),  # programs are the outside, which keeps its memory
    groups=(
        ("north-1", "north-2", "north-spare"),
        ("south-1", "south-2"),
        ("north-1", "south-2"),
        COORDINATORS,
    ),
    brokers=NODES,
    moments=MOMENTS,
)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """How long a world lasts, how fast it is, and who lives in it."""

    settings: Settings
    trouble_us: int
    recovery_us: int  # after the faults end, by which every program is connected
    settle_us: int
    look_us: int  # how often it is looked at what brokers hold
    pace: Pace
    messages: int  # of each publisher
    calm: range  # seconds of a run in which there is nothing left of the trouble
    fit: dict[str, float] = {}  # machines that are not as fit as can be
    drains: tuple[Given, ...] = ()  # an operator has brokers emptied: whoever was moved has another home
    balances: bool = False  # clients move from full brokers to empty ones: the same
    recruits: bool = False  # brokers are recruited as standbys: the same
    moves: bool = False  # machines get other addresses: some no longer know where their home is


def fill(
    world: World,
    setting: Setting,
    messages: LogSpec = LOG,
    more: Callable[[Brokers], list[Invariant]] = lambda brokers: [],
) -> list[Invariant]:
    """Fill a world, and say what it is held to. ``messages`` is the message log; ``more`` makes further promises."""
    stage = Stage(world, setting.settings, messages=messages)
    brokers = Brokers(world, tuple(each.id for each in setting.settings.brokers))
    stage.add_coordinators(*COORDINATORS)
    stage.add_brokers(brokers.began, fit=setting.fit)
    programs = tuple(_programs(setting))
    for program in programs:
        stage.add_program(program.name, program.run)
    if setting.drains:
        stage.add_program(OPERATOR, partial(operate, setting.drains))
    if setting.moves:
        schedule_moves(world, stage, brokers)
    watch_moments(world)
    kept = promises(brokers, programs, setting, in_the_end(stage, brokers, programs, setting))
    if setting.balances:
        kept.append(NoCircle(setting.settings.balance.rest_s))
    if setting.drains:
        kept.append(EmptyTakesNobody(brokers, COORDINATORS, setting.trouble_us + setting.settle_us))
    return [*kept, *more(brokers)]


def _programs(setting: Setting) -> Iterator[Program]:
    pace, restless_us = setting.pace, setting.trouble_us
    for name, servers in PUBLISHERS:
        yield Publisher(name, servers, pace, setting.messages, setting.calm)
    for name, servers, filters, qos, leaves, lasts in RESIDENTS:
        yield Resident(name, servers, pace, filters, qos, restless_us, leaves, lasts)
    for name, servers, asks, qos, due, group in SUBSCRIBERS:
        yield Subscriber(name, servers, pace, asks, qos, due, group)
    for name, servers, asks in CROWD if setting.balances else ():
        yield Subscriber(name, servers, pace, asks, 1, asks)
    for name, servers, delay_s in MORTALS:
        yield Mortal(name, servers, pace, delay_s, restless_us)


def in_the_end(stage: Stage, brokers: Brokers, programs: tuple[Program, ...], setting: Setting) -> Invariant:
    """Where everybody is when the trouble is over."""
    if setting.drains:
        return Emptied(brokers, setting.drains, setting.trouble_us + setting.settle_us)
    if setting.balances:
        return Even(brokers, setting.settings, setting.trouble_us + setting.settle_us)
    if setting.recruits:
        return InPlace(brokers)
    return Found(stage, brokers) if setting.moves else AtHome(programs, brokers)


def promises(
    brokers: Brokers, programs: tuple[Program, ...], setting: Setting, in_the_end: Invariant
) -> list[Invariant]:
    residents = [each for each in programs if isinstance(each, Resident)]
    lasting = [each for each in residents if each.lasts]
    listeners = [each for each in programs if isinstance(each, Listener)]
    # A member of a group may get what another has had; and a new session, what the one before it brought.
    remembering = [
        each for each in listeners if getattr(each, "lasts", True) and not getattr(each, "group", "")
    ]
    mortals = [each for each in programs if isinstance(each, Mortal)]
    written, once = Written(lambda publication: key_of(publication.payload)), WillsOnce(mortals)
    until_us, notice_us = setting.trouble_us + setting.settle_us, setting.pace.notice_s * MILLION
    return [
        written,
        AcknowledgedIsDurable(written),
        Messages(brokers, written, lasting),
        Shared(brokers, written, [each for each in programs if isinstance(each, Subscriber)]),
        NothingGivenUp(brokers, written, lasting),
        OnlyUnsettledAgain(brokers, written, lasting),
        ToldOnce(written, remembering),
        Heard(listeners),
        OneOwner(),
        SessionsLast({each.name: each for each in programs}, notice_us),
        SubscriptionsAreStored(brokers),
        OneStandsIn(brokers),
        BestStandby(brokers, COORDINATORS, setting.fit, until_us),
        LetsGo(brokers, until_us, setting.look_us, notice_us),
        BackupsKnow(brokers, once),
        StandbyRoutesWait(brokers, until_us, setting.look_us),
        once,
        NotOfTheLiving(brokers, residents),
        WillsAreTold(brokers, once, mortals),
        Bounded(brokers, until_us, setting.look_us, len(CROWD) if setting.balances else 0),
        NobodyIsOusted(),
        Recovers(programs, setting.trouble_us + setting.recovery_us),
        in_the_end,
        Settled(programs, brokers, written),
        CopiesAgree(brokers),
    ]


def watch_moments(world: World) -> None:
    """Say when somebody does what faults may wait for."""
    leads: list[Address] = []  # who said so last

    def on_command(entry: Entry) -> None:
        if entry.subject != NAMES.commands_subject or not leads:
            return
        if any(isinstance(each, Lost) for each in decode_batch(entry.payload).commands):
            world.reach(LOSS_RECORDED, leads[-1])

    observers = world.observers
    observers.on_say("leads", lambda node, say: leads.append(node))
    observers.on_entry(NAMES.commands.name, on_command)
    observers.on_write(SESSIONS.name, lambda node, put, revision: world.reach(SESSION_WRITTEN, node))
    for moment in (STANDS_IN, PLACE_TAKEN):
        observers.on_say(moment, lambda node, say, moment=moment: world.reach(moment, node))  # type: ignore[misc]


def settings(**changes: object) -> Settings:
    """Those of a network with these brokers."""
    return msgspec.structs.replace(Settings(network=NETWORK, brokers=BROKERS), **changes)

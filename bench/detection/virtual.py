"""Detection in the simulator: the machines that ship, in virtual time, while beats are lost and processes pause.

Ten brokers live, and are paused or cut short as the condition says; an eleventh is killed every half minute, for ten
seconds. A loss of any of the ten is a false suspicion: that broker runs, or will run on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench.detection.figures import Figures
from bench.detection.peer import Contender
from tocsin.config import Settings
from tocsin.coordinator.main import options
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.participant.participant import Participant
from tocsin.model.network import COORDINATOR, BrokerInfo, Role, broker_address
from tocsin.ports import Entry
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.kinds import BadWeather, Crash, Fault, Pause, unleash
from tocsin.sim.network import Weather
from tocsin.sim.scenarios.coordination.shells import Shells
from tocsin.sim.scenarios.coordination.standing import overlook_standings
from tocsin.sim.world import World
from tocsin.wire.internal.commands import Lost, decode_batch

PLACES: Final = StoreNames("bench")
COORDINATORS: Final = ("coordinator/1", "coordinator/2", "coordinator/3")
LIVE: Final = 10
VICTIM: Final = "victim"
WARM_US: Final = 30 * MILLION
EVERY_US: Final = 30 * MILLION  # a kill …
DOWN_US: Final = 10 * MILLION  # … for so long
PPM: Final = 10_000  # in a hundredth

Trouble = Callable[[World, int], list[Fault]]


def loss(percent: int) -> Trouble:
    """So many beats and pulses do not arrive."""

    def plan(world: World, until_us: int) -> list[Fault]:
        weather = Weather(loss_ppm=percent * PPM)
        return [BadWeather(at_us=0, for_us=until_us, weather=weather)]

    return plan


def delay(most_us: int) -> Trouble:
    """Every message is late by up to so much, as between processes that have to wait for a processor."""

    def plan(world: World, until_us: int) -> list[Fault]:
        return [BadWeather(at_us=0, for_us=until_us, weather=Weather(extra_us=most_us))]

    return plan


def pauses(nodes: tuple[str, ...], every_us: int, shortest_us: int, longest_us: int) -> Trouble:
    """Each of these is frozen now and then."""

    def plan(world: World, until_us: int) -> list[Fault]:
        chance = world.chances.of("pauses")
        faults: list[Fault] = []
        for node in nodes:
            at_us = chance.below(every_us)
            while at_us < until_us:
                for_us = chance.between(shortest_us, longest_us)
                faults.append(Pause(at_us=at_us, for_us=for_us, node=node))
                at_us += for_us + chance.between(every_us // 2, 3 * every_us // 2)
        return faults

    return plan


def calm(world: World, until_us: int) -> list[Fault]:
    return []


BROKERS: Final = tuple(broker_address(f"live-{number}") for number in range(LIVE))
CONDITIONS: Final[dict[str, Trouble]] = {
    "calm": calm,
    "delays up to 400 ms": delay(400_000),
    "5 % lost": loss(5),
    "10 % lost": loss(10),
    "20 % lost": loss(20),
    "brokers pause 0.2-1 s": pauses(BROKERS, 20 * MILLION, MILLION // 5, MILLION),
    "brokers pause 1-3 s": pauses(BROKERS, 60 * MILLION, MILLION, 3 * MILLION),
    "coordinators pause 0.3-1.5 s": pauses(COORDINATORS, 5 * MILLION, 300_000, 1_500_000),
}


def measure(contender: Contender, trouble: Trouble, until_us: int, seed: int = 1) -> Figures:
    """One contender under one condition."""
    world = World(seed)
    world.log(PLACES.commands)
    world.log(PLACES.snapshots)
    world.table(PLACES.table)
    settings = Settings(membership=contender.membership)
    for address in COORDINATORS:
        name = address.replace("/", "-")
        world.add(address, lambda _disk, name=name: contender.coordinator(name, PLACES, options(settings)))  # type: ignore[misc]
    world.group(COORDINATOR, COORDINATORS)
    names = [*(f"live-{number}" for number in range(LIVE)), VICTIM]
    infos = tuple(BrokerInfo(name, "lan", Role.EDGE, "127.0.0.1", 1) for name in names)
    Shells(world, infos)
    overlook_standings(world)
    chance = world.chances.of("start")
    member = contender.membership
    for info in infos:
        world.add(
            broker_address(info.id),
            lambda _disk, info=info: Participant(  # type: ignore[misc]
                info, PLACES, member.beat_ms * 1_000, member.suspect_after_ms * 1_000
            ),
            start_us=chance.below(MILLION),
        )
    figures = Figures(brokers=LIVE, seconds=(until_us - WARM_US) / MILLION)
    kills: list[int] = []
    faults = trouble(world, until_us)
    for at_us in range(WARM_US, until_us - DOWN_US, EVERY_US):
        kill_us = at_us + chance.below(MILLION)
        kills.append(kill_us)
        faults.append(Crash(at_us=kill_us, for_us=DOWN_US, node=broker_address(VICTIM)))
    unleash(world, faults)
    missed = dict.fromkeys(kills)

    def look(entry: Entry) -> None:
        if entry.subject != PLACES.commands_subject or world.now_us < WARM_US:
            return
        for command in decode_batch(entry.payload).commands:
            if not isinstance(command, Lost):
                continue
            if command.broker != VICTIM:
                figures.false += 1
                continue
            kill_us = next((each for each in missed if each <= world.now_us <= each + DOWN_US), None)
            if kill_us is not None:
                del missed[kill_us]
                figures.times_s.append((world.now_us - kill_us) / MILLION)

    world.observers.on_entry(PLACES.commands.name, look)
    world.run_until(until_us)
    figures.missed = len(missed)
    return figures

"""``survival`` with outages that outlast what the store and the brokers remember (``durable.outages``).

Sessions expire, clients are away for minutes, the log soon forgets ids, and copies, standbys and waiting wills have to
bear faults of up to ten minutes. Heartbeats, leases and everything else that is due again and again is slower than in
``survival``, in the same proportion to each other.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.places import Options
from tocsin.core.dialler import Closing
from tocsin.core.machine import Started
from tocsin.core.replication.signals import Policy
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import Invariant
from tocsin.sim.scenario import scenario
from tocsin.sim.scenarios.channels.pipeline import Pipeline
from tocsin.sim.scenarios.durable.outages import (
    MINUTE_US,
    SILENCE_US,
    TICK_US,
    TROUBLE_US,
    Unhurried,
    UnhurriedPublisher,
    forgetful,
    lengthened,
)
from tocsin.sim.scenarios.durable.wire import LOG
from tocsin.sim.scenarios.survival.broker import StandbyKeeper, SurvivalBroker
from tocsin.sim.scenarios.survival.clients import Mortal, Resident, Traveller, Visitor
from tocsin.sim.scenarios.survival.population import FAULTS, MakeBroker, Setting, fill
from tocsin.sim.world import World

SLOWER: Final = 5  # than in ``survival``: heartbeats, leases, suspicion
LONG_FAULTS: Final = lengthened(FAULTS)
RETURN: Final = "return"
MARKS: Final = 60  # ends of the log that a broker remembers, one for each tick: five minutes


class LongTraveller(Unhurried, Traveller):
    """It is away for up to ten minutes, and then dials its home again."""

    keep_alive_s = 20

    def _go(self) -> None:
        self._hang_up()
        self._dial(Closing())
        self._timer(RETURN, self._away_us(self._now_us))

    def _on_timer(self, name: str, now_us: int) -> None:
        if name == RETURN:
            self._set_out(Started(incarnation=self._chance, cause=self.address))
        else:
            super()._on_timer(name, now_us)


class LongResident(LongTraveller, Resident):
    def _think_us(self) -> int:
        return self._draw(0xFFFFF) * 128  # up to two minutes


class LongVisitor(LongTraveller, UnhurriedPublisher, Visitor):
    pass


class LongMortal(LongTraveller, Mortal):
    youth_us = MINUTE_US
    life_scale = 60  # up to seventeen minutes more


class LongPipeline(Pipeline):
    tick_scale = 50  # a tick every fifteen to forty seconds


class PatientKeeper(StandbyKeeper):
    scan_every_us = MINUTE_US


class PatientSurvivor(SurvivalBroker):
    """A broker for such clients. Of its log it remembers where it ended a while ago."""

    keeper = PatientKeeper
    silence_us = SILENCE_US
    tick_us = TICK_US
    heartbeat_us = SLOWER * SurvivalBroker.heartbeat_us
    suspect_after_us = SLOWER * SurvivalBroker.suspect_after_us
    policy = Policy(period_us=SLOWER * SurvivalBroker.policy.period_us, wait_us=SurvivalBroker.policy.wait_us)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._marks: deque[int] = deque(maxlen=MARKS)

    @property
    def past(self) -> int:
        """As ``Journal.past`` has it."""
        return self._marks[0] if self._marks else self.tail

    def _tick(self) -> None:
        super()._tick()
        if not self._marks or self._marks[-1] != self.tail:
            self._marks.append(self.tail)
        self.replicating.expire()


OPTIONS: Final = Options(
    suspect_after_us=PatientSurvivor.suspect_after_us,
    suspect_least_us=SLOWER * MILLION,
    lease_us=SLOWER * 2 * MILLION,
    promote_after_us=SLOWER * 4 * MILLION,
    snapshot_every=40,
    margin=30,
    heartbeat_us=PatientSurvivor.heartbeat_us,
)
SETTING: Final = Setting(
    trouble_us=TROUBLE_US,
    results_us=TROUBLE_US + 10 * MILLION,
    recovery_us=3 * MINUTE_US,
    settle_us=5 * MINUTE_US + TICK_US // 2,  # between two ticks, at which brokers forget whose time is over
    look_us=10 * MILLION,
    options=OPTIONS,
    messages=25,
    pipeline=LongPipeline,
    resident=LongResident,
    visitor=LongVisitor,
    mortal=LongMortal,
)


@scenario(
    "survival-long",
    summary="the same, with faults of minutes, sessions that expire, and a log that soon forgets ids",
    faults=LONG_FAULTS,
    trouble_us=SETTING.trouble_us,
    settle_us=SETTING.settle_us,
)
def build_long(
    world: World, broker: MakeBroker = PatientSurvivor, coordinator: type[Coordinator] = Coordinator
) -> list[Invariant]:
    """Fill a world; ``broker`` is the machine to use, so that a variant can be tried."""
    return fill(world, SETTING, broker, coordinator, log=forgetful(world, LOG))

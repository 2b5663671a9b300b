"""``survival`` with the coordinators' doors: clients that know nothing else, while brokers and coordinators fail.

A **knocker** is a plain MQTT 5 client that does not follow redirects; a door redirects it once, and passes it on when
it comes again. A **newcomer** uses the library, and knows the doors only. Programs of ``survival`` are told of the
doors by their brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqtt5 import ConnAckPacket, ConnectPacket, PingReqPacket

from tocsin.core.door.door import RETURN_US
from tocsin.core.machine import Event, Say, Started, TimerFired
from tocsin.model.network import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.process.caller import Caller
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import Stage
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.population import (
    COORDINATORS,
    PUBLISHERS,
    RESIDENTS,
    Setting,
    promises,
    watch_moments,
)
from tocsin.sim.scenarios.survival.programs import Pace, Program, Publisher, Resident
from tocsin.sim.scenarios.survival.promises.looking import Brokers
from tocsin.sim.scenarios.survival.promises.recovery import AtHome
from tocsin.sim.world import World

KNOCKERS: Final = ("kai", "lea")
PATIENCE_US: Final = 5 * MILLION  # for an answer, before the other door is tried
AGAIN_US: Final = MILLION // 2
PING_US: Final = 2 * MILLION
REDIRECTS: Final = (0x9C, 0x9D)


class Knocker(Caller):
    """A plain client that knows two doors, takes turns with them, and follows nobody."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._turn = 0
        self._asked = False  # a PINGREQ is out

    def greeting(self) -> ConnectPacket:
        return ConnectPacket(self.name, clean_start=False, session_expiry_interval=86_400, keep_alive=60)

    def told(self, event: Event) -> None:
        match event:
            case Started():
                self._knock()
            case TimerFired(name="ping") if self.connected:
                self.say(PingReqPacket())
                self.wake("ping", PING_US)
            case TimerFired(name="patience") if not self.connected:
                self.hang_up()
                self._knock()
            case TimerFired(name="again"):
                self._knock()

    def _knock(self) -> None:
        self.call(COORDINATORS[self._turn % len(COORDINATORS)])
        self.wake("patience", PATIENCE_US)

    def welcomed(self, answer: ConnAckPacket) -> None:
        self.wake("ping", PING_US)

    def refused(self, answer: ConnAckPacket) -> None:
        if int(answer.reason_code) in REDIRECTS:
            facts: dict[str, object] = {"door": self.at, "to": answer.server_reference}
            self.note(Say(text="was redirected", facts=facts, cause=self.name))
        else:
            self._turn += 1  # that door has nobody for it

    def lost(self) -> None:
        self.wake("again", AGAIN_US)


class Newcomer(Program):
    """A program that knows the doors only, and stays where they send it."""

    async def run(self, process: SimulatedProcess) -> None:
        async with self._client(process) as client:
            async for _ in client.subscribe(f"nothing/{self.name}", qos=1):
                pass

    @property
    def home(self) -> str:
        """It is at home wherever it is."""
        return self.at

    @home.setter
    def home(self, door: str) -> None:
        """A door is nobody's home."""


class NoCircle(Invariant):
    """A door redirects a client that does not follow once, and then passes it on."""

    name = "no client is sent in a circle"

    def __init__(self) -> None:
        self._sent_us: dict[tuple[Address, str], int] = {}  # client and door → when it was redirected

    def attach(self, world: World) -> None:
        def redirected(client: Address, say: Say) -> None:
            key = (client, str(say.facts["door"]))
            before = self._sent_us.get(key)
            if before is not None and world.now_us - before < RETURN_US:
                self.broken(f"{client} came back to {key[1]}, and was redirected to {say.facts['to']}")
            self._sent_us[key] = world.now_us

        def lived(node: Address, happening: str) -> None:
            if happening in ("crashed", "stopped"):  # a door that begins anew remembers nobody
                self._sent_us = {key: at for key, at in self._sent_us.items() if key[1] != node}

        world.observers.on_say("was redirected", redirected)
        world.observers.on_happening(lived)


class DoorsLetIn(Invariant):
    """So long after the faults end, and in the end, everybody who knows nothing but a door is served."""

    name = "whoever knows a door is served"

    def __init__(self, knockers: Sequence[Knocker], at_us: int) -> None:
        self._knockers = knockers
        self._at_us = at_us

    def attach(self, world: World) -> None:
        world.at(self._at_us, self._look)

    def finish(self, world: World) -> None:
        self._look()

    def _look(self) -> None:
        for each in self._knockers:
            if not each.connected:
                self.broken(f"{each.name} is not connected")


def fill_doors(world: World, setting: Setting) -> list[Invariant]:
    """Fill a world whose coordinators have doors, and say what it is held to."""
    stage = Stage(world, setting.settings, doors=COORDINATORS)
    brokers = Brokers(world, tuple(each.id for each in setting.settings.brokers))
    stage.add_coordinators(*COORDINATORS)
    stage.add_brokers(brokers.began, fit=setting.fit)
    programs = _programs(setting.pace, setting)
    for program in programs:
        stage.add_program(program.name, program.run)
    knockers = [Knocker(name) for name in KNOCKERS]
    for knocker in knockers:
        world.add(knocker.name, lambda _disk, knocker=knocker: knocker)  # type: ignore[misc]
    watch_moments(world)
    let_in = DoorsLetIn(knockers, setting.trouble_us + setting.recovery_us)
    return [*promises(brokers, programs, setting, AtHome(programs, brokers)), NoCircle(), let_in]


def _programs(pace: Pace, setting: Setting) -> tuple[Program, ...]:
    return (
        *(Publisher(name, servers, pace, setting.messages, setting.calm) for name, servers in PUBLISHERS),
        *(
            Resident(name, servers, pace, filters, qos, setting.trouble_us, leaves, lasts)
            for name, servers, filters, qos, leaves, lasts in RESIDENTS
        ),
        Newcomer("nora", COORDINATORS, pace),
    )

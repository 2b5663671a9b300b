"""The promises of detection: no broker is lost without a reason, and a lost broker knows it."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.core.coordination.participant.participant import Participant
from tocsin.model.network import Address, broker_address
from tocsin.ports import Entry
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.kinds import BadWeather, Crash, Fault, Partition, Pause, Skew, Sleep
from tocsin.sim.node import Status
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.world import World
from tocsin.wire.internal.commands import Lost, decode_batch

LATE_US = 12 * MILLION  # by which a suspicion reaches the log: the store applies late, and is asked again


class _Losses(Invariant):
    """Looks at each ``Lost`` of the log."""

    def __init__(self, log: str, subject: str) -> None:
        self._log = log
        self._subject = subject

    def attach(self, world: World) -> None:
        self._world = world
        world.observers.on_entry(self._log, self._look)

    def _look(self, entry: Entry) -> None:
        if entry.subject == self._subject:
            for command in decode_batch(entry.payload).commands:
                if isinstance(command, Lost):
                    self.lost(command)

    def lost(self, command: Lost) -> None:
        raise AssertionError("an invariant says what it looks for")


class Reasons(_Losses):
    """A broker is lost only if it, or the network, was troubled: what ails an observer is no reason."""

    name = "nobody is lost without a reason"

    def __init__(
        self, log: str, subject: str, most_us: int, brokers: Sequence[Address], observers: Sequence[Address]
    ) -> None:
        super().__init__(log, subject)
        self._since_us = most_us + LATE_US
        self._brokers = tuple(brokers)
        self._observers = tuple(observers)

    def lost(self, command: Lost) -> None:
        address, now_us = broker_address(command.broker), self._world.now_us
        if not any(
            fault.at_us <= now_us <= fault.at_us + fault.for_us + self._since_us
            and self._troubles(fault, address)
            for fault in self._world.plan
        ):
            self.broken(f"{address} was well, and so was its way to the coordinators")

    def _troubles(self, fault: Fault, address: Address) -> bool:
        """Whether a fault is of this broker: of its process, its clock, or its own way to an observer.

        What cuts an observer off from every broker ails the observer.
        """
        match fault:
            case Crash(node=node) | Sleep(node=node) | Pause(node=node) | Skew(node=node):
                return node == address
            case Partition():
                cut = fault.cut()
                for observer in self._observers:
                    apart = [
                        each
                        for each in self._brokers
                        if cut.stops(each, observer) or cut.stops(observer, each)
                    ]
                    if address in apart and len(apart) < len(self._brokers):
                        return True
                return address in fault.side and not set(self._observers) & set(fault.side)
            case BadWeather(weather=weather):
                return weather.side is None or not weather.side.isdisjoint((address, *self._observers))
        return False


class Knows(_Losses):
    """A broker that counts as lost, and runs, knows it before long, or has rejoined; in the end nobody is lost."""

    name = "a broker that is lost knows it"

    def __init__(self, log: str, subject: str, within_us: int) -> None:
        super().__init__(log, subject)
        self._within_us = within_us
        self._disturbed_us: dict[Address, int] = {}  # when each last began, ended, or was frozen

    def attach(self, world: World) -> None:
        super().attach(world)
        world.observers.on_happening(self._on_happening)

    def _on_happening(self, address: Address, happening: str) -> None:
        self._disturbed_us[address] = self._world.now_us

    def lost(self, command: Lost) -> None:
        address, lost_us = broker_address(command.broker), self._world.now_us
        self._world.at(
            lost_us + self._within_us, lambda: self._look_back(address, command.incarnation, lost_us)
        )

    def _look_back(self, address: Address, incarnation: int, lost_us: int) -> None:
        node = self._world.node(address)
        if node.status is not Status.RUNNING or self._disturbed_us.get(address, 0) >= lost_us:
            return
        if node.clock is not None:
            return  # it counts in a time of its own
        machine = node.machine
        assert isinstance(machine, Participant)
        if machine.incarnation == incarnation and not machine.orphaned:
            self.broken(f"{address} goes on as if it were not lost")

    def finish(self, world: World) -> None:
        for address in world.addresses:
            machine = world.machine(address)
            if isinstance(machine, Participant) and machine.orphaned:
                self.broken(f"{address} is still an orphan")

"""Faults that have a course: they come and go, strike one after the other, or wait for their moment.

As all faults they are values, drawn before the run; whatever of them is still to happen when everything heals does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tocsin.model.network import Address
from tocsin.sim.faults.kinds import Fault, Partition, seconds

if TYPE_CHECKING:
    from tocsin.sim.world import World


class Flapping(Partition, frozen=True, kw_only=True):
    """A cut that comes and goes: there for ``every_us``, gone for as long, and so on."""

    every_us: int

    def begin(self, world: World) -> None:
        world.network.add(self.cut())
        for turn in range(1, self._turns + 1):
            world.schedule.at(world.now_us + turn * self.every_us, self._turn, world, turn)

    def end(self, world: World) -> None:
        if self._turns % 2 == 0:
            world.network.remove(self.cut())

    @property
    def _turns(self) -> int:
        """How often it changes before its end."""
        return max(0, self.for_us - 1) // self.every_us

    def _turn(self, world: World, turn: int) -> None:
        if not world.healed:
            (world.network.remove if turn % 2 else world.network.add)(self.cut())

    def words(self) -> str:
        return f"{Partition.words(self)}, on and off every {seconds(self.every_us)}"


class CrashInTurn(Fault, frozen=True, kw_only=True):
    """Several processes end within a moment, one after the other, and are started again together."""

    crashes: tuple[tuple[Address, int], ...]  # who, and how long after the first

    def begin(self, world: World) -> None:
        for node, after_us in self.crashes:
            world.schedule.at(world.now_us + after_us, _crash, world, node)

    def end(self, world: World) -> None:
        for node, _ in self.crashes:
            world.restart(node)

    def words(self) -> str:
        turns = ", ".join(f"{node} after {seconds(after_us)}" for node, after_us in self.crashes)
        return f"one after the other crash {turns}"


class StaleFirst(Fault, frozen=True, kw_only=True):
    """One is frozen; half the time later the others end, and it wakes up: what it knows is old, and it is alone."""

    stale: Address
    others: tuple[Address, ...]

    def begin(self, world: World) -> None:
        world.pause(self.stale)
        world.schedule.at(world.now_us + self.for_us // 2, self._wake, world, None)

    def _wake(self, world: World, _: None) -> None:
        if not world.healed:
            for node in self.others:
                world.crash(node)
            world.resume(self.stale)

    def end(self, world: World) -> None:
        for node in self.others:
            world.restart(node)

    def words(self) -> str:
        return f"{self.stale} is frozen, and wakes up when {', '.join(self.others)} have crashed"


class CrashAtMoment(Fault, frozen=True, kw_only=True):
    """The first node that reaches a named moment (``World.reach``) ends so soon after it, for ``down_us``."""

    moment: str
    after_us: int
    down_us: int

    def begin(self, world: World) -> None:
        world.await_moment(self.moment, self, lambda node: self._strike(world, node))

    def _strike(self, world: World, node: Address) -> None:
        at_us = world.now_us + self.after_us
        world.schedule.at(at_us, _crash, world, node)
        world.schedule.at(at_us + self.down_us, _restart, world, node)

    def end(self, world: World) -> None:
        world.await_moment(self.moment, self, None)

    def words(self) -> str:
        return f"the first that {self.moment} crashes {seconds(self.after_us)} later, for {seconds(self.down_us)}"


class Storm(Fault, frozen=True, kw_only=True):
    """All connections to a node break at once, as when a proxy before it is restarted; it stays as it is."""

    node: Address

    def begin(self, world: World) -> None:
        world.disconnect(self.node)

    def words(self) -> str:
        return f"all connections to {self.node} break at once"


def _crash(world: World, node: Address) -> None:
    if not world.healed:
        world.tell("nemesis", f"strikes {node}")
        world.crash(node)


def _restart(world: World, node: Address) -> None:
    if not world.healed:
        world.restart(node)

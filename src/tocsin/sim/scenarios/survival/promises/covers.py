"""The promise about standby routes."""

from __future__ import annotations

from typing import Final

from tocsin.core.machine import Say
from tocsin.core.survival.covering import BELIEVED_US, COVERS
from tocsin.model.network import Address
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.promises.looking import Brokers
from tocsin.sim.world import World

PAUSED_US: Final = (
    15_000_000  # a broker that stands still believes a word for longer; no fault here lasts so long
)


class StandbyRoutesWait(Invariant):
    """A route leads to another broker than the one that it names only while that broker covers for it, or did a moment
    ago; and in the end none does."""

    name = "standby routes carry nothing until somebody covers"

    def __init__(self, brokers: Brokers, until_us: int, every_us: int) -> None:
        self._brokers = brokers
        self._until_us = until_us
        self._every_us = every_us
        self._covered: dict[tuple[str, str], int] = {}  # who covers, for whom → when that was last so

    def attach(self, world: World) -> None:
        self._world = world
        world.observers.on_say(COVERS, self._on_say)
        for at_us in range(self._every_us, self._until_us, self._every_us):
            world.at(at_us, self._look)

    def _on_say(self, node: Address, say: Say) -> None:
        self._covered[str(say.facts["by"]), str(say.facts["broker"])] = self._world.now_us

    def _look(self) -> None:
        now_us = self._world.now_us
        for broker in self._brokers.running():
            for primary in broker.covers:
                self._covered[broker.name, primary] = now_us
        for broker in self._brokers.running():
            for (_, peer), led in broker.leads.items():
                for by in led:
                    last_us = self._covered.get((by, peer), -PAUSED_US - BELIEVED_US)
                    if by != peer and now_us - last_us > PAUSED_US + BELIEVED_US:
                        self.broken(f"{broker.name} sends to {by} what is for {peer}, and {by} did not ask")

    def finish(self, world: World) -> None:
        for broker in self._brokers.running():
            if broker.covers:
                self.broken(f"{broker.name} still covers for {sorted(broker.covers)}")
            if broker.leads:
                self.broken(f"routes of {broker.name} still lead elsewhere: {broker.leads}")

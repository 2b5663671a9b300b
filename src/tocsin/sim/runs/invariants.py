"""The invariants of every run, and how a run reports a breach.

An invariant attaches itself to what it observes (``World.observers``) and raises ``InvariantBroken`` the moment it
sees a breach: that is **safety**. ``finish`` is asked at the end, after everything was healed and had time to
settle: that is **liveness**.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

if TYPE_CHECKING:
    from tocsin.sim.world import World


class InvariantBroken(Exception):
    """A run did what no run may do."""

    def __init__(self, name: str, words: str) -> None:
        self.name = name
        self.words = words
        super().__init__(f"{name}: {words}")


class Invariant:
    """The base of all. ``name`` is a short sentence that should be true: "what is acknowledged is durable"."""

    name: ClassVar[str]

    def attach(self, world: World) -> None:
        """Hang hooks on ``world.observers``. Called once, before the run."""

    def finish(self, world: World) -> None:
        """Look at the end of the run, when everything is healed."""

    def broken(self, words: str) -> NoReturn:
        raise InvariantBroken(self.name, words)


class AllRunning(Invariant):
    """Every node runs at the end: whatever stopped or crashed was started again."""

    name = "every node runs in the end"

    def finish(self, world: World) -> None:
        down = [address for address in world.addresses if world.machine(address) is None]
        if down:
            self.broken(f"{', '.join(down)} did not come back")

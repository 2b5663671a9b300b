"""``survival`` with machines that get other addresses while they serve: nobody goes on looking for them at old ones.

The machine of a broker moves, of a standby that may have its place by then, and of that broker again. Programs that
know only the old address of their home stay where they found another broker, so not all are at home in the end.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tocsin.sim.chance import MILLION
from tocsin.sim.process.stage import Stage
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.promises.looking import Brokers
from tocsin.sim.world import World

# When, in seconds, the machine of which broker moves. Every program has a second broker, which does not.
MOVES: Final = ((6, "north-1"), (15, "north-spare"), (23, "north-1"))


NOTICED_US: Final = (
    5 * MILLION
)  # in which both ends of a connection notice that it brings nothing: keep-alive is 2 s


def schedule_moves(world: World, stage: Stage, brokers: Brokers) -> None:
    def move(node: str) -> None:
        brokers.uncertain_until_us = world.now_us + NOTICED_US
        stage.hosts.move(node)

    for at_s, node in MOVES:
        world.at(at_s * MILLION, partial(move, node))


class Found(Invariant):
    """In the end every broker is known, and reached, where it is."""

    name = "a broker that has moved is found at its new address"

    def __init__(self, stage: Stage, brokers: Brokers) -> None:
        self._stage = stage
        self._brokers = brokers

    def finish(self, world: World) -> None:
        hosts = self._stage.hosts
        for broker in self._brokers.running():
            for peer, link in broker.links.items():
                if link.info.host != hosts.host_of(peer):
                    self.broken(f"{broker.node} looks for {peer} at {link.info.host}")
                if not link.up:
                    self.broken(f"{broker.node} has no link to {peer}: {link.problem}")
            for backup in broker.member.picture.backups:
                if backup.host != hosts.host_of(backup.id):
                    self.broken(f"{broker.node} would send its clients to {backup.host}")

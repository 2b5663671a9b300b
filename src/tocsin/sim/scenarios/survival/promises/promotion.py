"""The promise about standbys: the best one that can answer takes a lost broker's place.

Only what is plain is judged: a standby that has been there for a while, with a calm network and leaders that were
awake, has answered. The check does not ask what the leader made of the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from tocsin.ports import Entry
from tocsin.sim.chance import MILLION
from tocsin.sim.node import Status
from tocsin.sim.process.stage import NAMES
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.promises.looking import Brokers
from tocsin.sim.world import World
from tocsin.wire.internal.commands import Promoted, decode_batch

LOOK_US: Final = MILLION // 10
PLAIN_US: Final = 3 * MILLION  # for which nothing was wrong: longer than the leader waits for anybody
JOINED_US: Final = 5 * MILLION  # that a standby has run: the leader knows it by then


class BestStandby(Invariant):
    """A standby is promoted only if none of its cluster that can answer has a better machine."""

    name = "of the standbys that answer the best takes the place"

    def __init__(
        self, brokers: Brokers, coordinators: tuple[str, ...], fit: Mapping[str, float], until_us: int
    ) -> None:
        self._brokers = brokers
        self._coordinators = coordinators
        self._fit = fit
        self._until_us = until_us
        self._wrong_us: dict[str, int] = {}  # node, or "" for the network → when something was wrong last
        self._promised_us: dict[str, int] = {}  # standby → when it was promoted last

    def attach(self, world: World) -> None:
        world.observers.on_entry(NAMES.commands.name, partial(self._on_entry, world))
        self._look(world)

    def _look(self, world: World) -> None:
        now_us = world.now_us
        if not self._brokers.is_calm():
            self._wrong_us[""] = now_us
        for node in (*self._brokers.nodes, *self._coordinators):
            if world.node(node).status is not Status.RUNNING:
                self._wrong_us[node] = now_us
        if now_us < self._until_us:
            world.at(now_us + LOOK_US, partial(self._look, world))

    def _on_entry(self, world: World, entry: Entry) -> None:
        if entry.subject == NAMES.commands_subject:
            for command in decode_batch(entry.payload).commands:
                if isinstance(command, Promoted):
                    self._judge(command, world.now_us)
                    self._promised_us[command.standby] = world.now_us

    def _judge(self, promoted: Promoted, now_us: int) -> None:
        plain = all(self._is_plain(each, now_us) for each in ("", *self._coordinators))
        chosen = self._fit.get(promoted.standby, 1.0)
        for running in self._brokers.running():
            better = self._fit.get(running.name, 1.0) > chosen
            there = now_us - running.began_us > JOINED_US and self._is_plain(running.node, now_us)
            promised = now_us - self._promised_us.get(running.name, -JOINED_US) < JOINED_US
            if plain and better and there and running.is_standby and not promised:
                words = f"{promoted.standby} takes the place of {promoted.broker}"
                self.broken(f"{words}, and {running.name} is better")

    def _is_plain(self, node: str, now_us: int) -> bool:
        return now_us - self._wrong_us.get(node, -PLAIN_US) >= PLAIN_US

"""Clients: they ask, publish on streams of their own whose metadata change, come, go, move, and are slow at times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tocsin.model.message import Address
from tocsin.model.stream import Diff, Value
from tocsin.query import parse
from tocsin.sim.scenarios.streams.brokers import Brokers, Message, Reader, Source
from tocsin.sim.world import World

QUERIES: Final = tuple(map(parse, ("kind = 'lamp'", "room = 1 OR room = 2", "kind = 'lamp' AND room > 1")))
NAMES: Final = ("anna", "ben", "cleo")
EXPIRIES: Final = (0, 0, 30)
SLOW_US: Final = 3_000_000


class Clients:
    """All of them, and what they do: ``actions`` times within ``until_us``."""

    def __init__(self, world: World, brokers: Brokers, actions: int, until_us: int) -> None:
        self.messages: list[Message] = []
        self.readers: list[Reader] = []
        self.changes: list[tuple[int, str]] = []  # when somebody may have changed a stream, and whose
        self.departures: list[tuple[int, str]] = []  # when who disconnected
        self._world = world
        self._brokers = brokers
        self._chance = world.streams.stream("clients")
        self._places: dict[str, tuple[Address, Source, object]] = {}  # client → where it is connected
        self._lasting: set[str] = set()  # clients whose session is kept
        self._epoch = 0
        self._numbers: dict[tuple[Source, str, bool], int] = {}
        acts: tuple[tuple[Callable[[], None], int], ...] = (
            (self._ask, 2),
            (self._publish, 10),
            (self._describe, 2),
            (self._disconnect, 1),
            (self._slow, 1),
        )
        for _ in range(actions):
            world.at(self._chance.below(until_us), self._chance.weighted(acts))

    def _ask(self) -> None:
        address = self._chance.one_of(tuple(self._brokers.infos))
        if self._brokers.is_up(address):
            self.readers.append(self._brokers.subscribe(address, self._chance.one_of(QUERIES)))

    def _slow(self) -> None:
        readers = [reader for reader in self.readers if reader.live]
        if readers:
            reader = self._chance.one_of(readers)
            self._brokers.slow_down(reader)
            later_us = self._world.now_us + self._chance.below(SLOW_US)
            self._world.at(later_us, lambda: self._brokers.hurry(reader))

    def _diff(self) -> Diff:
        diff: dict[str, Value | None] = {}
        if self._chance.below(2):
            diff["kind"] = self._chance.one_of(("lamp", "door", None))
        if self._chance.below(2):
            diff["room"] = self._chance.between(1, 3)
        return diff

    def _publish(self) -> None:
        """A few messages of one client on one of its streams; one of them may say something of it."""
        name = self._chance.one_of(NAMES)
        place = self._place(name)
        if place is None:
            return
        address, source = place
        topic, durable = f"{name}/{self._chance.between(1, 2)}", not self._chance.below(2)
        for _ in range(self._chance.between(1, 3)):
            key = (source, topic, durable)
            self._numbers[key] = self._numbers.get(key, 0) + 1
            message = Message(topic, source, self._numbers[key], durable, self._world.now_us)
            self.messages.append(message)
            diff = self._diff() if not self._chance.below(3) else None
            if diff:
                self.changes.append((self._world.now_us, name))
            self._brokers.publish(address, message, diff)

    def _describe(self) -> None:
        name = self._chance.one_of(NAMES)
        place = self._place(name)
        if place is not None:
            diff = self._diff() if self._chance.below(6) else None
            self.changes.append((self._world.now_us, name))
            self._brokers.describe(*place, f"{name}/{self._chance.between(1, 2)}", diff)

    def _place(self, name: str) -> tuple[Address, Source] | None:
        """Where a client is connected; it connects if it is not."""
        if name in self._places:
            address, source, life = self._places[name]
            if self._brokers.brokers[address] is life and self._brokers.is_up(address):
                return address, source
            del self._places[name]
        address = self._chance.one_of(tuple(self._brokers.infos))
        if not self._brokers.is_up(address):
            return None
        self._epoch += 1
        expiry_s = self._chance.one_of(EXPIRIES)
        source = self._brokers.connect(
            address, name, self._epoch, expiry_s, resumed=name in self._lasting and expiry_s > 0
        )
        (self._lasting.add if expiry_s else self._lasting.discard)(name)
        self._places[name] = (address, source, self._brokers.brokers[address])
        return address, source

    def _disconnect(self) -> None:
        name = self._chance.one_of(NAMES)
        if name not in self._places:
            return
        self.changes.append((self._world.now_us, name))
        self.departures.append((self._world.now_us, name))
        address, source, life = self._places.pop(name)
        if self._brokers.brokers[address] is life and self._brokers.is_up(address):
            self._brokers.disconnect(address, source, source.expiry_s)

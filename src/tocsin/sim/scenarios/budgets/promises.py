"""What is promised of latency budgets, and of the bounds of what is done for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tocsin.broker.quality.copies import Copies
from tocsin.config import Deadline
from tocsin.core.quality.ways import NO_RELAY
from tocsin.sim.chance import MILLION
from tocsin.sim.process.broker import broker_at
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.budgets.clients import Got, Sink, Source
from tocsin.sim.world import World

LOOK_US: Final = MILLION
NEAR_US: Final = 45_000  # from a broker to its client and back: a local network's worst
SETTLE_US: Final = 3 * MILLION  # for the last news to be told
HEARD_US: Final = 12 * MILLION  # the longest cut, and the routes behind it


class OnceInOrder(Invariant):
    """Who has a budget gets each message once at most, and those of one publisher in order, on one connection."""

    name = "messages with a budget come once and in order"

    def __init__(self, sinks: Collection[Sink]) -> None:
        self._newest: dict[tuple[str, int, str, int], int] = {}
        for sink in sinks:
            sink.on_got.append(lambda got, sink=sink: self._look(sink, got))  # type: ignore[misc]

    def _look(self, sink: Sink, got: Got) -> None:
        key = sink.name, sink.connections, got.topic, got.flow
        newest = self._newest.get(key, 0)
        if got.number <= newest:
            self.broken(f"{sink.name} got message {got.number} of {got.topic} after {newest}")
        self._newest[key] = got.number


class PlainOnce(Invariant):
    """Who has no budget gets nothing of a copy: each message once at most."""

    name = "copies are for those with a budget"

    def __init__(self, sinks: Collection[Sink]) -> None:
        self._seen: set[tuple[str, str, int, int]] = set()
        for sink in sinks:
            sink.on_got.append(lambda got, sink=sink: self._look(sink.name, got))  # type: ignore[misc]

    def _look(self, sink: str, got: Got) -> None:
        key = sink, got.topic, got.flow, got.number
        if key in self._seen:
            self.broken(f"{sink}, which has no budget, got message {got.number} of {got.topic} twice")
        self._seen.add(key)


class Bounded(Invariant):
    """No broker has more connections, topics and ways for copies than it may, nor sends more bytes of copies."""

    name = "copies stay within their bounds"

    def __init__(self, origins: Collection[str], settings: Deadline) -> None:
        self._origins = origins
        self._settings = settings
        self._bytes: dict[
            str, tuple[Copies, dict[str, int]]
        ] = {}  # by broker: which life of it, what it has sent

    def attach(self, world: World) -> None:
        self._world = world
        world.at(LOOK_US, self._look)

    def _look(self) -> None:
        for name in self._origins:
            self._hold(name)
        self._world.at(self._world.now_us + LOOK_US, self._look)

    def _hold(self, name: str) -> None:
        broker, settings = broker_at(self._world, name), self._settings
        if broker is None or getattr(broker, "parts", None) is None:
            return
        copies = broker.parts.exchange.copies
        if len(copies.extra) > settings.links_max:
            self.broken(f"{name} has {len(copies.extra)} extra connections")
        given = [(topic, each) for topic, copied in copies.topics.items() for each in copied.targets]
        if len(given) > settings.flows_max:
            self.broken(f"{name} has copies of {len(given)} topics sent")
        for topic, (destination, ways) in given:
            if len(ways) + 1 > settings.ways_max:
                self.broken(f"{topic} goes to {destination} on {len(ways) + 1} ways")
        links = {(to, way) for _, (to, ways) in given for way in ways if way in NO_RELAY}
        if len(links) > settings.links_max:
            self.broken(f"copies of {name} need {len(links)} extra connections")
        most = settings.spare_bytes_s * (MILLION + LOOK_US) // MILLION
        life, before = self._bytes.get(name, (copies, {}))
        for place, sent in copies.sent_bytes.items():
            grown = sent - before.get(place, 0) if life is copies else sent
            if grown > most:
                self.broken(f"{name} sent {grown} bytes of copies by {place} in a second; {most} are allowed")
        self._bytes[name] = copies, dict(copies.sent_bytes)


class MissesTold(Invariant):
    """A message that came later than the budget, or never though later ones of its publisher came, is told to the
    subscriber, and nothing else is. A publisher whose broker lives is told of as much."""

    name = "every missed budget is told, and no other"

    def __init__(
        self, sink: Sink, home: str, sources: Mapping[str, Source], budgets_us: Mapping[str, int]
    ) -> None:
        self._sink = sink
        self._home = home  # its broker
        self._sources = sources
        self._budgets_us = budgets_us

    def finish(self, world: World) -> None:
        last_us = world.now_us - SETTLE_US
        for topic, source in self._sources.items():
            budget_us = self._budgets_us[topic]
            got = [each for each in self._sink.got if each.topic == topic]
            if not got:
                continue
            late = sum(each.delay_us > budget_us + NEAR_US and each.at_us < last_us for each in got)
            told = sum(each.said["change"] for each in self._sink.late if each.topic == topic)
            gaps = sum(map(_gaps, _by_flow(each for each in got if each.at_us < last_us)))
            if told < late + gaps:
                words = f"{late} messages of {topic} came late and {gaps} were left out; {told} were told"
                self.broken(words)
            there = sum(each.said["change"] for each in source.late if each.said["peer"] == self._home)
            if source.flow == 1 and there < late + gaps:
                self.broken(
                    f"{late + gaps} messages of {topic} were missed, and its publisher heard of {there}"
                )
            doubtful = sum(each.delay_us > budget_us for each in got)
            first, came = min(each.sent_us for each in got), {(each.flow, each.number) for each in got}
            lost = sum(at_us >= first and key not in came for key, at_us in source.sent_us.items())
            if told > doubtful + lost:
                self.broken(
                    f"{doubtful} messages of {topic} were late and {lost} never came; {told} were told"
                )


def _by_flow(got: Iterable[Got]) -> Collection[list[int]]:
    found: dict[int, list[int]] = {}
    for each in got:
        found.setdefault(each.flow, []).append(each.number)
    return found.values()


def _gaps(numbers: list[int]) -> int:
    return numbers[-1] - numbers[0] + 1 - len(numbers)


class Heard(Invariant):
    """A publisher that comes back after its broker's restart is heard soon."""

    name = "a publisher that comes back is heard"

    def __init__(self, sink: Sink, sources: Mapping[str, Source]) -> None:
        self._sink = sink
        self._sources = sources

    def finish(self, world: World) -> None:
        for topic, source in self._sources.items():
            for flow in range(1, source.flow + 1):
                spoke = [at_us for (which, _), at_us in source.sent_us.items() if which == flow]
                if not spoke or spoke[-1] - spoke[0] < HEARD_US or self._sink.ready_us is None:
                    continue
                end_us = max(spoke[0], self._sink.ready_us) + HEARD_US
                came = any(
                    each.flow == flow and each.at_us <= end_us
                    for each in self._sink.got
                    if each.topic == topic
                )
                if not came and end_us < spoke[-1]:
                    self.broken(f"nothing of flow {flow} of {topic} came within {HEARD_US / MILLION:g} s")


class Tells(Invariant):
    """Who is left out is told so, at both ends; and of those who ask for more than there is room for, who is more
    urgent comes first."""

    name = "the more urgent topics get the room, and the others are told"

    def __init__(self, origin: str, sink: Sink, sources: Mapping[str, Source]) -> None:
        self._origin = origin
        self._sink = sink
        self._sources = sources

    def finish(self, world: World) -> None:
        broker = broker_at(world, self._origin)
        assert broker is not None, "all brokers run in the end"
        rows = broker.parts.exchange.copies.ways.told
        out = {topic for (topic, _), told in rows.items() if told.decision.why == "flows_max"}
        has = {topic for (topic, _), told in rows.items() if told.decision.ways}
        for topic in out - has:
            urgent = self._sources[topic].priority
            lesser = [each for each in has - out if self._sources[each].priority < urgent]
            if lesser:
                self.broken(f"{topic} (priority {urgent}) is left out, and {lesser[0]} is not")
            for client in (self._sink, self._sources[topic]):
                told = [each.said for each in client.admissions if each.topic == topic]
                if not told or told[-1]["admitted"]:
                    self.broken(f"{topic} is left out, and {client.name} was not told")

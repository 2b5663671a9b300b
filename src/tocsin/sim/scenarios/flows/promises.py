"""What a subscriber is promised of reliable flows and of leases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tocsin.sim.chance import MILLION
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.flows.clients import LEASE_US, Got, Sink, Source
from tocsin.sim.world import World

KNOWN_US: Final = 4 * MILLION  # for a broker's loss to be told, and a word to be asked for again
MARGIN_US: Final = MILLION  # for a session to be taken


class OnceInOrder(Invariant):
    """Messages of a reliable flow come once and in order, whatever way they take."""

    name = "reliable messages come once and in order"

    def __init__(self, sink: Sink) -> None:
        self._newest: dict[tuple[str, int], int] = {}  # by topic and flow
        sink.on_got.append(self._look)

    def _look(self, got: Got) -> None:
        newest = self._newest.get((got.topic, got.flow), 0)
        if got.number <= newest:
            self.broken(f"message {got.number} of {got.topic} came after {newest}")
        self._newest[got.topic, got.flow] = got.number


class NothingLost(Invariant):
    """What was published on a flow from the first message that came of it on comes, up to the flow's last, as long as
    the publisher's broker lives: routing brokers and links may fail. Of the flow that is going on in the end
    everything comes."""

    name = "no message of a reliable flow is lost"

    def __init__(self, sink: Sink, sources: Mapping[str, Source]) -> None:
        self._sink = sink
        self._sources = sources

    def finish(self, world: World) -> None:
        for topic, source in self._sources.items():
            numbers: dict[int, list[int]] = {}
            for got in self._sink.got:
                if got.topic == topic:
                    numbers.setdefault(got.flow, []).append(got.number)
            for flow, found in numbers.items():
                if found != list(range(found[0], found[0] + len(found))):
                    lacking = sorted(set(range(found[0], found[-1])) - set(found))
                    self.broken(f"of flow {flow} of {topic} the messages {lacking[:5]} never came")
            if source.number and numbers.get(source.flow, [0])[-1] != source.number:
                self.broken(f"the last message of {topic}, {source.number}, never came")


class BothAreTold(Invariant):
    """Of a stream and a subscription that do not match both ends are told; a publisher that is away then is not."""

    name = "a mismatch is told to both ends"

    def __init__(self, sink: Sink, sources: Mapping[str, Source]) -> None:
        self._sink = sink
        self._sources = sources

    def finish(self, world: World) -> None:
        for topic, source in self._sources.items():
            told_us = self._sink.mismatches.get(topic)
            # A single message at QoS 0 may go with the broker that it was sent to.
            known = source.number > 1 or any(where == topic for _, where, _, _ in self._sink.lives)
            if known and source.connected and told_us is None:
                self.broken(f"{topic} does not match, and the subscriber was not told")
            stayed = len(source.gaps) == 1 and source.away_us is None
            if told_us is not None and stayed and topic not in source.mismatches:
                self.broken(f"{topic} does not match, and its publisher was not told")


class LivesAreTrue(Invariant):
    """Nobody is told lost who was never away for a lease; in the end it is known who is alive."""

    name = "a publisher is told lost if it was away for its lease, and not otherwise"

    def __init__(self, sink: Sink, sources: Mapping[str, Source]) -> None:
        self._sink = sink
        self._sources = sources

    def finish(self, world: World) -> None:
        for topic, source in self._sources.items():
            told = [(at_us, alive, lost) for at_us, where, alive, lost in self._sink.lives if where == topic]
            gaps = [
                *source.gaps[1:],
                *([(source.away_us, world.now_us)] if source.away_us is not None else []),
            ]
            for at_us, _, lost in told:
                if lost and not any(
                    end - begin >= LEASE_US - MARGIN_US and begin < at_us for begin, end in gaps
                ):
                    self.broken(f"{topic} was told lost at {at_us}, and was away only {gaps}")
            alive = told[-1][1] if told else 0
            here = source.away_us is None
            settled_us = world.now_us - LEASE_US - KNOWN_US
            if here and source.gaps[-1][1] < settled_us and told and alive != 1:
                self.broken(f"{topic} has a publisher, and {alive} are told alive")
            if not here and source.away_us is not None and source.away_us < settled_us and alive:
                self.broken(f"{topic} has no publisher, and {alive} are told alive")

"""What a subscriber is promised of reliable flows, of history and of leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from tocsin.sim.chance import MILLION
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.flows.clients import LEASE_US, Got, Latecomer, Sink, Source, Stay
from tocsin.sim.world import World

KNOWN_US: Final = 4 * MILLION  # for a broker's loss to be told, and a word to be asked for again
MARGIN_US: Final = MILLION  # for a session to be taken
HISTORY_US: Final = 2 * MILLION  # for a history to come


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


class HistoryMeetsLive(Invariant):
    """A new subscription with durability gets the last messages from before it, and then what comes: no message twice,
    none left out, none after a newer one. History is there if its publisher stays where it is."""

    name = "history and live messages meet"

    def __init__(self, latecomers: Sequence[Latecomer], depth: int) -> None:
        self._latecomers = latecomers
        self._depth = depth

    def finish(self, world: World) -> None:
        for latecomer in self._latecomers:
            for stay in latecomer.stays:
                self._look_at(latecomer, stay, world.now_us)

    def _look_at(self, latecomer: Latecomer, stay: Stay, now_us: int) -> None:
        who = f"{latecomer.name} from {stay.begun_us} on"
        for before, after in pairwise(stay.got):
            if after[0] < before[0] or after[1] <= before[1]:
                self.broken(f"{who} got message {after[1]} after {before[1]}")
            if after[0] == before[0] and after[1] != before[1] + 1:
                self.broken(f"{who} got nothing between message {before[1]} and {after[1]}")
        source, (flow, number) = latecomer.source, stay.before
        if not number or not self._stayed(source, stay, now_us):
            return
        wanted = max(source.first.get(flow, number), number - self._depth // 2)  # it is asked a moment later
        if not stay.got or stay.got[0][1] > wanted:
            self.broken(f"{who} did not get message {wanted}, of {number} before it")

    def _stayed(self, source: Source, stay: Stay, now_us: int) -> bool:
        """Whether the publisher was at one broker from a while before a subscription to a while after it."""
        begin, end = stay.begun_us - MARGIN_US, stay.begun_us + HISTORY_US
        away = [*source.gaps, (source.away_us, now_us)] if source.away_us is not None else source.gaps
        lasted = (now_us if stay.ended_us is None else stay.ended_us) > end
        return lasted and all(back < begin or left > end for left, back in away)


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

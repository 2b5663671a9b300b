"""The workload: its streams and subscribers, of every kind, at QoS 1 and 2, at every broker.

A publisher has one stream, ``chaos/RUN/LANE/NUMBER``, with metadata that says its run and lane; every third is at QoS
2. Subscribers take turns among the kinds, and are spread over the brokers in order. Members of a shared group count as
one receiver. Nobody else uses the run's name, so that the load sees its own messages only.

Each subscriber to one topic **left** another subscription before anything is published: a filter (QoS 1) or a query
(QoS 2) that takes every stream of the run. Other messages that reach it were never asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from tocsin.chaos.account import Promise

SubscriptionKind = Literal["topic", "wildcard", "query", "all", "shared"]
TURNS: Final[tuple[tuple[SubscriptionKind, int], ...]] = (
    ("topic", 1),
    ("wildcard", 1),
    ("query", 1),
    ("shared", 1),
    ("topic", 2),
    ("query", 2),
    ("all", 2),
    ("shared", 2),
)
LANES: Final = ("flood", "fire", "storm")
TWICE_EVERY: Final = 3  # of so many streams one is at QoS 2
RUN_KEY, LANE_KEY = "ChaosRun", "ChaosLane"


class LoadTopic(msgspec.Struct, frozen=True):
    """The stream of one publisher."""

    topic: str
    qos: int
    run: str
    lane: str

    @property
    def metadata(self) -> dict[str, str]:
        return {RUN_KEY: self.run, LANE_KEY: self.lane}


class Subscriber(msgspec.Struct, frozen=True):
    """One client that listens. ``text`` is a filter, or the predicate of a query."""

    name: str
    kind: SubscriptionKind
    qos: int
    text: str
    receiver: str  # its own name, or its group's
    streams: tuple[LoadTopic, ...]  # that it hears
    left: str = ""  # a filter, or the predicate of a query, that it was subscribed to
    left_kind: Literal["topic", "query"] = "topic"


class Workload(msgspec.Struct, frozen=True):
    """The publishers and subscribers of one run."""

    run: str
    streams: tuple[LoadTopic, ...]
    subscribers: tuple[Subscriber, ...]

    @property
    def expectations(self) -> dict[tuple[str, str], Promise]:
        """The promises to each receiver about each stream (its topic)."""
        return {
            (each.receiver, stream.topic): Promise(
                once=each.qos == stream.qos == 2, ordered=each.kind != "shared"
            )
            for each in self.subscribers
            for stream in each.streams
        }


def make(run: str, *, publishers: int, subscribers: int) -> Workload:
    streams = tuple(_stream(run, number) for number in range(publishers))
    return Workload(run, streams, tuple(_subscriber(run, n, streams) for n in range(subscribers)))


def _stream(run: str, number: int) -> LoadTopic:
    # Lanes and qualities both come round in threes; the shift has every lane see both.
    lane = LANES[(number + number // len(LANES)) % len(LANES)]
    qos = 2 if number % TWICE_EVERY == TWICE_EVERY - 1 else 1
    return LoadTopic(f"chaos/{run}/{lane}/{number}", qos, run, lane)


def _subscriber(run: str, number: int, streams: Sequence[LoadTopic]) -> Subscriber:
    kind, qos = TURNS[number % len(TURNS)]
    turn = number // len(TURNS)
    name = f"chaos-{run}-{kind}-{qos}-{number}"
    lane = streams[(number + turn) % len(streams)].lane
    in_lane = tuple(stream for stream in streams if stream.lane == lane)
    one = streams[number % len(streams)]
    match kind:
        case "topic":
            if qos == 2:
                predicate = f'{RUN_KEY} = "{run}"'
                return Subscriber(name, kind, qos, one.topic, name, (one,), predicate, "query")
            return Subscriber(name, kind, qos, one.topic, name, (one,), f"chaos/{run}/#")
        case "wildcard":
            return Subscriber(name, kind, qos, f"chaos/{run}/{lane}/+", name, in_lane)
        case "query":
            predicate = f'{RUN_KEY} = "{run}" AND {LANE_KEY} = "{lane}"'
            return Subscriber(name, kind, qos, predicate, name, in_lane)
        case "all":
            return Subscriber(name, kind, qos, f"chaos/{run}/#", name, tuple(streams))
        case "shared":
            group = f"group-{qos}"
            text = f"$share/chaos-{run}-{qos}/chaos/{run}/+/+"
            return Subscriber(name, kind, qos, text, group, tuple(streams))

"""What a member of a tier carries: counted by topic where a message is looked up, and told by slot.

A message costs one addition, to the ``Carried`` of its topic, which the forwarding table keeps with the answer for that
topic. Once a second ``settle`` adds those to their slots, off the hot path and in parts; every WINDOW_US ``look`` says
what came of it. Topics that are carried apart from their slots (``core.tiers.slots``) count for themselves.

Bounds: CARRIED_MAX topics that no slot has yet; of a window's topics the busiest are told, of its slots the heaviest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import nlargest
from typing import Final

import msgspec

from tocsin.core.tiers.slots import slot_of
from tocsin.wire.internal.control import (
    ENDS_MAX,
    PEERS_MAX,
    SLOT_LOADS_MAX,
    TOPIC_LOADS_MAX,
    TOPIC_MAX,
    SlotLoad,
    TopicLoad,
)

WINDOW_US: Final = 5_000_000
SECOND_US: Final = 1_000_000
CARRIED_MAX: Final = 50_000  # as many as topics that are kept resolved
BUSIEST: Final = 8  # topics that are told in any case


class Carried:
    """What one topic brought from other brokers to be passed on, since it was settled last."""

    __slots__ = ("_touched", "bytes", "onward", "origins", "topic")

    def __init__(self, topic: str, touched: list[Carried]) -> None:
        self.topic = topic
        self.bytes = 0
        self.origins: dict[str, int] = {}  # cluster that messages came from → how many did
        self.onward: Sequence[str] = ()  # the peers that got the last one
        self._touched = touched

    def add(self, cluster: str, onward: Sequence[str], messages: int, size: int) -> None:
        """Messages from a cluster were passed on to these peers. The hot path of a member."""
        origins = self.origins
        if not origins:
            self._touched.append(self)
        origins[cluster] = origins.get(cluster, 0) + messages
        self.bytes += size
        self.onward = onward


class Measured(msgspec.Struct, frozen=True):
    """What a member carried in one window, for each second."""

    messages_s: int = 0
    bytes_s: int = 0
    links: int = 0
    clusters: tuple[str, ...] = ()
    slots: tuple[SlotLoad, ...] = ()
    topics: tuple[TopicLoad, ...] = ()


class _Sum:
    """What a slot or a topic brought in one window."""

    __slots__ = ("bytes", "ends", "messages", "origins", "topics")

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.topics: set[str] = set()  # of a slot
        self.origins: dict[str, int] = {}  # of a topic: cluster that it came from → messages
        self.ends: dict[str, int] = {}  # cluster → messages from there, or to there


class LoadMeter:
    """Measures what one member carries. ``cluster_of`` says where a peer is; ``ends``: count where messages come from
    and go to as well."""

    def __init__(self, cluster_of: Callable[[str], str], now_us: int, *, ends: bool = False) -> None:
        self.apart: Collection[str] = ()  # topics that do not count for their slots
        self._cluster_of = cluster_of
        self._ends = ends
        self._touched: list[Carried] = []
        self._began_us = now_us
        self._clear()

    def _clear(self) -> None:
        self._slots: dict[int, _Sum] = {}
        self._topics: dict[str, _Sum] = {}
        self._peers: set[str] = set()

    def carried(self, topic: str) -> Carried:
        """What counts a topic's messages."""
        if len(self._touched) >= CARRIED_MAX:
            for _ in self.settle(CARRIED_MAX):
                pass
        return Carried(topic, self._touched)

    def settle(self, most: int) -> Iterator[None]:
        """Add what was counted until now to slots, in parts of at most so many topics."""
        left = len(self._touched)  # what is touched meanwhile waits for the next time
        while left > 0:
            taken, self._touched[:most] = self._touched[:most], []
            for each in taken:
                self._settle(each)
            left -= most
            yield

    def _settle(self, carried: Carried) -> None:
        topic, origins, size = carried.topic, carried.origins, carried.bytes
        carried.origins, carried.bytes = {}, 0
        messages = sum(origins.values())
        own = self._topics.get(topic)
        if own is None:
            own = self._topics[topic] = _Sum()
        own.messages += messages
        own.bytes += size
        for cluster, count in origins.items():
            own.origins[cluster] = own.origins.get(cluster, 0) + count
        self._peers.update(carried.onward)
        if topic in self.apart:
            return
        slot = slot_of(topic)
        total = self._slots.get(slot)
        if total is None:
            total = self._slots[slot] = _Sum()
        total.messages += messages
        total.bytes += size
        total.topics.add(topic)
        if self._ends:
            destinations = dict.fromkeys(map(self._cluster_of, carried.onward))
            for cluster, count in origins.items():
                others = sum(each != cluster for each in destinations)
                total.ends[cluster] = total.ends.get(cluster, 0) + count * others
                for each in destinations:
                    if each != cluster:
                        total.ends[each] = total.ends.get(each, 0) + count

    def look(self, now_us: int) -> Measured | None:
        """What was carried in the window that is over; None while it is not."""
        span_us = now_us - self._began_us
        if span_us < WINDOW_US:
            return None
        slots, topics, peers = self._slots, self._topics, self._peers
        self._began_us = now_us
        self._clear()

        def rate(count: int) -> int:
            return count * SECOND_US // span_us

        heaviest = nlargest(SLOT_LOADS_MAX, slots.items(), key=lambda each: (each[1].messages, each[1].bytes))
        places: dict[str, int] = {}
        rows = tuple(
            SlotLoad(
                slot,
                rate(each.messages),
                rate(each.bytes),
                len(each.topics),
                tuple((place, rate(count)) for place, count in _placed(each.ends, places)),
            )
            for slot, each in sorted(heaviest)
        )
        busiest = nlargest(BUSIEST, topics.items(), key=lambda each: (each[1].messages, each[0]))
        named = {topic: total for topic, total in busiest if len(topic) <= TOPIC_MAX}
        named |= {each: topics[each] for each in self.apart if each in topics}
        loads = tuple(
            TopicLoad(
                topic,
                rate(each.messages),
                rate(each.bytes),
                len(each.origins),
                tuple((place, rate(count)) for place, count in _placed(each.origins, places)),
            )
            for topic, each in list(named.items())[:TOPIC_LOADS_MAX]
        )
        return Measured(
            rate(sum(each.messages for each in topics.values())),
            rate(sum(each.bytes for each in topics.values())),
            len(peers),
            tuple(places),
            rows,
            loads,
        )


def _placed(ends: dict[str, int], places: dict[str, int]) -> Iterable[tuple[int, int]]:
    """The clusters with most messages, by their places in a list that grows."""
    for cluster, count in nlargest(ENDS_MAX, ends.items(), key=lambda each: (each[1], each[0])):
        if cluster in places or len(places) < PEERS_MAX:
            yield places.setdefault(cluster, len(places)), count

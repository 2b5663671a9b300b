"""What the members of a tier carry, as the leader has it from their reports: by slot, and so for any assignment.

A rate belongs to a slot and not to a member. So it goes along when the slot moves, and the leader knows what a move
brings before anybody measures it. A member that carries a slot for less than a window of its own has not measured it:
until then what was known of the slot holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tocsin.core.tiers.hot import TopicRate
from tocsin.core.tiers.measuring import WINDOW_US
from tocsin.core.tiers.slots import NOBODY, SLOTS, Slots, slot_of
from tocsin.wire.internal.control import Load, TopicLoad

STALE_US: Final = 20_000_000  # longer than a report keeps away that does not differ from the one before
MEASURED_US: Final = 2 * WINDOW_US + 1_000_000  # after which a report is of the new carrier's whole window
BUSY_LEAST: Final = 0.05  # below that the processor time of a message cannot be told from the rest
SPEED_MOST: Final = 8.0  # times as quick as the others: what differs more is a mistake


class Rate(msgspec.Struct):
    """What one slot brings in a second."""

    messages: float = 0.0
    bytes: float = 0.0
    topics: float = 0.0
    ends: dict[str, float] = {}  # cluster → messages from there, and to there


class TierLoad(msgspec.Struct, frozen=True):
    """What a tier carries. ``distance`` is the round trip in µs from a cluster to a member."""

    rates: tuple[Rate, ...]
    speeds: Mapping[str, float] = {}  # member → messages a second that it could carry; not known of all
    distance: Callable[[str, str], int] = lambda cluster, member: 0
    apart: Mapping[str, Rate] = {}  # member → what it carries of topics apart from their slots


class _Report(msgspec.Struct):
    load: Load
    at_us: int


class TierLoads:
    """The reports of one tier's members."""

    def __init__(self) -> None:
        self.reports: dict[str, _Report] = {}
        self._rates = tuple(Rate() for _ in range(SLOTS))
        self._slots = Slots()
        self._parted_us: int | None = None  # when other topics were apart
        self._speed = 0.0  # of the mean member
        self.moved_us: dict[int, int] = {}  # slot → when it got another carrier; for a while

    def follow(self, slots: Slots, now_us: int) -> None:
        """These are the carriers now."""
        if slots is not self._slots and slots.carriers != self._slots.carriers:
            pairs = zip(slots.carriers, self._slots.carriers, strict=True)
            self.moved_us.update(
                (slot, now_us) for slot, (now, before) in enumerate(pairs) if now != before != NOBODY
            )
        if slots.apart != self._slots.apart:
            self._parted_us = now_us
            for topic in slots.apart.keys() - self._slots.apart.keys():
                rate, told = self._rates[slot_of(topic)], self._told(topic)
                rate.messages = max(0.0, rate.messages - told.messages)
                rate.bytes = max(0.0, rate.bytes - told.bytes)
        self._slots = slots
        there = slots.members
        for gone in [each for each in self.reports if each not in there]:
            if now_us - self.reports[gone].at_us > STALE_US:
                del self.reports[gone]

    def heard(self, load: Load, now_us: int) -> None:
        """A member has told what it carries."""
        self.reports[load.broker] = _Report(load, now_us)
        speeds = self._speeds()
        if speeds:
            self._speed = sum(speeds.values()) / len(speeds)
        own = [slot for slot, carrier in enumerate(self._slots.carriers) if carrier == load.broker]
        if not own:
            return
        told = {each.slot: each for each in load.slots}
        others = [slot for slot in own if slot not in told]
        shares = max(1, len(others))
        named = [(each.messages_s, each.bytes_s) for each in told.values()]
        named += [(each.messages_s, each.bytes_s) for each in load.topics if each.topic in self._slots.apart]
        apart = sum(messages for messages, _ in named), sum(size for _, size in named)
        rest_messages = max(0, load.messages_s - apart[0]) / shares if len(told) == len(load.slots) else 0.0
        for slot in own:
            moved_us = self.moved_us.get(slot)
            fresh = moved_us is not None and now_us - moved_us < MEASURED_US
            each, known = told.get(slot), self._rates[slot]
            if each is None:
                if not fresh:
                    known.messages = rest_messages
                    known.bytes = max(0, load.bytes_s - apart[1]) / shares
                    known.topics = 0.0
                    known.ends = {}
            elif not fresh or each.messages_s > known.messages:
                known.messages, known.bytes = float(each.messages_s), float(each.bytes_s)
                known.topics = float(each.topics)
                known.ends = {
                    load.clusters[place]: float(count)
                    for place, count in each.ends
                    if place < len(load.clusters)
                }

    def is_known(self, member: str, now_us: int) -> bool:
        """Whether a member has told its load lately."""
        report = self.reports.get(member)
        return report is not None and now_us - report.at_us <= STALE_US

    @property
    def messages(self) -> float:
        """That the tier carries in a second."""
        return sum(each.messages for each in self._rates) + sum(
            self._told(topic).messages for topic in self._slots.apart
        )

    def _told(self, topic: str) -> Rate:
        """What a topic brings, as members have told."""
        rate = Rate()
        for each in self._of(topic):
            rate.messages += each.messages_s
            rate.bytes += each.bytes_s
        return rate

    def _of(self, topic: str) -> list[TopicLoad]:
        reports = self.reports.values()
        return [each for report in reports for each in report.load.topics if each.topic == topic]

    def topics(self, kind: str) -> dict[str, TopicRate]:
        """The busiest topics: by what they bring of this, beside the others of their slots; sources are clusters."""
        found: dict[str, TopicRate] = {}
        names = {each.topic for report in self.reports.values() for each in report.load.topics}
        for topic in names:
            rate, slot = self._told(topic), self._rates[slot_of(topic)]
            weight, whole = (rate.bytes, slot.bytes) if kind == "bytes" else (rate.messages, slot.messages)
            rest = whole if topic in self._slots.apart else max(0.0, whole - weight)
            origins = sum(each.origins for each in self._of(topic))
            scale = weight / rate.messages if rate.messages else 0.0
            sources = {cluster: count * scale for cluster, count in self._sources(topic).items()}
            found[topic] = TopicRate(weight, origins, rest, sources)
        return found

    def _sources(self, topic: str) -> Counter[str]:
        """The messages of a topic by the clusters that they come from, as far as members have told."""
        found = Counter[str]()
        for report in self.reports.values():
            clusters = report.load.clusters
            for each in report.load.topics:
                if each.topic == topic:
                    found.update(
                        {clusters[place]: count for place, count in each.ends if place < len(clusters)}
                    )
        return found

    def has_measured(self, now_us: int) -> bool:
        """Whether members have measured since other topics were apart."""
        return self._parted_us is None or now_us - self._parted_us >= MEASURED_US

    @property
    def speed(self) -> float:
        """How many messages a second one member can carry, as was measured when members were busy enough; 0: never."""
        return self._speed

    def carried_by(self, member: str) -> int:
        """The messages a second that a member has told."""
        report = self.reports.get(member)
        return 0 if report is None else report.load.messages_s

    def told_nothing(self, member: str, since_us: int) -> bool:
        """Whether a member has told since then that nothing goes over it."""
        report = self.reports.get(member)
        return report is not None and report.at_us >= since_us and not report.load.messages_s

    def look(self, distance: Callable[[str, str], int]) -> TierLoad:
        """What the tier carries, as far as it is known."""
        apart: dict[str, Rate] = {}
        for topic, members in self._slots.apart.items():
            told = self._told(topic)
            parts = {
                member: each
                for member, report in self.reports.items()
                for each in report.load.topics
                if each.topic == topic and member in members
            }
            for member in members:
                rate, own = apart.setdefault(member, Rate()), parts.get(member)
                rate.messages += own.messages_s if own is not None else told.messages / len(members)
                rate.bytes += own.bytes_s if own is not None else told.bytes / len(members)
                rate.topics += 1.0 / len(members)
        return TierLoad(self._rates, self._speeds(), distance, apart)

    def _speeds(self) -> dict[str, float]:
        """How many messages a second each member could carry, of those that are busy enough to tell."""
        found = {
            member: report.load.messages_s * 1_000 / report.load.busy
            for member, report in self.reports.items()
            if report.load.busy >= BUSY_LEAST * 1_000 and report.load.messages_s
        }
        if not found:
            return {}
        middle = sorted(found.values())[len(found) // 2]
        return {
            each: min(max(speed, middle / SPEED_MOST), middle * SPEED_MOST) for each, speed in found.items()
        }

    def rested(self, now_us: int, rest_us: int) -> Callable[[int], bool]:
        """Whether a slot may move again; slots that have rested are forgotten."""
        long_us = max(rest_us, MEASURED_US)
        self.moved_us = {slot: at for slot, at in self.moved_us.items() if now_us - at < long_us}
        return lambda slot: now_us - self.moved_us.get(slot, -rest_us) >= rest_us

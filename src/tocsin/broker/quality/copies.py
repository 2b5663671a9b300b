"""Copies over second ways, so that latency budgets are kept: the shell of ``core.quality.second_ways``.

As an **origin** a broker hears who wants its topics within which budget (``Wishes``), asks who has links to these
destinations (``Seeks``, ``Reaches``), measures its own links more often, and once in LOOK_S decides anew. What follows
is made so: extra connections (``broker.links.extra``), and for each topic the ways of its copies. A message goes the
usual way as always. Its copies go to a destination each, under a topic that only brokers may use (COPY_PREFIX): over an
extra connection, or carried by a relay. A copy that would have to wait is dropped: it would be of no use.

As a **relay** it measures its links to what others seek, and tells how they are, while it is asked.

Copies of one place (all extra connections together, or one relay) have a bound in bytes a second: a share of what goes
over links beside them, or ``deadline.spare_bytes_s``. What is beyond it is dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from mqtt5 import PublishPacket

from tocsin.broker.links.extra import ExtraLinks, MakeExtra
from tocsin.broker.links.link import Link
from tocsin.broker.links.measured import EVERY_US
from tocsin.broker.links.pool import LinkPool
from tocsin.broker.quality.budget_news import BudgetNews
from tocsin.broker.quality.flows import Flows, with_stamp
from tocsin.broker.quality.words import Words
from tocsin.config import Deadline
from tocsin.core.links.delay import Delay
from tocsin.core.quality.second_ways import DOWN, LEAST, SecondWays, Topic, is_open, leg_of
from tocsin.core.quality.stamps import Stamp
from tocsin.core.quality.ways import NO_RELAY, STRAIGHT, Bounds, Key
from tocsin.model.network import BrokerInfo
from tocsin.model.priority import priority_of
from tocsin.model.publication import Publication
from tocsin.ports import BusMessage
from tocsin.runtime.machines.clock import now_us
from tocsin.wire.internal.quality import (
    COPIED_MAX,
    LEGS_MAX,
    WAYS_ANSWER,
    WORD,
    Given,
    Gives,
    Leg,
    Reaches,
    Seeks,
    Seen,
    Sees,
    ShownSeen,
    ShownWay,
    ShownWays,
    WaysAnswer,
    Wishes,
    Word,
    destination_subject,
    ways_subject,
    words_subject,
)
from tocsin.wire.internal.relayed import RelayHeader, wrap
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.frames import forward_frame
from tocsin.wire.mqtt.topics import COPY_PREFIX, TOPIC_MAX_BYTES

LOOK_S: Final = 1.0
SEEK_US: Final = 5_000_000
SOUGHT_US: Final = 16_000_000  # after so long without being asked a relay tells no more
ORIGINS_MAX: Final = 64
SEEN_MAX: Final = (
    10_000  # topics of which destinations have told what they saw; the oldest is forgotten first
)
HEADER_BYTES: Final = 100  # of a frame, beside topic and payload, roughly
SMOOTHING: Final = 4  # a second counts for a quarter

Base = Callable[[str], Collection[str]]


class Copied:
    """A topic that somebody wants within a budget: where its copies go, and how much that is."""

    __slots__ = ("bytes", "bytes_s", "priority", "targets")

    def __init__(self) -> None:
        self.targets: tuple[tuple[str, tuple[str, ...]], ...] = ()  # destinations, each with its ways
        self.bytes = 0  # since the last look
        self.bytes_s = 0
        self.priority = 0  # that its last message said


class Room:
    """Bytes that copies of one place may take: so many a second, and those of one second at once."""

    __slots__ = ("_left", "_seen_us", "bytes_s")

    def __init__(self, bytes_s: int, now_us: int) -> None:
        self.bytes_s = self._left = bytes_s
        self._seen_us = now_us

    def change(self, bytes_s: int, now_us: int) -> None:
        self._refill(now_us)
        self.bytes_s = bytes_s
        self._left = min(self._left, bytes_s)

    def take(self, size: int, now_us: int) -> bool:
        self._refill(now_us)
        if self._left < size:
            return False
        self._left -= size
        return True

    def _refill(self, now_us: int) -> None:
        gained = self.bytes_s * (now_us - self._seen_us) // 1_000_000
        if gained > 0:
            self._left = min(self.bytes_s, self._left + gained)
            self._seen_us = now_us


class _Asked:
    """An origin that seeks destinations to which there are links here."""

    __slots__ = ("destinations", "told", "told_us", "until_us")

    def __init__(self) -> None:
        self.destinations: tuple[str, ...] = ()
        self.until_us = 0
        self.told: dict[str, Leg] = {}
        self.told_us = 0


class Copies:
    """The copies of one broker's topics. ``base`` knows to whom a topic's messages go; ``gone`` names the brokers that
    are lost; ``lost`` is told how many messages were dropped on the way."""

    def __init__(
        self,
        network: str,
        own: BrokerInfo,
        settings: Deadline,
        words: Words,
        pool: LinkPool,
        make_extra: MakeExtra,
        flows: Flows,
        news: BudgetNews,
        base: Base,
        gone: Callable[[], Collection[str]],
    ) -> None:
        self.subject = ways_subject(network, own.id)
        self.topics: dict[str, Copied] = {}
        self.sent = self.held_back = 0
        self.sent_bytes: dict[str, int] = {}  # by place: relays, and all extra connections together
        self.ways = SecondWays(
            Bounds(settings.ways_max, settings.links_max, settings.flows_max), settings.miss_goal
        )
        self.extra = ExtraLinks(make_extra)
        self._network = network
        self._own = own
        self._settings = settings
        self._words = words
        self._pool = pool
        self._flows = flows
        self._news = news
        self._base = base
        self._gone = gone
        self._room: dict[str, Room] = {}
        self._link_bytes: dict[str, int] = {}  # that were sent over links when it was looked at last
        self._link_rates: dict[str, int] = {}
        self._told: dict[Key, Given] = {}  # what destinations were told
        self._seen: dict[Key, Seen] = {}
        self._asked: dict[str, _Asked] = {}
        self._sought_us = 0
        self._sought: tuple[str, ...] = ()
        self._looked_us = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    # ── words ───────────────────────────────────────────────────────────────────────────────────────────────

    def hear(self, word: Word) -> None:
        """Another broker speaks."""
        match word:
            case Wishes(broker=info, rows=rows) if info.id != self._own.id:
                self.ways.wished(info, rows, now_us())
            case Seeks(broker=origin, destinations=destinations) if origin != self._own.id:
                self._sought_by(origin, destinations)
            case Reaches(broker=relay, legs=legs) if relay != self._own.id:
                self.ways.reached(relay, legs, now_us())
            case Gives(broker=origin, rows=rows):
                self._news.given(rows, origin)
            case Sees(broker=destination, rows=rows):
                self._hear_seen(destination, rows)
        self._wind()

    def _hear_seen(self, destination: str, rows: Collection[Seen]) -> None:
        for row in rows:
            key = row.topic, destination
            self._seen.pop(key, None)
            self._seen[key] = row
            if len(self._seen) > SEEN_MAX:
                del self._seen[next(iter(self._seen))]
            self._news.seen(row, destination)

    # ── the hot path of stamped messages ────────────────────────────────────────────────────────────────────

    def send(self, copied: Copied, packet: PublishPacket, stamp: Stamp) -> None:
        """A message of a topic goes out."""
        copied.bytes += len(packet.topic) + len(packet.payload) + HEADER_BYTES
        if packet.user_properties:
            copied.priority = priority_of(packet.user_properties)
        if not copied.targets:
            return
        topic = COPY_PREFIX + packet.topic
        if len(topic) > TOPIC_MAX_BYTES:
            return
        marked = Publication.of(with_stamp(packet, stamp), topic, "").packet()
        frame, now = forward_frame(marked, V5), now_us()
        for destination, ways in copied.targets:
            for way in ways:
                self._send(destination, way, frame, now)

    def _send(self, destination: str, way: str, frame: bytes, now: int) -> None:
        place, link, data = STRAIGHT, self.extra.link(destination, way), frame
        if way not in NO_RELAY:
            place, link = way, self._pool.links.get(way)
            data = wrap(RelayHeader(self._own.cluster, (destination,), 1), frame)
        room = self._room.get(place)
        if room is None or not room.take(len(data), now) or link is None or not link.send_now(data):
            self.held_back += 1
            return
        self.sent += 1
        self.sent_bytes[place] = self.sent_bytes.get(place, 0) + len(data)

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    def wanted(self) -> None:
        """Clients publish on other topics under a budget than before."""
        self._wind()

    @property
    def _originates(self) -> bool:
        return self._settings.ways_max > 1 and bool(self._flows.budgets) and bool(self.ways.destinations)

    def _wind(self) -> None:
        if self._timer is None and not self._closed and (self._originates or self._asked or self.topics):
            measures = self.ways.told or self._asked
            self._timer = asyncio.get_running_loop().call_later(
                EVERY_US / 1e6 if measures else LOOK_S, self._due
            )

    def _due(self) -> None:
        self._timer = None
        now = now_us()
        self._ask_links(now)
        if self._originates:
            self.extra.ping()
            if now - self._looked_us >= LOOK_S * 1e6:
                self._look(now)
            self._seek(now)
        elif self.topics:
            self._stop()
        if self._asked:
            self._tell_legs(now)
        self._wind()

    def _stop(self) -> None:
        """Nobody wants copies any more."""
        self.topics.clear()
        self.ways.told.clear()
        self.extra.want({})
        self._told.clear()

    def _ask_links(self, now: int) -> None:
        """Ask the peers of the links that matter for signs of life."""
        peers = self.ways.measured() if self._originates else set()
        for origin, asked in tuple(self._asked.items()):
            if asked.until_us < now:
                del self._asked[origin]
            peers.update(asked.destinations)
        for peer in sorted(peers):
            link = self._pool.links.get(peer)
            if link is not None and link.up and self._pool.measured.is_due(peer, now):
                link.ping()

    def _delay(self, peer: str, link: Link, now: int) -> Delay | None:
        """The delay of a link of this broker."""
        if not link.up:
            return DOWN if link.tried else None
        self._pool.measured.repeats(peer, link.repeats())
        return self._pool.measured.shown(peer, now)

    # ── as an origin ────────────────────────────────────────────────────────────────────────────────────────

    def _seek(self, now: int) -> None:
        destinations = self.ways.sought
        if destinations != self._sought or (destinations and now - self._sought_us >= SEEK_US):
            self._sought, self._sought_us = destinations, now
            self._words.say(words_subject(self._network), WORD.write(Seeks(self._own.id, destinations)))

    def _look(self, now: int) -> None:
        passed_us, self._looked_us = max(1, now - self._looked_us), now
        topics = self._count(min(passed_us, 10_000_000))
        own = {}
        for peer in sorted(self.ways.measured() | self._first()):
            link = self._pool.links.get(peer)
            delay = None if link is None else self._delay(peer, link, now)
            if delay is not None:
                own[peer] = delay
        self._measure_room(min(passed_us, 10_000_000), now)
        unreachable = self.extra.failing()
        self.ways.look(
            topics,
            own,
            self.extra.straight(),
            lambda info: self._own.dials(info) and info.id not in unreachable,
            lambda topic, destination: self._base(topic),
            {place: room.bytes_s for place, room in self._room.items()},
            self._gone(),
            now,
        )
        self._make()
        self._tell()

    def _first(self) -> set[str]:
        """The brokers to which topics go first: before anything is known of the ways."""
        return {peer for topic in self.topics for peer in self._base(topic)}

    def _count(self, passed_us: int) -> dict[str, Topic]:
        """The topics of clients here that may be wanted, with how much is published on them."""
        topics = {}
        for name, offered_us in self._flows.budgets.items():
            copied = self.topics.get(name)
            if copied is None:
                copied = self.topics[name] = Copied()
            else:
                rate = copied.bytes * 1_000_000 // passed_us
                copied.bytes_s += (rate - copied.bytes_s) // SMOOTHING if copied.bytes_s else rate
                copied.bytes = 0
            topics[name] = Topic(offered_us, copied.priority, copied.bytes_s)
        for name in [each for each in self.topics if each not in topics]:
            del self.topics[name]
        return topics

    def _measure_room(self, passed_us: int, now: int) -> None:
        """How much copies may take: by what goes over links beside them."""
        for peer, link in self._pool.links.items():
            rate = max(0, link.sent_bytes - self._link_bytes.get(peer, 0)) * 1_000_000 // passed_us
            self._link_bytes[peer] = link.sent_bytes
            before = self._link_rates.get(peer, 0)
            self._link_rates[peer] = before + (rate - before) // SMOOTHING if before else rate
        for peer in [each for each in self._link_bytes if each not in self._pool.links]:
            del self._link_bytes[peer], self._link_rates[peer]
            self._room.pop(peer, None)
        rates = {STRAIGHT: sum(self._link_rates.values()), **self._link_rates}
        for place, rate in rates.items():
            bytes_s = max(self._settings.spare_bytes_s, rate * self._settings.share_percent // 100)
            if place in self._room:
                self._room[place].change(bytes_s, now)
            else:
                self._room[place] = Room(bytes_s, now)

    def _make(self) -> None:
        """Have what was decided."""
        known = self.ways.destinations
        wanted = {key: known[key[0]] for key in sorted(self.ways.connections()) if key[0] in known}
        self.extra.want(wanted)
        targets = self.ways.targets()
        for name, copied in self.topics.items():
            copied.targets = tuple(targets.get(name, {}).items())

    def _tell(self) -> None:
        """Tell destinations, and publishers here, what has changed."""
        now: dict[Key, Given] = {}
        rows: dict[str, list[Given]] = {}
        for key, told in self.ways.told.items():
            topic, destination = key
            decision, before = told.decision, self._told.get(key)
            if is_open(told):
                if before is not None:
                    now[key] = before
                continue
            row = Given(
                topic,
                told.budget_us,
                decision.ways,
                decision.why,
                round(decision.miss, 6),
                round(decision.alone, 6),
            )
            now[key] = row
            if before is None:
                is_news = bool(row.ways or row.why)
            else:
                is_news = (before.ways, before.why, before.budget_us) != (row.ways, row.why, row.budget_us)
            if is_news:
                rows.setdefault(destination, []).append(row)
                self._news.gives(row, destination)
            elif before is not None:
                now[key] = before
        self._told = now
        for destination, given in rows.items():
            for at in range(0, len(given), COPIED_MAX):
                word = Gives(self._own.id, tuple(given[at : at + COPIED_MAX]))
                self._words.say(destination_subject(self._network, destination), WORD.write(word))

    # ── as a relay ──────────────────────────────────────────────────────────────────────────────────────────

    def _sought_by(self, origin: str, destinations: Collection[str]) -> None:
        mine = tuple(each for each in destinations if each in self._pool.links)
        asked = self._asked.get(origin)
        if not mine:
            if asked is not None:
                asked.destinations = ()
            return
        if asked is None:
            if len(self._asked) >= ORIGINS_MAX:
                return
            asked = self._asked[origin] = _Asked()
        asked.destinations, asked.until_us = mine, now_us() + SOUGHT_US

    def _tell_legs(self, now: int) -> None:
        """Tell origins how the links to what they seek are: what has changed, and all of it every SEEK_US."""
        for origin, asked in self._asked.items():
            again = now - asked.told_us >= SEEK_US
            legs = []
            for to in asked.destinations:
                link = self._pool.links.get(to)
                delay = DOWN if link is None else self._delay(to, link, now)
                if delay is None or (delay is not DOWN and delay.samples < LEAST):
                    continue
                leg = leg_of(to, None if delay is DOWN else delay)
                if again or asked.told.get(to) != leg:
                    legs.append(leg)
                    asked.told[to] = leg
            if again:
                asked.told_us = now
            if legs:
                word = Reaches(self._own.id, tuple(legs[:LEGS_MAX]))
                self._words.say(destination_subject(self._network, origin), WORD.write(word))

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    async def answer(self, question: BusMessage) -> bytes:
        """Which ways a topic has; with an empty question, all topics."""
        return WAYS_ANSWER.write(WaysAnswer(self.shown(question.payload.decode(errors="replace"))))

    def shown(self, topic: str) -> tuple[ShownWays, ...]:
        found = []
        for (name, destination), told in sorted(self.ways.told.items()):
            if topic not in ("", name):
                continue
            decision, seen = told.decision, self._seen.get((name, destination))
            ways = tuple(
                ShownWay(
                    way,
                    way == "base" or way in decision.ways,
                    delay.floor_us,
                    delay.quantile(990_000),
                    round(delay.miss(told.budget_us), 6),
                )
                for way, delay in self.ways.delays(destination, told.base_over).items()
            )
            found.append(
                ShownWays(
                    name,
                    destination,
                    told.budget_us,
                    told.base_over,
                    ways,
                    round(decision.miss, 6),
                    round(decision.alone, 6),
                    decision.why,
                    None if seen is None else ShownSeen(seen.came, seen.missed, seen.ahead, seen.repeated),
                )
            )
        return tuple(found[:COPIED_MAX])

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.extra.close()

    def statistics(self) -> dict[str, int]:
        told: Mapping[Key, Given] = self._told
        return {
            "copies_sent": self.sent,
            "copies_bytes": sum(self.sent_bytes.values()),
            "copies_held_back": self.held_back,
            "copied_flows": sum(bool(each.ways) for each in told.values()),
            "copies_left_out": sum(bool(each.why) for each in told.values()),
            "extra_links": len(self.extra),
        }

"""The shell of ``core.quality.resending``: reliable flows at QoS 0.

Brokers with subscribers that request reliability say so to all others, every ENROL_S seconds (``Enrol``). The origin of
a flow keeps it for them, tells each from which number on (``Begins``), and sends again what one lacks (``Again``) over
the bus, which needs neither links nor routing brokers. Destinations acknowledge every ACK_S seconds, if anything came.

A publisher that disconnects leaves what its flows keep for LINGER_S. A gap that nobody fills for GAP_S is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec
import structlog

from tocsin.broker.client import Client
from tocsin.broker.quality.alarm import Alarm
from tocsin.broker.quality.words import Words
from tocsin.core.budgets.budget import Kind
from tocsin.core.quality.resending import Origin, Window
from tocsin.core.quality.stamps import STAMP, Stamp, stamp_of, stamp_text, without_stamp
from tocsin.errors import Malformed
from tocsin.model.publication import Publication, decode_publication, encode_publication
from tocsin.model.quality import Flow
from tocsin.runtime.machines.clock import now_us
from tocsin.wire.internal.quality import (
    WORD,
    Again,
    Begins,
    Enrol,
    Has,
    Word,
    destination_subject,
    words_subject,
)
from tocsin.wire.mqtt.topics import matches

ENROL_S: Final = 5.0
ENROLMENTS: Final = 3  # that may be missed before a destination is forgotten
ACK_S: Final = 0.1
LINGER_S: Final = 10.0
GAP_S: Final = 5.0
FLOW_BYTES: Final = 1 << 20  # kept of one flow
LEFT_BYTES: Final = 16 << 20  # of flows whose publishers are gone
WINDOW_BYTES: Final = 1 << 20  # of messages that wait for one before them
WINDOWS_MAX: Final = 20_000  # the one that was idle for longest is forgotten first
PIECE: Final = 64  # messages sent again in one word
PIECE_BYTES: Final = 256 << 10
FILTERS_MAX: Final = 1_000  # in one enrolment; with more, everything is asked for
EVERYTHING: Final = "#"
MESSAGE_BYTES: Final = 500  # of a message that is kept, beside its payload and topic

Pass = Callable[[Publication, Stamp], None]


class _Kept:
    """One flow of a publisher here."""

    __slots__ = ("charged", "client", "flow", "origin", "until_us")

    def __init__(self, flow: Flow, client: Client) -> None:
        self.flow = flow
        self.client: Client | None = client  # None: it is gone
        self.origin: Origin[tuple[Publication, Stamp]] = Origin()
        self.charged = 0  # bytes to its account
        self.until_us = 0  # how long it is kept without its client


class Origins:
    """The reliable flows of one broker's publishers."""

    def __init__(
        self, broker: str, say: Callable[[str, Word], None], gone: Callable[[], Collection[str]]
    ) -> None:
        self._broker = broker
        self._say = say
        self._gone = gone
        self._flows: dict[Flow, _Kept] = {}
        self._enrolled: dict[str, tuple[tuple[str, ...], int]] = {}  # broker → its filters, and until when
        self.sent_again = 0
        self._given_up = 0  # of flows that are no more

    def __len__(self) -> int:
        return len(self._flows)

    @property
    def given_up(self) -> int:
        return self._given_up + sum(each.origin.given_up for each in self._flows.values())

    @property
    def busy(self) -> bool:
        """Whether something may have to be sent again, or forgotten."""
        return any(len(each.origin) or each.client is None for each in self._flows.values())

    def begin(self, flow: Flow, client: Client, last: int = 0) -> None:
        """A flow is kept from now on, after this number."""
        kept = self._flows[flow] = _Kept(flow, client)
        kept.origin.last = last
        for broker, (filters, _) in self._enrolled.items():
            self._enrol(kept, broker, filters)

    def end(self, flow: Flow) -> None:
        """Its publisher is gone; what somebody lacks is kept for a while."""
        kept = self._flows.get(flow)
        if kept is None:
            return
        if kept.client is not None:
            kept.client.account.give(Kind.OUTBOUND, kept.charged)
        kept.client, kept.charged, kept.until_us = None, 0, now_us() + int(LINGER_S * 1e6)
        left = [each for each in self._flows.values() if each.client is None]
        size = sum(each.origin.bytes for each in left)
        for each in left:
            if len(each.origin) and size <= LEFT_BYTES:
                break
            size -= each.origin.bytes
            self._forget(each)

    def _forget(self, kept: _Kept) -> None:
        self._given_up += kept.origin.given_up + len(kept.origin)
        del self._flows[kept.flow]

    def publish(self, publication: Publication, stamp: Stamp) -> None:
        """A message goes out."""
        kept = self._flows.get(stamp.flow)
        if kept is None or kept.client is None:
            return
        origin, size = kept.origin, MESSAGE_BYTES + len(publication.topic) + len(publication.payload)
        account, most = kept.client.account, FLOW_BYTES
        if origin.destinations:
            if account.take(Kind.OUTBOUND, size) is None:
                kept.charged += size
            else:
                most = origin.bytes  # the oldest make room
        origin.publish(stamp.number, (publication, stamp), size, now_us(), most)
        self._settle(kept)

    def _settle(self, kept: _Kept) -> None:
        """Give back the bytes of what is not kept any more."""
        if kept.client is not None and kept.charged > kept.origin.bytes:
            kept.client.account.give(Kind.OUTBOUND, kept.charged - kept.origin.bytes)
            kept.charged = kept.origin.bytes

    # ── destinations ────────────────────────────────────────────────────────────────────────────────────────

    def enrol(self, broker: str, filters: tuple[str, ...]) -> None:
        """A broker wants what is published on topics that match, and nothing else."""
        if filters:
            self._enrolled[broker] = filters, now_us() + int(ENROLMENTS * ENROL_S * 1e6)
        else:
            self._enrolled.pop(broker, None)
        for kept in self._flows.values():
            self._enrol(kept, broker, filters)

    def _enrol(self, kept: _Kept, broker: str, filters: tuple[str, ...]) -> None:
        if not any(matches(each, kept.flow.topic) for each in filters):
            kept.origin.leave(broker)
            self._settle(kept)
        elif kept.client is not None and kept.origin.enrol(broker, now_us()):
            self._say(broker, Begins(self._broker, kept.flow, kept.origin.last + 1))

    def acknowledged(self, broker: str, flow: Flow, number: int) -> None:
        kept = self._flows.get(flow)
        if kept is not None:
            kept.origin.acknowledge(broker, number, now_us())
            self._settle(kept)

    def due(self) -> None:
        """Send again what somebody lacks for too long."""
        now, gone = now_us(), self._gone()
        over = [each for each, (_, until_us) in self._enrolled.items() if until_us < now or each in gone]
        for broker in over:
            self.enrol(broker, ())
        for kept in tuple(self._flows.values()):
            for broker, late in kept.origin.due(now, PIECE):
                self._send(broker, kept, late)
            if kept.client is None and (not len(kept.origin) or kept.until_us <= now):
                self._forget(kept)

    def _send(self, broker: str, kept: _Kept, late: list[tuple[int, tuple[Publication, Stamp]]]) -> None:
        messages: list[tuple[int, bytes]] = []
        size = 0
        for number, (publication, stamp) in late:
            said = (*publication.user_properties, (STAMP, stamp_text(stamp)))
            data = encode_publication(msgspec.structs.replace(publication, user_properties=said))
            size += len(data)
            if messages and size > PIECE_BYTES:
                break
            messages.append((number, data))
        self.sent_again += len(messages)
        self._say(broker, Again(self._broker, kept.flow, kept.origin.first, tuple(messages)))


class _Arriving:
    """One flow from elsewhere."""

    __slots__ = ("bytes", "since_us", "window")

    def __init__(self, following: int) -> None:
        self.window: Window[tuple[Publication, Stamp]] = Window(following)
        self.bytes = 0  # of what waits
        self.since_us = 0  # since when something waits for what is missing


class Arrivals:
    """The reliable flows that one broker's subscribers get from others. ``give`` passes a message on to them."""

    def __init__(self, broker: str, say: Callable[[str, Word], None], give: Pass) -> None:
        self._broker = broker
        self._say = say
        self._give = give
        self._flows: dict[Flow, _Arriving] = {}  # the one that was idle for longest first
        self._changed: dict[Flow, None] = {}  # to be acknowledged
        self._passed_over = 0
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._flows)

    def __contains__(self, flow: Flow) -> bool:
        return flow in self._flows

    @property
    def busy(self) -> bool:
        return bool(self._changed) or any(len(each.window) for each in self._flows.values())

    def statistics(self) -> dict[str, int]:
        windows = [each.window for each in self._flows.values()]
        return {
            "flows_arriving": len(windows),
            "flow_repeats": self._dropped + sum(each.dropped for each in windows),
            "flow_gaps": self._passed_over + sum(each.passed_over for each in windows),
        }

    def begins(self, flow: Flow, number: int) -> None:
        """The origin keeps a flow for us from this number on."""
        if flow not in self._flows:
            self._open(flow, number)

    def _open(self, flow: Flow, following: int) -> _Arriving:
        if len(self._flows) >= WINDOWS_MAX:
            oldest = self._flows.pop(next(iter(self._flows)))
            self._dropped += oldest.window.dropped
            self._passed_over += oldest.window.passed_over
        found = self._flows[flow] = _Arriving(following)
        return found

    def take(self, publication: Publication, stamp: Stamp) -> None:
        """A message of a flow has come, by a link or again."""
        flow = stamp.flow
        found = self._flows.pop(flow, None)
        if found is None:
            found = self._open(flow, stamp.number)
        else:
            self._flows[flow] = found
        size = len(publication.topic) + len(publication.payload)
        if stamp.number > found.window.next and found.bytes + size > WINDOW_BYTES:
            return  # it is not acknowledged, and so it comes again
        self._changed[flow] = None
        found.bytes += size
        self._pass(found, found.window.take(stamp.number, (publication, stamp)))

    def again(self, word: Again) -> None:
        """The origin sends what we lack, and says before which number nothing is kept any more."""
        found = self._flows.get(word.flow)
        if found is None:
            return
        self._changed[word.flow] = None
        self._pass(found, found.window.pass_over(word.first))
        for number, data in word.messages:
            try:
                publication = decode_publication(data)
            except Malformed as error:
                structlog.get_logger().warning("a message of a flow is unreadable", problem=str(error))
                continue
            properties = publication.user_properties
            stamp = stamp_of(properties, word.flow.topic)
            if stamp is not None and stamp.number == number and stamp.flow == word.flow:
                said = tuple(without_stamp(properties))
                self.take(msgspec.structs.replace(publication, user_properties=said), stamp)

    def _pass(self, found: _Arriving, ready: list[tuple[Publication, Stamp]]) -> None:
        if not len(found.window):
            found.bytes = found.since_us = 0
        elif ready or not found.since_us:
            found.since_us = now_us()
        for publication, stamp in ready:
            self._give(publication, stamp)

    def due(self) -> None:
        """Acknowledge what has come, and wait for nothing for ever."""
        rows: dict[str, list[tuple[Flow, int]]] = {}
        for flow in self._changed:
            if flow in self._flows:
                rows.setdefault(flow.broker, []).append((flow, self._flows[flow].window.next - 1))
        self._changed.clear()
        for broker, each in rows.items():
            self._say(broker, Has(self._broker, tuple(each)))
        late_us = now_us() - int(GAP_S * 1e6)
        for flow, found in tuple(self._flows.items()):
            if len(found.window) and found.since_us < late_us:
                found.since_us = 0
                self._pass(found, found.window.pass_over(found.window.first_waiting))
                self._changed[flow] = None

    def forget(self) -> None:
        """Nobody here requests reliability any more."""
        self._flows.clear()
        self._changed.clear()


class Resending:
    """Reliable flows at one broker: those of its publishers, and those that its subscribers get."""

    def __init__(
        self,
        network: str,
        broker: str,
        words: Words,
        give: Pass,
        gone: Callable[[], Collection[str]],
    ) -> None:
        self.subject = destination_subject(network, broker)
        self._network = network
        self._broker = broker
        self._words = words
        self.origins = Origins(broker, self.say, gone)
        self.arrivals = Arrivals(broker, self.say, give)
        self._filters: dict[str, int] = {}  # of subscriptions that request reliability or durability
        self._enrolled_us = 0
        self._alarm = Alarm(self._due)

    def say(self, broker: str, word: Word) -> None:
        """Say something to one broker, or (empty) to all."""
        network = self._network
        subject = destination_subject(network, broker) if broker else words_subject(network)
        self._words.say(subject, WORD.write(word))

    # ── subscribers ─────────────────────────────────────────────────────────────────────────────────────────

    def want(self, pattern: str) -> None:
        self._filters[pattern] = self._filters.get(pattern, 0) + 1
        if self._filters[pattern] == 1:
            self._enrol()

    def unwant(self, pattern: str) -> None:
        self._filters[pattern] -= 1
        if not self._filters[pattern]:
            del self._filters[pattern]
            self._enrol()
            if not self._filters:
                self.arrivals.forget()

    def _enrol(self) -> None:
        self._enrolled_us = now_us()
        self.say("", self._wanted())
        self.wind()

    def _wanted(self) -> Enrol:
        filters = tuple(self._filters) if len(self._filters) <= FILTERS_MAX else (EVERYTHING,)
        return Enrol(self._broker, filters)

    def take(self, publication: Publication, stamp: Stamp) -> None:
        """A message of a reliable flow has come by a link."""
        if (
            stamp.flow not in self.arrivals
        ):  # its broker may have been restarted, and not know that we want it
            self.say(stamp.flow.broker, self._wanted())
        self.arrivals.take(publication, stamp)
        self.wind()

    # ── publishers ──────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, publication: Publication, stamp: Stamp) -> None:
        """A message of a client here goes out."""
        self.origins.publish(publication, stamp)
        self.wind()

    # ── words ───────────────────────────────────────────────────────────────────────────────────────────────

    def hear(self, word: Word) -> None:
        """Another broker speaks."""
        match word:
            case Enrol(broker=broker, filters=filters) if broker != self._broker:
                self.origins.enrol(broker, filters)
            case Begins(flow=flow, number=number):
                self.arrivals.begins(flow, number)
            case Has(broker=broker, rows=rows):
                for flow, number in rows:
                    self.origins.acknowledged(broker, flow, number)
            case Again():
                self.arrivals.again(word)
        self.wind()

    def wind(self) -> None:
        """Look again soon, while there is something to look after."""
        if self.origins.busy or self.arrivals.busy:
            self._alarm.set_in(ACK_S)
        elif self._filters:
            self._alarm.set_in(ENROL_S)

    def _due(self) -> None:
        self.origins.due()
        self.arrivals.due()
        if self._filters and now_us() - self._enrolled_us >= ENROL_S * 1e6:
            self._enrol()
        self.wind()

    def close(self) -> None:
        self._alarm.close()

    def statistics(self) -> dict[str, int]:
        return {
            "flows_kept": len(self.origins),
            "flows_sent_again": self.origins.sent_again,
            "flows_given_up": self.origins.given_up,
            **self.arrivals.statistics(),
        }

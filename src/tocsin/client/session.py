"""A client's side of its session with a broker, without a socket: packets in, packets and outcomes out.

``subscribe``, ``unsubscribe`` and ``ask`` make a request. Its number is its packet id; ``Answered`` with that number
follows, now or on a later connection.

    QoS 1      waiting ──PUBLISH──► under way ──PUBACK──► answered
    QoS 2      waiting ──PUBLISH──► under way ──PUBREC──► received (PUBREL) ──PUBCOMP──► answered
    a filter   waiting ──SUBSCRIBE, or UNSUBSCRIBE if it is not wanted any more──► under way ──► answered

At most as many requests are under way as the broker takes messages; the rest wait, in order. After a break all wait
again (but ``FLUSH`` fails). If the broker has lost the session, the client subscribes again, and sends unacknowledged
messages as new: at QoS 2 they may then be there twice. A broker that is cut off from the store answers *degraded*:
until the store has word of it, what a client subscribes to or gives up there can be undone (decision 032). So the
client asks again for such a filter on each new connection, until it gets another answer. A subscription that the broker
refuses is gone, also if it was granted before the break; then nobody waits for that answer, but its error names the
filter. ``arrivals`` handles incoming messages.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import mqtt5
import msgspec

from tocsin.client.arrivals import Arrivals
from tocsin.client.values import Answered, Effect
from tocsin.errors import PublishRefused, SubscriptionRefused, TocsinError, Unencodable
from tocsin.model.publication import Publication
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.reasons import is_degraded, refusal_of
from tocsin.wire.mqtt.topics import STREAMS_PREFIX, WANTED_PREFIX

PACKET_IDS: Final = 65_535
FLUSH: Final = (
    "tocsin/flush"  # a filter that nobody has: to unsubscribe from it changes nothing, and is answered
)

_TOLD: Final = (STREAMS_PREFIX, WANTED_PREFIX)  # filters whose answer begins with a whole one


class _Request(msgspec.Struct):
    what: Publication | str  # a message, or a filter
    sent: bool = False  # in the session that the broker has now
    received: bool = False  # PUBREC came


class Session:
    """The client's side of an MQTT session, as a machine without a socket."""

    def __init__(self, receive_max: int) -> None:
        self.arrivals = Arrivals(receive_max)
        self._last_id = 0
        self._window = 0  # how many requests may be under way; 0: there is no connection
        self._requests: dict[int, _Request] = {}  # by packet id, in order: not answered
        self._waiting: deque[int] = deque()  # those of them that are not under way
        self._for_now: dict[str, None] = {}  # filters whose last answer was *degraded*

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────

    def connected(self, answer: mqtt5.ConnAckPacket) -> list[Effect]:
        resumed, self._window = answer.session_present, answer.receive_max
        self.arrivals.begin(resumed)
        self._waiting = deque(self._requests)
        for each in self._requests.values():
            each.sent = each.sent and resumed
        self._for_now = self._for_now if resumed else {}
        asked = {each.what for each in self._requests.values() if isinstance(each.what, str)}
        lost = [name for name in self.arrivals.wanted if not resumed or name.startswith(_TOLD)]
        for name in dict.fromkeys([*lost, *self._for_now]):  # what is _TOLD is sent to its subscriber
            if name not in asked:
                self._waiting.appendleft(self._number(name))
        return self._send_waiting()

    def interrupted(self, error: TocsinError) -> list[Effect]:
        self._window = 0
        self.arrivals.interrupt()
        flushes = [packet_id for packet_id, each in self._requests.items() if each.what == FLUSH]
        return [Answered(packet_id, error) for packet_id in flushes if self._requests.pop(packet_id)]

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, how: mqtt5.TopicFilter) -> tuple[int, list[Effect]]:
        self._for_now.pop(how.pattern, None)
        waited = self.arrivals.want(how)
        request, effects = self.ask(how.pattern)
        return request, [*effects, *waited]

    def unsubscribe(self, topic_filter: str) -> tuple[int, list[Effect]]:
        self.arrivals.forget(topic_filter)
        return self.ask(topic_filter)

    def ask(self, what: Publication | str) -> tuple[int, list[Effect]]:
        """Publish a message at QoS 1 or 2; or ``FLUSH``: answered when the broker has read all that came before."""
        packet_id = self._number(what)
        self._waiting.append(packet_id)
        return packet_id, self._send_waiting()

    def _number(self, what: Publication | str) -> int:
        if len(self._requests) == PACKET_IDS:
            raise Unencodable("PUBLISH", V5, f"{PACKET_IDS} requests wait for answers, and each has a number")
        self._last_id = self._last_id % PACKET_IDS + 1
        while self._last_id in self._requests:
            self._last_id = self._last_id % PACKET_IDS + 1
        self._requests[self._last_id] = _Request(what)
        return self._last_id

    def _send_waiting(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting and len(self._requests) - len(self._waiting) < self._window:
            packet_id = self._waiting.popleft()
            if (each := self._requests.get(packet_id)) is not None:  # and not answered before it was asked
                effects.append(self._packet(packet_id, each))
                each.sent = True
        return effects

    def _packet(self, packet_id: int, each: _Request) -> mqtt5.Packet:
        what = each.what
        if each.received:
            return mqtt5.PubRelPacket(packet_id)
        if isinstance(what, Publication):
            return what.packet(qos=what.qos, packet_id=packet_id, duplicate=each.sent, retain=what.retain)
        wanted = self.arrivals.wanted.get(what)
        if wanted is None:
            return mqtt5.UnsubscribePacket(packet_id, [what])
        return mqtt5.SubscribePacket(packet_id, [wanted.how], subscription_id=wanted.identifier)

    # ── hearing ─────────────────────────────────────────────────────────────────────────────────────────────

    def heard(self, packet: mqtt5.Packet) -> list[Effect]:
        """Raises ``ProtocolViolation`` if the broker sends more than we take."""
        match packet:
            case mqtt5.PublishPacket():
                return [*self.arrivals.arrive(packet)]
            case mqtt5.PubRelPacket():
                return [self.arrivals.release(packet.packet_id)]
            case mqtt5.PubRecPacket() if refusal_of(packet) is None:
                return [self._release(packet.packet_id)]
            case mqtt5.UnsubAckPacket():
                return self._answered(packet.packet_id, None, for_now=is_degraded(packet))
            case mqtt5.SubAckPacket():
                return self._answered(packet.packet_id, refusal_of(packet), for_now=is_degraded(packet))
            case mqtt5.PubAckPacket() | mqtt5.PubRecPacket() | mqtt5.PubCompPacket():
                return self._answered(packet.packet_id, refusal_of(packet))
        return []

    def _release(self, packet_id: int) -> mqtt5.Packet:
        if packet_id not in self._requests:
            unknown = mqtt5.PubRelReasonCode.PACKET_ID_NOT_FOUND
            return mqtt5.PubRelPacket(packet_id, reason_code=unknown)
        self._requests[packet_id].received = True
        return mqtt5.PubRelPacket(packet_id)

    def _answered(self, packet_id: int, refusal: str | None, *, for_now: bool = False) -> list[Effect]:
        each = self._requests.pop(packet_id, None)
        if each is None:
            return []
        if isinstance(each.what, str) and each.what != FLUSH:
            self._for_now.pop(each.what, None)
            self._for_now |= {each.what: None} if for_now else {}
        error: TocsinError | None = None
        if isinstance(each.what, Publication):
            error = PublishRefused(each.what.topic, refusal) if refusal and not each.received else None
        elif refusal and each.what in self.arrivals.wanted:
            self.arrivals.forget(each.what)
            error = SubscriptionRefused(each.what, refusal)
        return [Answered(packet_id, error), *self._send_waiting()]

"""The shell of ``core.quality.recalling``: history of messages at QoS 0 for new subscriptions here.

After its SUBACK each new subscription that requests durability asks all brokers (``Recall``), and those that have not
answered again with AGAIN_S; a broker that has sent live messages is asked every LOOK_S. What one of them does not
answer for PATIENCE_S goes on without its history, and so does what takes more than HELD_BYTES. After YOUNG_S a
subscription is as any other, and costs nothing more.

If history is shorter than it was asked for because there was no room, the subscriber is told on ``$qos/history/TOPIC``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

import structlog
from msgspec.structs import replace

from tocsin.broker.client import Client
from tocsin.broker.quality.alarm import Alarm
from tocsin.broker.quality.rings import Message, Rings
from tocsin.core.budgets.budget import Kind
from tocsin.core.forwarding.table import Subscription, Wanted
from tocsin.core.quality.recalling import Seam
from tocsin.core.quality.stamps import Stamp, stamp_of, without_stamp
from tocsin.errors import Malformed
from tocsin.model.publication import Publication, decode_publication
from tocsin.runtime.machines.clock import now_us
from tocsin.wire.internal.quality import Past, Recall, Recalled, Word
from tocsin.wire.mqtt.topics import QUERY_PREFIX, matches

LOOK_S: Final = 0.5
AGAIN_S: Final = 5.0
PATIENCE_S: Final = 5.0
YOUNG_S: Final = 15.0
HELD_BYTES: Final = 1 << 20  # of live messages, for one subscription
PIECE_BYTES: Final = 256 << 10  # in one word
HELD_MESSAGE_BYTES: Final = 500  # beside its payload and topic
EVERYTHING: Final = "#"

Key = tuple[Client, str]  # a client, and the name of one of its subscriptions


class _Young:
    """A new subscription."""

    __slots__ = ("again", "ask", "asked_us", "held_since_us", "request", "scope", "seam", "taken", "until_us")

    def __init__(self, scope: str, request: str, ask: int) -> None:
        self.scope = scope
        self.request = request
        self.ask = ask
        self.seam: Seam[Message] = Seam()
        self.asked_us: int | None = None  # when all were asked; None: not yet
        self.again = False  # … and those that had not answered, once more
        self.until_us = 0  # when it is young no longer
        self.held_since_us: dict[str, int] = {}  # by broker
        self.taken = 0  # bytes that the account knows of

    def covers(self, topic: str) -> bool:
        """Whether it may be for a topic; of a query that is looked at later."""
        return self.scope.startswith(QUERY_PREFIX) or matches(self.scope, topic)


class Recalling:
    """History at QoS 0 of one broker's new subscriptions. ``say`` tells one broker, or (empty) all; ``give_past`` and
    ``give`` pass messages on to one subscription; ``cut`` tells a client that so many messages on a topic are missing.
    """

    def __init__(
        self,
        broker: str,
        rings: Rings,
        *,
        say: Callable[[str, Word], None],
        give_past: Callable[[Client, str, Message], None],
        give: Callable[[Client, str, Message], None],
        cut: Callable[[Client, str, int], None],
    ) -> None:
        self._broker = broker
        self._rings = rings
        self._say = say
        self._give_past = give_past
        self._give = give
        self._cut = cut
        self._young: dict[Client, dict[str, _Young]] = {}
        self._asks: dict[int, Key] = {}
        self._next = count(1)
        self._alarm = Alarm(self._due)
        self.given_up = 0  # answers that did not come

    @property
    def busy(self) -> bool:
        """Whether any subscription here may have to wait for history."""
        return bool(self._young)

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────

    def subscribed(self, target: Client, name: str, scope: str, request: str) -> None:
        """A client has a new subscription; ``begin`` follows."""
        young = _Young(scope, request, next(self._next))
        self._young.setdefault(target, {})[name] = young
        self._asks[young.ask] = target, name

    def unsubscribed(self, target: Client, name: str) -> None:
        of_target = self._young.get(target, {})
        young = of_target.pop(name, None)
        if young is None:
            return
        del self._asks[young.ask]
        target.account.give(Kind.OUTBOUND, young.taken)
        if not of_target:
            del self._young[target]

    def begin(self, target: Client, name: str) -> None:
        """Its SUBACK is sent."""
        young = self._young.get(target, {}).get(name)
        if young is None or young.asked_us is not None:
            return
        young.asked_us = now_us()
        young.until_us = young.asked_us + int(YOUNG_S * 1e6)
        self._say("", self._question(young))
        own = self._rings.recall(self._pattern(young), young.request)
        self._take(target, name, young, Recalled(self._broker, young.ask, tuple(own), True))
        self._wind()

    def _pattern(self, young: _Young) -> str:
        return EVERYTHING if young.scope.startswith(QUERY_PREFIX) else young.scope

    def _question(self, young: _Young) -> Recall:
        answered = tuple(sorted(young.seam.answered))
        return Recall(self._broker, young.ask, self._pattern(young), young.request, answered)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def hold(self, wanted: Wanted[Client], message: Message) -> Wanted[Client]:
        """Those who get a live message of a flow now; it is held for those who wait for what was before it."""
        found = []
        for target, subscriptions in wanted:
            young = self._young.get(target)
            kept = subscriptions
            if young is not None:
                kept = tuple(each for each in subscriptions if self._goes_on(target, young, each, message))
            if kept:
                found.append((target, kept))
        return tuple(found)

    def _goes_on(
        self, target: Client, young: dict[str, _Young], subscription: Subscription, message: Message
    ) -> bool:
        goes_on = True
        for name, each in tuple(young.items()):
            if each.request == subscription.request and each.covers(message[0].topic):
                goes_on = self._take_live(target, name, each, message) and goes_on
        return goes_on

    def _take_live(self, target: Client, name: str, young: _Young, message: Message) -> bool:
        publication, stamp = message
        broker = stamp.flow.broker
        size = HELD_MESSAGE_BYTES + len(publication.topic) + len(publication.payload)
        waits = broker not in young.seam.answered
        if waits and not self._has_room(target, young, size):
            for other in (*young.seam.held, broker):
                self._give_up(target, name, young, other)
            waits = False
        goes_on = young.seam.take(stamp.flow, stamp.number, message, size)
        if waits:
            young.held_since_us.setdefault(broker, now_us())
            self._wind()
        return goes_on

    def _has_room(self, target: Client, young: _Young, size: int) -> bool:
        if young.seam.bytes + size > HELD_BYTES or target.account.take(Kind.OUTBOUND, size) is not None:
            return False
        young.taken += size
        return True

    def _give_up(self, target: Client, name: str, young: _Young, broker: str) -> None:
        """What is held goes on without what was before it."""
        self.given_up += 1
        topics = {flow.topic for flow, _, _ in young.seam.held.get(broker, ())}
        self._release(target, name, young, broker, young.seam.give_up(broker))
        for topic in topics:
            self._cut(target, topic, 0)

    def _release(self, target: Client, name: str, young: _Young, broker: str, held: list[Message]) -> None:
        young.held_since_us.pop(broker, None)
        if not young.seam.bytes:
            target.account.give(Kind.OUTBOUND, young.taken)
            young.taken = 0
        for message in held:
            self._give(target, name, message)

    # ── words ───────────────────────────────────────────────────────────────────────────────────────────────

    def hear(self, word: Recall | Recalled) -> None:
        """Another broker asks or answers."""
        if isinstance(word, Recall):
            if word.broker != self._broker and self._broker not in word.answered:
                self._answer(word)
            return
        target, name = self._asks.get(word.ask, (None, ""))
        if target is not None:
            self._take(target, name, self._young[target][name], word)

    def _answer(self, asked: Recall) -> None:
        rows: list[Past] = []
        size = 0
        for row in self._rings.recall(asked.filter, asked.request):
            weight = sum(map(len, row.messages)) + 200 * len(row.ends)
            if rows and size + weight > PIECE_BYTES:
                self._say(asked.broker, Recalled(self._broker, asked.ask, tuple(rows), False))
                rows, size = [], 0
            rows.append(row)
            size += weight
        self._say(asked.broker, Recalled(self._broker, asked.ask, tuple(rows), True))

    def _take(self, target: Client, name: str, young: _Young, word: Recalled) -> None:
        seam = young.seam
        if word.broker in seam.answered:
            return
        for row in word.rows:
            messages = [each for data in row.messages if (each := _decoded(data)) is not None]
            seam.part(word.broker, [(stamp.flow, (said, stamp)) for said, stamp in messages], dict(row.ends))
            if row.missing and row.ends:
                self._cut(target, row.ends[0][0].topic, row.missing)
        if not word.last:
            return
        found = seam.close(word.broker)
        if found is None:
            self._say(word.broker, self._question(young))
            return
        history, held = found
        for message in sorted(history, key=lambda each: each[1].sent_us):
            self._give_past(target, name, message)
        self._release(target, name, young, word.broker, held)

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    def _wind(self) -> None:
        if self._young:
            self._alarm.set_in(LOOK_S)

    def _due(self) -> None:
        now = now_us()
        for target, name in tuple(self._asks.values()):
            young = self._young.get(target, {}).get(name)
            if young is None or young.asked_us is None:
                continue
            for broker, since_us in tuple(young.held_since_us.items()):
                if now - since_us >= PATIENCE_S * 1e6:
                    self._give_up(target, name, young, broker)
                else:
                    self._say(broker, self._question(young))
            if not young.again and now - young.asked_us >= AGAIN_S * 1e6:
                young.again = True
                self._say("", self._question(young))
            if now >= young.until_us and not young.held_since_us:
                self.unsubscribed(target, name)
        self._wind()

    def close(self) -> None:
        self._alarm.close()


def _decoded(data: bytes) -> tuple[Publication, Stamp] | None:
    try:
        publication = decode_publication(data)
    except Malformed as error:
        structlog.get_logger().warning("a message of history is unreadable", problem=str(error))
        return None
    stamp = stamp_of(publication.user_properties, publication.topic)
    if stamp is None:
        return None
    return replace(publication, user_properties=tuple(without_stamp(publication.user_properties))), stamp

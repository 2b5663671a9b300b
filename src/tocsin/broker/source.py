"""One client's messages on their way in: the shell of ``core.gate``.

A message at QoS 0 goes to the exchange, one above it to the log, and what is published to ``$meta/…`` to the
coordinator; each when it is its turn. A message of a stream that is known, while nothing waits, does not come here: the
connection finds its topic in ``gate.ready``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import structlog
from mqtt5 import PublishPacket

from tocsin.broker.attendant import Attendant
from tocsin.broker.durability import Durability
from tocsin.broker.exchange import Exchange, Subscriber
from tocsin.broker.retaining import Waiting
from tocsin.broker.sources import Sources, will_id
from tocsin.core.budget import OVERHEAD_BYTES as COST_BYTES
from tocsin.core.budget import Account, Kind
from tocsin.core.description import DescriptionInvalid, read_payload, read_properties
from tocsin.core.gate import Action, Declare, Gate
from tocsin.core.machine import Event
from tocsin.core.retain_line import Place
from tocsin.core.session import CommitFailed, Committed
from tocsin.core.waiting_wills import Told
from tocsin.errors import Refused, StoreFull, TocsinError
from tocsin.model.publication import Publication
from tocsin.model.stream import Diff, Metadata
from tocsin.model.subjects import fits
from tocsin.wire.codec import PublishRun
from tocsin.wire.replication import Bequest
from tocsin.wire.topics import META_PREFIX

UNSPECIFIED: Final = 0x80
TOPIC_NAME_INVALID: Final = 0x90
PACKET_TOO_LARGE: Final = 0x95
QUOTA_EXCEEDED: Final = 0x97
PAIR_BYTES: Final = 170  # of a user property, beside its characters: a tuple and two texts
OVERHEAD_BYTES: Final = 200  # of a message that waits, beside its payload


def _code_of(error: TocsinError) -> int:
    """Why a message was not stored. Of one that is too large for the store that will be so as often as it is sent."""
    if isinstance(error, Refused):
        return PACKET_TOO_LARGE
    return QUOTA_EXCEEDED if isinstance(error, StoreFull) else UNSPECIFIED


def held_bytes(topic: str, packet: PublishPacket) -> int:
    """What a message costs that waits."""
    size = COST_BYTES + len(topic) + len(packet.payload)
    if packet.user_properties:
        size += sum(PAIR_BYTES + len(name) + len(value) for name, value in packet.user_properties)
    return size


class Publisher(Subscriber, Protocol):
    """The connection, as it is seen from here."""

    @property
    def epoch(self) -> int: ...

    @property
    def expiry_s(self) -> int: ...

    @property
    def prefix(self) -> str:
        """Of the record ids of its messages."""
        ...

    @property
    def user(self) -> str:
        """The name that was proven; empty if none was."""
        ...

    def tell(self, event: Event) -> None:
        """Hand an outcome to the session, if it is still there to hear it."""
        ...

    def wait(self, waits: bool) -> None:
        """Read no more from the client for now, or go on."""
        ...

    @property
    def account(self) -> Account:
        """Of the bytes that the client makes the broker hold."""
        ...

    def spend(self, kind: Kind, size: int) -> bool:
        """Count bytes that the client made us hold; False if it has to go for it."""
        ...


Act = Callable[[], None]


class Source:
    """See the module's text."""

    __slots__ = (
        "_acting",
        "_actions",
        "_connection",
        "_described",
        "_durability",
        "_ended",
        "_exchange",
        "_full",
        "_known",
        "_saving",
        "_sources",
        "gate",
    )

    def __init__(self, connection: Publisher, exchange: Exchange, *, resumed: bool = False) -> None:
        self._connection = connection
        self._exchange = exchange
        self._durability: Durability = exchange.durability
        self._sources: Sources = exchange.sources
        self.gate: Gate[Act] = Gate(self._sources.streams_max, self._sources.ticket)
        self._actions: deque[Action[Act]] = deque()
        self._acting = False
        self._described: set[int] = set()  # hashes of topics that it only says something of
        self._full = False  # the connection was asked to wait
        self._known = resumed and self._sources.room  # the coordinator knows of the client
        # QoS 2 messages whose ids are being stored → the place of one that is to be retained, and its bytes
        self._saving: dict[int, tuple[Place[Waiting] | None, int]] = {}
        self._ended = False
        if self._known:
            self._sources.back(connection)

    def __len__(self) -> int:
        """How many messages wait."""
        return len(self.gate)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, topic: str, packet: PublishPacket) -> None:
        """A message at QoS 0."""
        if topic.startswith(META_PREFIX):
            self._describe(topic, packet, self._refused)
            return
        try:
            diff = read_properties(packet.user_properties)
        except DescriptionInvalid as error:
            self._refused(error.reason_code, error.problem)
            return
        if problem := self._sources.too_large(topic, diff):
            self._refused(QUOTA_EXCEEDED, problem)
            return
        if topic in self.gate.ready and diff is None:
            self.forward(topic, packet)
            return
        size = held_bytes(topic, packet)
        if not self._connection.spend(Kind.HELD, size):
            return
        go = partial(self._forward_held, topic, packet, size)
        if not self._enter(go, topic, diff, len(packet.payload), commits=False):
            self._connection.account.give(Kind.HELD, size)
            self._refused(QUOTA_EXCEEDED, f"{topic} is one stream too many to be described")

    def publish_run(self, run: PublishRun) -> None:
        """Messages at QoS 0 on one topic."""
        if run.topic.startswith(META_PREFIX):
            for packet in run.packets():
                self.publish(run.topic, packet)
            return
        size = len(run.frames) + COST_BYTES
        if self._connection.spend(Kind.HELD, size):
            go = partial(self._forward_run_held, run, size)
            self._enter(go, run.topic, None, len(run.frames), commits=False)

    def bequeath(self, topic: str, packet: PublishPacket) -> None:
        """The client's will. It is its last message, and makes no stream."""

        def in_turn(will: Bequest, told: Told) -> None:
            def go() -> None:
                if int(packet.qos):
                    self._durability.publish(will, told)
                else:
                    self.forward(topic, packet)
                    told()

            self._do(self.gate.take(go, topic=None, size=len(packet.payload), commits=False))

        self._durability.wills.give_out(self._connection.client_id, self.will(packet), in_turn)

    def commit(self, packet: PublishPacket, topic: str, packet_id: int, qos: int) -> None:
        """A message at QoS 1 or 2: make it durable, and tell the session."""
        reject = partial(self._reject, packet_id)
        if topic.startswith(META_PREFIX):
            self._describe(topic, packet, reject, lambda: self._said(packet_id, qos))
            return
        self._exchange.counts.committed += 1
        if not fits(topic):
            self._fail(packet_id, TOPIC_NAME_INVALID, "the topic is too long to be stored")
            return
        try:
            diff = read_properties(packet.user_properties)
        except DescriptionInvalid as error:
            reject(error.reason_code, error.problem)
            return
        if problem := self._sources.too_large(topic, diff):
            reject(QUOTA_EXCEEDED, problem)
            return
        size = 2 * held_bytes(topic, packet)  # as a packet, and as a record
        if not self._connection.spend(Kind.COMMITS, size):
            return
        go = partial(self._append, packet, topic, packet_id, qos, size)
        if topic in self.gate.ready and diff is None:
            self.gate.sent()
            go()
        elif not self._enter(go, topic, diff, len(packet.payload), commits=True):
            self._connection.account.give(Kind.COMMITS, size)
            reject(QUOTA_EXCEEDED, f"{topic} is one stream too many to be described")

    def _enter(self, go: Act, topic: str, diff: Diff | None, size: int, *, commits: bool) -> bool:
        """Have something done in turn; False, and it is not, if it describes a stream that cannot be one more."""
        stream: str | None = topic
        if topic not in self.gate.topics:
            if self.gate.room and self._sources.room:
                self._known = True
                self._described.discard(hash(topic))
                self._sources.publishes(topic, self, self._connection.attendant.streams.get(topic))
            elif diff is not None:
                return False
            else:
                self._sources.unregistered += 1
                stream = None
        size += OVERHEAD_BYTES
        self._do(self.gate.take(go, topic=stream, diff=diff, size=size, commits=commits))
        return True

    def _forward_held(self, topic: str, packet: PublishPacket, size: int) -> None:
        self._connection.account.give(Kind.HELD, size)
        self.forward(topic, packet)

    def _forward_run_held(self, run: PublishRun, size: int) -> None:
        self._connection.account.give(Kind.HELD, size)
        self._exchange.publish_run(self._connection, run)

    def forward(self, topic: str, packet: PublishPacket) -> None:
        """Pass a message at QoS 0 on, now."""
        connection = self._connection
        if packet.topic_alias is not None:  # it may have come without its topic
            packet = Publication.of(packet, topic, connection.client_id).packet(retain=packet.retain)
        self._exchange.publish(connection, topic, packet)
        if packet.retain:
            retaining, kept = self._durability.retaining, Publication.of(packet, topic, connection.client_id)
            retaining.keep_if_room(kept, connection.user)

    def publication(self, topic: str, packet: PublishPacket) -> Publication:
        """A message as it is kept, with what is said of its stream."""
        sources = self._sources
        return Publication.of(
            packet,
            topic,
            self._connection.client_id,
            broker=sources.broker,
            cluster=sources.cluster,
            keys=sources.keys(topic),
        )

    def will(self, packet: PublishPacket) -> Bequest:
        """The client's will as it is kept."""
        attendant, record_id = self._connection.attendant, will_id(self._connection.prefix)
        publication = self.publication(packet.topic, packet)
        session, epoch = attendant.session, attendant.session_epoch
        return Bequest(publication, 0, record_id, session, epoch, self._connection.user)

    # ── the log ─────────────────────────────────────────────────────────────────────────────────────────────

    def _append(self, packet: PublishPacket, topic: str, packet_id: int, qos: int, size: int) -> None:
        attendant = self._connection.attendant
        if qos == 2 and self._ended:  # its id cannot be stored any more; the client sends it again
            self._connection.account.give(Kind.COMMITS, size)
            self._do(self.gate.settled())
            return
        publication, retaining = self.publication(topic, packet), self._durability.retaining
        user = self._connection.user if publication.retain else ""
        problem: str | None = None
        if qos == 2 and not attendant.has_room(packet_id, topic):
            problem = "too many QoS 2 messages wait for their PUBREL; release some first"
        elif publication.retain:
            problem = retaining.refusal(publication, user)
        if problem is not None:
            self._connection.account.give(Kind.COMMITS, size)
            self._do(self.gate.settled())
            self._fail(packet_id, QUOTA_EXCEEDED, problem)
            return
        record_id = attendant.record_id(packet_id, qos, topic)
        place = retaining.expect(topic, publication, user) if publication.retain else None
        commit = partial(self._commit, publication, packet_id, qos, record_id, place, size)
        if qos == 1:
            commit()
        else:  # its repeat must be known as one, so that its id is stored before it is used
            self._saving[packet_id] = (place, size)
            attendant.when_durable(commit)

    def _commit(
        self,
        publication: Publication,
        packet_id: int,
        qos: int,
        record_id: str,
        place: Place[Waiting] | None,
        size: int,
    ) -> None:
        if qos == 2:
            if self._ended:
                return
            del self._saving[packet_id]
        kept = publication if place is not None else None  # else the record is enough
        stored = partial(self._stored, kept, packet_id, qos, self._connection.attendant, place, size)
        behind = self._connection.attendant.behind(packet_id) if qos == 2 else None
        self._durability.journal.commit(publication, record_id, stored, behind)

    def _stored(
        self,
        publication: Publication | None,
        packet_id: int,
        qos: int,
        attendant: Attendant,
        place: Place[Waiting] | None,
        size: int,
        error: TocsinError | None,
        position: int,
    ) -> None:
        self._do(self.gate.settled())

        def done(error: TocsinError | None) -> None:
            self._connection.account.give(Kind.COMMITS, size)
            if error is None:
                if qos == 2:
                    attendant.kept(packet_id)
                self._connection.tell(Committed(packet_id=packet_id))
                return
            code = _code_of(error)
            if qos == 2:  # its id must not stand for the next message on this packet id
                attendant.release(packet_id, partial(self._fail, packet_id, code, str(error)))
            else:
                self._fail(packet_id, code, str(error))

        retaining = self._durability.retaining
        if place is None or publication is None:
            done(error)
        elif error is None:
            retaining.keep(publication, done, position=position, place=place)
        else:
            retaining.withdraw(place)
            done(error)

    def _fail(self, packet_id: int, code: int, reason: str) -> None:
        self._connection.tell(CommitFailed(packet_id=packet_id, reason_code=code, reason=reason))

    # ── what is said of streams ─────────────────────────────────────────────────────────────────────────────

    def _describe(
        self,
        topic: str,
        packet: PublishPacket,
        refuse: Callable[[int, str], None],
        done: Act = lambda: None,
    ) -> None:
        try:
            diff = read_payload(packet.payload)
        except DescriptionInvalid as error:
            refuse(error.reason_code, error.problem)
            return
        described = topic.removeprefix(META_PREFIX)
        if problem := self._sources.too_large(described, diff):
            refuse(QUOTA_EXCEEDED, problem)
            return
        if not self._may_describe(described, diff):
            refuse(QUOTA_EXCEEDED, f"a client may describe {self._sources.streams_max} streams")
            return
        if not self._sources.room:
            refuse(QUOTA_EXCEEDED, "no coordinator answers, and too much waits for one already")
            return

        def settled(problem: str | None) -> None:
            if problem is None:
                done()
            else:
                refuse(QUOTA_EXCEEDED, problem)

        self._do(self.gate.describe(described, diff, settled))

    def _may_describe(self, topic: str, diff: Diff | None) -> bool:
        """Whether the client may say something of one stream more than it has; it may always take everything away."""
        if topic in self.gate.topics or not diff:
            return True
        if hash(topic) not in self._described:
            if len(self.gate.topics) + len(self._described) >= self._sources.streams_max:
                return False
            self._described.add(hash(topic))
        return True

    def _said(self, packet_id: int, qos: int) -> None:
        """What a message above QoS 0 said of a stream is durable."""
        if qos == 2:
            attendant = self._connection.attendant
            attendant.record_id(packet_id, qos, "")
            attendant.kept(packet_id)
        self._connection.tell(Committed(packet_id=packet_id))

    def _refused(self, code: int, problem: str) -> None:
        """What was said cannot be taken; at QoS 0, and in 3.1.1, there is no way to tell the client."""
        self._sources.refused += 1
        client = self._connection.client_id
        structlog.get_logger().info("a description was refused", publisher=client, problem=problem)

    def _reject(self, packet_id: int, code: int, problem: str) -> None:
        self._refused(code, problem)
        self._fail(packet_id, code, problem)

    # ── turns ───────────────────────────────────────────────────────────────────────────────────────────────

    def clear(self, ticket: int) -> None:
        self._do(self.gate.clear(ticket))

    def learned(self, topic: str, keys: Metadata) -> None:
        self._connection.attendant.said(topic, keys)

    def end(self, expiry_s: int) -> None:
        """The connection is over; its session is kept for so long. What waits still goes."""
        self._ended = True
        for place, size in self._saving.values():
            self._connection.account.give(Kind.COMMITS, size)
            if place is not None:
                self._durability.retaining.withdraw(place)
            self._do(self.gate.settled())
        self._do(self.gate.end(partial(self._leave, expiry_s)))

    def _leave(self, expiry_s: int) -> None:
        if self._known:
            self._sources.ended(self._connection, self, self.gate.topics, expiry_s)

    def _do(self, actions: list[Action[Act]]) -> None:
        """Carry out what the gate says, in order, also what it says meanwhile."""
        self._actions.extend(actions)
        if not self._acting:
            self._acting = True
            try:
                while self._actions:
                    action = self._actions.popleft()
                    if isinstance(action, Declare):
                        self._sources.declare(self._connection, self, action)
                    else:
                        for go in action.items:
                            go()
            finally:
                self._acting = False
        if self.gate.full != self._full:
            self._full = self.gate.full
            self._connection.wait(self._full)

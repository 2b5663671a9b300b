"""One client's messages on their way in: the shell of ``core.streams.machine``.

The machine decides when something goes on; this carries it out. A message at QoS 0 goes to the exchange, one above it
to the log, what is published to ``$meta/…`` to the coordinator, and a question for results (``$results/…``) to
``channels.pulls``. A message of a stream that is known, while nothing waits, makes no event: its topic is in
``gate.ready``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from mqtt5 import PublishPacket

from tocsin.broker.client import ClientConnection
from tocsin.broker.delivery.client_delivery import DurableDelivery
from tocsin.broker.delivery.durable import Durable
from tocsin.broker.delivery.wills import Told
from tocsin.broker.forwarding.exchange import Exchange
from tocsin.broker.quality.flows import unstamped
from tocsin.broker.retained.writer import Waiting
from tocsin.broker.streams.registry import will_id
from tocsin.core.budgets.budget import OVERHEAD_BYTES as COST_BYTES
from tocsin.core.budgets.budget import Kind, weight_of
from tocsin.core.machine import Effect
from tocsin.core.quality.judging import OFFER, lifespan_s, offer_in, offered_by_message
from tocsin.core.quality.texts import with_strength
from tocsin.core.retained.write_order import WriteTurn
from tocsin.core.session.bridging import BRIDGES_MAX, is_state_topic
from tocsin.core.session.signals import CommitFailed, Committed
from tocsin.core.streams.metadata_payload import DescriptionInvalid
from tocsin.core.streams.signals import (
    Cleared,
    ClientLeft,
    CountUnregistered,
    DeclareStream,
    HoldClient,
    MessageSettled,
    MessageTaken,
    MetadataTaken,
    PassOn,
    RefuseItem,
    Register,
    SessionResumed,
    TellBack,
    TellGone,
    WillTaken,
)
from tocsin.errors import Refused, StoreFull, TocsinError
from tocsin.model.publication import Publication
from tocsin.model.subjects import fits
from tocsin.runtime.machines.shell import Shell
from tocsin.wire.internal.replication import Bequest
from tocsin.wire.mqtt.codec import PublishRun
from tocsin.wire.mqtt.topics import ASSERT_PREFIX, META_PREFIX, RESULTS_PREFIX

UNSPECIFIED: Final = 0x80
TOPIC_NAME_INVALID: Final = 0x90
PACKET_TOO_LARGE: Final = 0x95
QUOTA_EXCEEDED: Final = 0x97

Act = Callable[[], None]
Refuse = Callable[[int, str], None]  # told the reason code, and why


def _code_of(error: TocsinError) -> int:
    """Why a message was not stored. One that is too large for the store will be so as often as it is sent."""
    if isinstance(error, Refused):
        return PACKET_TOO_LARGE
    return QUOTA_EXCEEDED if isinstance(error, StoreFull) else UNSPECIFIED


def held_bytes(topic: str, packet: PublishPacket) -> int:
    """The bytes of a waiting message."""
    return COST_BYTES + weight_of(packet, topic)


class _Item:
    """Something that the machine keeps until it is its turn."""

    __slots__ = ("go", "refuse")

    def __init__(self, go: Act, refuse: Refuse) -> None:
        self.go = go  # it goes on; of metadata: it is in force
        self.refuse = refuse

    def settled(self, problem: str | None) -> None:
        """The coordinator has taken metadata, or not."""
        if problem is None:
            self.go()
        else:
            self.refuse(QUOTA_EXCEEDED, problem)


class _Commit:
    """A message above QoS 0 on its way to the log."""

    __slots__ = ("delivery", "kept", "packet_id", "qos", "size", "turn")

    def __init__(self, packet_id: int, qos: int, size: int) -> None:
        self.packet_id = packet_id
        self.qos = qos
        self.size = size  # bytes that the budget knows of
        self.delivery: DurableDelivery | None = None  # that gave its record id
        # For a message to be retained: its turn, and itself. For the others the record is enough.
        self.turn: WriteTurn[Waiting] | None = None
        self.kept: Publication | None = None


class ClientPublisher:
    """Carries out what one client publishes, as its machine decides."""

    __slots__ = (
        "_attended",
        "_bequeaths",
        "_bridges",
        "_client",
        "_durable",
        "_ended",
        "_exchange",
        "_expiry_s",
        "_gate",
        "_machine",
        "_post",
        "_registry",
        "_saving",
        "_shell",
        "_stamped",
    )

    def __init__(
        self, client: ClientConnection, exchange: Exchange, durable: Durable, *, resumed: bool = False
    ) -> None:
        self._client = client
        self._exchange = exchange
        self._durable = durable
        self._registry = exchange.registry
        self._attended = exchange.requests.attended  # topics on which somebody here publishes under a promise
        self._stamped = exchange.requests.flows.topics  # topics on which somebody here has a flow
        self._machine = self._registry.client_streams()
        self._gate = self._machine.gate
        self._shell = Shell(self._machine, self._carry_out, self._failed)
        self._post = self._shell.post
        self._saving: dict[int, _Commit] = {}  # QoS 2 messages whose ids are being stored, by packet id
        self._ended = False
        self._bridges = False  # it has said that it is a bridge
        self._bequeaths = False  # the client's will is to come, whenever it is its turn
        self._expiry_s = 0  # how long the session is kept, once the connection is over
        if resumed:
            self._post(SessionResumed())

    def __len__(self) -> int:
        """How many messages wait."""
        return len(self._machine)

    # ── messages at QoS 0 ───────────────────────────────────────────────────────────────────────────────────

    def publish(self, topic: str, packet: PublishPacket) -> None:
        """A message at QoS 0. The hot path ends here: its stream is known, and nothing waits."""
        if self._attended and topic in self._attended:
            self._exchange.requests.keep(self._client, topic)
        ready = topic in self._gate.ready
        if ready and not packet.user_properties:
            self.forward(topic, packet)
            return
        if topic.startswith("$"):
            self._take_words(topic, packet, _Item(_nothing, self._refused))
            return
        try:
            diff = self._machine.read(topic, packet.user_properties)
        except DescriptionInvalid as error:
            self._refused(error.reason_code, error.problem)
            return
        if packet.user_properties:
            packet = self._heed(topic, packet)
        if ready and diff is None:
            self.forward(topic, packet)
            return
        size = held_bytes(topic, packet)
        if self._client.spend(Kind.HELD, size):
            item = _Item(partial(self._forward_held, topic, packet, size), partial(self._refuse_held, size))
            taken = len(packet.payload)
            self._post(MessageTaken(item=item, topic=topic, diff=diff, size=taken, commits=False))

    def publish_run(self, run: PublishRun) -> None:
        """Messages at QoS 0 on one topic, which say nothing of their stream. The hot path ends here, too."""
        if self._attended and run.topic in self._attended:
            self._exchange.requests.keep(self._client, run.topic)
        stamped = self._stamped and run.topic in self._stamped
        if run.topic in self._gate.ready and not stamped:
            self._exchange.publish_run(self._client, run)
            return
        if stamped or run.topic.startswith("$"):
            for packet in run.packets():
                self.publish(run.topic, packet)
            return
        size = len(run.frames) + COST_BYTES
        if self._client.spend(Kind.HELD, size):
            item = _Item(partial(self._forward_run_held, run, size), partial(self._refuse_held, size))
            self._post(MessageTaken(item=item, topic=run.topic, size=len(run.frames), commits=False))

    def forward(self, topic: str, packet: PublishPacket) -> None:
        """Pass a message at QoS 0 on, now."""
        client = self._client
        if packet.topic_alias is not None:  # it may have come without its topic
            packet = Publication.of(packet, topic, client.client_id).packet(retain=packet.retain)
        if self._stamped and topic in self._stamped and not packet.retain:
            stamp = self._exchange.requests.flows.stamp(client, topic)
            if stamp is not None:
                self._exchange.publish_stamped(client, packet, stamp)
                return
        self._exchange.publish(client, topic, packet)
        if packet.retain:
            kept = Publication.of(packet, topic, client.client_id)
            self._durable.retained_writer.keep_if_room(kept, client.user)

    def _heed(self, topic: str, packet: PublishPacket) -> PublishPacket:
        """A message that says something beside its payload: how strong its publisher is. It cannot say a stamp."""
        self._exchange.requests.flows.stated(self._client, topic, packet.user_properties)
        return unstamped(packet, topic)[0]

    def _forward_held(self, topic: str, packet: PublishPacket, size: int) -> None:
        self._client.account.give(Kind.HELD, size)
        self.forward(topic, packet)

    def _forward_run_held(self, run: PublishRun, size: int) -> None:
        self._client.account.give(Kind.HELD, size)
        self._exchange.publish_run(self._client, run)

    def _refuse_held(self, size: int, code: int, problem: str) -> None:
        self._client.account.give(Kind.HELD, size)
        self._refused(code, problem)

    # ── wills ───────────────────────────────────────────────────────────────────────────────────────────────

    def bequeath(self, topic: str, packet: PublishPacket) -> None:
        """The client's will. It is its last message, and makes no stream."""
        self._bequeaths = True

        def in_turn(will: Bequest, told: Told) -> None:
            def go() -> None:
                if int(packet.qos):
                    self._durable.will_publisher.publish(will, told)
                else:
                    self.forward(topic, packet)
                    told()

            self._post(WillTaken(item=_Item(go, self._refused), size=len(packet.payload)))

        self._durable.wills.give_out(self._client.client_id, self.will(packet), in_turn)

    def will(self, packet: PublishPacket) -> Bequest:
        """The client's will as it is kept."""
        delivery, record_id = self._client.delivery, will_id(self._client.prefix)
        publication = self.publication(packet.topic, packet)
        session, epoch = delivery.session, delivery.session_epoch
        return Bequest(publication, 0, record_id, session, epoch, self._client.user)

    def publication(self, topic: str, packet: PublishPacket) -> Publication:
        """A message as it is stored, with its stream's metadata."""
        registry = self._registry
        keys = registry.metadata.of(topic)
        if (
            keys
            and OFFER in keys
            and (strength := self._exchange.requests.flows.strength(self._client, topic))
        ):
            keys = {**keys, OFFER: with_strength(offer_in(keys), strength)}
        made = Publication.of(
            packet,
            topic,
            self._client.client_id,
            broker=registry.broker,
            cluster=registry.cluster,
            keys=keys,
        )
        if made.expiry_s is None and made.user_properties and (offered := offered_by_message(made)):
            # Never by what others say of the stream: they could make its acknowledged messages disappear.
            return msgspec.structs.replace(made, expiry_s=lifespan_s(offered))
        return made

    # ── messages above QoS 0 ────────────────────────────────────────────────────────────────────────────────

    def commit(self, packet: PublishPacket, topic: str, packet_id: int, qos: int) -> None:
        """A message at QoS 1 or 2: make it durable, and tell the session."""
        if topic.startswith("$"):
            said, reject = partial(self._said, packet_id, qos), partial(self._reject, packet_id)
            self._take_words(topic, packet, _Item(said, reject))
            return
        if self._attended and topic in self._attended:
            self._exchange.requests.keep(self._client, topic)
        self._exchange.counts.committed += 1
        if not fits(topic):
            self._fail(packet_id, TOPIC_NAME_INVALID, "the topic is too long to be stored")
            return
        try:
            diff = self._machine.read(topic, packet.user_properties) if packet.user_properties else None
        except DescriptionInvalid as error:
            self._reject(packet_id, error.reason_code, error.problem)
            return
        if packet.user_properties:
            self._exchange.requests.flows.stated(self._client, topic, packet.user_properties)
        size = 2 * held_bytes(topic, packet)  # as a packet, and as a record
        if not self._client.spend(Kind.COMMITS, size):
            return
        commit = _Commit(packet_id, qos, size)
        if diff is None and topic in self._gate.ready:
            self._gate.sent()
            self._append(packet, topic, commit)
        else:
            item = _Item(partial(self._append, packet, topic, commit), partial(self._refuse_commit, commit))
            taken = len(packet.payload)
            self._post(MessageTaken(item=item, topic=topic, diff=diff, size=taken, commits=True))

    def _append(self, packet: PublishPacket, topic: str, commit: _Commit) -> None:
        """It is its turn: give it an id, and have it appended to the log."""
        packet_id, qos = commit.packet_id, commit.qos
        if qos == 2 and self._ended:  # its id cannot be stored any more; the client sends it again
            self._settle(commit)
            return
        delivery, retained_writer = self._client.delivery, self._durable.retained_writer
        publication = self.publication(topic, packet)
        user = self._client.user if publication.retain else ""
        problem: str | None = None
        if qos == 2 and not delivery.has_room(packet_id, topic):
            problem = "too many QoS 2 messages wait for their PUBREL; release some first"
        elif publication.retain:
            problem = retained_writer.refusal(publication, user)
        if problem is not None:
            self._settle(commit)
            self._fail(packet_id, QUOTA_EXCEEDED, problem)
            return
        record_id = delivery.record_id(packet_id, qos, topic)
        if publication.retain:
            commit.turn, commit.kept = retained_writer.expect(topic, publication, user), publication
        if qos == 1:
            self._write(publication, record_id, commit)
        else:  # its repeat must be known as one, so that its id is stored before it is used
            self._saving[packet_id] = commit
            delivery.when_durable(partial(self._write, publication, record_id, commit))

    def _settle(self, commit: _Commit) -> None:
        """It does not go to the log."""
        self._client.account.give(Kind.COMMITS, commit.size)
        self._settled()

    def _settled(self) -> None:
        """One of those that went to the log is there, or cannot be; where nothing waits for that, it is no event."""
        if len(self._gate):
            self._post(MessageSettled())
        else:
            self._gate.settled()

    def _write(self, publication: Publication, record_id: str, commit: _Commit) -> None:
        delivery, behind = self._client.delivery, None
        if commit.qos == 2:
            if self._ended:
                return
            del self._saving[commit.packet_id]
            behind = delivery.behind(commit.packet_id)
        commit.delivery = delivery
        self._durable.message_log.commit(publication, record_id, partial(self._stored, commit), behind)

    def _stored(self, commit: _Commit, error: TocsinError | None, position: int) -> None:
        """The log has it, or cannot have it."""
        self._settled()
        done, retained_writer = partial(self._done, commit), self._durable.retained_writer
        if commit.turn is None or commit.kept is None:
            done(error)
        elif error is None:
            retained_writer.keep(commit.kept, done, position=position, place=commit.turn)
        else:
            retained_writer.withdraw(commit.turn)
            done(error)

    def _done(self, commit: _Commit, error: TocsinError | None) -> None:
        """It is in the log, and retained if it is to be; or not."""
        self._client.account.give(Kind.COMMITS, commit.size)
        packet_id, delivery = commit.packet_id, commit.delivery
        assert delivery is not None, "it went to the log"
        if error is None:
            if commit.qos == 2:
                delivery.kept(packet_id)
            self._client.tell(Committed(packet_id=packet_id))
            return
        fail = partial(self._fail, packet_id, _code_of(error), str(error))
        if commit.qos == 2:  # its id must not stand for the next message on this packet id
            delivery.release(packet_id, fail)
        else:
            fail()

    def _fail(self, packet_id: int, code: int, reason: str) -> None:
        self._client.tell(CommitFailed(packet_id=packet_id, reason_code=code, reason=reason))

    def _refuse_commit(self, commit: _Commit, code: int, problem: str) -> None:
        self._client.account.give(Kind.COMMITS, commit.size)
        self._reject(commit.packet_id, code, problem)

    # ── words for the broker ────────────────────────────────────────────────────────────────────────────────

    def _take_words(self, topic: str, packet: PublishPacket, item: _Item) -> None:
        """Metadata of a stream, a question for results, an assertion, or a bridge's state: of topics that begin with
        ``$``, the session lets no others pass."""
        if topic.startswith(RESULTS_PREFIX):
            self._durable.pulls.ask(self._client, topic, packet, item.go, item.refuse)
        elif topic.startswith(ASSERT_PREFIX):
            self._exchange.requests.keep_alive(self._client, topic.removeprefix(ASSERT_PREFIX))
            item.go()
        elif is_state_topic(topic):
            self._take_state(packet.payload, item)
        else:
            self._describe(topic, packet, item)

    def _take_state(self, payload: bytes, item: _Item) -> None:
        self._bridges = True
        if self._exchange.bridge_said(self._client.client_id, payload):
            item.go()
        else:
            item.refuse(QUOTA_EXCEEDED, f"a bridge says 1 or 0; at most {BRIDGES_MAX} do at one broker")

    def _describe(self, topic: str, packet: PublishPacket, item: _Item) -> None:
        described = topic.removeprefix(META_PREFIX)
        try:
            diff = self._machine.read_metadata(described, packet.payload)
        except DescriptionInvalid as error:
            item.refuse(error.reason_code, error.problem)
        else:
            self._post(MetadataTaken(item=item, topic=described, diff=diff))

    def _said(self, packet_id: int, qos: int) -> None:
        """The metadata of a message above QoS 0 are durable."""
        if qos == 2:
            delivery = self._client.delivery
            delivery.record_id(packet_id, qos, "")
            delivery.kept(packet_id)
        self._client.tell(Committed(packet_id=packet_id))

    def _refused(self, code: int, problem: str) -> None:
        """Metadata or a question cannot be taken; at QoS 0, and in 3.1.1, there is no way to tell the client."""
        client = self._client.client_id
        self._registry.note_refused("words for the broker were refused", publisher=client, problem=problem)

    def _reject(self, packet_id: int, code: int, problem: str) -> None:
        self._refused(code, problem)
        self._fail(packet_id, code, problem)

    # ── the machine ─────────────────────────────────────────────────────────────────────────────────────────

    def clear(self, ticket: int) -> None:
        """Everybody concerned knows what was declared up to this ticket."""
        try:
            self._post(Cleared(ticket=ticket))
        except (
            Exception
        ):  # it was reported here; the caller that brings the coordinator's answer must not fail for it
            self._client.sever()

    def end(self, expiry_s: int) -> None:
        """The connection is over; its session is kept for so long. Waiting messages still go."""
        self._ended, self._expiry_s = True, expiry_s
        if self._bridges:
            self._exchange.bridge_went(self._client.client_id)
        for commit in self._saving.values():
            if commit.turn is not None:
                self._durable.retained_writer.withdraw(commit.turn)
            self._settle(commit)
        self._post(ClientLeft())
        if not (self._bequeaths or len(self._gate)):
            self._shell.let_go()

    def _carry_out(self, effect: Effect) -> None:
        registry, client = self._registry, self._client
        match effect:
            case PassOn(items=items):
                for item in items:
                    item.go()
            case RefuseItem(item=item, reason_code=code, problem=problem):
                item.refuse(code, problem)
            case Register(topic=topic):
                registry.publishes(topic, client)
            case DeclareStream(item=item):
                registry.declare(client, self, effect, None if item is None else item.settled)
            case HoldClient(waits=waits):
                client.wait(waits)
            case CountUnregistered():
                registry.unregistered += 1
            case TellBack():
                registry.back(client)
            case TellGone(topics=topics):
                registry.ended(client, topics, self._expiry_s)
            case _:
                self._shell.carry_out(effect)

    def _failed(self, error: BaseException) -> None:
        """Something that was to go on failed: it costs the connection that the packet was read from."""
        raise error


def _nothing() -> None:
    """Nobody waits for it."""

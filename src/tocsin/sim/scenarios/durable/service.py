"""One client's connection at a broker: the part of the asyncio shells, around the cores that ship."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from mqtt5 import PubAckPacket, PubCompPacket, PubRecPacket

from tocsin.core.attendance import (
    Answered,
    Attendance,
    AwaitSave,
    BatchRead,
    Began,
    Deliver,
    Durable,
    Ended,
    Gone,
    Kept,
    Offered,
    ReadBatch,
    ReadFailed,
    ReleaseAsked,
    Reply,
    Subscribed,
    Usurped,
)
from tocsin.core.delivery import Progress
from tocsin.core.forwarding import Subscription
from tocsin.core.grant import Grant, grant
from tocsin.core.inbound import Inbound
from tocsin.core.machine import (
    DeleteKey,
    Effect,
    Event,
    GetKey,
    PutKey,
    ReadLog,
    Say,
    SetTimer,
    Stored,
    StoreFailed,
)
from tocsin.core.stored_group import Claim
from tocsin.core.stored_session import (
    FOREVER_S,
    StoredSession,
    decode_session,
    encode_session,
    kept_s,
    session_key,
)
from tocsin.errors import Conflict
from tocsin.model.priority import CRITICAL, property_of
from tocsin.model.publication import Publication, decode_publication
from tocsin.model.subjects import all_of, is_critical, kind_of
from tocsin.ports import Entry
from tocsin.sim.scenarios.durable.wire import (
    LOG,
    NETWORK,
    SESSIONS,
    Answer,
    Connack,
    Disconnect,
    Packet,
    Ping,
    Publish,
    Stream,
    Suback,
    Subscribe,
)
from tocsin.wire.topics import matches

if TYPE_CHECKING:
    from tocsin.sim.scenarios.durable.broker import Broker

RECEIVE_MAX = 4  # small, so that subscribers fall behind; a quarter of it is for what is critical
BATCH = 4  # entries of one read: small, so that catching up takes several
HELD_MAX = 100

_ANSWERS: dict[str, type[PubAckPacket] | type[PubRecPacket] | type[PubCompPacket]] = {
    "puback": PubAckPacket,
    "pubrec": PubRecPacket,
    "pubcomp": PubCompPacket,
}


class Service:
    """From CONNECT until all that the connection leaves is stored."""

    attendance: type[Attendance] = Attendance  # so that a variant can be tried

    def __init__(self, broker: Broker, client: str, stream: Stream, name: str) -> None:
        self.client = client
        self.stream = stream
        self.name = name  # never given out before
        self.open = True  # the connection is there
        self.lasting = True  # the session outlives it …
        self.expiry_s = FOREVER_S  # … for so long
        self.heard_us = 0
        self.machine = self.attendance()
        self._broker = broker
        self._inbound = Inbound(None, HELD_MAX)
        self._tickets = 0
        self._waiting: dict[int, Callable[[], None]] = {}
        self._taking: StoredSession | None = None

    # ── taking the session ──────────────────────────────────────────────────────────────────────────────────

    def take(self) -> None:
        """Make the client's session ours, whoever has it."""
        asked = GetKey(request="get", table=SESSIONS.name, key=session_key(self.client))
        self._broker.ask(asked, self._on_cell)

    def _on_cell(self, event: Stored | StoreFailed) -> None:
        if not self.open:
            return
        if isinstance(event, StoreFailed):
            self.close()
            return
        cell = event.value
        before = None if cell is None else decode_session(cell.value)
        if before is None or not before.confirmed:
            session = StoredSession(
                self.client,
                uid=self.name,
                expiry_s=self.expiry_s,
                broker=self._broker.address,
                progress=Progress(self._broker.tail + 1),
                home=self._broker.address,
                epoch=1 if before is None else before.epoch + 1,
                confirmed=False,
            )
        else:
            own = self._broker.address
            session = msgspec.structs.replace(
                before, epoch=before.epoch + 1, broker=own, home=own, expiry_s=self.expiry_s
            )
        self._taking = session
        kept = kept_s(session)
        put = PutKey(
            request="take",
            table=SESSIONS.name,
            key=session_key(self.client),
            value=encode_session(session),
            revision=0 if cell is None else cell.revision,
            ttl_us=None if kept is None else kept * 1_000_000,
        )
        present = before is not None and before.confirmed
        self.claim(
            before if present else None,
            lambda: self._broker.ask(put, lambda event: self._on_taken(event, present)),
        )

    def claim(self, before: StoredSession | None, go: Callable[[], None]) -> None:
        """What has to be so before a session is taken."""
        go()

    def _on_taken(self, event: Stored | StoreFailed, present: bool) -> None:
        if not self.open:
            return
        if isinstance(event, StoreFailed):
            if isinstance(event.error, Conflict):
                self.take()
            else:
                self.close()
            return
        self.taken(event.value, present)

    def taken(self, revision: int, present: bool) -> None:
        """The session is ours."""
        self.welcome(revision, present)

    def welcome(self, revision: int, present: bool, claims: tuple[tuple[str, Claim], ...] = ()) -> None:
        self._send(Connack(present))
        self.begin(revision, claims)

    def begin(self, revision: int, claims: tuple[tuple[str, Claim], ...] = ()) -> None:
        began = Began(
            receive_max=RECEIVE_MAX,
            prefix=self.name,
            session=self._taking,
            revision=revision,
            tail=self._broker.tail,
            critical_tail=self.critical_tail,
            claims=claims,
        )
        uid = "" if self._taking is None else self._taking.uid
        facts = {"client": self.client, "connection": self.stream.connection, "tail": began.tail, "uid": uid}
        self._broker.say(Say(text="attends", facts=facts))
        self.tell(began)
        self._inbound.restore(self.machine.inbound_ids)

    @property
    def critical_tail(self) -> int:
        return self._broker.critical_tail

    # ── packets ─────────────────────────────────────────────────────────────────────────────────────────────

    def on_packet(self, packet: Packet) -> None:
        match packet:
            case Ping():
                self._send(Ping())
            case Disconnect():
                self.close()
            case _ if self.machine.state != "attending":
                return
            case Publish():
                self._on_publish(packet)
            case Answer(kind="pubrel", packet_id=packet_id):
                self._on_pubrel(packet_id)
            case Answer(kind=kind, packet_id=packet_id):
                self.tell(Answered(packet=_ANSWERS[kind](packet_id)))
            case Subscribe(topic_filter=topic_filter, qos=qos):
                subscription = Subscription(qos=qos, since=self.since(topic_filter))
                self.tell(Subscribed(topic_filter=topic_filter, subscription=subscription))
                self.tell(AwaitSave(ticket=self._ticket(lambda: self.acknowledge(topic_filter, qos))))

    def since(self, topic_filter: str) -> int:
        """Up to where a subscription is not about what the log has."""
        return self._broker.tail

    def acknowledge(self, topic_filter: str, qos: int) -> None:
        """A subscription is durable."""
        self._send(Suback(topic_filter))

    def _on_publish(self, packet: Publish) -> None:
        said = (property_of(CRITICAL),) if packet.critical else ()
        payload = str(packet.number).encode()
        publication = Publication(packet.topic, payload, packet.qos, packet.publisher, user_properties=said)
        match self._inbound.publish(packet.packet_id, packet.qos, packet.repeat):
            case "received":
                self._send(Answer("pubrec", packet.packet_id))
            case "commit":
                record_id = self.machine.record_id(
                    packet.packet_id, packet.qos, packet.topic, self._broker.tail
                )
                if packet.qos == 1:
                    self.commit(publication, packet.packet_id, record_id)
                else:
                    self.commit_once(publication, packet.packet_id, record_id)

    def commit_once(self, publication: Publication, packet_id: int, record_id: str) -> None:
        """A message at QoS 2: its id has to be durable first."""
        self.tell(AwaitSave(ticket=self._ticket(lambda: self.commit(publication, packet_id, record_id))))

    def commit(self, publication: Publication, packet_id: int, record_id: str) -> None:
        behind = self.machine.behind(packet_id) if publication.qos == 2 else None
        self._broker.commit(publication, record_id, lambda: self._on_committed(packet_id), behind)

    def _on_committed(self, packet_id: int) -> None:
        qos = self._inbound.committed(packet_id)
        if qos == 2:
            self.tell(Kept(packet_id=packet_id))
        self._send(Answer("puback" if qos == 1 else "pubrec", packet_id))

    def _on_pubrel(self, packet_id: int) -> None:
        known = packet_id in self._inbound.held()
        if self._inbound.release(packet_id) == "under way":
            return

        def released() -> None:
            self._inbound.released(packet_id)
            self._send(Answer("pubcomp", packet_id))

        self.release(packet_id, known, released)

    def release(self, packet_id: int, known: bool, released: Callable[[], None]) -> None:
        """Also an id of which nothing is known: perhaps an earlier broker took a message under it."""
        self.tell(ReleaseAsked(packet_id=packet_id, ticket=self._ticket(released)))

    def _ticket(self, act: Callable[[], None]) -> int:
        self._tickets += 1
        self._waiting[self._tickets] = act
        return self._tickets

    # ── messages to the client ──────────────────────────────────────────────────────────────────────────────

    def offer(self, entry: Entry, publication: Publication) -> None:
        granted = self._grant(entry, publication)
        if granted is not None and self.machine.state == "attending":
            critical = is_critical(entry.subject)
            packet_id, repeat = self.machine.offer(entry.position, granted.qos, critical)
            if packet_id:
                self._deliver(publication, packet_id, granted.qos, repeat)

    def _grant(self, entry: Entry, publication: Publication) -> Grant | None:
        found = [each for f, each in self.machine.subscriptions.items() if matches(f, publication.topic)]
        return grant(found, publication, entry.position, self.client)

    def _deliver(self, publication: Publication, packet_id: int, qos: int, repeat: bool) -> None:
        number = int(publication.payload)
        self._send(Publish(packet_id, qos, publication.topic, publication.client, number, repeat))

    def _send(self, packet: Packet) -> None:
        if self.open:
            self._broker.send(self.client, self.stream.frame(packet))

    # ── the attendance ──────────────────────────────────────────────────────────────────────────────────────

    def tell(self, event: Event) -> None:
        self.machine.heard_us = self.heard_us
        for effect in self.machine.handle(event, self._broker.now_us):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Deliver(entry=entry, packet_id=packet_id, qos=qos, repeat=repeat):
                self._deliver(decode_publication(entry.payload), packet_id, qos, repeat)
            case Reply(packet=packet):
                self._send(Answer("pubrel", packet.packet_id))
            case Durable(tickets=tickets):
                for ticket in tickets:
                    self._waiting.pop(ticket)()
            case ReadBatch(start=start, critical=critical):
                subject = all_of(NETWORK, kind_of(critical))
                read = ReadLog(request="read", log=LOG.name, subject=subject, start=start, limit=BATCH)
                self._broker.ask(read, lambda event: self._on_read(event, critical))
            case PutKey() | GetKey() | DeleteKey():
                request = effect.request
                self._broker.ask(
                    effect, lambda event: self.tell(msgspec.structs.replace(event, request=request))
                )
            case SetTimer(name=name, delay_us=delay_us):
                self._broker.set_timer(self, name, delay_us)
            case Usurped():
                assert self._taking is not None
                facts = {"client": self.client, "uid": self._taking.uid, "epoch": self._taking.epoch}
                self._broker.say(Say(text="usurped", facts=facts))
                self.close()
            case Gone():
                self._broker.gone(self)
            case Say():
                self._broker.say(effect)
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    def _on_read(self, event: Stored | StoreFailed, critical: bool) -> None:
        if isinstance(event, StoreFailed):
            self.tell(ReadFailed(error=event.error, critical=critical))
            return
        offered = []
        for entry in event.value.entries:
            granted = self._grant(entry, decode_publication(entry.payload))
            if granted is not None:
                offered.append(Offered(entry, granted.qos))
        tail = self.critical_tail if critical else self._broker.tail
        self.tell(BatchRead(entries=offered, next=event.value.next, tail=tail, critical=critical))

    @property
    def settled(self) -> bool:
        """Whether no will of the client is left; nobody has one here."""
        return True

    def close(self) -> None:
        """The connection is over, whoever ended it."""
        if self.open:
            self._broker.reset(self.client, self.stream.connection)
            self.open = False
            facts = {"client": self.client, "connection": self.stream.connection}
            self._broker.say(Say(text="connection closed", facts=facts))
            self.tell(Ended(expiry_s=self.expiry_s, settled=self.settled))

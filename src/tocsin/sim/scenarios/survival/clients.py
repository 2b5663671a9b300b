"""Clients as ours are: the dialler that ships, a home, and a filter for what comes again.

They dial their home first, follow where they are sent, know beforehand where to go when their broker is gone, and go
home when they are sent there. What comes again is recognised by ``core.repeats``, results by their ids.
"""

from __future__ import annotations

from typing import Final

from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
    DisconnectPacket,
    DisconnectReasonCode,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
)

from tocsin.core.dialler import TAKEN_OVER, Closing, Dial, Dialled, Dialler, Down, HangUp, Heard, Lost, Up
from tocsin.core.guests import PROPERTY_BROKER, PROPERTY_HOME, PROPERTY_SERVER, PROPERTY_STAY, SERVERS_TOPIC
from tocsin.core.machine import CancelTimer, Effect, Event, Received, Send, SetTimer, Started, TimerFired
from tocsin.core.repeats import Repeats
from tocsin.core.session import SendPacket
from tocsin.model.message import Address
from tocsin.sim.scenarios.channels.clients import ChannelClient
from tocsin.sim.scenarios.durable.clients import AlarmingPublisher, Client
from tocsin.sim.scenarios.durable.wire import (
    Answer,
    Disconnect,
    Frame,
    Packet,
    Ping,
    Publish,
    Reset,
    Stream,
)
from tocsin.sim.scenarios.survival.wire import (
    Call,
    Knock,
    Opened,
    Ousted,
    Ring,
    SentOn,
    Servers,
    Welcome,
    server,
)
from tocsin.wire.topics import CHANNEL_PREFIX

DIALLER: Final = "dialler "  # before the names of its timers
KEEP_ALIVE_S: Final = 2
ANSWER_MASK: Final = 0x3FFFF  # up to a quarter of a second before a message is answered
ANSWERS_AT_ONCE: Final = 3
THINK_MASK: Final = 0x1FFFFF  # up to two seconds before a visitor publishes again
WILL_S: Final = 2  # after which a will is published
DEATH: Final = "death"
YOUTH_US: Final = 4_000_000  # before which nobody dies
LIFE_MASK: Final = 0xFFFFFF  # up to seventeen seconds more
LEAVE_ONE_IN: Final = 4  # of the times that it could


Content = tuple[str, int]  # a message, or a result: by which it is known again


class Broke(Event, frozen=True, kw_only=True):
    """The machine at the other end says that there is no such connection: its process has ended, or none listens."""

    connection: int


class Traveller(Client):
    """A client at home at the first of its servers, with the dialler that ships."""

    _dialler: Dialler
    _now_us = 0
    _greeting = False  # CONNECT was sent and not answered
    broker = ""  # where it is; empty if nowhere
    dead = False
    will_s = WILL_S
    keep_alive_s = KEEP_ALIVE_S

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        self._now_us = now_us
        match event:
            case Started():
                self._chance = event.incarnation
                self._begin()
                self._set_out(event)
            case Received(message=Opened(connection=connection)):
                if self._is(connection) and self._dialler.state == "dialling":
                    self._dial(Dialled())
            case Received(message=Reset(connection=connection)) | Broke(connection=connection):
                if self._is(connection):
                    self._dial(Lost(reason="there is no such connection"))
            case _:
                return super().handle(event, now_us)
        effects, self._out = self._out, []
        return effects

    def _is(self, connection: int) -> bool:
        return self._stream is not None and self._stream.connection == connection

    def _set_out(self, event: Started) -> None:
        greeting = ConnectPacket(client_id=self.address, keep_alive=self.keep_alive_s)
        servers, home = len(self._brokers), server(self._brokers[0])
        self._dialler = Dialler(greeting, redial=True, follow=True, servers=servers, home=home)
        self._dial(event)

    # ── the dialler ─────────────────────────────────────────────────────────────────────────────────────────

    def _dial(self, event: Event) -> None:
        ousted = False
        for effect in self._dialler.handle(event, self._now_us):
            match effect:
                case Dial(server=where, turn=turn):
                    self._call(self._brokers[turn] if where is None else where[0])
                case SendPacket(packet=ConnectPacket() as packet):
                    said = dict(packet.user_properties)
                    self._greeting = True
                    home, stays = said.get(PROPERTY_HOME, ""), PROPERTY_STAY in said
                    self._send(Call(expiry_s=self.expiry_s, home=home, stays=stays, will_s=self.will_s))
                case SendPacket(packet=PingReqPacket()):
                    self._send(Ping())
                case SendPacket(packet=DisconnectPacket()):
                    pass  # who leaves has said so, or says nothing
                case HangUp():
                    self._hang_up()
                case Up(answer=answer):
                    self._on_up(answer)
                case SetTimer(name=name, delay_us=delay_us):
                    self._timer(DIALLER + name, delay_us)
                case CancelTimer(name=name):
                    self._out.append(CancelTimer(name=DIALLER + name))
                case Down(reason_code=code, own=own) if code == TAKEN_OVER and not own:
                    ousted = True
                case Down():
                    pass
                case _:
                    raise AssertionError(f"no way to carry out {effect}")

        if ousted:  # by another client with its id, as it believes: our client ends then
            self._say("ousted", client=self.address)
            self._dial(Closing())

    def _call(self, node: Address) -> None:
        self._hang_up()
        self._broker = node
        self._connections += 1
        self._stream = Stream(self._connections)
        knock = Knock(self._connections)
        self._out.append(Send(to=node, message=knock, cause=self.address))
        self._out.append(Ring(to=node, connection=self._connections, cause=self.address))

    def _hang_up(self) -> None:
        if self._stream is not None:
            closed = Reset(self._stream.connection)
            self._out.append(Send(to=self._broker, message=closed, cause=self.address))
        self._stream, self._connected, self._greeting, self.broker = None, False, False, ""

    def _on_up(self, answer: ConnAckPacket) -> None:
        self._greeting, self.broker = False, dict(answer.user_properties)[PROPERTY_BROKER]
        if self._known and not answer.session_present:
            self._say("session lost", client=self.address, expiry_s=self.expiry_s)
            self._forget()
        self._known = self._connected = True
        if self._now_us < self._restless_us:
            self._timer("leave", self._stay_us())
        self._resume()

    def _on_frame(self, sender: Address, frame: Frame, now_us: int) -> None:
        if sender != self._broker or not self._is(frame.connection) or self._stream is None:
            return
        match self._stream.take(frame):
            case "gap":
                self._dial(Lost(reason="something is missing"))
            case "next":
                self._on_packet(frame.packet)

    def _on_packet(self, packet: Packet) -> None:
        match packet:
            case Welcome():
                told = [
                    (PROPERTY_BROKER, packet.broker),
                    *((PROPERTY_SERVER, each) for each in packet.servers),
                ]
                answer = ConnAckPacket(session_present=packet.present, user_properties=told)
                self._dial(Heard(packet=answer))
            case SentOn(reference=reference) if self._greeting:
                code = ConnAckReasonCode.USE_ANOTHER_SERVER
                self._dial(Heard(packet=ConnAckPacket(reason_code=code, server_reference=reference)))
            case SentOn(reference=reference):
                left = DisconnectReasonCode.USE_ANOTHER_SERVER
                self._dial(Heard(packet=DisconnectPacket(reason_code=left, server_reference=reference)))
            case Ousted():
                taken_over = DisconnectReasonCode.SESSION_TAKEN_OVER
                self._dial(Heard(packet=DisconnectPacket(reason_code=taken_over)))
            case Ping():
                self._dial(Heard(packet=PingRespPacket()))
            case Servers(servers=servers):
                self._dial(Heard(packet=PublishPacket(SERVERS_TOPIC, " ".join(servers).encode())))
            case _ if self._connected:
                self._take(packet)

    def _on_timer(self, name: str, now_us: int) -> None:
        if name.startswith(DIALLER):
            self._dial(TimerFired(name=name.removeprefix(DIALLER)))
        elif name == "leave":
            self._leave(now_us)
        else:
            super()._on_timer(name, now_us)

    def _leave(self, now_us: int) -> None:
        if not self._connected or now_us >= self._restless_us:
            return
        if self._draw(0xFF) % LEAVE_ONE_IN:
            self._timer("leave", self._stay_us())
            return
        if self._draw(1):
            self._send(Disconnect())
        self._go()

    def _go(self) -> None:
        """It leaves, and comes back as soon as it can."""
        self._dial(Lost(reason="it leaves"))


class Mortal(Traveller):
    """Is there, and one day is no more: its connection breaks, or it falls silent."""

    youth_us = YOUTH_US
    life_scale = 1  # by which a life is longer

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        if self.dead:
            return []
        effects = super().handle(event, now_us)
        if isinstance(event, Started):
            effects.append(
                SetTimer(
                    name=DEATH,
                    delay_us=self.youth_us + self._draw(LIFE_MASK) * self.life_scale,
                    cause=self.address,
                )
            )
        return effects

    def _on_timer(self, name: str, now_us: int) -> None:
        if name != DEATH:
            super()._on_timer(name, now_us)
        elif now_us < self._restless_us:
            self._die() if self._connected else self._timer(DEATH, self.youth_us // 8)

    def _die(self) -> None:
        self._say("dies", connection=self._connections)
        if self._draw(1):
            self._hang_up()
        self.dead, self.broker = True, ""


class Visitor(Traveller, AlarmingPublisher):
    """Publishes, some of it critical, and comes and goes."""

    def _think(self) -> None:
        self._timer("publish", self._draw(THINK_MASK))


class Resident(Traveller, ChannelClient):
    """Is subscribed to topics and to channels: to the first of each always, to the others now and then."""

    repeats: type[Repeats] = Repeats  # so that a variant can be tried

    def __init__(
        self,
        address: Address,
        brokers: tuple[Address, ...],
        restless_us: int,
        names: tuple[str, ...],
        filters: tuple[str, ...],
        qos: int,
    ) -> None:
        super().__init__(address, brokers, restless_us, (*names[1:], *filters[1:]))
        self.kept = (names[0], filters[0])
        self.wanted = dict.fromkeys(self.kept)
        self.filters = filters
        self.qos = qos
        self._held: dict[int, None] = {}  # packet ids at QoS 2 that were taken and not released
        self._repeats = self.repeats()
        self._answers: list[tuple[Answer, Content | None]] = []  # what is still to be answered, in order
        self._told: dict[Content, None] = {}  # the results that it knows, by their ids

    def _on_up(self, answer: ConnAckPacket) -> None:
        self._repeats.begin(answer.session_present)
        super()._on_up(answer)

    def _forget(self) -> None:
        self._held, self._has, self._leaving = {}, {}, {}

    def qos_of(self, name: str) -> int:
        return self.qos if name in self.filters else 1

    def named(self, name: str) -> dict[str, str]:
        return {"topic_filter" if name in self.filters else "name": name}

    def _take(self, packet: Packet) -> None:
        match packet:
            case Publish(topic=topic) if not topic.startswith(CHANNEL_PREFIX):
                self._take_message(packet)
            case Publish():
                self._take_result(packet)
            case Answer(kind="pubrel", packet_id=packet_id):
                self._held.pop(packet_id, None)
                self._send(Answer("pubcomp", packet_id))
            case _:
                super()._take(packet)

    def _take_message(self, packet: Publish) -> None:
        identifier, qos, key = packet.packet_id, packet.qos, (packet.publisher, packet.number)
        if qos == 2 and identifier in self._held:
            self._send(Answer("pubrec", identifier))
            return
        self._say("took", client=self.address, connection=self._connections, key=key, qos=qos)
        repeat = self._repeats.is_repeat(identifier, key, qos, packet.repeat)
        if qos == 2:
            self._held[identifier] = None
        if not repeat:
            self._say("told", key=key, qos=qos)
        self._answer_later(Answer("puback" if qos == 1 else "pubrec", identifier), None if repeat else key)

    def _take_result(self, packet: Publish) -> None:
        name, number, packet_id = packet.topic, packet.number, packet.packet_id
        self._say("took", connection=self._connections, name=name, number=number)
        repeat = self._repeats.is_repeat(packet_id, (name, number), 1, packet.repeat)
        if (name, number) not in self._told:
            self._told[name, number] = None
            self._say("told", name=name, number=number)
        self._answer_later(Answer("puback", packet_id), None if repeat else (name, number))

    def may_change(self, name: str) -> bool:
        """An acknowledgement says no more than its name here: so one at a time."""
        return name not in self.wanted or name in self._has

    # ── answering ───────────────────────────────────────────────────────────────────────────────────────────

    def _answer_later(self, answer: Answer, content: Content | None) -> None:
        """It takes a moment to deal with a message; ``content``: of one that is new."""
        if not self._answers:
            self._timer("answer", self._draw(ANSWER_MASK))
        self._answers.append((answer, content))

    def _act(self, timer: str) -> None:
        if timer != "answer":
            super()._act(timer)
            return
        for answer, content in self._answers[:ANSWERS_AT_ONCE]:
            self._send(answer)
            if answer.kind == "puback" and content is not None:
                self._repeats.acknowledged(answer.packet_id, content)
        del self._answers[:ANSWERS_AT_ONCE]
        if self._answers:
            self._timer("answer", self._draw(ANSWER_MASK))

    def _hang_up(self) -> None:
        """What waits is dealt with all the same, and the next broker told when it comes again."""
        super()._hang_up()
        for answer, content in self._answers:
            if answer.kind == "puback" and content is not None:
                self._repeats.acknowledged(answer.packet_id, content, heard=False)
        self._answers.clear()

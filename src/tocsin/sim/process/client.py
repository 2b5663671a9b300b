"""A simulated client that speaks MQTT 5: it turns the packets of a scenario's client into bytes on a connection.

The client within (``restless``) says frames to a broker's address; here they become bytes over a
connection to that broker, and what comes back becomes frames. The end of a connection is a ``Reset``.
"""

from __future__ import annotations

from typing import Final

from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)
from mqtt5 import Packet as MqttPacket

from tocsin.core.machine import Effect, Event, Received, Say, Send
from tocsin.errors import WireError
from tocsin.model.network import Address
from tocsin.model.priority import CRITICAL_WORD
from tocsin.sim.process.broker import PORT
from tocsin.sim.process.packets import (
    Answer,
    Connack,
    Connect,
    Disconnect,
    Frame,
    Packet,
    Ping,
    Publish,
    Reset,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from tocsin.sim.process.restless import Client
from tocsin.sim.process.signals import Arrived, Closed, Dial, HangUp, Opened, Transmit
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.reasons import is_degraded

ANSWERS: Final = {
    "puback": PubAckPacket,
    "pubrec": PubRecPacket,
    "pubrel": PubRelPacket,
    "pubcomp": PubCompPacket,
}
KINDS: Final = {packet: kind for kind, packet in ANSWERS.items()}
PACKET_MAX_BYTES: Final = 1 << 20
FIRST_ID: Final = 1_000  # of SUBSCRIBE and UNSUBSCRIBE; messages have smaller ones
IDS: Final = 60_000
REFUSED: Final = 0x80  # reason codes from here on are refusals


def payload_of(number: int, *, with_fields: bool) -> bytes:
    """A message's payload: its number, or an object with it."""
    return b'{"n": %d}' % number if with_fields else str(number).encode()


def number_in(payload: bytes) -> int:
    """The number that a payload is, or has."""
    return int(payload.removeprefix(b'{"n": ').removesuffix(b"}"))


def _policies(offer: str) -> list[tuple[str, str]]:
    """The policies of an offer without escapes."""
    return [
        (policy, value) for policy, _, value in (each.partition("=") for each in offer.split(",") if each)
    ]


class _Connection:
    def __init__(self, name: str, number: int, broker: Address) -> None:
        self.name = name
        self.number = number
        self.broker = broker
        self.opened = False
        self.waiting: list[bytes] = []  # frames to send once the connection is open
        self.heard = 0  # frames
        self.decoder = Decoder(PACKET_MAX_BYTES, role="client", version=V5)
        self.asked: dict[int, str] = {}  # packet id → the filter that was subscribed to


class MqttClient:
    """Runs a client of ``durable`` over MQTT."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._connection: _Connection | None = None
        self._subscribes = 0
        self._out: list[Effect] = []

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        match event:
            case Opened(connection=name) | Arrived(connection=name) | Closed(connection=name):
                if self._connection is not None and self._connection.name == name:
                    self._on_connection(self._connection, event, now_us)
            case _:
                self._tell(event, now_us)
        effects, self._out = self._out, []
        return effects

    def _tell(self, event: Event, now_us: int) -> None:
        """Let the client act, and do what it says."""
        for effect in self.client.handle(event, now_us):
            if isinstance(effect, Send) and isinstance(effect.message, Frame):
                self._say(effect.to, effect.message)
            else:
                self._out.append(effect)
        connection = self._connection
        if connection is not None and self.client.connection != connection.number:
            self._connection = None
            self._out.append(HangUp(connection=connection.name))

    def _say(self, broker: Address, frame: Frame) -> None:
        connection = self._connection
        if connection is None or connection.number != frame.connection:
            if connection is not None:
                self._out.append(HangUp(connection=connection.name))
            name = f"{self.client.address}#{frame.connection}"
            connection = self._connection = _Connection(name, frame.connection, broker)
            self._out.append(Dial(connection=name, host=broker, port=PORT))
        data = encode(self._packet(connection, frame.packet), V5)
        if connection.opened:
            self._out.append(Transmit(connection=connection.name, data=data))
        else:
            connection.waiting.append(data)

    def _on_connection(self, connection: _Connection, event: Event, now_us: int) -> None:
        match event:
            case Opened():
                connection.opened = True
                for data in connection.waiting:
                    self._out.append(Transmit(connection=connection.name, data=data))
                connection.waiting.clear()
            case Closed():
                self._connection = None
                self._hear(connection, Reset(connection.number), now_us)
            case Arrived(data=data):
                for packet in connection.decoder.feed(data):
                    if isinstance(packet, WireError):
                        raise packet
                    for each in self._packets(connection, packet):
                        if self._connection is connection:
                            frame = Frame(connection.number, connection.heard, each)
                            connection.heard += 1
                            self._hear(connection, frame, now_us)

    def _hear(self, connection: _Connection, message: Frame | Reset, now_us: int) -> None:
        self._tell(Received(sender=connection.broker, message=message, cause=self.client.address), now_us)

    # ── packets ─────────────────────────────────────────────────────────────────────────────────────────────

    def _packet(self, connection: _Connection, packet: Packet) -> MqttPacket:
        match packet:
            case Connect(lasting=lasting, expiry_s=expiry_s):
                return ConnectPacket(
                    self.client.address,
                    clean_start=False,
                    session_expiry_interval=expiry_s if lasting else 0,
                    keep_alive=60,
                    receive_max=self.client.receive_max,
                )
            case Publish():
                said = [("priority", CRITICAL_WORD)] if packet.critical else []
                said += [(f"offer.{policy}", value) for policy, value in _policies(packet.offer)]
                return PublishPacket(
                    packet.topic,
                    payload_of(packet.number, with_fields=bool(packet.offer)),
                    qos=QoS(packet.qos),
                    packet_id=packet.packet_id,
                    duplicate=packet.repeat,
                    content_type=packet.publisher,
                    user_properties=said,
                )
            case Answer(kind=kind, packet_id=packet_id):
                return ANSWERS[kind](packet_id)  # type: ignore[no-any-return]
            case Subscribe(topic_filter=topic_filter, qos=qos):
                packet_id = self._ask(connection, topic_filter)
                return SubscribePacket(packet_id, [TopicFilter(topic_filter, max_qos=QoS(qos))])
            case Unsubscribe(topic_filter=topic_filter):
                return UnsubscribePacket(self._ask(connection, topic_filter), [topic_filter])
            case Ping():
                return PingReqPacket()
            case Disconnect():
                return DisconnectPacket()
            case _:
                raise AssertionError(f"no client says {packet}")

    def _ask(self, connection: _Connection, topic_filter: str) -> int:
        """The packet id of a SUBSCRIBE or UNSUBSCRIBE."""
        self._subscribes += 1
        packet_id = FIRST_ID + self._subscribes % IDS
        connection.asked[packet_id] = topic_filter
        return packet_id

    def _packets(self, connection: _Connection, packet: MqttPacket) -> list[Packet]:
        match packet:
            case ConnAckPacket():
                if int(packet.reason_code) >= REFUSED:
                    return []  # the broker ends the connection
                return [Connack(packet.session_present)]
            case PublishPacket():
                return [
                    Publish(
                        packet.packet_id or 0,
                        int(packet.qos),
                        packet.topic,
                        packet.content_type or "",
                        number_in(bytes(packet.payload or b"")),
                        packet.duplicate,
                    )
                ]
            case SubAckPacket(packet_id=packet_id, reason_codes=(code,)):
                name = connection.asked.pop(packet_id)
                if int(code) >= REFUSED:
                    return []
                if is_degraded(packet):  # the client within does not count on it
                    facts: dict[str, object] = {"topic_filter": name}
                    self._out.append(Say(text="subscribed for now", facts=facts, cause=self.client.address))
                    return []
                return [Suback(name)]
            case UnsubAckPacket(packet_id=packet_id):
                return [Unsuback(connection.asked.pop(packet_id))]
            case PingRespPacket():
                return [Ping()]
            case DisconnectPacket():
                return []
            case PubAckPacket() | PubRecPacket() | PubRelPacket() | PubCompPacket():
                return [Answer(KINDS[type(packet)], packet.packet_id)]  # type: ignore[arg-type]
            case _:
                raise AssertionError(f"no broker says {packet}")

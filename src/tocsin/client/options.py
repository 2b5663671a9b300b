"""Options of a client and of publishing; both clients take the same."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from typing import Final, TypedDict

import msgspec
from mqtt5 import ConnectPacket, QoS, Will

from tocsin.client.message import Message, checked_qos, payload_of
from tocsin.model.quality import Offer
from tocsin.wire.mqtt.topics import check_topic

PACKET_MAX_BYTES: Final = (
    16 << 20
)  # far more than a broker takes from a client: results of channels may be large
TWO_BYTES, FOUR_BYTES = (1 << 16) - 1, (1 << 32) - 1
BOUNDS: Final = {
    "session_expiry_s": (0, FOUR_BYTES),
    "receive_max": (1, TWO_BYTES),
    "inbox_max": (1, FOUR_BYTES),
    "deadline_s": (0.001, FOUR_BYTES),
    "keep_alive_s": (0, TWO_BYTES),
    "will_delay_s": (0, FOUR_BYTES),
}


class Connection(msgspec.Struct, frozen=True):
    """How it is with the broker from now on: what ``on_connection`` is told."""

    up: bool
    server: str  # host:port
    reason: str = ""  # why there is none
    retry_s: float | None = None  # when the client dials again; None: never, or it is up


class Options(TypedDict, total=False):
    """The options of a client; docs/reference/client.md says what they mean."""

    client_id: str
    username: str | None
    password: str | bytes | None
    tls: ssl.SSLContext | None
    redial: bool
    session_expiry_s: int
    receive_max: int
    inbox_max: int
    deadline_s: float
    keep_alive_s: int
    watch: bool
    will: Message | None
    will_delay_s: int
    on_connection: Callable[[Connection], object] | None


class Publishing(TypedDict, total=False):
    """The options of a message."""

    qos: int
    retain: bool
    expiry_s: int | None
    content_type: str | None
    response_topic: str | None
    correlation: bytes | None
    user_properties: Iterable[tuple[str, str]]
    priority: int | str | None
    offer: Offer | str | None


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one client, with their defaults. Raises ``ValueError`` for what cannot be."""

    client_id: str
    username: str | None = None
    password: str | bytes | None = None
    tls: ssl.SSLContext | None = None
    redial: bool = True
    session_expiry_s: int = 0
    receive_max: int = 1_000
    inbox_max: int = 10_000
    deadline_s: float = 30.0
    keep_alive_s: int = 30
    watch: bool = True
    will: Message | None = None
    will_delay_s: int = 0
    on_connection: Callable[[Connection], object] | None = None

    def __post_init__(self) -> None:
        for name, (least, most) in BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} = {getattr(self, name)!r}: it must be from {least} to {most}")
        if self.will_delay_s and self.will is None:
            raise ValueError("will_delay_s is given, and no will; give will=Message(topic, payload) as well")

    def greeting(self, username: str | None, password: bytes | None) -> ConnectPacket:
        """The client's CONNECT. Raises ``WireError`` if the will's topic is none."""
        return ConnectPacket(
            self.client_id,
            clean_start=self.session_expiry_s == 0,
            session_expiry_interval=self.session_expiry_s,
            keep_alive=self.keep_alive_s,
            username=username,
            password=password,
            will=None if self.will is None else _will(self.will, self.will_delay_s),
            receive_max=self.receive_max,
            max_packet_size=PACKET_MAX_BYTES,
        )


def _will(message: Message, delay_s: int) -> Will:
    check_topic(message.topic)
    return Will(
        message.topic,
        payload=payload_of(message.payload),
        qos=QoS(checked_qos(message.qos)),
        retain=message.retain,
        message_expiry_interval=message.expiry_s,
        content_type=message.content_type,
        response_topic=message.response_topic,
        correlation_data=message.correlation,
        will_delay_interval=delay_s,
        user_properties=list(message.user_properties),
    )

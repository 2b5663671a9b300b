"""A message as the log and the retained table keep it: its content and its publisher, and nothing of how it travels.

It carries its stream's metadata of that moment, so that a later reader can tell which queries it was for: in itself, if
they are short (``keys``), else by reference (``said``). The reference is a hash of the metadata, and names a record of
the same log that has them (``model.said``).
"""

from __future__ import annotations

from typing import Final

import msgspec
from mqtt5 import PublishPacket, QoS

from tocsin.model.priority import CRITICAL, priority_of
from tocsin.model.stream import Metadata, Value
from tocsin.model.versions import Packed

_QOS = (QoS.AT_MOST_ONCE, QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE)


class Publication(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message. The properties are those that MQTT 5 forwards unaltered."""

    topic: str
    payload: bytes
    qos: int
    client: str  # who published it; the subscriber that asked for no messages of its own needs to know
    retain: bool = False
    expiry_s: int | None = None  # how long after it was taken it is of use
    payload_format: int = 0
    content_type: str | None = None
    response_topic: str | None = None
    correlation: bytes | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    broker: str = ""  # to which it was published
    cluster: str = ""  # of that broker
    keys: dict[str, Value] | None = (
        None  # what clients said of its stream; None: nothing that was known, or ``said``
    )
    said: bytes = b""  # the reference of that; empty: ``keys`` has it

    @classmethod
    def of(
        cls,
        packet: PublishPacket,
        topic: str,
        client: str,
        *,
        broker: str = "",
        cluster: str = "",
        keys: dict[str, Value] | None = None,
    ) -> Publication:
        """The message of a packet; ``topic`` is given, because a packet may name it by an alias."""
        return cls(
            topic,
            packet.payload,
            int(packet.qos),
            client,
            packet.retain,
            packet.message_expiry_interval,
            packet.payload_format_indicator,
            packet.content_type,
            packet.response_topic,
            packet.correlation_data,
            tuple(packet.user_properties),
            broker,
            cluster,
            keys,
        )

    @property
    def resolved(self) -> bool:
        """Whether it has itself what was said of its stream."""
        return not self.said or self.keys is not None

    @property
    def metadata(self) -> Metadata:
        """The stream's metadata when it was published; ask only if the message is ``resolved``."""
        origin = {"topic": self.topic, "client": self.client, "broker": self.broker, "cluster": self.cluster}
        return {**(self.keys or {}), **{key: value for key, value in origin.items() if value}}

    def packet(
        self,
        *,
        qos: int = 0,
        packet_id: int | None = None,
        duplicate: bool = False,
        retain: bool = False,
        subscription_ids: tuple[int, ...] = (),
        waited_s: int = 0,
    ) -> PublishPacket:
        """As it is sent to one subscriber."""
        return PublishPacket(
            self.topic,
            self.payload,
            qos=_QOS[qos],
            packet_id=packet_id,
            duplicate=duplicate,
            retain=retain,
            message_expiry_interval=None if self.expiry_s is None else max(0, self.expiry_s - waited_s),
            payload_format_indicator=self.payload_format,
            content_type=self.content_type,
            response_topic=self.response_topic,
            correlation_data=self.correlation,
            subscription_ids=list(subscription_ids),
            user_properties=list(self.user_properties),
        )

    @property
    def critical(self) -> bool:
        """Whether its publisher says that it is."""
        return bool(self.user_properties) and priority_of(self.user_properties) >= CRITICAL

    @property
    def plain(self) -> bool:
        """Whether there is nothing to say beside topic and payload."""
        return (
            self.expiry_s is None
            and not self.user_properties
            and not self.payload_format
            and self.content_type is None
            and self.response_topic is None
            and self.correlation is None
        )

    def expired(self, waited_s: float) -> bool:
        return self.expiry_s is not None and waited_s >= self.expiry_s


MESSAGE: Final = Packed("a stored message", msgspec.msgpack.Decoder(Publication))


def encode_publication(publication: Publication) -> bytes:
    return MESSAGE.write(publication)


def decode_publication(data: bytes) -> Publication:
    """Decode a publication; anything else raises ``Malformed``."""
    return MESSAGE.read(data)

"""One message as one client gets it: the grant (its QoS and subscription identifiers), and the frame that follows.

Clients with the same grant and version get the same bytes, so that each kind of frame is encoded once for all of them.
Packet ids follow from positions in the log: that holds for messages above QoS 0, too.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tocsin.core.forwarding.table import Subscription
from tocsin.model.publication import Publication
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import Version
from tocsin.wire.mqtt.frames import publish_frame


class Grant(msgspec.Struct, frozen=True):
    """How a client gets a message."""

    qos: int
    identifiers: tuple[int, ...]
    retain: bool  # the flag as it was published, for a subscription that asks for it


def grant(
    subscriptions: Iterable[Subscription], publication: Publication, position: int, client: str
) -> Grant | None:
    """From those subscriptions of a client that match the topic; None if the message is not for it.

    Overlapping subscriptions give one copy, at the highest QoS that any of them asks for and the publisher
    used (MQTT 5, section 3.3.4).
    """
    qos = -1
    identifiers: list[int] = []
    retain = False
    for subscription in subscriptions:
        if position <= subscription.since or (subscription.no_local and publication.client == client):
            continue
        qos = max(qos, min(subscription.qos, publication.qos))
        if subscription.identifier is not None:
            identifiers.append(subscription.identifier)
        retain = retain or (subscription.retain_as_published and publication.retain)
    return None if qos < 0 else Grant(qos, tuple(identifiers), retain)


def grant_of_results(subscription: Subscription) -> Grant:
    """How a client gets the results of a channel that it subscribed to."""
    identifier = subscription.identifier
    return Grant(min(1, subscription.qos), () if identifier is None else (identifier,), False)


def frame_of(
    message: Publication,
    version: Version,
    granted: Grant,
    packet_id: int = 0,
    repeat: bool = False,
    *,
    waited_s: float = 0,
) -> bytes:
    """A message as one client gets it."""
    if not granted.qos and not granted.identifiers and message.plain:
        return publish_frame(message.topic, message.payload, version, retain=granted.retain)
    packet = message.packet(
        qos=granted.qos,
        packet_id=packet_id or None,
        duplicate=repeat,
        retain=granted.retain,
        subscription_ids=granted.identifiers,
        waited_s=int(waited_s),
    )
    return encode(packet, version)


class Frames:
    """One message's frames, made when they are first needed."""

    __slots__ = ("_made", "_publication", "_waited_s")

    def __init__(self, publication: Publication, waited_s: float) -> None:
        self._publication = publication
        self._waited_s = waited_s
        self._made: dict[tuple[Version, Grant, int, bool], bytes] = {}

    def of(self, version: Version, granted: Grant, packet_id: int = 0, repeat: bool = False) -> bytes:
        key = (version, granted, packet_id, repeat)
        frame = self._made.get(key)
        if frame is None:
            frame = self._made[key] = frame_of(
                self._publication, version, granted, packet_id, repeat, waited_s=self._waited_s
            )
        return frame

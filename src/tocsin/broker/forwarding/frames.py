"""The frames of one message for many clients: each kind encoded once.

Packet ids follow from positions in the log, so that even messages above QoS 0 have the same bytes for every client that
gets them in the same way.
"""

from __future__ import annotations

from tocsin.core.delivery.grant import Grant
from tocsin.model.publication import Publication
from tocsin.wire.codec import encode
from tocsin.wire.connect import Version
from tocsin.wire.frames import publish_frame


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

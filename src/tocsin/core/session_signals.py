"""What happens to a session, and what it asks for: the events and effects of ``core.session``, which hands them on.

Timers are the kernel's own: ``machine.SetTimer`` and ``machine.TimerFired``.
"""

from __future__ import annotations

from mqtt5 import Packet, PublishPacket, QoS, RetainHandling

from tocsin.core.machine import Effect, Event
from tocsin.errors import WireError
from tocsin.wire.codec import Version

# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class Opened(Event, frozen=True, kw_only=True):
    """The connection is there. ``assigned_client_id`` is for a client that brings none."""

    assigned_client_id: str


class PacketArrived(Event, frozen=True, kw_only=True):
    """The peer sent a packet."""

    packet: Packet
    version: Version


class WireFailed(Event, frozen=True, kw_only=True):
    """The peer broke the protocol; nothing that it sends can be read any more."""

    error: WireError
    version: Version | None = None


class Authenticated(Event, frozen=True, kw_only=True):
    """The peer is who it says."""


class Rejected(Event, frozen=True, kw_only=True):
    """The peer may not come in, or not here: with 0x9C or 0x9D, ``server_reference`` says where."""

    reason_code: int = 0x87
    reason: str = "not authorized"
    server_reference: str | None = None


class PeerClosed(Event, frozen=True, kw_only=True):
    """The connection is gone."""

    reason: str = "the peer closed the connection"


class TakenOver(Event, frozen=True, kw_only=True):
    """Another connection came with the same client id."""


class ServerStopping(Event, frozen=True, kw_only=True):
    """This server goes down on purpose."""


class ServerMoved(Event, frozen=True, kw_only=True):
    """The client is to go to another server."""

    server_reference: str
    permanent: bool = False  # 0x9D rather than 0x9C


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class SendPacket(Effect, frozen=True, kw_only=True):
    """Send to the client, encoded for ``session.version``."""

    packet: Packet


class Authenticate(Effect, frozen=True, kw_only=True):
    """Find out whether this client may come in, and answer with ``Authenticated`` or ``Rejected``."""

    client_id: str
    username: str | None
    password: bytes | None
    user_properties: tuple[tuple[str, str], ...] = ()


class Accepted(Effect, frozen=True, kw_only=True):
    """Register the client (and hand TakenOver to the session that had this id) before the CONNACK that follows."""

    client_id: str
    version: Version
    clean_start: bool
    keep_alive_s: int  # in force; 0: none
    session_expiry_s: int  # granted
    username: str | None
    user_properties: tuple[tuple[str, str], ...]
    send_max_bytes: int | None  # the largest packet that this client takes; larger ones are to be dropped
    receive_max: int
    topic_alias_max: int


class Subscribe(Effect, frozen=True, kw_only=True):
    """Deliver what matches from now on; with ``existed`` the options of a subscription change."""

    pattern: str
    qos: QoS
    no_local: bool
    retain_as_published: bool
    retain_handling: RetainHandling
    subscription_id: int | None
    existed: bool


class Unsubscribe(Effect, frozen=True, kw_only=True):
    """Deliver no longer."""

    pattern: str


class Publish(Effect, frozen=True, kw_only=True):
    """Forward a message of this client; ``will`` says that it is its will."""

    packet: PublishPacket
    will: bool = False


class Close(Effect, frozen=True, kw_only=True):
    """Flush what was sent, close the connection and forget the session with all its subscriptions."""

    reason_code: int
    reason: str
    fault: str  # "none" (as asked), "peer", "ours"

"""Events and effects of ``core.session.machine``.

Timers are the kernel's own: ``machine.SetTimer`` and ``machine.TimerFired``.
"""

from __future__ import annotations

from mqtt5 import Packet, PubAckPacket, PubCompPacket, PublishPacket, PubRecPacket, QoS, RetainHandling

from tocsin.core.filters import Filter, StoredFilter
from tocsin.core.machine import Effect, Event
from tocsin.errors import WireError
from tocsin.wire.mqtt.connect import Version

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


class Resumed(Event, frozen=True, kw_only=True):
    """The client's session is at hand: the stored one (``present``), or a new one. Answers ``Accepted``."""

    present: bool
    user_properties: tuple[tuple[str, str], ...] = ()  # to tell the client in the CONNACK


class ResumeFailed(Event, frozen=True, kw_only=True):
    """The stored session could be neither read nor replaced. Answers ``Accepted``."""

    reason_code: int = 0x88
    reason: str = "the session cannot be loaded just now"


class Committed(Event, frozen=True, kw_only=True):
    """The message that ``Commit`` named is durable."""

    packet_id: int


class CommitFailed(Event, frozen=True, kw_only=True):
    """The message that ``Commit`` named is not durable, and the client is to know it."""

    packet_id: int
    reason_code: int = 0x80
    reason: str = "the message could not be stored"


class Released(Event, frozen=True, kw_only=True):
    """It is durable that the client released the packet id that ``Release`` named."""

    packet_id: int


class PeerClosed(Event, frozen=True, kw_only=True):
    """The connection is gone."""

    reason: str = "the peer closed the connection"


class TakenOver(Event, frozen=True, kw_only=True):
    """Another connection came with the same client id; with ``clean_start`` it ends the session as well."""

    clean_start: bool = False


class WillAnnounced(Event, frozen=True, kw_only=True):
    """The log has the client's will, though the client is connected: a backup took this broker for lost."""


class ServerStopping(Event, frozen=True, kw_only=True):
    """This server goes down on purpose; ``server_reference`` is where the client can go."""

    server_reference: str | None = None


class Moving(Event, frozen=True, kw_only=True):
    """The client is to go on at another server, which waits for it; its will is held back until then.

    A client that cannot be redirected stays, unless the redirect is ``compulsory``; so does a client that is still
    connecting.
    """

    server_reference: str | None
    reason: str = "the client's home is back"
    compulsory: bool = False
    lasting: bool = False  # the other server is the client's home from now on


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
    will_topic: str | None = None  # None: the client leaves no will
    watches: str = (
        ""  # the broker of whose loss it wants to be told; it gets no session, and its id does not count
    )
    accounts: bool = False  # it makes or changes accounts; it gets no session, and its id does not count

    @property
    def aside(self) -> bool:
        """Whether it is no client's own connection: it takes no client's place."""
        return self.accounts or self.watches != ""


class Accepted(Effect, frozen=True, kw_only=True):
    """Register the client, hand TakenOver to the session that had this id, and load or discard what is stored of it.

    To be answered with ``Resumed`` or ``ResumeFailed``; the CONNACK waits for it. Before the answer the shell may call
    ``restore`` and ``permit``.
    """

    client_id: str
    version: Version
    clean_start: bool
    keep_alive_s: int  # in force; 0: none
    session_expiry_s: int  # granted; 0: the session ends with its connection
    username: str | None
    user_properties: tuple[tuple[str, str], ...]
    send_max_bytes: int | None  # the largest packet that this client takes; larger ones are to be dropped
    receive_max: int
    topic_alias_max: int
    will_delay_s: int  # of its will; 0 also without one
    watches: str = ""  # as ``Authenticate`` has it: the client is not to be registered
    accounts: bool = False  # the same


class AskAccount(Effect, frozen=True, kw_only=True):
    """A connection about accounts asks (``core.access.registration``); it was told that the request has come."""

    packet: PublishPacket


class Subscribe(Effect, frozen=True, kw_only=True):
    """Deliver what matches from now on; with ``existed`` the options of a subscription change."""

    filter: Filter
    qos: QoS  # the highest to deliver with
    no_local: bool
    retain_as_published: bool
    retain_handling: RetainHandling
    subscription_id: int | None
    existed: bool
    request: str = ""  # of quality, in canonical form
    index: int = 0  # of its reason code in the SUBACK


class Unsubscribe(Effect, frozen=True, kw_only=True):
    """Deliver no longer."""

    filter: StoredFilter


class Publish(Effect, frozen=True, kw_only=True):
    """Forward a message of this client: at QoS 0, or its will (``will``) at the will's QoS."""

    packet: PublishPacket
    topic: str  # to publish to; the packet's own is empty if it came by an alias
    will: bool = False


class DelayWill(Effect, frozen=True, kw_only=True):
    """Publish the client's will after so long, unless it comes back (or its session ends) before."""

    packet: PublishPacket
    delay_s: int  # never longer than the session lasts, unless it moves
    moving: bool = (
        False  # the client was sent elsewhere: to come there is to come back, with whatever session
    )


class Commit(Effect, frozen=True, kw_only=True):
    """Make a message durable, and answer with ``Committed`` or ``CommitFailed``. With QoS 2 the id is part of it."""

    packet: PublishPacket
    topic: str  # to publish to; the packet's own is empty if it came by an alias
    packet_id: int
    qos: int  # 1 or 2


class Release(Effect, frozen=True, kw_only=True):
    """Make it durable that an id, received or not, is free again, and answer with ``Released``."""

    packet_id: int


class Acknowledged(Effect, frozen=True, kw_only=True):
    """The client answered a delivery; the delivery machine decides on the reply."""

    packet: PubAckPacket | PubRecPacket | PubCompPacket


class Close(Effect, frozen=True, kw_only=True):
    """Flush what was sent, close the connection, and keep the session for ``session_expiry_s``; 0: forget it now.

    Without ``Accepted`` there is nothing to keep or forget. After TakenOver the new connection owns the session; keep
    it.
    """

    reason_code: int
    reason: str
    fault: str  # "none" (as asked), "peer", "ours"
    session_expiry_s: int = 0

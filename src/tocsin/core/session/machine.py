"""One client's connection, server side, as a pure machine for MQTT 5 and 3.1.1.

    session = Session(limits)
    session.handle(Opened(assigned_client_id="tocsin-…"), now_us)         first; -> [SetTimer("connect-deadline")]
    session.handle(PacketArrived(packet=…, version=decoder.version), now) every packet but publishes at QoS 0
    session.handle(WireFailed(error=…, version=decoder.version), now)     the WireError that feed() ended with
    session.handle(TimerFired(name=…), now)                               timers set by SetTimer
    session.handle(PeerClosed(), now) / TakenOver() / ServerStopping(server_reference=…) / Moving(server_reference=…)

What the shell answers, at once or later:
    Authenticate -> Authenticated() | Rejected(reason_code=…)
    Accepted     -> Resumed(present=…) | ResumeFailed(…); before it perhaps restore(…), permit(…)
    Commit       -> Committed(packet_id=…) | CommitFailed(packet_id=…, …)
    Release      -> Released(packet_id=…)

Hot path, for QoS 0 and in state "connected" only (no effects, no events):
    session.heard(now_us)             once per chunk that held at least one packet (keep-alive)
    topic = session.check_publish(packet)   the topic to forward on; None: the message goes nowhere, and is counted in
                                            ``refused``; raises WireError -> handle(WireFailed(...))
    session.takes(topic, messages)          the same of messages with that topic and no alias: whether they go on

States: new -> connecting -> authenticating -> resuming -> connected -> closed. session.version: to encode with.

Transitions of ``Session``:

    new             Opened → connecting
    connecting      PacketArrived → authenticating, closed
                    WireFailed, TimerFired, PeerClosed, ServerStopping → closed
    authenticating  PacketArrived, WireFailed, TimerFired, PeerClosed, ServerStopping, Rejected → closed
                    Authenticated → resuming, closed
    resuming        PacketArrived, WireFailed, TimerFired, PeerClosed, ServerStopping, TakenOver, ResumeFailed → closed
                    Resumed → connected, closed
    connected       PacketArrived, WireFailed, TimerFired, PeerClosed, ServerStopping, TakenOver, CommitFailed → closed
                    Committed, Released
    *               Moving → closed
                    WillAnnounced

Packets that a client sends behind its CONNECT without waiting for the answer are kept (at most ``early_max_bytes``) and
handled, in order, right after the CONNACK. ``Conversation`` handles the packets of a connected client. A message at
QoS 0 is passed on at once. One at QoS 1 or 2 is committed first and answered afterwards (``core.session.publish``). One
that the client may not publish is refused: with 0x87 where the answer can say so (MQTT 5); in 3.1.1 it is acknowledged
and goes nowhere. The client's answers to our own messages go to the shell unchanged (``Acknowledged``).

Invariants
- ``Close`` is always the last effect; after it every event gives ``[]``.
- At most one CONNACK is sent, and it is the first packet; ``Accepted`` comes at most once, before it.
- Nothing that a peer does raises: its mistakes are answered as its version knows how, and end in ``Close``.
  ``IllegalEvent`` means that the shell is wrong.
- Each ``Commit`` is answered to the client at most once, and not before ``Committed`` or ``CommitFailed``.
- The will is published or handed on for later, once, whenever a connected client goes in another way than by a
  DISCONNECT that says that all is well; not if another broker has announced it (``WillAnnounced``).
- No packet is sent that is larger than the client takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final, NoReturn

from mqtt5 import (
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PubAckReasonCode,
    PubCompPacket,
    PubCompReasonCode,
    PublishPacket,
    PubRecPacket,
    PubRecReasonCode,
    PubRelPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    UnsubAckPacket,
    UnsubscribePacket,
    Will,
)

from tocsin.core.machine import (
    Effect,
    Event,
    IllegalEvent,
    SetTimer,
    Table,
    TableMachine,
    TimerFired,
)
from tocsin.core.session import connect
from tocsin.core.session.connect import REASON_MAX_CHARS, Arrival, ConnectRefused
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.publish import Inbound, Permission, Publishing
from tocsin.core.session.signals import (
    Acknowledged,
    AskAccount,
    Authenticated,
    Close,
    Commit,
    CommitFailed,
    Committed,
    Moving,
    Opened,
    PacketArrived,
    PeerClosed,
    Publish,
    Rejected,
    Release,
    Released,
    Resumed,
    ResumeFailed,
    SendPacket,
    ServerStopping,
    TakenOver,
    WillAnnounced,
    WireFailed,
)
from tocsin.core.session.subscribe import Refused, Subscriptions
from tocsin.core.session.will import due
from tocsin.errors import ProtocolViolation, UnsupportedVersion, WireError
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, Version
from tocsin.wire.mqtt.reasons import refusal_code

ACCOUNTS_US = 60_000_000  # for a connection about accounts: two hashes in a crowd, and a store that is slow
REQUESTS_MAX = 16  # of one connection about accounts
_PATIENCE_US = 1_500_000  # of silence for each second of keep-alive: one and a half times (MQTT 5, 3.1.2.10)
NOT_AUTHORIZED: Final = 0x87
QUOTA_EXCEEDED: Final = 0x97
TOO_LARGE: Final = 0x95  # for the store
# Topic name, payload format invalid, too large: they are so as often as they are sent.
FOR_GOOD: Final = (0x90, 0x99, TOO_LARGE)

_Kind = Callable[..., Packet]
_ANSWER: Final[dict[int, tuple[_Kind, type[Any]]]] = {
    1: (PubAckPacket, PubAckReasonCode),
    2: (PubRecPacket, PubRecReasonCode),
}


class SessionState(StrEnum):
    """Where a connection is."""

    NEW = "new"
    CONNECTING = "connecting"
    AUTHENTICATING = "authenticating"
    RESUMING = "resuming"
    CONNECTED = "connected"
    CLOSED = "closed"


class SessionTimer(StrEnum):
    """The timers of a connection."""

    CONNECT_DEADLINE = "connect-deadline"  # for CONNECT, and again until the client is welcomed
    KEEP_ALIVE = "keep-alive"
    ACCOUNTS = "accounts"  # for a connection about accounts to be over


class Session(TableMachine):
    """One connection, from ``Opened`` to ``Close``."""

    timers = SessionTimer
    state: SessionState = SessionState.NEW

    # Once the client is accepted: as the module says.
    check_publish: Callable[[PublishPacket], str | None]
    takes: Callable[[str, int], bool]

    def __init__(self, limits: SessionLimits) -> None:
        self.version: Version = V5
        self.client_id = ""  # empty until a CONNECT was understood
        self.limits = limits
        self._assigned_client_id = ""
        self._arrival: Arrival | None = None  # while authenticating and resuming only
        self._conversation: Conversation | None = None  # from Accepted on
        self._will: Will | None = None  # while connected only
        self._send_max_bytes: int | None = None
        self._moves = False  # the client was sent to another server
        self._watches = False  # the client is told of a broker's loss, and does nothing else
        self._accounts = False  # the connection is about accounts, and does nothing else
        self._requests = 0  # of such a connection
        self._outlives = False  # the client asked for a session that outlives its connection
        self._session_expiry_s = 0  # granted; 0 until Accepted
        self._patience_us = 0  # how long the client may be silent; 0: for ever
        self._heard_us = 0
        self.spoke_us = 0  # when the client said something last, after CONNACK

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        if self.state is SessionState.CLOSED:
            return []
        return super().handle(event, now_us)

    @property
    def will(self) -> Will | None:
        """The client's, also while it is not welcomed yet."""
        return self._will if self._arrival is None else self._arrival.will

    def heard(self, now_us: int) -> None:
        """The client gave a sign of life. The hot path's other half is ``check_publish`` or ``takes``."""
        self._heard_us = self.spoke_us = now_us

    @property
    def committing(self) -> int:
        """How many messages wait for Committed. At ``receive_max`` pause reading."""
        return self._conversation.committing if self._conversation else 0

    @property
    def refused(self) -> int:
        """How many messages went nowhere, because the client may not publish there."""
        return self._conversation.publishing.refused if self._conversation else 0

    def inbound_ids(self) -> tuple[int, ...]:
        """The packet ids of QoS 2 that were received and not released; also after ``Close``."""
        return self._conversation.inbound_ids() if self._conversation else ()

    # ── between Accepted and its answer ─────────────────────────────────────────────────────────────────────

    def restore(
        self, subscriptions: Iterable[str], inbound: Iterable[int], requests: Mapping[str, str] = {}
    ) -> None:
        """Restore the stored session: its subscriptions as the client wrote them, ``inbound_ids``, and the requests of
        quality of those subscriptions that have one."""
        self._resuming("restore").restore(subscriptions, inbound, requests)

    def permit(self, *, publish: Permission | None = None, subscribe: Permission | None = None) -> None:
        """Ask these of every topic and filter; None: all are allowed. Also while connected, as rights may change."""
        if self._conversation is None or self.state is SessionState.CLOSED:
            raise IllegalEvent("Session", self.state, "permit")
        self._conversation.permit(publish, subscribe)

    def amended(
        self,
        packet: SubAckPacket,
        refused: Refused,
        note: str | None = None,
    ) -> SubAckPacket:
        """A SUBACK of which the shell cannot serve some, by index: the subscription, why, and the code. ``note`` is of
        all."""
        return packet if self._conversation is None else self._conversation.amended(packet, refused, note)

    def noted(self, packet: UnsubAckPacket, note: str) -> UnsubAckPacket:
        """An UNSUBACK with a note, if the client wants notes and it fits."""
        return packet if self._conversation is None else self._conversation.noted(packet, note)

    def _resuming(self, call: str) -> Conversation:
        if self.state is not SessionState.RESUMING or self._conversation is None:
            raise IllegalEvent("Session", self.state, call)
        return self._conversation

    # ── coming in ───────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, event: Opened, now_us: int) -> list[Effect]:
        self._assigned_client_id = event.assigned_client_id
        self.state = SessionState.CONNECTING
        return [SetTimer(name=SessionTimer.CONNECT_DEADLINE, delay_us=self.limits.connect_deadline_us)]

    def _first(self, event: PacketArrived, now_us: int) -> list[Effect]:
        self.version = event.version
        packet = event.packet
        if not isinstance(packet, ConnectPacket):
            return self._close(0x82, "the first packet was not CONNECT", "peer")
        self._send_max_bytes = packet.max_packet_size
        try:
            arrival = Arrival(packet, self.version, self.limits, self._assigned_client_id)
        except ConnectRefused as error:
            return self._refuse(error.reason_code, error.problem, "peer")
        self._arrival = arrival
        self.client_id = arrival.granted.client_id
        self.state = SessionState.AUTHENTICATING
        return [arrival.credentials()]

    def _keep_early(self, event: PacketArrived, now_us: int) -> list[Effect]:
        assert self._arrival is not None, "it is there while coming in"
        if self._arrival.early.keep(event.packet):
            return []
        reason = f"over {self.limits.early_max_bytes} bytes came before the connection was acknowledged"
        return self._refuse(0x97, reason, "peer")

    def _accept(self, event: Authenticated, now_us: int) -> list[Effect]:
        arrival = self._arrival
        assert arrival is not None, "it is there while coming in"
        if self._send_max_bytes is not None and self._fitting(*arrival.welcomes()) is None:
            return self._close(0x95, f"the client takes no packet over {self._send_max_bytes} bytes", "peer")
        self._session_expiry_s = arrival.granted.session_expiry_s
        self._conversation = Conversation(
            self.limits,
            self.version,
            arrival.granted.client_id,
            self._send_max_bytes,
            explains=arrival.packet.request_problem_info,
        )
        self.check_publish = self._conversation.publishing.topic_of
        self.takes = self._conversation.publishing.takes
        if arrival.watches:
            self._watches, self.check_publish, self.takes = True, _only_watches, _only_watches
        if arrival.accounts:
            self._accounts, self.check_publish, self.takes = True, _only_asks, _only_asks
        self.state = SessionState.RESUMING
        return [arrival.acceptance()]

    def _reject(self, event: Rejected, now_us: int) -> list[Effect]:
        fault = connect.fault_of(event.reason_code, otherwise="peer")
        return self._refuse(event.reason_code, event.reason, fault, event.server_reference)

    def _resume(self, event: Resumed, now_us: int) -> list[Effect]:
        arrival = self._arrival
        assert arrival is not None, "it is there until now"
        if event.present and arrival.packet.clean_start:
            raise IllegalEvent("Session", self.state, "Resumed(present=True) after a clean start")
        self._arrival = None
        self._will = arrival.will
        self._outlives = arrival.packet.session_expiry_interval > 0
        self._patience_us = arrival.granted.keep_alive_s * _PATIENCE_US
        self._heard_us = now_us
        self.state = SessionState.CONNECTED
        welcomes = arrival.welcomes(present=event.present, told=event.user_properties)
        effects: list[Effect] = [SendPacket(packet=self._fitting(*welcomes) or welcomes[-1])]
        if self._patience_us:
            effects.append(SetTimer(name=SessionTimer.KEEP_ALIVE, delay_us=self._patience_us))
        if self._accounts:
            effects.append(SetTimer(name=SessionTimer.ACCOUNTS, delay_us=ACCOUNTS_US))
        for each in arrival.early.take():
            if self.state is SessionState.CONNECTED:
                effects += self._take(each)
        return effects

    def _fail_to_resume(self, event: ResumeFailed, now_us: int) -> list[Effect]:
        fault = connect.fault_of(event.reason_code, otherwise="ours")
        return self._refuse(event.reason_code, event.reason, fault)

    # ── connected ───────────────────────────────────────────────────────────────────────────────────────────

    def _on_packet(self, event: PacketArrived, now_us: int) -> list[Effect]:
        self._heard_us = now_us
        return self._take(event.packet)

    def _take(self, packet: Packet) -> list[Effect]:
        assert self._conversation is not None, "it is there once the client is accepted"
        try:
            if isinstance(packet, DisconnectPacket):
                return self._leave(packet)
            if self._watches and not isinstance(packet, PingReqPacket):
                _only_watches(packet)
            if self._accounts and not isinstance(packet, PingReqPacket):
                return self._ask_account(packet)
            return self._conversation.take(packet)
        except WireError as error:
            return self._disconnect(error.reason_code, error.problem, "peer")

    def _ask_account(self, packet: Packet) -> list[Effect]:
        """A request about an account: it is acknowledged, and answered by a message."""
        if not isinstance(packet, PublishPacket) or packet.qos != QoS.AT_LEAST_ONCE or not packet.topic:
            _only_asks(packet)
        assert packet.packet_id is not None, "it has one at QoS 1"
        self._requests += 1
        if self._requests > REQUESTS_MAX:
            problem = f"a connection about accounts asks at most {REQUESTS_MAX} times; connect again"
            raise ProtocolViolation(problem, 0x97)
        return [SendPacket(packet=PubAckPacket(packet.packet_id)), AskAccount(packet=packet)]

    def _leave(self, packet: DisconnectPacket) -> list[Effect]:
        expiry_s = packet.session_expiry_interval
        if expiry_s is not None:
            if expiry_s and not self._outlives:
                raise ProtocolViolation("a DISCONNECT wants the session kept, but the CONNECT did not")
            self._session_expiry_s = min(expiry_s, self.limits.session_expiry_max_s)
        code = int(packet.reason_code)
        if code not in connect.LEAVING_CODES:
            raise ProtocolViolation(
                f"a DISCONNECT of a client has the reason {code:#04x}, which is a server's"
            )
        if code == 0:
            self._will = None
        fault = "peer" if code >= 0x80 else "none"
        reason = (packet.reason_str or "the client disconnected")[:REASON_MAX_CHARS]
        return self._close(code, reason, fault)

    # A bare acknowledgement is smaller than any CONNACK, which the client took: none of these answers is too large.

    def _on_committed(self, event: Committed, now_us: int) -> list[Effect]:
        assert self._conversation is not None, "it is there once the client is accepted"
        return self._conversation.committed(event)

    def _on_commit_failed(self, event: CommitFailed, now_us: int) -> list[Effect]:
        assert self._conversation is not None, "it is there once the client is accepted"
        effects = self._conversation.commit_failed(event)
        return self._disconnect(event.reason_code, event.reason, "ours") if effects is None else effects

    def _on_released(self, event: Released, now_us: int) -> list[Effect]:
        assert self._conversation is not None, "it is there once the client is accepted"
        return self._conversation.released(event)

    # ── going ───────────────────────────────────────────────────────────────────────────────────────────────

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name == SessionTimer.CONNECT_DEADLINE and self.state is SessionState.CONNECTING:
            seconds = self.limits.connect_deadline_us / 1e6
            return self._close(0xA0, f"no CONNECT came within {seconds:g} s", "peer")
        if event.name == SessionTimer.CONNECT_DEADLINE and self.state is not SessionState.CONNECTED:
            todo = "authenticated" if self.state is SessionState.AUTHENTICATING else "given its session"
            return self._refuse(0x88, f"the client could not be {todo} in time", "ours")
        if event.name == SessionTimer.ACCOUNTS and self.state is SessionState.CONNECTED:
            reason = f"a connection about accounts lasts {ACCOUNTS_US // 1_000_000} s; connect again"
            return self._disconnect(0xA0, reason, "none")
        if event.name != SessionTimer.KEEP_ALIVE or self.state is not SessionState.CONNECTED:
            return []  # it ran out when it no longer mattered
        silent_us = now_us - self._heard_us
        if silent_us < self._patience_us:
            return [SetTimer(name=SessionTimer.KEEP_ALIVE, delay_us=self._patience_us - silent_us)]
        reason = f"nothing came for {silent_us / 1e6:g} s, more than one and a half times the keep-alive"
        return self._disconnect(0x8D, reason, "peer")

    def _on_wire_failure(self, event: WireFailed, now_us: int) -> list[Effect]:
        error = event.error
        if self.state is SessionState.CONNECTED:
            return self._disconnect(error.reason_code, error.problem, "peer")
        version = event.version if self.state is SessionState.CONNECTING else self.version
        if isinstance(error, UnsupportedVersion):
            version = connect.answer_version(error)
        if version is not None:
            self.version = version
        if version == V5 or (version is not None and error.reason_code in connect.ANSWERED_IN_311):
            return self._refuse(error.reason_code, error.problem, "peer")
        return self._close(error.reason_code, error.problem, "peer")

    def _on_peer_closed(self, event: PeerClosed, now_us: int) -> list[Effect]:
        return self._close(0x80, event.reason, "peer")

    def _on_taken_over(self, event: TakenOver, now_us: int) -> list[Effect]:
        reason = "another connection came with this client id"
        if self.state is SessionState.RESUMING:
            return self._refuse(0x8E, reason, "none")
        if event.clean_start:
            self._session_expiry_s = 0  # the session ends here, and with it any delay of the will
        elif self._will is not None and min(self._will.will_delay_interval, self._session_expiry_s):
            self._will = None  # the client is back before it is due
        return self._disconnect(0x8E, reason, "none")

    def _on_stopping(self, event: ServerStopping, now_us: int) -> list[Effect]:
        reason, reference = "the server is shutting down", event.server_reference
        if self.state in (SessionState.AUTHENTICATING, SessionState.RESUMING):
            return self._refuse(0x9C if reference else 0x88, reason, "none", reference)
        return self._disconnect(0x9C if reference else 0x8B, reason, "none", reference)

    def _on_moving(self, event: Moving, now_us: int) -> list[Effect]:
        if self.state is not SessionState.CONNECTED or (self.version != V5 and not event.compulsory):
            return []  # the redirect was meant for an earlier connection, or the client cannot be told where to go
        self._moves, reference = True, event.server_reference
        moved = 0x9D if event.lasting else 0x9C
        return self._disconnect(moved if reference else 0x8B, event.reason, "none", reference)

    def _on_will_announced(self, event: WillAnnounced, now_us: int) -> list[Effect]:
        self._will = None
        return []

    def _refuse(self, code: int, reason: str, fault: str, reference: str | None = None) -> list[Effect]:
        """Say no to a CONNECT."""
        full = connect.refusal(code, reason, reference)
        last_word = self._fitting(full, connect.refusal(code, None, reference))
        return self._close(code, reason, fault, last_word)

    def _disconnect(self, code: int, reason: str, fault: str, reference: str | None = None) -> list[Effect]:
        """Tell a connected client why it has to go, if its version has words for it; then close."""
        last_word = None
        if self.version == V5 and self.state is SessionState.CONNECTED:
            last_word = self._fitting(
                connect.dismissal(code, reason, reference), connect.dismissal(code, None, reference)
            )
        return self._close(code, reason, fault, last_word)

    def _close(self, code: int, reason: str, fault: str, last_word: Packet | None = None) -> list[Effect]:
        effects: list[Effect] = [] if last_word is None else [SendPacket(packet=last_word)]
        if self._will is not None and self._conversation is not None:
            effects += self._conversation.farewell(self._will, self._session_expiry_s, moving=self._moves)
        if self._conversation is not None:
            self._conversation.close()
        self._will = self._arrival = None
        self.state = SessionState.CLOSED
        kept_s = self._session_expiry_s
        return [*effects, Close(reason_code=code, reason=reason, fault=fault, session_expiry_s=kept_s)]

    def _fitting(self, *candidates: Packet) -> Packet | None:
        return fitting(candidates, self.version, self._send_max_bytes)

    table: ClassVar[Table] = {
        (SessionState.NEW, Opened): _open,
        (SessionState.CONNECTING, PacketArrived): _first,
        (SessionState.CONNECTING, WireFailed): _on_wire_failure,
        (SessionState.CONNECTING, TimerFired): _on_timer,
        (SessionState.CONNECTING, PeerClosed): _on_peer_closed,
        (SessionState.CONNECTING, ServerStopping): _on_stopping,
        (SessionState.AUTHENTICATING, PacketArrived): _keep_early,
        (SessionState.AUTHENTICATING, WireFailed): _on_wire_failure,
        (SessionState.AUTHENTICATING, TimerFired): _on_timer,
        (SessionState.AUTHENTICATING, PeerClosed): _on_peer_closed,
        (SessionState.AUTHENTICATING, ServerStopping): _on_stopping,
        (SessionState.AUTHENTICATING, Authenticated): _accept,
        (SessionState.AUTHENTICATING, Rejected): _reject,
        (SessionState.RESUMING, PacketArrived): _keep_early,
        (SessionState.RESUMING, WireFailed): _on_wire_failure,
        (SessionState.RESUMING, TimerFired): _on_timer,
        (SessionState.RESUMING, PeerClosed): _on_peer_closed,
        (SessionState.RESUMING, ServerStopping): _on_stopping,
        (SessionState.RESUMING, TakenOver): _on_taken_over,
        (SessionState.RESUMING, Resumed): _resume,
        (SessionState.RESUMING, ResumeFailed): _fail_to_resume,
        (SessionState.CONNECTED, PacketArrived): _on_packet,
        (SessionState.CONNECTED, WireFailed): _on_wire_failure,
        (SessionState.CONNECTED, TimerFired): _on_timer,
        (SessionState.CONNECTED, PeerClosed): _on_peer_closed,
        (SessionState.CONNECTED, ServerStopping): _on_stopping,
        ("*", Moving): _on_moving,
        ("*", WillAnnounced): _on_will_announced,
        (SessionState.CONNECTED, TakenOver): _on_taken_over,
        (SessionState.CONNECTED, Committed): _on_committed,
        (SessionState.CONNECTED, CommitFailed): _on_commit_failed,
        (SessionState.CONNECTED, Released): _on_released,
    }


def _only_watches(*packet: Any) -> NoReturn:
    raise ProtocolViolation("a connection that watches a broker neither publishes nor subscribes")


def _only_asks(*packet: Any) -> NoReturn:
    raise ProtocolViolation("a connection about accounts does nothing but publish to $account/… at QoS 1")


class Conversation:
    """Answers the packets of one connected client: subscriptions, messages and acknowledgements."""

    __slots__ = (
        "_explains",
        "_inbound",
        "_limits",
        "_send_max_bytes",
        "_subscriptions",
        "_version",
        "publishing",
    )

    def __init__(
        self,
        limits: SessionLimits,
        version: Version,
        client_id: str,
        send_max_bytes: int | None,
        *,
        explains: bool,
    ) -> None:
        self.publishing = Publishing(limits, client_id)
        self._limits = limits
        self._version = version
        self._send_max_bytes = send_max_bytes
        self._explains = explains  # the client wants reason strings
        self._subscriptions = Subscriptions(limits)
        self._inbound = Inbound(limits.receive_max if version == V5 else None, limits.inbound_max)

    @property
    def committing(self) -> int:
        return len(self._inbound)

    def inbound_ids(self) -> tuple[int, ...]:
        return self._inbound.held()

    def restore(
        self, subscriptions: Iterable[str], inbound: Iterable[int], requests: Mapping[str, str]
    ) -> None:
        self._subscriptions.restore(subscriptions, requests)
        self._inbound.restore(inbound)

    def permit(self, publish: Permission | None, subscribe: Permission | None) -> None:
        self.publishing.permit(publish)
        self._subscriptions.permit(subscribe)

    def close(self) -> None:
        """The client does nothing more; who answered for its rights is not held any longer."""
        self.publishing.close()
        self._subscriptions.close()

    # ── packets ─────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, packet: Packet) -> list[Effect]:
        match packet:
            case PublishPacket():
                return self._publish(packet)
            case PubRelPacket():
                return self._release(packet.packet_id)
            case PubAckPacket() | PubRecPacket() | PubCompPacket():
                return [Acknowledged(packet=packet)]
            case PingReqPacket():
                return self._answer(PingRespPacket())
            case SubscribePacket():
                return self._subscribe(packet)
            case UnsubscribePacket():
                effects, codes = self._subscriptions.remove(packet)
                return [*effects, *self._answer(UnsubAckPacket(packet.packet_id, codes))]
        name = type(packet).__name__.removesuffix("Packet").upper()
        raise ProtocolViolation(f"a client may not send {name} now")

    def _publish(self, packet: PublishPacket) -> list[Effect]:
        topic, qos, packet_id = self.publishing.topic_of(packet), int(packet.qos), packet.packet_id
        if packet_id is None:
            return [] if topic is None else [Publish(packet=packet, topic=topic)]
        if topic is None and not (qos == 2 and self._inbound.knows(packet_id)):
            return self._refuse(qos, packet_id, NOT_AUTHORIZED)
        verdict = self._inbound.publish(packet_id, qos, packet.duplicate)
        if verdict == "commit":
            assert topic is not None, "a new message was refused above"
            return [Commit(packet=packet, topic=topic, packet_id=packet_id, qos=qos)]
        if verdict == "received":
            return self._answer(PubRecPacket(packet_id))
        if verdict == "full":
            problem = (
                f"{self._limits.inbound_max} messages at QoS 2 wait for their PUBREL; release some first"
            )
            if self._version != V5:
                raise ProtocolViolation(problem, QUOTA_EXCEEDED)
            return self._refuse(qos, packet_id, QUOTA_EXCEEDED)
        return []

    def _release(self, packet_id: int) -> list[Effect]:
        under_way = self._inbound.release(packet_id) == "under way"
        return [] if under_way else [Release(packet_id=packet_id)]

    def _subscribe(self, packet: SubscribePacket) -> list[Effect]:
        if packet.subscription_id is not None and not self._limits.subscription_ids:
            raise ProtocolViolation("a SUBSCRIBE has a subscription identifier, and none are offered", 0xA1)
        effects, codes, reason = self._subscriptions.add(packet)
        bare = SubAckPacket(packet.packet_id, codes)
        if not reason or not self._explains:
            return [*effects, *self._answer(bare)]
        full = SubAckPacket(packet.packet_id, codes, reason_str=reason[:REASON_MAX_CHARS])
        return [*effects, *self._answer(full, bare)]

    def amended(
        self,
        packet: SubAckPacket,
        refused: Refused,
        note: str | None = None,
    ) -> SubAckPacket:
        """A SUBACK of which the shell cannot serve some, by index: the subscription, why, and the code. ``note`` is of
        all."""
        codes, reason = list(packet.reason_codes), packet.reason_str or (note if self._explains else None)
        for index, (wanted, why, code) in refused.items():
            codes[index] = code
            self._subscriptions.withdraw(wanted.name)
            reason = reason or (why[:REASON_MAX_CHARS] if self._explains else None)
        full = SubAckPacket(packet.packet_id, codes, reason_str=reason)
        fits = fitting([full], self._version, self._send_max_bytes) is not None
        return full if fits else SubAckPacket(packet.packet_id, codes)

    def noted(self, packet: UnsubAckPacket, note: str) -> UnsubAckPacket:
        """An UNSUBACK with a note, if the client wants notes and it fits."""
        full = UnsubAckPacket(packet.packet_id, packet.reason_codes, reason_str=note)
        fits = self._explains and fitting([full], self._version, self._send_max_bytes) is not None
        return full if fits else packet

    # ── what the shell did ──────────────────────────────────────────────────────────────────────────────────

    def committed(self, event: Committed) -> list[Effect]:
        qos = self._inbound.committed(event.packet_id)
        if qos is None:
            raise IllegalEvent("Session", "connected", f"Committed of packet id {event.packet_id}")
        return self._answer(PubAckPacket(event.packet_id) if qos == 1 else PubRecPacket(event.packet_id))

    def commit_failed(self, event: CommitFailed) -> list[Effect] | None:
        """The answer; None if the client's version has no words for it, and sending it again may help."""
        qos = self._inbound.failed(event.packet_id)
        if qos is None:
            raise IllegalEvent("Session", "connected", f"CommitFailed of packet id {event.packet_id}")
        if self._version != V5 and event.reason_code not in FOR_GOOD:
            return None
        return self._refuse(qos, event.packet_id, event.reason_code)

    def released(self, event: Released) -> list[Effect]:
        was = self._inbound.released(event.packet_id)
        if was is None:
            raise IllegalEvent("Session", "connected", f"Released of packet id {event.packet_id}")
        if was == "held":
            return self._answer(PubCompPacket(event.packet_id))
        unknown = PubCompReasonCode.PACKET_ID_NOT_FOUND
        return self._answer(PubCompPacket(event.packet_id, reason_code=unknown))

    def farewell(self, will: Will, session_expiry_s: int, *, moving: bool = False) -> list[Effect]:
        """The fate of a will that the client left."""
        return [due(will, session_expiry_s, moving=moving)] if self.publishing.allows(will.topic) else []

    # ── answering ───────────────────────────────────────────────────────────────────────────────────────────

    def _refuse(self, qos: int, packet_id: int, code: int) -> list[Effect]:
        kind, codes = _ANSWER[qos]
        code = QUOTA_EXCEEDED if code == TOO_LARGE else code  # an acknowledgement has no word for it
        if self._version != V5:
            return self._answer(kind(packet_id))
        # No reason string: clients exist that take no acknowledgement longer than its code.
        return self._answer(kind(packet_id, reason_code=refusal_code(codes, code)))

    def _answer(self, *candidates: Packet) -> list[Effect]:
        """Send the first that the client takes."""
        packet = fitting(candidates, self._version, self._send_max_bytes)
        if packet is not None:
            return [SendPacket(packet=packet)]
        raise ProtocolViolation(
            f"the answer is over the {self._send_max_bytes} bytes that the client takes", 0x95
        )


def fitting(candidates: Iterable[Packet], version: Version, max_bytes: int | None) -> Packet | None:
    """The first of these packets that is not larger than a client takes."""
    for packet in candidates:
        if max_bytes is None or len(encode(packet, version)) <= max_bytes:
            return packet
    return None

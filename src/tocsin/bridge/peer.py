"""The client's side of one AMQP 1.0 connection, without a socket: bytes in, events out.

    greeting ──SASL──► logging in ──► opening ──► open ──► closed

``heard`` takes what arrived and yields events; ``take_output`` is what is to be sent. ``tick`` is called every
half-second: it keeps the connection alive, and finds a peer that fell silent. After ``Ended`` there is nothing more.

**Links.** Each link has a session of its own. Some brokers answer a link that they do not want with the end of its
session, and the other links must not end with it. ``attach`` begins session and link, ``Attached`` says that it is
there, ``Detached`` that it is not, or no longer; then it may be attached again.

**Receiving.** ``grant`` states how many messages may still come. A message arrives whole, as ``Delivered``, or as
``Oversized`` if it is larger than the link takes; then none of it is kept. ``settle`` tells the peer its outcome.

**Sending.** ``Credited`` says how many messages the peer takes; ``send`` sends one, and ``Decided`` is its outcome.
Frames that the peer's session window does not take yet wait here; they are part of what credit allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec

from tocsin.errors import ProtocolViolation, WireError
from tocsin.wire.amqp.frames import (
    FRAME_MIN_MAX_BYTES,
    PLAIN_HEADER,
    SASL,
    SASL_HEADER,
    Frame,
    Reader,
    frame,
)
from tocsin.wire.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Outcome,
    Rejected,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
    outcome_of,
)

FRAME_MAX_BYTES: Final = 65_536
WINDOW: Final = 2_048  # frames that a peer may send before it hears that they were read
WRAP: Final = 1 << 32  # numbers of deliveries and frames go round
CHANNELS_MAX: Final = 256
IDLE_S: Final = 30  # a peer says something at least this often; twice as long is silence
MECHANISMS: Final = ("PLAIN", "EXTERNAL", "ANONYMOUS")
KEPT: Final[dict[str, Any]] = {
    "durable": 2,
    "expiry_policy": "never",
}  # of an end: its unsettled state, for ever
CODES: Final = {
    1: "the user or the password is wrong, or the user may not connect",
    2: "the peer has a problem with its users",
    3: "the peer has a problem that will not go away by itself",
    4: "the peer has a problem just now",
}


class Login(msgspec.Struct, frozen=True):
    """How to log in: a mechanism of SASL, and for PLAIN a user and a password."""

    mechanism: str = "ANONYMOUS"
    user: str = ""
    password: str = ""

    @property
    def response(self) -> bytes:
        if self.mechanism == "PLAIN":
            return b"\0" + self.user.encode() + b"\0" + self.password.encode()
        return b""


class State(StrEnum):
    """How far a connection is."""

    GREETING = "greeting"
    LOGGING_IN = "logging in"
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class Opened(msgspec.Struct, frozen=True):
    """The connection is there: links can be attached."""

    container: str


class Attached(msgspec.Struct, frozen=True):
    """A link is there."""

    link: str
    max_bytes: int | None = None  # the largest message that the peer takes on it


class Detached(msgspec.Struct, frozen=True):
    """A link is not there, or no longer."""

    link: str
    reason: str


class Credited(msgspec.Struct, frozen=True):
    """The peer takes so many more messages on a link, from now on."""

    link: str
    credit: int


class Delivered(msgspec.Struct, frozen=True):
    """A message came."""

    link: str
    delivery: int
    payload: bytes
    settled: bool = False  # the sender does not want to know what became of it


class Oversized(msgspec.Struct, frozen=True):
    """A message came that is larger than the link takes."""

    link: str
    delivery: int
    size: int
    settled: bool = False


class Decided(msgspec.Struct, frozen=True):
    """What became of a message that was sent; None: the peer does not say."""

    link: str
    tag: bytes
    outcome: Outcome | None


class Ended(msgspec.Struct, frozen=True):
    """The connection is at its end."""

    reason: str
    refused: bool = False  # the log-in: the same would happen again


PeerEvent = Opened | Attached | Detached | Credited | Delivered | Oversized | Decided | Ended


class _Partial(msgspec.Struct):
    """A message of which more is to come."""

    delivery: int
    settled: bool
    payload: bytearray
    size: int = 0


class _Link(msgspec.Struct):
    """A link and its session."""

    name: str
    address: str
    receives: bool
    channel: int
    max_bytes: int  # of a message that it receives
    durable: bool
    up: bool = False
    remote_handle: int | None = None
    delivery_count: int = 0
    credit: int = 0
    partial: _Partial | None = None
    next_incoming: int = 0  # of the session's frames
    window: int = WINDOW  # frames that the peer may still send
    next_outgoing: int = 0
    peer_window: int = 0  # frames that the peer takes
    next_delivery: int = 0
    waiting: deque[tuple[Transfer, bytes]] = msgspec.field(default_factory=deque)
    unsettled: dict[int, bytes] = {}  # tags, by delivery


class Peer:
    """The client's side of an AMQP connection, as a machine without a socket."""

    def __init__(self, container: str, hostname: str, login: Login) -> None:
        self.state = State.GREETING
        self._container, self._hostname, self._login = container, hostname, login
        self._reader = Reader(FRAME_MAX_BYTES)
        self._output = bytearray(SASL_HEADER)
        self._logged_in = False
        self._frame_max_bytes = FRAME_MIN_MAX_BYTES
        self._channel_max = CHANNELS_MAX - 1
        self._keep_alive_us: int | None = None
        self._heard_us: int | None = None
        self._sent_us = 0
        self._links: dict[str, _Link] = {}
        self._channels: dict[int, _Link] = {}  # ours; until the peer has ended the session as well
        self._remote: dict[int, _Link] = {}  # by the peer's channel

    def take_output(self) -> bytes:
        """What is to be sent now."""
        taken = bytes(self._output)
        self._output.clear()
        return taken

    # ── what a program asks for ─────────────────────────────────────────────────────────────────────────────

    def attach(
        self, link: str, address: str, *, receives: bool, max_bytes: int, durable: bool = True
    ) -> None:
        """Begin a link of that name; ``durable`` asks the peer to keep what the link stands for when it ends.

        ``ValueError`` if the peer has no room for one more.
        """
        assert self.state is State.OPEN and link not in self._links
        channel = next((each for each in range(self._channel_max + 1) if each not in self._channels), None)
        if channel is None:
            raise ValueError(f"the peer takes no more than {self._channel_max + 1} sessions")
        made = _Link(link, address, receives, channel, max_bytes, durable)
        self._links[link] = self._channels[channel] = made
        self._say(
            Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW, handle_max=0), channel
        )

    def grant(self, link: str, credit: int) -> None:
        """From now on so many messages may come on a link."""
        if (each := self._links.get(link)) is not None and each.up and each.credit != credit:
            each.credit = credit
            self._flow(each)

    def send(self, link: str, tag: bytes, payload: bytes, *, settled: bool = False) -> None:
        """Send a message that credit allows."""
        each = self._links[link]
        assert each.up and each.credit > 0
        each.credit -= 1
        each.delivery_count = (each.delivery_count + 1) % WRAP
        delivery, each.next_delivery = each.next_delivery, (each.next_delivery + 1) % WRAP
        if not settled:
            each.unsettled[delivery] = tag
        first = Transfer(
            handle=0, delivery_id=delivery, delivery_tag=tag, message_format=0, settled=settled, more=True
        )
        room = self._frame_max_bytes - len(frame(first))
        parts = [payload[at : at + room] for at in range(0, len(payload), room)] or [b""]
        for number, part in enumerate(parts):
            more = number < len(parts) - 1
            performative = Transfer(handle=0, more=more, settled=settled or None)
            if number == 0:
                performative = msgspec.structs.replace(first, more=more)
            each.waiting.append((performative, part))
        self._pump(each)

    def settle(self, link: str, delivery: int, outcome: Outcome) -> None:
        """Tell the peer what became of a message that came on this connection."""
        if (each := self._links.get(link)) is not None and each.up:
            self._say(Disposition(role=True, first=delivery, settled=True, state=outcome), each.channel)

    def close(self, error: Error | None = None) -> None:
        """Take leave."""
        if self.state is State.OPEN:
            self._say(Close(error=error))
        self.state = State.CLOSED

    def tick(self, now_us: int) -> list[PeerEvent]:
        """Keep the connection alive; ``Ended`` if the peer is silent."""
        if self._heard_us is None:
            self._heard_us = now_us
        if self.state is State.CLOSED:
            return []
        if now_us - self._heard_us > 2 * IDLE_S * 1_000_000:
            return self._end(f"it has said nothing for {2 * IDLE_S} s")
        if self._keep_alive_us is not None and now_us - self._sent_us >= self._keep_alive_us:
            self._sent_us = now_us
            self._output += frame(None)
        return []

    # ── what the peer says ──────────────────────────────────────────────────────────────────────────────────

    def heard(self, data: bytes, now_us: int) -> Iterator[PeerEvent]:
        """Take what arrived, frame by frame: an event is how it is at that moment, so act on it before the next.

        A peer that breaks the protocol is told so, and the connection is at its end.
        """
        self._heard_us = now_us
        self._reader.feed(data)
        while self.state is not State.CLOSED:
            try:
                events = self._next()
            except WireError as error:
                self.close(Error(condition="amqp:framing-error", description=str(error)[:256]))
                events = [Ended(f"it broke the protocol: {error}")]
            if events is None:
                return
            yield from events

    def _next(self) -> list[PeerEvent] | None:
        """What follows from the next header or frame; None if there is none yet."""
        if self.state is State.GREETING or (self.state is State.OPENING and not self._logged_in):
            wanted = SASL_HEADER if self.state is State.GREETING else PLAIN_HEADER
            header = self._reader.header()
            return None if header is None else self._greeted(header, wanted)
        heard = self._reader.frame()
        return None if heard is None else self._take(heard)

    def _greeted(self, header: bytes, wanted: bytes) -> list[PeerEvent]:
        if header != wanted:
            version = ".".join(map(str, header[5:]))
            what = "AMQP 1.0 with SASL" if wanted == SASL_HEADER else "AMQP 1.0"
            return self._end(
                f"it does not speak {what}: it answered with protocol {header[4]}, version {version}",
                refused=True,
            )
        if wanted == SASL_HEADER:
            self.state = State.LOGGING_IN
        else:
            self._logged_in = True
        return []

    def _take(self, heard: Frame) -> list[PeerEvent]:
        said = heard.performative
        if said is None:
            return []
        if (heard.kind == SASL) != (self.state is State.LOGGING_IN):
            raise ProtocolViolation(f"a frame of type {heard.kind} came while {self.state}")
        match said:
            case SaslMechanisms():
                return self._choose(said)
            case SaslOutcome():
                return self._log_in(said)
            case Open():
                return self._open(said)
            case Close():
                self.close()
                return [Ended(_why("it closed the connection", said.error))]
            case Begin():
                return self._begin(said, heard.channel)
        if self.state is State.LOGGING_IN:
            return self._end(
                f"it asks a question that {self._login.mechanism} has no answer to", refused=True
            )
        link = self._remote.get(heard.channel)
        if link is None:
            raise ProtocolViolation(
                f"{type(said).__name__} came on channel {heard.channel}, which is not begun"
            )
        return self._take_of(link, said, heard)

    def _take_of(self, link: _Link, said: Composite, heard: Frame) -> list[PeerEvent]:
        match said:
            case End():
                del self._remote[heard.channel]
                self._channels.pop(link.channel, None)
                if self._links.get(link.name) is not link:
                    return []
                self._say(End(), link.channel)
                return self._lose(link, _why("the peer ended its session", said.error))
            case _ if self._links.get(link.name) is not link:
                return []  # we have ended it, and the peer had not heard of it yet
            case Attach():
                return self._attached(link, said)
            case Detach():
                self._say(Detach(handle=0, closed=True), link.channel)
                self._say(End(), link.channel)
                return self._lose(link, _why("the peer detached it", said.error))
            case Flow():
                return self._flowed(link, said)
            case Transfer():
                return self._transferred(link, said, heard.payload)
            case Disposition():
                return self._decided(link, said)
        raise ProtocolViolation(f"{type(said).__name__} came on a session")

    # ── the log-in and the connection ───────────────────────────────────────────────────────────────────────

    def _choose(self, said: SaslMechanisms) -> list[PeerEvent]:
        offered = said.mechanisms if isinstance(said.mechanisms, list) else [said.mechanisms]
        ours = self._login.mechanism
        if ours not in offered:
            names = ", ".join(str(each)[:40] for each in offered[:10]) or "none"
            return self._end(f"it does not let anybody log in by {ours}; it offers {names}", refused=True)
        init = SaslInit(mechanism=ours, initial_response=self._login.response, hostname=self._hostname)
        self._output += frame(init, kind=SASL)
        return []

    def _log_in(self, said: SaslOutcome) -> list[PeerEvent]:
        if said.code:
            who = f"{self._login.user!r} " if self._login.user else ""
            reason = CODES.get(said.code, f"code {said.code}")
            refused = said.code != 4
            return self._end(
                f"it refused the log-in {who}by {self._login.mechanism}: {reason}", refused=refused
            )
        self.state = State.OPENING
        self._output += PLAIN_HEADER
        self._say(
            Open(
                container_id=self._container,
                hostname=self._hostname,
                max_frame_size=FRAME_MAX_BYTES,
                channel_max=CHANNELS_MAX - 1,
                idle_time_out=IDLE_S * 1000,
            )
        )
        return []

    def _open(self, said: Open) -> list[PeerEvent]:
        if self.state is not State.OPENING:
            raise ProtocolViolation("Open came twice")
        self.state = State.OPEN
        self._frame_max_bytes = max(FRAME_MIN_MAX_BYTES, min(said.max_frame_size or WRAP, FRAME_MAX_BYTES))
        if said.channel_max is not None:
            self._channel_max = min(said.channel_max, self._channel_max)
        if said.idle_time_out:
            self._keep_alive_us = said.idle_time_out * 1000 // 2
        return [Opened(said.container_id)]

    def _end(self, reason: str, *, refused: bool = False) -> list[PeerEvent]:
        self.close(Error(condition="amqp:connection:forced", description=reason[:256]))
        return [Ended(reason, refused)]

    # ── sessions and links ──────────────────────────────────────────────────────────────────────────────────

    def _begin(self, said: Begin, channel: int) -> list[PeerEvent]:
        link = self._channels.get(-1 if said.remote_channel is None else said.remote_channel)
        if link is None or channel in self._remote:
            raise ProtocolViolation("a session came that nobody asked for")
        self._remote[channel] = link
        link.next_incoming, link.peer_window = said.next_outgoing_id, said.incoming_window
        if self._links.get(link.name) is not link:
            return []
        kept = KEPT if link.durable else {}
        self._say(
            Attach(
                name=link.name,
                handle=0,
                role=link.receives,
                rcv_settle_mode=0,
                source=Source(address=link.address, **kept) if link.receives else Source(),
                target=Target() if link.receives else Target(address=link.address, **kept),
                initial_delivery_count=None if link.receives else 0,
                max_message_size=link.max_bytes,
            ),
            link.channel,
        )
        return []

    def _attached(self, link: _Link, said: Attach) -> list[PeerEvent]:
        if said.name != link.name or said.role == link.receives or link.remote_handle is not None:
            raise ProtocolViolation(f"a link {said.name[:80]!r} came that nobody asked for")
        link.remote_handle = said.handle
        if (said.source if link.receives else said.target) is None:
            return []  # it is refused; the peer says why when it detaches
        link.up = True
        if link.receives:
            link.delivery_count = said.initial_delivery_count or 0
        return [Attached(link.name, said.max_message_size or None)]

    def _lose(self, link: _Link, reason: str) -> list[PeerEvent]:
        del self._links[link.name]
        return [Detached(link.name, reason)]

    def _flowed(self, link: _Link, said: Flow) -> list[PeerEvent]:
        seen = said.next_incoming_id or 0
        link.peer_window = _ahead(seen + said.incoming_window, link.next_outgoing)
        self._pump(link)
        events: list[PeerEvent] = []
        if said.handle is not None and link.up and not link.receives:
            link.credit = _ahead((said.delivery_count or 0) + (said.link_credit or 0), link.delivery_count)
            events.append(Credited(link.name, link.credit))
        if said.echo:
            self._flow(link)
        return events

    def _flow(self, link: _Link) -> None:
        """Say how the session and the link are; the peer's window is full again."""
        link.window = WINDOW
        self._say(
            Flow(
                next_incoming_id=link.next_incoming,
                incoming_window=WINDOW,
                next_outgoing_id=link.next_outgoing,
                outgoing_window=WINDOW,
                handle=0 if link.up else None,
                delivery_count=link.delivery_count if link.up else None,
                link_credit=link.credit if link.up else None,
            ),
            link.channel,
        )

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def _pump(self, link: _Link) -> None:
        while link.waiting and link.peer_window > 0:
            performative, part = link.waiting.popleft()
            link.peer_window -= 1
            link.next_outgoing = (link.next_outgoing + 1) % WRAP
            self._output += frame(performative, part, channel=link.channel)

    def _transferred(self, link: _Link, said: Transfer, part: bytes) -> list[PeerEvent]:
        if not link.up or not link.receives or said.handle != link.remote_handle:
            raise ProtocolViolation("a message came on a link that does not receive")
        link.next_incoming = (link.next_incoming + 1) % WRAP
        link.window -= 1
        if link.window < 0:
            raise ProtocolViolation("more frames came than the session's window takes")
        if link.window < WINDOW // 2:
            self._flow(link)
        partial = link.partial
        if partial is None:
            if said.delivery_id is None:
                raise ProtocolViolation("a message came without a number")
            if link.credit <= 0:
                raise ProtocolViolation("a message came without credit")
            link.credit -= 1
            link.delivery_count = (link.delivery_count + 1) % WRAP
            partial = link.partial = _Partial(said.delivery_id, False, bytearray())
        partial.settled |= bool(said.settled)
        partial.size += len(part)
        if partial.size <= link.max_bytes:
            partial.payload += part
        else:
            partial.payload.clear()
        if said.more and not said.aborted:
            return []
        link.partial = None
        if said.aborted:
            # It used up credit, as a delivery does, and nothing came of it.
            return [Oversized(link.name, partial.delivery, 0, True)]
        if partial.size > link.max_bytes:
            return [Oversized(link.name, partial.delivery, partial.size, partial.settled)]
        return [Delivered(link.name, partial.delivery, bytes(partial.payload), partial.settled)]

    def _decided(self, link: _Link, said: Disposition) -> list[PeerEvent]:
        outcome = outcome_of(said.state)
        if not said.role or (outcome is None and not said.settled):
            return []
        last = said.first if said.last is None else said.last
        numbers = [each for each in link.unsettled if _ahead(each, said.first) <= _ahead(last, said.first)]
        if numbers and not said.settled:
            self._say(Disposition(role=False, first=said.first, last=last, settled=True), link.channel)
        return [Decided(link.name, link.unsettled.pop(each), outcome) for each in numbers]

    def _say(self, performative: Composite, channel: int = 0) -> None:
        self._output += frame(performative, channel=channel)


def _ahead(number: int, base: int) -> int:
    """How far a number is ahead of another, where numbers go round; 0 if it is behind."""
    distance = (number - base) % WRAP
    return distance if distance < WRAP // 2 else 0


def _why(what: str, error: Error | None) -> str:
    return f"{what}: {error}"[:400] if error is not None else what


ACCEPTED: Final = Accepted()
FAILED: Final = Modified(delivery_failed=True)


def rejected(reason: str, condition: str = "amqp:precondition-failed") -> Outcome:
    """The outcome of a message that cannot be taken, with the reason."""
    return Rejected(error=Error(condition=condition, description=reason[:256]))

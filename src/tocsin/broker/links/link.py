"""Links: one-way MQTT 5 connections to other brokers, dialled by the side that has messages to send.

A link is TLS in which both sides show certificates of the network's own authority. The peer proves its name before the
link sends anything: an impostor on its port learns nothing. The link's client id is ``$link/`` and the name in this
broker's own certificate; a user property says which cluster it comes from. The peer relays the link's messages, and
never sends them back.

Everything here is best effort: what waits is bounded in bytes and in age, and what is dropped is counted
(``core.links.backlog``). While a link is away, messages wait, so that a route's first messages and a peer's restart
cost nothing. They wait too while a link is **full**, because more is published than it can carry: only a little is
ahead of a sign of life then, and what goes out is never old.

A link that stays away may have a **detour**: then messages are handed to ``broker.links.relay`` instead, and
``core.links.path`` says when. Messages carried for others take the link itself, or wait.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

import msgspec
import structlog
from mqtt5 import ConnAckPacket, ConnectPacket, Packet, PingRespPacket

from tocsin.broker.forwarding.fanout import NOWHERE, OutletSet
from tocsin.core.links.backlog import LinkBacklog
from tocsin.core.links.incoming import LINK_PREFIX, PROPERTY_CLUSTER, PROPERTY_LEVELS
from tocsin.core.links.path import STRAIGHT, LinkPath
from tocsin.core.links.signals import Down, Ending
from tocsin.model.network import BrokerInfo
from tocsin.model.versions import speaks
from tocsin.runtime.machines.clock import now_us
from tocsin.runtime.machines.flow import Repeats
from tocsin.runtime.machines.line import Endpoint, Line
from tocsin.runtime.security.credentials import Identity, peer_of

KEEP_ALIVE_S: Final = 4  # a peer that hangs is noticed after two thirds of membership's default suspicion
QUIET_KEEP_ALIVE_S: Final = 40  # … over a link that has nothing to carry
# The bytes that a broker may add to a client's packet; peers grant each other so much.
PACKET_MARGIN_BYTES: Final = 64 << 10
NO_MAXIMUM: Final = 1 << 28  # more than any MQTT frame
MOMENT_S: Final = 0.001  # so that a timer does not fire before its time by another clock
ANSWER_MAX_BYTES: Final = 64 << 10  # a peer only ever answers CONNACK, PINGRESP and DISCONNECT
AHEAD_MAX_BYTES: Final = (
    32 << 10
)  # in a link before it counts as full; as much again is in the kernel, unsent
DRAIN_BYTES: Final = 64 << 10  # of what waits, in one turn of the event loop

BROKER_ROLE: Final = "broker"  # in certificates
COORDINATOR_ROLE: Final = "coordinator"

Carry = Callable[[tuple[str, ...], bytes, int], None]  # relays, frames, messages


class LinkTls(Protocol):
    """The certificates by which brokers know each other; the real ones are ``PeerTls``."""

    believed: frozenset[bytes]  # the authorities, as they are encoded
    server: ssl.SSLContext

    @property
    def client(self) -> ssl.SSLContext: ...

    @property
    def problem(self) -> str | None:
        """Why peers do not believe the broker's own certificate; None: they do."""
        ...

    async def replaced(self) -> None:
        """Wait until other certificates are in use."""
        ...


class LinkSecurity(msgspec.Struct, frozen=True):
    """By what brokers of one network know each other."""

    network: str
    tls: LinkTls

    def broker(self, name: str) -> Identity:
        """The name that the peer's certificate has to have."""
        return Identity(self.network, BROKER_ROLE, name)

    def coordinator(self, name: str) -> Identity:
        """The name that a coordinator's certificate has to have."""
        return Identity(self.network, COORDINATOR_ROLE, name)


class _Meant:
    """That a server is the peer that a link is for."""

    def __init__(self, security: LinkSecurity, info: BrokerInfo) -> None:
        self._security = security
        self._expected = security.broker(info.certificate_name)

    @property
    def context(self) -> ssl.SSLContext:
        return self._security.tls.client

    def problem(self, connection: Any) -> str | None:
        found = peer_of(connection)
        if found == self._expected:
            return None
        return f"{found or 'somebody else'} listens there, and not {self._expected}"


def meant(security: LinkSecurity, info: BrokerInfo) -> Endpoint:
    """Where a peer listens for links, who has to prove that it is that peer."""
    return Endpoint(info.host, info.port, proof=_Meant(security, info))


def greeting_of(own: BrokerInfo, keep_alive_s: int, *said: tuple[str, str]) -> ConnectPacket:
    """How a broker introduces itself to another."""
    return ConnectPacket(
        f"{LINK_PREFIX}{own.certificate_name}",
        clean_start=True,
        keep_alive=keep_alive_s,
        user_properties=[(PROPERTY_CLUSTER, own.cluster), (PROPERTY_LEVELS, speaks().text), *said],
    )


class LinkWatcher(Protocol):
    """Who is told how links to peers are: the pool that has them made."""

    def link_known(self, peer: str) -> None:
        """It is known whether the link is up: said each time that it comes up, goes down, or cannot be made."""
        ...

    def link_ended(self, peer: str, ending: Ending) -> None:
        """The peer has ended the link, or refuses it."""
        ...

    def link_measured(self, peer: str, round_trip_us: int) -> None:
        """The peer has answered a sign of life."""
        ...


class Link:
    """An outlet to one peer."""

    def __init__(
        self,
        own: BrokerInfo,
        info: BrokerInfo,
        security: LinkSecurity,
        *,
        outbound_max_bytes: int,
        dropped: Callable[[int], None],
        watcher: LinkWatcher,
        quiet: bool = False,
        said: tuple[tuple[str, str], ...] = (),
        waits: Callable[[], Awaitable[asyncio.Transport]] | None = None,
    ) -> None:
        """``quiet``: nothing is to be sent; it only shows when the peer ends it. ``said``: what the greeting says
        beside the usual. ``waits`` for a connection from a peer that cannot be dialled."""
        self.info = info
        self.quiet = quiet
        self.group = OutletSet(self)
        self.send_max_bytes = NO_MAXIMUM
        self.descriptor = NOWHERE
        self.problem = "not connected yet"  # why it is not up; empty if it is
        self.tried = False  # it was up, or could not be made
        self.sent_bytes = 0  # of messages, straight over it
        self._outbound_max_bytes = outbound_max_bytes
        self._dropped = dropped  # told how many messages were lost
        self._watcher = watcher
        self._passage = LinkPath()
        self._carry: Carry = _nowhere  # sends what takes the detour
        self._own = LinkBacklog(outbound_max_bytes, dropped)
        self._carried = LinkBacklog(outbound_max_bytes, dropped)  # for others
        self._behind: deque[tuple[int, Callable[[], None]]] = deque()  # fences, and their marks in ``_own``
        self._again: asyncio.TimerHandle | None = None
        self._draining: asyncio.Handle | None = None
        greeting = greeting_of(own, QUIET_KEEP_ALIVE_S if quiet else KEEP_ALIVE_S, *said)
        at = msgspec.structs.replace(meant(security, info), waits=waits)
        self._line = Line(
            [at],
            greeting,
            self,
            redial=True,
            packet_max_bytes=ANSWER_MAX_BYTES,
            ahead_max_bytes=AHEAD_MAX_BYTES,
            resumed=self._drain_now,
        )
        self._log = structlog.get_logger().bind(peer=info.id, cause=f"link {own.id}→{info.id}")

    @property
    def up(self) -> bool:
        return self._line.up

    @property
    def reachable(self) -> bool:
        """Whether messages have a way to the peer."""
        return self._passage.reachable

    @property
    def detour(self) -> tuple[str, ...]:
        return self._passage.detour

    def open(self) -> None:
        self._line.open()

    @property
    def waiting_bytes(self) -> int:
        """The bytes of messages that wait for a way, or for room on it."""
        return self._own.size + self._carried.size

    @property
    def late(self) -> int:
        """Messages that were dropped because they had waited for too long."""
        return self._own.late + self._carried.late

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._draining is not None:
            self._draining.cancel()
        self._line.close()

    def aliased(self, frame: bytes) -> bytes:
        return frame

    def deliver(self, data: bytes, messages: int) -> None:
        now = now_us()
        way = self._passage.way(now)
        if way is None or len(self._own) or (self._line.full and way == STRAIGHT):
            self._own.add(data, messages, now)
            self._drain(now)
        else:
            self._send(way, data, messages, now)

    def _send(self, way: tuple[str, ...], data: bytes, messages: int, now: int) -> None:
        self._passage.sent(way, now)
        if way == STRAIGHT:
            self.sent_bytes += len(data)
            self._line.write(data)
        else:
            self._carry(way, data, messages)

    def spill(self, data: bytes) -> None:
        self._line.write(data)

    def pass_on(self, frame: bytes, messages: int) -> None:
        """A frame that carries messages of others: straight to the peer, or it waits."""
        if self._line.up and len(frame) > self.send_max_bytes:
            self._dropped(messages)
        elif self._line.up and not self._line.full and not len(self._carried):
            self._line.write(frame)
        else:
            self._carried.add(frame, messages, now_us())
            self._drain(now_us())

    def send_now(self, frame: bytes) -> bool:
        """Send a frame straight, if nothing is in its way; whether that was so. Other frames may be older."""
        line = self._line
        if not line.up or line.full or len(self._carried) or len(frame) > self.send_max_bytes:
            return False
        line.write(frame)
        return True

    def repeats(self) -> Repeats | None:
        """How often the kernel had to send something again; None if nobody can tell."""
        return self._line.repeats()

    def bypass(self, relays: tuple[str, ...], carry: Carry) -> None:
        """Send over these instead while the link is not up; () for nobody."""
        if relays != self._passage.detour:
            self._passage.detour, self._carry = relays, carry
            self._drain(now_us())

    def ping(self) -> None:
        self._line.ping()

    def hurry(self) -> None:
        """Dial now, if only the back-off is waited for."""
        self._line.hurry()

    def dial_again(self) -> None:
        """End the connection, and make another."""
        self._line.fail("peers are to show their certificates again")

    def fence(self, then: Callable[[], None]) -> None:
        """Call this when the peer has read everything that was sent straight to it until now, what waits included;
        never, if the link breaks before."""
        self._behind.append((self._own.mark, then))
        self._pass_fences()

    def _pass_fences(self) -> None:
        while self._behind and self._own.passed(self._behind[0][0]):
            self._line.fence(self._behind.popleft()[1])

    def take_waiting(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        """What waits for the link on topics that are wanted, message by message; it waits here no longer."""
        return self._own.take_each(wanted)

    def _drain_now(self) -> None:
        self._draining = None
        self._drain(now_us())

    def _drain(self, now: int) -> None:
        """Send what waits, now or as soon as it may go."""
        if self._line.up:
            self._drain_straight(now)
        if not len(self._own):
            return
        way = self._passage.way(now)
        if way is not None and way != STRAIGHT:
            for data, messages in self._own.take(now):
                self._send(way, data, messages, now)
            self._pass_fences()
            return
        later_us = None if way == STRAIGHT else self._passage.look_again_us(now)
        if later_us is not None and self._again is None:
            delay_s = (later_us - now) / 1e6 + MOMENT_S
            self._again = asyncio.get_running_loop().call_later(delay_s, self._look_again)

    def _drain_straight(self, now: int) -> None:
        """Send over the link what waits, the oldest first, until it is full, and not too much in one turn."""
        room = DRAIN_BYTES
        while room > 0 and not self._line.full:
            first = self._first_waiting(now)
            entry = None if first is None else next(first.take(now), None)
            if entry is None:
                break
            data, messages = entry
            if first is self._own:
                self._send(STRAIGHT, data, messages, now)
            elif len(data) > self.send_max_bytes:
                self._dropped(messages)
            else:
                self._line.write(data)
            room -= len(data)
        self._pass_fences()
        if room <= 0 and self._draining is None:
            self._draining = asyncio.get_running_loop().call_soon(self._drain_now)

    def _first_waiting(self, now: int) -> LinkBacklog | None:
        """Where the oldest message waits that can go straight; None if there is none."""
        queues = [self._carried] if len(self._carried) else []
        if len(self._own) and self._passage.way(now) == STRAIGHT:
            queues.append(self._own)
        return min(queues, key=lambda each: each.oldest_us, default=None)

    def _look_again(self) -> None:
        self._again = None
        self._drain(now_us())

    # ── what the line tells ─────────────────────────────────────────────────────────────────────────────────

    def line_up(self, answer: ConnAckPacket) -> None:
        self.problem, self.tried = "", True
        self.send_max_bytes = (answer.max_packet_size or NO_MAXIMUM) + PACKET_MARGIN_BYTES
        self._log.info("link is up")
        now = now_us()
        self._passage.link_up(now)
        self._drain(now)
        self._line.ping()
        self._watcher.link_known(self.info.id)

    def line_down(self, down: Down) -> None:
        if not self.problem:
            self._log.warning("link is down", problem=down.reason)
        elif down.reason_code and down.reason != self.problem:
            self._log.error("link is refused", problem=down.reason)
        self.problem, self.tried = down.reason, True
        self._passage.link_down()
        self._behind.clear()
        self._drain(now_us())
        self._watcher.link_known(self.info.id)
        if down.ending is not Ending.OTHER:
            self._watcher.link_ended(self.info.id, down.ending)

    def line_heard(self, packet: Packet) -> None:
        """A peer sends nothing over our link that concerns us but signs of life."""
        if isinstance(packet, PingRespPacket) and self._line.round_trip_us is not None:
            self._watcher.link_measured(self.info.id, self._line.round_trip_us)


def _nowhere(way: tuple[str, ...], data: bytes, messages: int) -> None:
    raise AssertionError("no detour was set")

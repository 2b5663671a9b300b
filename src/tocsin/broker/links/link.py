"""Links: one-way MQTT 5 connections to other brokers, dialled by the side that has messages to send.

A link is TLS in which both sides show certificates of the network's own authority. The peer proves its name before the
link sends anything: an impostor on its port learns nothing. The link's client id is ``$link/`` and the name in this
broker's own certificate; a user property says which cluster it comes from. The peer relays the link's messages, and
never sends them back.

Everything here is best effort: bytes that wait are bounded, and what finds no room is dropped and counted. While a link
is away, messages wait (``Waiting``), so that a route's first messages and a peer's restart cost nothing.

A link that stays away may have a **detour**: then messages are handed to ``broker.links.relay`` instead, and
``core.links.path`` says when. Messages carried for others take the link itself, or wait.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import msgspec
import structlog
from mqtt5 import ConnAckPacket, ConnectPacket, Packet, PingRespPacket

from tocsin.broker.forwarding.fanout import NOWHERE, OutletSet
from tocsin.core.links.incoming import LINK_PREFIX, PROPERTY_CLUSTER, PROPERTY_LEVELS
from tocsin.core.links.path import STRAIGHT, LinkPath
from tocsin.core.links.signals import Down, Ending
from tocsin.model.network import BrokerInfo
from tocsin.model.versions import speaks
from tocsin.runtime.machines.clock import monotonic_s, now_us
from tocsin.runtime.machines.line import Endpoint, Line
from tocsin.runtime.security.credentials import Identity, peer_of
from tocsin.wire.internal.relayed import pieces
from tocsin.wire.mqtt.frames import topic_of

HOLD_S: Final = 5.0  # older messages at QoS 0 would be stale
KEEP_ALIVE_S: Final = 4  # a peer that hangs is noticed after two thirds of membership's default suspicion
QUIET_KEEP_ALIVE_S: Final = 40  # … over a link that has nothing to carry
# The bytes that a broker may add to a client's packet; peers grant each other so much.
PACKET_MARGIN_BYTES: Final = 64 << 10
NO_MAXIMUM: Final = 1 << 28  # more than any MQTT frame
MOMENT_S: Final = 0.001  # so that a timer does not fire before its time by another clock
ANSWER_MAX_BYTES: Final = 64 << 10  # a peer only ever answers CONNACK, PINGRESP and DISCONNECT

BROKER_ROLE: Final = "broker"  # in certificates
COORDINATOR_ROLE: Final = "coordinator"

Carry = Callable[[tuple[str, ...], bytes, int], None]  # relays, frames, messages


class Waiting:
    """Frames that wait for a way: for HOLD_S at most, and so many bytes. Older messages, and those over the bound, are
    dropped; ``dropped`` is told how many.
    """

    def __init__(self, bytes_max: int, dropped: Callable[[int], None]) -> None:
        self._bytes_max = bytes_max
        self._dropped = dropped
        self._queue: deque[tuple[float, bytes, int]] = deque()  # when, frames, messages
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def size(self) -> int:
        """The bytes that wait."""
        return self._bytes

    def add(self, data: bytes, messages: int) -> None:
        now = monotonic_s()
        self._queue.append((now, data, messages))
        self._bytes += len(data)
        while self._queue and (self._bytes > self._bytes_max or self._queue[0][0] < now - HOLD_S):
            _, stale, lost = self._queue.popleft()
            self._bytes -= len(stale)
            self._dropped(lost)

    def take(self) -> Iterator[tuple[bytes, int]]:
        """All that is not too old, which then waits no longer."""
        queue, self._queue, self._bytes = self._queue, deque(), 0
        oldest = monotonic_s() - HOLD_S
        for at, data, messages in queue:
            if at < oldest:
                self._dropped(messages)
            else:
                yield data, messages

    def take_each(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        """The messages on topics that are wanted, with their frames; the others go on waiting, in their order."""
        queue, self._queue, self._bytes = self._queue, deque(), 0
        for at, data, messages in queue:
            kept, left = [], 0
            for frame, _ in pieces(data, 1):
                topic = topic_of(frame).decode()
                if wanted(topic):
                    left += 1
                    yield topic, frame
                else:
                    kept.append(frame)
            if kept:
                self._queue.append((at, b"".join(kept), messages - left))
                self._bytes += sum(map(len, kept))


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
    ) -> None:
        """``quiet``: nothing is to be sent; it only shows when the peer ends it."""
        self.info = info
        self.quiet = quiet
        self.group = OutletSet(self)
        self.send_max_bytes = NO_MAXIMUM
        self.descriptor = NOWHERE
        self.problem = "not connected yet"  # why it is not up; empty if it is
        self.tried = False  # it was up, or could not be made
        self._outbound_max_bytes = outbound_max_bytes
        self._dropped = dropped  # told how many messages were lost
        self._watcher = watcher
        self._passage = LinkPath()
        self._carry: Carry = _nowhere  # sends what takes the detour
        self._own = Waiting(outbound_max_bytes, dropped)  # while there is no way
        self._carried = Waiting(outbound_max_bytes, dropped)  # for others, while there is no line
        self._again: asyncio.TimerHandle | None = None
        greeting = greeting_of(own, QUIET_KEEP_ALIVE_S if quiet else KEEP_ALIVE_S)
        at = meant(security, info)
        self._line = Line([at], greeting, self, redial=True, packet_max_bytes=ANSWER_MAX_BYTES)
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

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        self._line.close()

    def aliased(self, frame: bytes) -> bytes:
        return frame

    def deliver(self, data: bytes, messages: int) -> None:
        now = now_us()
        way = self._passage.way(now)
        if way is None or len(self._own):
            self._own.add(data, messages)
            self._drain(now)
        else:
            self._send(way, data, messages, now)

    def _send(self, way: tuple[str, ...], data: bytes, messages: int, now: int) -> None:
        self._passage.sent(way, now)
        if way == STRAIGHT:
            self._write(data, messages)
        else:
            self._carry(way, data, messages)

    def _write(self, data: bytes, messages: int) -> None:
        if self._line.waiting_bytes + len(data) > self._outbound_max_bytes:
            self._dropped(messages)
        else:
            self._line.write(data)

    def spill(self, data: bytes) -> None:
        self._line.write(data)

    def pass_on(self, frame: bytes, messages: int) -> None:
        """A frame that carries messages of others: straight to the peer, or it waits."""
        if not self._line.up:
            self._carried.add(frame, messages)
        elif len(frame) > self.send_max_bytes:
            self._dropped(messages)
        else:
            self._write(frame, messages)

    def bypass(self, relays: tuple[str, ...], carry: Carry) -> None:
        """Send over these instead while the link is not up; () for nobody."""
        if relays != self._passage.detour:
            self._passage.detour, self._carry = relays, carry
            self._drain(now_us())

    def ping(self) -> None:
        self._line.ping()

    def fence(self, then: Callable[[], None]) -> None:
        """Call this when the peer has read everything that was sent straight to it until now; never, if the link
        breaks before."""
        self._line.fence(then)

    def take_waiting(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        """What waits for the link on topics that are wanted, message by message; it waits here no longer."""
        return self._own.take_each(wanted)

    def _drain(self, now: int) -> None:
        """Send what waits, now or as soon as it may go."""
        if not len(self._own):
            return
        way = self._passage.way(now)
        if way is not None:
            for data, messages in self._own.take():
                self._send(way, data, messages, now)
            return
        later_us = self._passage.look_again_us(now)
        if later_us is not None and self._again is None:
            delay_s = (later_us - now) / 1e6 + MOMENT_S
            self._again = asyncio.get_running_loop().call_later(delay_s, self._look_again)

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
        for frame, messages in self._carried.take():
            self.pass_on(frame, messages)
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

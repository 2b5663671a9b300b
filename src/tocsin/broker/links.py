"""Links: one-way MQTT 5 connections to other brokers, dialled by the side that has messages to send.

A link introduces itself as the user ``$link`` with the network's secret and says in user properties which broker
and cluster it comes from; what it then publishes is relayed by the peer, never sent back. Everything here is
best effort: bytes that wait are bounded, and what finds no room is dropped and counted. While a link is away,
messages are held for HOLD_S, so that a route's first messages and a peer's restart cost nothing; older ones
would be stale.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog
from mqtt5 import ConnAckPacket, ConnectPacket, Packet

from tocsin.broker.direct import NOWHERE
from tocsin.broker.fanout import Group
from tocsin.core.admission import LINK_PREFIX, LINK_USER, PROPERTY_BROKER, PROPERTY_CLUSTER
from tocsin.core.dialler import Down
from tocsin.model.network import BrokerInfo
from tocsin.runtime.line import Endpoint, Line

KEEP_ALIVE_S: Final = 4  # a peer that hangs is noticed after two thirds of membership's default suspicion
HOLD_S: Final = 5.0
# What a broker may add to a client's packet; peers grant each other so much.
PACKET_MARGIN_BYTES: Final = 64 << 10
NO_MAXIMUM: Final = 1 << 28  # more than any MQTT frame
ANSWER_MAX_BYTES: Final = 64 << 10  # a peer only ever answers CONNACK, PINGRESP and DISCONNECT


class Link:
    """An outlet to one peer."""

    def __init__(
        self,
        own: BrokerInfo,
        info: BrokerInfo,
        secret: bytes,
        *,
        outbound_max_bytes: int,
        dropped: Callable[[int], None],
    ) -> None:
        self.info = info
        self.group = Group(self)
        self.send_max_bytes = NO_MAXIMUM
        self.descriptor = NOWHERE
        self.problem = "not connected yet"  # why it is not up; empty if it is
        self.tried = False  # it was up, or could not be made
        self._outbound_max_bytes = outbound_max_bytes
        self._dropped = dropped  # told how many messages were lost
        # (when, frames, messages) while there is no line.
        self._held: deque[tuple[float, bytes, int]] = deque()
        self._held_bytes = 0
        greeting = ConnectPacket(
            f"{LINK_PREFIX}{own.id}",
            username=LINK_USER,
            password=secret,
            clean_start=True,
            keep_alive=KEEP_ALIVE_S,
            user_properties=[(PROPERTY_BROKER, own.id), (PROPERTY_CLUSTER, own.cluster)],
        )
        at = Endpoint(info.host, info.port)
        self._line = Line([at], greeting, self, redial=True, packet_max_bytes=ANSWER_MAX_BYTES)
        self._log = structlog.get_logger().bind(peer=info.id, cause=f"link {own.id}→{info.id}")

    @property
    def up(self) -> bool:
        return self._line.up

    def open(self) -> None:
        self._line.open()

    def close(self) -> None:
        self._line.close()

    def aliased(self, frame: bytes) -> bytes:
        return frame

    def deliver(self, data: bytes, messages: int) -> None:
        if not self._line.up:
            self._hold(data, messages)
        elif self._line.waiting_bytes + len(data) > self._outbound_max_bytes:
            self._dropped(messages)
        else:
            self._line.write(data)

    def spill(self, data: bytes) -> None:
        self._line.write(data)

    def _hold(self, data: bytes, messages: int) -> None:
        now = time.monotonic()
        self._held.append((now, data, messages))
        self._held_bytes += len(data)
        while self._held and (self._held_bytes > self._outbound_max_bytes or self._held[0][0] < now - HOLD_S):
            _, stale, lost = self._held.popleft()
            self._held_bytes -= len(stale)
            self._dropped(lost)

    # ── what the line tells ─────────────────────────────────────────────────────────────────────────────────

    def line_up(self, answer: ConnAckPacket) -> None:
        self.problem, self.tried = "", True
        self.send_max_bytes = (answer.max_packet_size or NO_MAXIMUM) + PACKET_MARGIN_BYTES
        self._log.info("link is up")
        held, self._held, self._held_bytes = self._held, deque(), 0
        oldest = time.monotonic() - HOLD_S
        for at, data, messages in held:
            if at < oldest:
                self._dropped(messages)
            else:
                self._line.write(data)

    def line_down(self, down: Down) -> None:
        if not self.problem:
            self._log.warning("link is down", problem=down.reason)
        self.problem, self.tried = down.reason, True

    def line_heard(self, packet: Packet) -> None:
        """A peer sends nothing over our link that concerns us."""

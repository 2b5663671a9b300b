"""Messages that go around a link that is cut, over other brokers; and what this broker carries for others.

A **detour** takes the place of a link, and nothing else: routes are as they were (``core.forwarding.routes``), and
what arrives over relays is treated as what comes over the link itself. The sender names the whole path
(``wire.internal.relayed``); a relay passes the packet to the next broker, straight or not at all, whatever detours it
knows itself.

A relay may be sent something before it has heard from the coordinator that it is one: that waits for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

import msgspec
import structlog
from mqtt5 import PublishPacket, QoS

from tocsin.broker.links.link import Link
from tocsin.core.links.backlog import LinkBacklog
from tocsin.model.versions import UNREADABLE
from tocsin.runtime.machines.clock import now_us
from tocsin.wire.internal.relayed import TOPIC, RelayHeader, header_of, pieces, wrap
from tocsin.wire.mqtt.codec import Decoder, PublishRun
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.topics import NEAR_PREFIX, between_brokers

UNKNOWN_MAX: Final = 16  # brokers that something waits for, without a link to them
UNKNOWN_MAX_BYTES: Final = 1 << 20


class Receiver(Protocol):
    """The receiver of messages that arrive for this broker."""

    def relay(self, cluster: str, topic: str, packet: PublishPacket) -> None: ...

    def relay_run(self, cluster: str, run: PublishRun) -> None: ...


class Relay:
    """Sends messages around links that are cut, and passes on those of others. ``links`` are this broker's, by peer;
    ``lost`` is told how many messages were dropped."""

    def __init__(
        self, cluster: str, links: Mapping[str, Link], receiver: Receiver, lost: Callable[[int], None]
    ) -> None:
        self.carried = 0  # messages that were passed on for others
        self.around = 0  # messages of our own that were sent over relays
        self._cluster = cluster
        self._links = links
        self._receiver = receiver
        self._lost = lost
        self._detours: Mapping[str, tuple[str, ...]] = {}
        self._unknown: dict[str, LinkBacklog] = {}
        self._log = structlog.get_logger()

    @property
    def detours(self) -> int:
        """Links that are replaced by relays."""
        return sum(bool(relays) for relays in self._detours.values())

    def change(self, detours: Mapping[str, tuple[str, ...]]) -> None:
        """These peers are reached over relays, and all others straight."""
        before, self._detours = self._detours, dict(detours)
        self._set({*before, *detours})

    def links_changed(self) -> None:
        """There are other links than before."""
        self._set(self._detours)
        for peer in [each for each in self._unknown if each in self._links]:
            for frame, messages in self._unknown.pop(peer).take(now_us()):
                self._links[peer].pass_on(frame, messages)

    def _set(self, peers: Iterable[str]) -> None:
        for peer in peers:
            if peer in self._links:
                self._links[peer].bypass(self._detours.get(peer, ()), partial(self._send, peer))

    def _send(self, peer: str, relays: tuple[str, ...], frames: bytes, messages: int) -> None:
        first = self._links.get(relays[0])
        if first is None:
            self._lost(messages)
            return
        self.around += messages
        for piece, count in pieces(frames):
            first.pass_on(wrap(RelayHeader(self._cluster, (*relays[1:], peer), count), piece), count)

    def take(self, packet: PublishPacket) -> None:
        """Handle a packet that another broker wants carried, or had carried to us."""
        try:
            header = header_of(packet)
        except UNREADABLE as error:
            self._log.warning("a peer sent what cannot be carried", problem=str(error))
            self._lost(1)
            return
        if header.path:
            self._pass_on(header, packet.payload)
        else:
            self._unpack(header, packet.payload)

    def _pass_on(self, header: RelayHeader, frames: bytes) -> None:
        peer, *rest = header.path
        frame = wrap(msgspec.structs.replace(header, path=tuple(rest)), frames)
        self.carried += header.messages
        if peer in self._links:
            self._links[peer].pass_on(frame, header.messages)
            return
        if peer not in self._unknown and len(self._unknown) >= UNKNOWN_MAX:
            given_up = self._unknown.pop(next(iter(self._unknown)))
            self._lost(sum(messages for _, messages in given_up.take(now_us())))
        waiting = self._unknown.setdefault(peer, LinkBacklog(UNKNOWN_MAX_BYTES, self._lost))
        waiting.add(frame, header.messages, now_us())

    def _unpack(self, header: RelayHeader, frames: bytes) -> None:
        for item in Decoder(len(frames), version=V5).feed_runs(frames):
            if type(item) is PublishRun and _carries(item.topic):
                self._receiver.relay_run(header.cluster, item)
            elif type(item) is PublishPacket and item.qos == QoS.AT_MOST_ONCE and _carries(item.topic):
                self._receiver.relay(header.cluster, item.topic, item)
            else:
                self._log.warning("a peer has had carried what no link carries", item=str(item)[:200])
                self._lost(1)


def _carries(topic: str) -> bool:
    """Whether what is carried may be on this topic: as on a link, but for what is itself carried, and for words of the
    cluster, which only their own sender may bring."""
    if topic.startswith("$"):
        return topic != TOPIC and not topic.startswith(NEAR_PREFIX) and between_brokers(topic)
    return topic != ""

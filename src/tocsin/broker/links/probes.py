"""The probes of a broker: runs ``core.links.prober`` over sockets, one connection at a time."""

from __future__ import annotations

from hashlib import shake_128
from typing import Final

from mqtt5 import ConnAckPacket, ConnectPacket, Packet, PingReqPacket, PingRespPacket, PublishPacket

from tocsin.broker.links.link import ANSWER_MAX_BYTES, LinkSecurity, greeting_of, meant
from tocsin.core.links.incoming import PROPERTY_PROBE
from tocsin.core.links.prober import (
    Answered,
    EndProbe,
    OpenProbe,
    ProbeLost,
    ProbeOpened,
    Prober,
    SendBulk,
    Wanted,
)
from tocsin.core.links.signals import Down
from tocsin.core.machine import Effect
from tocsin.model.network import BrokerInfo
from tocsin.runtime.machines.clock import now_us
from tocsin.runtime.machines.line import Line
from tocsin.runtime.machines.shell import Shell
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.topics import PROBE_TOPIC

PIECE_BYTES: Final = 8 << 10  # within the packet size that any peer grants
KEEP_ALIVE_S: Final = 60  # longer than a probe: what is timed is asked for by the prober alone
FILLING: Final = shake_128(b"probe").digest(PIECE_BYTES)  # nothing that a way could make smaller


class Probes:
    """Measures the way to other brokers, when it is asked to."""

    def __init__(self, own: BrokerInfo, security: LinkSecurity) -> None:
        self.machine = Prober(own.certificate_name)
        self._own = own
        self._security = security
        self._line: Line | None = None
        self._shell = Shell(self.machine, self._carry_out, self._failed)

    def want(self, peers: tuple[BrokerInfo, ...]) -> None:
        self._shell.post(Wanted(peers=peers, cause=f"{self._own.id}:probe"))

    def known(self) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
        return self.machine.known(now_us())

    def close(self) -> None:
        self._shell.close()
        self._hang_up()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case OpenProbe(peer=peer):
                self._open(peer)
            case SendBulk(size=size) if self._line is not None:
                piece = encode(PublishPacket(PROBE_TOPIC, FILLING), V5)
                self._line.write(piece * (size // PIECE_BYTES) + encode(PingReqPacket(), V5))
            case EndProbe():
                self._hang_up()
            case _:
                self._shell.carry_out(effect)

    def _open(self, peer: BrokerInfo) -> None:
        greeting: ConnectPacket = greeting_of(self._own, KEEP_ALIVE_S, (PROPERTY_PROBE, "1"))
        at = meant(self._security, peer)
        self._line = Line([at], greeting, self, redial=False, packet_max_bytes=ANSWER_MAX_BYTES)
        self._line.open()

    def _hang_up(self) -> None:
        if self._line is not None:
            line, self._line = self._line, None
            line.close()

    def _failed(self, error: BaseException) -> None:
        """A bug of ours: measuring ends, and nothing depends on it."""
        self.close()

    # ── what the line tells ─────────────────────────────────────────────────────────────────────────────────

    def line_up(self, answer: ConnAckPacket) -> None:
        said = dict(answer.user_properties).get(PROPERTY_PROBE, "")
        self._shell.post(ProbeOpened(takes=int(said) if said.isdecimal() else 0))

    def line_down(self, down: Down) -> None:
        if self._line is not None:
            self._shell.post(ProbeLost(reason=down.reason))

    def line_heard(self, packet: Packet) -> None:
        if isinstance(packet, PingRespPacket) and self._line is not None:
            self._shell.post(Answered())

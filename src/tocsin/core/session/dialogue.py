"""The packets of a connected client and their answers: the middle part of ``core.session.machine``.

Subscriptions, messages and acknowledgements; not how the client comes and goes. Every method gives effects, or
raises the ``WireError`` that ends the connection. A message at QoS 0 is passed on at once. One at QoS 1 or 2 is
committed first and answered afterwards, as ``core.session.inbound`` has it. One that the client may not publish is
refused: with 0x87 where the answer can say so (MQTT 5); in 3.1.1 it is acknowledged and goes nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mqtt5 import (
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
    SubAckPacket,
    SubscribePacket,
    UnsubAckPacket,
    UnsubscribePacket,
    Will,
)

from tocsin.core.machine import Effect, IllegalEvent
from tocsin.core.session.connect import REASON_MAX_CHARS
from tocsin.core.session.inbound import Inbound
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.publish_rules import Permission, Publishing
from tocsin.core.session.signals import (
    Acknowledged,
    Commit,
    CommitFailed,
    Committed,
    Publish,
    Release,
    Released,
    SendPacket,
)
from tocsin.core.session.subscribe import Refused, Subscriptions
from tocsin.core.session.will import due
from tocsin.errors import ProtocolViolation
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, Version

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
        self, limits: SessionLimits, version: Version, send_max_bytes: int | None, explains: bool
    ) -> None:
        self.publishing = Publishing(limits)
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


def refusal_code(codes: type[Any], code: int) -> Any:
    """The refusal with this number; *unspecified error* where there is none."""
    try:
        return codes(code) if code >= 0x80 else codes.UNSPECIFIED_ERROR
    except ValueError:
        return codes.UNSPECIFIED_ERROR

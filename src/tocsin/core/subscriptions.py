"""What one client is subscribed to, and what its SUBSCRIBE and UNSUBSCRIBE packets are granted.

Every filter is judged by itself: a bad one is refused with its own reason code, and the others are granted. Every
QoS is granted as 0, the highest that is offered. A filter that is subscribed again replaces its options.

Invariant: never more than ``subscriptions_max`` filters, all valid, none shared.
"""

from __future__ import annotations

from mqtt5 import (
    QoS,
    SubAckReasonCode,
    SubscribePacket,
    TopicFilter,
    UnsubAckReasonCode,
    UnsubscribePacket,
)

from tocsin.core.handshake import SessionLimits
from tocsin.core.session_signals import Subscribe, Unsubscribe
from tocsin.wire.topics import FilterInvalid, check_filter, parse_filter


class Subscriptions:
    """The filters of one client."""

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._patterns: set[str] = set()

    def __len__(self) -> int:
        return len(self._patterns)

    def add(self, packet: SubscribePacket) -> tuple[list[Subscribe], list[SubAckReasonCode], str | None]:
        """What to subscribe, the reason code of each filter, and in words why the first of the refused ones is."""
        granted: list[Subscribe] = []
        codes: list[SubAckReasonCode] = []
        reason: str | None = None
        for wanted in packet.topic_filters:
            code, problem = self._judge(wanted)
            codes.append(code)
            reason = reason or problem
            if problem is None:
                granted.append(
                    Subscribe(
                        pattern=wanted.pattern,
                        qos=QoS.AT_MOST_ONCE,
                        no_local=wanted.no_local,
                        retain_as_published=wanted.retain_as_published,
                        retain_handling=wanted.retain_handling,
                        subscription_id=packet.subscription_id,
                        existed=wanted.pattern in self._patterns,
                    )
                )
                self._patterns.add(wanted.pattern)
        return granted, codes, reason

    def remove(self, packet: UnsubscribePacket) -> tuple[list[Unsubscribe], list[UnsubAckReasonCode]]:
        """What to unsubscribe, and the reason code of each filter."""
        gone: list[Unsubscribe] = []
        codes: list[UnsubAckReasonCode] = []
        for pattern in packet.patterns:
            if pattern in self._patterns:
                self._patterns.remove(pattern)
                gone.append(Unsubscribe(pattern=pattern))
                codes.append(UnsubAckReasonCode.SUCCESS)
            else:
                codes.append(_absence(pattern))
        return gone, codes

    def _judge(self, wanted: TopicFilter) -> tuple[SubAckReasonCode, str | None]:
        """The reason code of a filter, and why it is refused, if it is."""
        limits, pattern = self._limits, wanted.pattern
        try:
            read = parse_filter(pattern, max_bytes=limits.topic_max_bytes, max_levels=limits.topic_max_levels)
        except FilterInvalid as error:
            return SubAckReasonCode.TOPIC_FILTER_INVALID, error.problem
        if read.group is not None:
            return SubAckReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, "shared subscriptions are not offered"
        if pattern not in self._patterns and len(self._patterns) >= limits.subscriptions_max:
            problem = (
                f"a client may have {limits.subscriptions_max} subscriptions; unsubscribe from some first"
            )
            return SubAckReasonCode.QUOTA_EXCEEDED, problem
        return SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE, None


def _absence(pattern: str) -> UnsubAckReasonCode:
    """Why there is no such subscription."""
    try:
        check_filter(pattern)
    except FilterInvalid:
        return UnsubAckReasonCode.TOPIC_FILTER_INVALID
    return UnsubAckReasonCode.NO_SUBSCRIPTION_EXISTED

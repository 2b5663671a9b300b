"""One client's subscriptions, and what its SUBSCRIBE and UNSUBSCRIBE packets are granted.

Every filter is judged by itself: a bad one is refused with its own reason code, and the others are granted, each
with the QoS that was asked for. A filter that is subscribed again replaces its options. ``$share/group/filter`` is a
subscription of its own beside ``filter``. A query or listing is granted to everybody: whether a client may receive a
stream is asked of each stream. A channel, shared or not, is granted here if it can be read, at QoS 1 at most;
whether there is one, with such parameters, and whether the client may have it, the shell finds out. Who wants a filter
is told to those who may publish on all of it (``core.access.rights``).

A **request** of quality (``core.quality``) is part of a filter (``$qos/…``), or said in user properties of a SUBSCRIBE
for all its filters. With a separation messages are left out by intent, so that QoS 0 is granted.

Invariant: never more than ``subscriptions_max`` subscriptions, nor than ``subscriptions_max_bytes``, nor than
REQUESTS_MAX requests, but for restored ones; all valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import mqtt5
from mqtt5 import QoS, SubAckReasonCode, SubscribePacket, UnsubAckReasonCode, UnsubscribePacket

from tocsin.core.channels.channel_filter import ChannelFilter
from tocsin.core.filters import (
    Filter,
    ListingFilter,
    QueryFilter,
    RequestFilter,
    SharedFilter,
    StoredFilter,
    TopicFilter,
    WantedFilter,
    read_filter,
    stored_filter,
)
from tocsin.core.quality.offers import query_for
from tocsin.core.quality.texts import (
    QualityInvalid,
    properties_of,
    request_from,
    request_of,
    request_text,
)
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.publish import Permission
from tocsin.core.session.signals import Subscribe, Unsubscribe
from tocsin.errors import ProtocolViolation, QueryInvalid
from tocsin.wire.mqtt.topics import QUALITY_PREFIX, FilterInvalid, check_filter

# Not 0x87, though the standard has it: clients of the Paho family know no refusal of a filter but this one.
REFUSED = SubAckReasonCode.UNSPECIFIED_ERROR
# Subscriptions that a shell cannot serve, by index in the SUBACK: the subscription, the reason, and the code.
Refused = Mapping[int, tuple[Filter, str, SubAckReasonCode]]
REQUEST_PREFIX: Final = "request."  # of user properties
REQUESTS_MAX: Final = (
    100  # of a client's subscriptions: each message is judged for all of them that match its topic
)
STORED_BYTES: Final = 32  # of a subscription in a stored session, beside its name, at most


class Subscriptions:
    """The subscriptions of one client, by name: as the client wrote them."""

    __slots__ = ("_bytes", "_limits", "_may", "_names", "_requests")

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._names: dict[str, StoredFilter | None] = {}  # None: it is stored, and was not read yet
        self._requests: dict[str, str] = {}  # of those that have one
        self._bytes = 0  # of their names and requests, and what is stored beside each
        self._may: Permission | None = None

    def __len__(self) -> int:
        return len(self._names)

    def restore(self, names: Iterable[str], requests: Mapping[str, str]) -> None:
        """The client has these from an earlier connection, some of them with a request."""
        self._names = dict.fromkeys(names)
        self._requests = dict(requests)
        self._bytes = sum(map(_size, self._names)) + sum(map(len, self._requests.values()))

    def permit(self, may: Permission | None) -> None:
        """Ask this before a filter (of a shared subscription, what follows the group) is granted."""
        self._may = may

    def close(self) -> None:
        """The client may subscribe to nothing more; who answered for its rights is not held any longer."""
        if self._may is not None:
            self._may = _nothing

    def add(self, packet: SubscribePacket) -> tuple[list[Subscribe], list[SubAckReasonCode], str | None]:
        """The subscriptions to make, the reason code of each filter, and the reason of the first refusal."""
        granted: list[Subscribe] = []
        codes: list[SubAckReasonCode] = []
        reason: str | None = None
        said, unread = _request_of(packet)
        for index, wanted in enumerate(packet.topic_filters):
            read, code, problem = self._judge(wanted, said)
            if unread is not None and read is not None:
                read, code, problem = None, SubAckReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, unread
            codes.append(code)
            reason = reason or problem
            if read is not None:
                granted.append(
                    Subscribe(
                        filter=read,
                        qos=QoS(int(code)),
                        no_local=wanted.no_local,
                        retain_as_published=wanted.retain_as_published,
                        retain_handling=wanted.retain_handling,
                        subscription_id=packet.subscription_id,
                        existed=wanted.pattern in self._names,
                        request=read.request if isinstance(read, RequestFilter) else said,
                        index=index,
                    )
                )
                self._drop(wanted.pattern)
                self._names[wanted.pattern] = read
                self._bytes += _size(wanted.pattern) + len(granted[-1].request)
                if granted[-1].request:
                    self._requests[wanted.pattern] = granted[-1].request
        return granted, codes, reason

    def remove(self, packet: UnsubscribePacket) -> tuple[list[Unsubscribe], list[UnsubAckReasonCode]]:
        """The filters to unsubscribe, and the reason code of each filter."""
        gone: list[Unsubscribe] = []
        codes: list[UnsubAckReasonCode] = []
        for name in packet.patterns:
            held = self._drop(name)
            if held is None:
                codes.append(_absence(name))
            else:
                gone.append(Unsubscribe(filter=held))
                codes.append(UnsubAckReasonCode.SUCCESS)
        return gone, codes

    def withdraw(self, name: str) -> None:
        """The shell cannot serve a subscription that was granted."""
        self._drop(name)

    def _drop(self, name: str) -> StoredFilter | None:
        if name not in self._names:
            return None
        held = self._names.pop(name)
        self._bytes -= _size(name) + len(self._requests.pop(name, ""))
        return stored_filter(name) if held is None else held

    def _judge(
        self, wanted: mqtt5.TopicFilter, said: str
    ) -> tuple[Filter | None, SubAckReasonCode, str | None]:
        """The granted subscription, its reason code, and the reason of a refusal. ``said`` is the request of all of the
        packet's filters, if there is one."""
        limits, name = self._limits, wanted.pattern
        granted = SubAckReasonCode(int(wanted.max_qos))
        try:
            read = read_filter(name, max_bytes=limits.topic_max_bytes, max_levels=limits.topic_max_levels)
        except FilterInvalid as error:
            return None, SubAckReasonCode.TOPIC_FILTER_INVALID, error.problem
        request = read.request if isinstance(read, RequestFilter) else said
        if request and said and not isinstance(read, TopicFilter | QueryFilter):
            problem = f"a request is about topics or a query; {name!r} has one already, or is neither"
            return None, SubAckReasonCode.TOPIC_FILTER_INVALID, problem
        if request and isinstance(read, QueryFilter):
            try:
                query_for(name)
            except QueryInvalid:
                return None, SubAckReasonCode.TOPIC_FILTER_INVALID, "the query is too large to have a request"
        if request and request_of(request).separation_us is not None:
            granted = SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE
        match read:
            case WantedFilter() if self._may and not self._may(name):
                problem = (
                    f"not authorized: the client may not publish on all topics of {read.pattern!r}, "
                    "so that it is not told who wants them"
                )
                return None, REFUSED, problem
            case ListingFilter() | WantedFilter():
                granted = SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE
            case ChannelFilter():
                granted = SubAckReasonCode(min(int(granted), 1))
            case SharedFilter() if wanted.no_local:
                raise ProtocolViolation("a shared subscription has the option no local")
            case SharedFilter() if not limits.shared:
                code = SubAckReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
                return None, code, "shared subscriptions are not offered"
            case SharedFilter() if read.of_results:
                granted = SubAckReasonCode(min(int(granted), 1))
            case TopicFilter() if name.startswith(QUALITY_PREFIX):
                pass  # what does not match of its own
            case TopicFilter() | SharedFilter() | RequestFilter() if self._may and not self._may(
                read.pattern
            ):
                problem = f"not authorized: the client may not subscribe to {read.pattern!r}"
                return None, REFUSED, problem
        if name not in self._names and len(self._names) >= limits.subscriptions_max:
            problem = (
                f"a client may have {limits.subscriptions_max} subscriptions; unsubscribe from some first"
            )
            return None, SubAckReasonCode.QUOTA_EXCEEDED, problem
        if request and name not in self._requests and len(self._requests) >= REQUESTS_MAX:
            problem = f"a client may have {REQUESTS_MAX} requests of quality; unsubscribe from some first"
            return None, SubAckReasonCode.QUOTA_EXCEEDED, problem
        most = limits.subscriptions_max_bytes
        grows = len(request) - len(self._requests.get(name, ""))
        grows += 0 if name in self._names else _size(name)
        if grows > 0 and self._bytes + grows > most:
            problem = f"the filters of a client may have {most} bytes together; unsubscribe from some first"
            return None, SubAckReasonCode.QUOTA_EXCEEDED, problem
        return read, granted, None


def _request_of(packet: SubscribePacket) -> tuple[str, str | None]:
    """The request that a packet's user properties are, as text; or why it cannot be read."""
    if not packet.user_properties:
        return "", None
    said = properties_of(REQUEST_PREFIX, packet.user_properties)
    if not said:
        return "", None
    try:
        return request_text(request_from(said)), None
    except QualityInvalid as error:
        return "", error.problem


def _absence(pattern: str) -> UnsubAckReasonCode:
    """Why there is no such subscription."""
    try:
        check_filter(pattern)
    except FilterInvalid:
        return UnsubAckReasonCode.TOPIC_FILTER_INVALID
    return UnsubAckReasonCode.NO_SUBSCRIPTION_EXISTED


def _size(name: str) -> int:
    return len(name.encode()) + STORED_BYTES


def _nothing(topic_filter: str) -> bool:
    return False

"""Notifications of a channel: its results for one's own parameters, as values.

    async for notification in client.channel("EmergenciesNearMe", user="alice"):
        print(notification.at, notification.value["kind"])

At QoS 1 (the default) a result may come twice, after a broker or a connection was lost; it has the same id then, and is
given to the reader once. If the broker refuses (there is no such channel, or it has other parameters),
``SubscriptionRefused`` names the channel's signature.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from mqtt5 import PublishPacket

from tocsin.client.message import filter_of
from tocsin.client.subscription import Inbox
from tocsin.core.channels.channel_filter import write_channel_filter
from tocsin.core.channels.parameter_values import written
from tocsin.errors import Malformed
from tocsin.model.results import POSITION, RESULT, RESULT_VERSION
from tocsin.model.versions import UNREADABLE

if TYPE_CHECKING:
    from tocsin.client.aio import AsyncClient

SEEN_MAX: Final = 10_000  # ids that are remembered: ten windows of what a broker may repeat


class Notification(msgspec.Struct, frozen=True):
    """One result of a channel."""

    channel: str
    execution: int
    value: dict[str, Any]  # the result's columns
    at: datetime.datetime  # when it was made
    id: str  # of the result; a repeat has the same
    priority: int = 0
    position: int = 0  # ``AsyncClient.results`` takes it as ``since``

    @classmethod
    def of(cls, packet: PublishPacket) -> Notification:
        """Raises ``Malformed``, or ``FormatNewer``."""
        said = dict(packet.user_properties)
        RESULT.check(said.get(RESULT_VERSION))
        try:
            return cls(
                said["channel"],
                int(said["execution"]),
                msgspec.json.decode(packet.payload, type=dict[str, Any]),
                datetime.datetime.fromisoformat(said["time"]),
                said["id"],
                int(said.get("priority", 0)),
                int(said.get(POSITION, 0)),
            )
        except (KeyError, ValueError) as error:
            raise Malformed(f"a notification of a channel cannot be read: {error}") from None


class Notifications(Inbox[Notification]):
    """Iterates over one channel's notifications; made by ``AsyncClient.channel``."""

    def __init__(self, client: AsyncClient, topic: str, qos: int, size: int) -> None:
        super().__init__(client, [filter_of(topic, qos)], size)
        self.topic = topic  # of the messages that bring them
        self._seen: dict[str, None] = {}

    def take(self, topic_filter: str, packet: PublishPacket) -> None:
        try:
            notification = Notification.of(packet)
        except UNREADABLE as error:
            self.end(error)
            return
        if notification.id in self._seen:
            self._client.results_repeated += 1
            self._client.settle((packet,))
            return
        self._seen[notification.id] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        if not packet.packet_id and len(self._items) >= self._size:
            self._drop(1)
            self._items.popleft()
        self._put(notification, packet)


def topic_of(channel: str, values: tuple[object, ...], named: Mapping[str, object]) -> str:
    """The subscription of a channel with these parameters, in their order or by their names."""
    if values and named:
        raise TypeError("give a channel's parameters in their order, or by their names; not both")
    if named:
        return write_channel_filter(channel, named={name: _text(value) for name, value in named.items()})
    return write_channel_filter(channel, tuple(map(_text, values)))


def _text(value: object) -> str:
    if isinstance(value, str | int | float | bool):
        return written(value)
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    raise TypeError(
        f"a parameter is text, a number, true or false, a date or a time, not {type(value).__name__}"
    )

"""The publishing side of a stream: its messages and its metadata.

    sensor = client.stream("building/4/410/temp", Room="410", unit="°C")
    await sensor.publish(21.5)                         # the first message brings the metadata with it
    await sensor.publish(21.7, Room="411")             # a change and a message in one, in this order
    await sensor.describe({"Point/Type": "Sensor"})    # a change alone
    await sensor.forget()                              # it has no metadata any more

A stream is there from its first message on. A change whose values are all text travels with its message, as user
properties; another one goes before it, to ``$meta/<topic>``. None takes a key away. The handle remembers its metadata:
if a broker has forgotten this client's session, the handle sends them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tocsin.client.message import as_properties, checked, payload_of, said_of
from tocsin.model.publication import Publication
from tocsin.model.stream import PERMANENT, Metadata
from tocsin.wire.mqtt.topics import META_PREFIX, check_topic

if TYPE_CHECKING:
    from tocsin.client.aio import AsyncClient

DESCRIBING_QOS: Final = 1  # so that an invalid change is refused with a reason


class Stream:
    """Publishes one stream and its metadata; made by ``AsyncClient.stream``."""

    def __init__(self, client: AsyncClient, topic: str, qos: int) -> None:
        check_topic(topic)
        self.topic = topic
        self.qos = qos
        self.priority: int | str | None = None  # of its messages: 0 to 9, or "critical"
        self._client = client
        self._said: dict[str, Any] = {}
        self._unsaid: dict[str, Any] = {}  # goes with the next message

    @property
    def metadata(self) -> Metadata:
        """The metadata that this handle sent, or will send with its next message."""
        return {key: value for key, value in {**self._said, **self._unsaid}.items() if value is not None}

    def add(self, changes: Mapping[str, Any], *, permanent: bool) -> None:
        """Say this with the next message."""
        self._unsaid |= checked(self.topic, {**changes, **({PERMANENT: True} if permanent else {})})

    async def publish(
        self, value: object = b"", metadata: Mapping[str, Any] | None = None, /, **changes: Any
    ) -> None:
        """Send a message, with a change of metadata or without; at QoS 1 and 2 return once it is durable."""
        payload = payload_of(value)
        change = checked(self.topic, {**self._unsaid, **(metadata or {}), **changes})
        properties = as_properties(change)
        said = (*said_of(self.priority), *(properties or ()))
        message = Publication(self.topic, payload, self.qos, "", user_properties=said)
        before = () if properties is not None else (self._meta(change),)
        await self._say(change, *before, message)

    async def describe(self, metadata: Mapping[str, Any] | None = None, /, **changes: Any) -> None:
        """Change the metadata; return once the change is durable. ``PublishRefused`` if it cannot be made."""
        change = checked(self.topic, {**self._unsaid, **(metadata or {}), **changes})
        await self._say(change, self._meta(change))

    async def forget(self) -> None:
        """Withdraw all metadata of the stream."""
        self._said.clear()
        self._unsaid.clear()
        await self._client.send(Publication(META_PREFIX + self.topic, b"", DESCRIBING_QOS, ""))

    def again(self) -> Publication | None:
        """The metadata to send to a broker that has none of them; None if there are none."""
        return self._meta(self._said) if self._said else None

    async def _say(self, change: Mapping[str, Any], *messages: Publication) -> None:
        self._unsaid = {}
        try:
            await self._client.send(*messages)
        except BaseException:
            self._unsaid = {**change, **self._unsaid}
            raise
        said = {**self._said, **change}
        self._said = {key: value for key, value in said.items() if value is not None}

    def _meta(self, change: Mapping[str, Any]) -> Publication:
        return Publication(META_PREFIX + self.topic, msgspec.json.encode(change), DESCRIBING_QOS, "")

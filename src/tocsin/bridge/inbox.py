"""A subscription whose messages are acknowledged one by one, by whoever takes them: how bridges read the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mqtt5 import PublishPacket

from tocsin.client import AsyncClient
from tocsin.client.message import filter_of
from tocsin.client.subscription import Inbox
from tocsin.errors import TocsinError


class Deliveries(Inbox[PublishPacket]):
    """Hands each message over as it comes; ``client.settle`` acknowledges it."""

    def __init__(self, client: AsyncClient, subscription: str, take: Callable[[PublishPacket], None]) -> None:
        super().__init__(client, [filter_of(subscription, 1)], 1)
        self.ended = asyncio.Event()
        self.why: TocsinError | None = None
        self._hand_over = take

    def take(self, topic_filter: str, packet: PublishPacket) -> None:
        self._hand_over(packet)

    def end(self, error: TocsinError) -> None:
        super().end(error)
        self.why = self.why or error
        self.ended.set()

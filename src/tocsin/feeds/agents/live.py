"""Messages that were published at QoS 0, heard by a subscription at a broker.

The subscription is at QoS 1. A broker delivers a message at the lower of the two qualities, so that what comes at QoS 0
was published at QoS 0, and what comes above is in the message log, from where the feed has it. Retained messages were
there before, and are left out.

Nothing here fails a feed: while there is no broker it goes on with what is in the log.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.errors import TocsinError
from tocsin.feeds.retrying import Retrying
from tocsin.feeds.status import FeedCounts
from tocsin.model.catalogue import Feed, StreamSource, TopicSource
from tocsin.model.stream import Metadata
from tocsin.runtime.security.tls import client_context

CONNECT_S: Final = 10.0  # for a broker to answer; then the feed reports it


class Heard(msgspec.Struct, frozen=True):
    """A QoS 0 message."""

    topic: str
    payload: bytes
    at_us: int  # when it was heard
    metadata: Metadata | None = None


class LiveSubscriber:
    """The subscription of one feed."""

    def __init__(
        self,
        feed: Feed,
        servers: Sequence[Server],
        counts: FeedCounts,
        *,
        username: str = "",
        password: str = "",
        authorities: str = "",
        with_metadata: bool = False,
    ) -> None:
        self.run = secrets.token_hex(6)  # makes the ids of what is heard our own
        self._feed = feed
        self._servers = list(servers)
        self._counts = counts
        self._username = username or None
        self._password = password or None
        self._authorities = authorities  # file of those that are believed over TLS; empty: this machine's
        self._with_metadata = with_metadata

    async def listen(self, hear: Callable[[Heard], None]) -> None:
        """For ever; hands over what was published at QoS 0."""
        retrying, loop = Retrying(), asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._listen(hear)
            except TocsinError as error:
                self._counts.live_error = str(error)
                structlog.get_logger().warning(
                    "QoS 0 messages are not heard", feed=self._feed.name, problem=str(error)
                )
            await asyncio.sleep(retrying.failed(loop.time() - began))

    async def _listen(self, hear: Callable[[Heard], None]) -> None:
        source = self._feed.source
        async with AsyncClient(
            self._servers,
            client_id=f"feeder-{self._feed.name.lower()}-{self.run}",
            username=self._username,
            password=self._password,
            tls=client_context(authorities=self._authorities) if self._servers[0].secure else None,
            deadline_s=CONNECT_S,
        ) as client:
            if isinstance(source, StreamSource):
                subscription = client.query(source.query, qos=1, with_streams=self._with_metadata)
            else:
                assert isinstance(source, TopicSource)
                subscription = client.subscribe(source.topic_filter, qos=1, retained=False)
            await subscription
            self._counts.live_error = ""
            async for message in subscription:
                if message.qos == 0 and not message.retain:
                    at_us = time.time_ns() // 1_000
                    hear(Heard(message.topic, message.payload, at_us, message.metadata))

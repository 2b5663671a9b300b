"""An asynchronous client of one broker: MQTT 5, best effort.

    async with Client("127.0.0.1", 1883) as client:
        await client.subscribe("alerts/#")
        client.publish("alerts/north", b"water is rising")
        async for message in client.messages():
            ...

A client that redials keeps its subscriptions: they are made anew on each connection. What arrives waits in a bounded
inbox; when that is full the oldest message goes, and ``dropped`` counts it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Self

import msgspec
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tocsin.core.dialler import REFUSED_FROM, Down
from tocsin.errors import BrokerUnreachable, DeadlineExceeded, SubscriptionRefused
from tocsin.runtime.line import Line
from tocsin.wire.codec import V5
from tocsin.wire.frames import publish_frame
from tocsin.wire.topics import check_filter, check_topic

INBOX_MAX: Final = 10_000  # messages
PACKET_MAX_BYTES: Final = 2 << 20  # twice what a broker takes from a client by default
KEEP_ALIVE_S: Final = 30
ANSWER_DEADLINE_S: Final = 10.0
PACKET_IDS: Final = 65_535


class Message(msgspec.Struct, frozen=True):
    """What a subscriber gets."""

    topic: str
    payload: bytes
    user_properties: tuple[tuple[str, str], ...] = ()


class Client:
    """See the module's text."""

    def __init__(self, host: str, port: int, *, client_id: str = "", redial: bool = False) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id or f"tocsin-py-{secrets.token_hex(6)}"
        self.dropped = 0
        greeting = ConnectPacket(self.client_id, clean_start=True, keep_alive=KEEP_ALIVE_S)
        self._line = Line(host, port, greeting, self, redial=redial, packet_max_bytes=PACKET_MAX_BYTES)
        self._redial = redial
        self._filters: dict[str, None] = {}  # granted, to be asked for again after a break
        self._packet_id = 0
        self._asked: dict[int, tuple[str, asyncio.Future[None]]] = {}  # SUBSCRIBE packets without an answer
        self._pinged: deque[asyncio.Future[None]] = deque()  # flushes without an answer
        self._inbox: deque[Message] = deque()
        self._news = asyncio.Event()  # the inbox or the connection changed
        self._lost: BrokerUnreachable | None = None  # why there is no connection and will be none

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def connect(self) -> None:
        """Return once the broker has accepted us; ``BrokerUnreachable`` if it does not (unless we redial)."""
        self._line.open()
        while not self._line.up:
            await self._next_news()

    def close(self) -> None:
        self._line.close()
        self._lost = BrokerUnreachable(self.host, self.port, "this client was closed")
        self._news.set()

    @property
    def connected(self) -> bool:
        return self._line.up

    def publish(self, topic: str, payload: bytes) -> None:
        """Send a message at once, best effort."""
        check_topic(topic)
        if not self._line.up:
            raise self._lost or BrokerUnreachable(self.host, self.port, "the connection is interrupted")
        self._line.write(publish_frame(topic, payload, V5))

    async def flush(self) -> None:
        """Wait until the broker has read everything that was published: it answers a ping in its turn."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pinged.append(answer)
        self._line.send(PingReqPacket())
        try:
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                await answer
        except TimeoutError:
            raise DeadlineExceeded(f"PINGREQ to {self.host}:{self.port}", ANSWER_DEADLINE_S) from None

    async def subscribe(self, topic_filter: str) -> None:
        """Return once the broker has granted it."""
        check_filter(topic_filter)
        try:
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                await self._ask(topic_filter)
        except TimeoutError:
            raise DeadlineExceeded(f"SUBSCRIBE {topic_filter}", ANSWER_DEADLINE_S) from None

    def _ask(self, topic_filter: str) -> asyncio.Future[None]:
        self._packet_id = self._packet_id % PACKET_IDS + 1
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked[self._packet_id] = (topic_filter, answer)
        wanted = TopicFilter(topic_filter, max_qos=QoS.AT_MOST_ONCE)
        self._line.send(SubscribePacket(self._packet_id, [wanted]))
        return answer

    async def messages(self) -> AsyncIterator[Message]:
        """What arrives, until the client is closed; ``BrokerUnreachable`` if it breaks and we do not redial."""
        while True:
            while self._inbox:
                yield self._inbox.popleft()
            await self._next_news()

    async def _next_news(self) -> None:
        if self._lost is not None:
            raise self._lost
        self._news.clear()
        await self._news.wait()
        if self._lost is not None:
            raise self._lost

    # ── what the line tells ─────────────────────────────────────────────────────────────────────────────────

    def line_up(self, answer: ConnAckPacket) -> None:
        for topic_filter in self._filters:
            self._ask(topic_filter).add_done_callback(_retrieved)
        self._news.set()

    def line_down(self, down: Down) -> None:
        broken = BrokerUnreachable(self.host, self.port, down.reason)
        waiting = [answer for _, answer in self._asked.values()] + list(self._pinged)
        self._asked.clear()
        self._pinged.clear()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(broken)
        if not self._redial:
            self._lost = broken
        self._news.set()

    def line_heard(self, packet: Packet) -> None:
        if isinstance(packet, PublishPacket):
            if len(self._inbox) >= INBOX_MAX:
                self._inbox.popleft()
                self.dropped += 1
            self._inbox.append(Message(packet.topic, packet.payload, tuple(packet.user_properties)))
            self._news.set()
        elif isinstance(packet, PingRespPacket) and self._pinged:
            answer = self._pinged.popleft()
            if not answer.done():
                answer.set_result(None)
        elif isinstance(packet, SubAckPacket) and packet.packet_id in self._asked:
            topic_filter, answer = self._asked.pop(packet.packet_id)
            code = packet.reason_codes[0]
            if answer.done():
                return
            if int(code) >= REFUSED_FROM:  # the wheel's codes are no integers, whatever its types say
                reason = packet.reason_str or code.name.replace("_", " ").lower()
                self._filters.pop(topic_filter, None)
                answer.set_exception(SubscriptionRefused(topic_filter, reason))
            else:
                self._filters[topic_filter] = None
                answer.set_result(None)


def _retrieved(answer: asyncio.Future[None]) -> None:
    """A subscription that is made anew has nobody who waits for it."""
    if not answer.cancelled():
        answer.exception()

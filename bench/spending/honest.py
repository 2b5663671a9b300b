"""A client that does what clients do, beside those that spend: how long its pings and its messages take.

It also hears what the broker says of its budgets (``$SYS/broker/budget/…``).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tocsin.errors import WireError
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5

EVERY_S = 0.05
PATIENCE_S = 30.0


class Honest:
    """Pings, and now and then publishes at QoS 1. ``username`` where there are users."""

    def __init__(self, host: str, port: int, username: str = "", password: str = "") -> None:
        self._at = host, port
        self._credentials = username, password
        self.pings_ms: list[float] = []
        self.commits_ms: list[float] = []
        self.lost = 0  # connections
        self.counted: dict[str, int] = {}  # bytes of each budget, as the broker said last

    async def run(self) -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError, EOFError):
                await self._talk()
            self.lost += 1
            await asyncio.sleep(0.5)

    async def _talk(self) -> None:
        reader, writer = await asyncio.open_connection(*self._at)
        decoder = Decoder(1 << 21, role="client", version=V5)
        name, password = self._credentials
        try:
            greeting = ConnectPacket("honest", username=name or None, password=password.encode() or None)
            await self._asked(reader, writer, decoder, greeting, ConnAckPacket)
            about = SubscribePacket(1, [TopicFilter("$SYS/broker/budget/+/used")])
            await self._asked(reader, writer, decoder, about, SubAckPacket)
            for number in range(1, 1 << 30):
                self.pings_ms.append(
                    await self._asked(reader, writer, decoder, PingReqPacket(), PingRespPacket)
                )
                if number % 10 == 0:
                    message = PublishPacket("honest", b"x", qos=QoS.AT_LEAST_ONCE, packet_id=1)
                    self.commits_ms.append(await self._asked(reader, writer, decoder, message, PubAckPacket))
                await asyncio.sleep(EVERY_S)
        finally:
            writer.transport.abort()

    async def _asked(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        decoder: Decoder,
        packet: Packet,
        answer: type[Packet],
    ) -> float:
        """Milliseconds until the answer."""
        began = time.perf_counter()
        writer.write(encode(packet, V5))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                data = await reader.read(65_536)
                if not data:
                    raise EOFError
                items = decoder.feed(data)
                if any(isinstance(item, WireError) for item in items):
                    raise EOFError
                self._note(items)
                if any(isinstance(item, answer) for item in items):
                    return 1e3 * (time.perf_counter() - began)

    def _note(self, items: Sequence[Packet | WireError]) -> None:
        for item in items:
            if isinstance(item, PublishPacket) and item.topic.startswith("$SYS/"):
                self.counted[item.topic.split("/")[3]] = int(bytes(item.payload))


def percentile(values: list[float], part: float) -> float:
    """0 if there are none."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else 0.0

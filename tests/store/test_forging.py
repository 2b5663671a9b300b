"""What whoever has a broker's key can make a server say in its place: decision 037 tells of it, and is held to it here.

JetStream sends answers, and what consumers bring, to whatever subject a request names. NATS does not ask whether the
requester may publish there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.store.secured import NETWORK, SecuredServers
from tocsin.core.coordination.places import Places
from tocsin.errors import Forbidden
from tocsin.model.channel_places import ChannelPlaces
from tocsin.model.subjects import messages_log
from tocsin.ports import Delivery, Record
from tocsin.store.connection import Connection, frame
from tocsin.store.jetstream import JetStreamStore
from tocsin.store.login import login_of
from tocsin.store.server import wait_ready

DEADLINE_S = 30.0
MESSAGES = messages_log(NETWORK, 3_600, 1 << 30)
COMMANDS, FEEDS = Places(NETWORK).commands, ChannelPlaces(NETWORK).feeds
EVIL = f"{NETWORK}.m.evil"


class Thief:
    """Somebody with a broker's key, who knows NATS."""

    def __init__(self, store: JetStreamStore) -> None:
        self.connection: Connection = store.connection

    async def answer_to(self, subject: str) -> None:
        """Have the server answer a read there: the message as it is."""
        request = json.dumps({"last_by_subj": EVIL}).encode()
        await self.connection.send(frame(f"$JS.API.DIRECT.GET.{MESSAGES.name}", subject, b"", request))

    async def consume_to(self, subject: str, acknowledged: str) -> None:
        """Have a consumer bring the message there."""
        name = f"evil-{acknowledged}"
        config: dict[str, Any] = {
            "name": name,
            "deliver_subject": subject,
            "ack_policy": acknowledged,
            "deliver_policy": "all",
            "filter_subject": EVIL,
            "mem_storage": True,
            "inactive_threshold": 60_000_000_000,
        }
        body = json.dumps({"stream_name": MESSAGES.name, "config": config}).encode()
        await self.connection.ask(f"$JS.API.CONSUMER.CREATE.{MESSAGES.name}.{name}.{EVIL}", body, 5)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[tuple[JetStreamStore, Thief]]:
    with SecuredServers(tmp_path) as servers:
        await wait_ready(servers.urls[0], login_of(servers.nats, "operator"), DEADLINE_S)
        operator, broker = await servers.store("operator"), await servers.store("broker")
        for spec in (MESSAGES, COMMANDS, FEEDS):
            await operator.log(spec)
        try:
            yield operator, Thief(broker)
        finally:
            await broker.close()
            await operator.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():
            await asyncio.sleep(0.05)


async def test_nobody_asks_a_service_under_anothers_name(stage: tuple[JetStreamStore, Thief]) -> None:
    operator, thief = stage
    asked: list[bytes] = []
    subject = f"{NETWORK}.pipeline.sql.operator"
    await (await operator.log(MESSAGES)).append([Record(EVIL, b'{"text":"DROP DATASET Reports"}', "evil")])

    async def answer(delivery: Delivery) -> bytes:
        asked.append(delivery.payload)
        return b""

    async with operator.bus.serve(subject, answer), operator.bus.subscribe(subject) as heard:
        with pytest.raises(Forbidden):
            await thief.connection.ask(subject, b"x", 2)
        await thief.answer_to(subject)
        await thief.consume_to(subject, "none")
        await thief.consume_to(subject, "explicit")
        for _ in range(3):
            await asyncio.wait_for(anext(heard), DEADLINE_S)  # the server does bring it …
        await operator.bus.request(subject, b"ours", deadline_s=DEADLINE_S)
    assert asked == [b"ours"], "… and nobody does what it says"


async def test_what_remains(stage: tuple[JetStreamStore, Thief]) -> None:
    """These are no promises. If one fails, a server has begun to check: then tell so in decision 037."""
    operator, thief = stage
    commands, feeds = await operator.log(COMMANDS), await operator.log(FEEDS)
    await (await operator.log(MESSAGES)).append([Record(EVIL, b"", "evil")])
    await feeds.append([Record(f"{NETWORK}.feeds.a", b"x", "one")])

    async def forged() -> bool:
        return await commands.last() > 0

    await thief.answer_to(f"{NETWORK}.c")
    await until(forged)

    async def purged() -> bool:
        return not (await (await operator.stream(FEEDS.name)).usage("look")).keys

    await thief.answer_to(f"$JS.API.STREAM.PURGE.{FEEDS.name}")
    await until(purged)

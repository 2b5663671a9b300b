"""Retained messages that a broker has let go of reach a subscriber all the same, from the table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mqtt5 import PubAckPacket, PublishPacket, QoS, SubAckPacket, SubscribePacket, TopicFilter

from tests.unit.broker.harness import DEADLINE_S, Door, Peer, until
from tests.unit.broker.talk import ONE
from tocsin.broker.retained import table
from tocsin.config.schema import Limits
from tocsin.errors import StoreUnavailable
from tocsin.model.subjects import tokens_of
from tocsin.ports import Cell

HELD = 2 << 20
LARGE = b"x" * 200_000
TOPICS = tuple(f"hall/{number:02}" for number in range(20))  # twice what may be held


@asynccontextmanager
async def broker() -> AsyncIterator[Door]:
    """A broker that has twenty retained messages, and the first of them as stubs."""
    async with Door(Limits(), retained_held_bytes=HELD) as door:
        peer = await door.peer("p")
        for number, topic in enumerate(TOPICS, 1):
            await publish(peer, topic, LARGE, number)
        await until(lambda: len(door.parts.retained) == len(TOPICS))
        await until(lambda: door.parts.retained.held <= HELD)
        yield door


async def publish(peer: Peer, topic: str, payload: bytes, number: int) -> None:
    peer.send(PublishPacket(topic, payload, qos=ONE, retain=True, packet_id=number))
    assert int((await peer.receive(PubAckPacket)).reason_code) == 0


async def subscribed(peer: Peer, name: str, qos: QoS = QoS.AT_MOST_ONCE) -> None:
    peer.send(SubscribePacket(1, [TopicFilter(name, max_qos=qos)]))
    await peer.first(SubAckPacket)


async def messages(peer: Peer, count: int) -> list[PublishPacket]:
    async with asyncio.timeout(DEADLINE_S):
        return [await peer.first(PublishPacket) for _ in range(count)]


async def test_all_messages_come_in_order_whether_they_are_held_or_not() -> None:
    async with broker() as door:
        reader = await door.peer("reader")
        await subscribed(reader, "hall/+")
        got = await messages(reader, len(TOPICS))
        assert [each.topic for each in got] == list(TOPICS)
        assert all(each.payload == LARGE and each.retain for each in got)
        assert door.parts.retained.fetched >= len(TOPICS) // 2 and door.parts.retained.held <= HELD


async def test_a_fetched_message_is_as_new_as_the_table_has_it() -> None:
    async with broker() as door:
        peer = await door.peer("q")
        await publish(peer, TOPICS[0], b"new", 1)
        reader = await door.peer("reader")
        await subscribed(reader, TOPICS[0])
        assert [each.payload for each in await messages(reader, 1)] == [b"new"]


async def test_a_message_that_the_table_has_no_more_holds_up_nothing() -> None:
    async with broker() as door:
        found = door.parts.retained._table
        away = {tokens_of(topic) for topic in TOPICS[:2]}

        class Lacking:
            async def get_many(self, keys: Sequence[str]) -> dict[str, Cell]:
                cells = await found.get_many(keys)
                return {key: cell for key, cell in cells.items() if key not in away}

            async def get(self, key: str, *, fresh: bool = False) -> Cell | None:
                return None if key in away else await found.get(key, fresh=fresh)

            def __getattr__(self, name: str) -> Any:
                return getattr(found, name)

        door.parts.retained._table = Lacking()  # type: ignore[assignment]
        reader = await door.peer("reader")
        await subscribed(reader, "hall/#")
        assert [each.topic for each in await messages(reader, len(TOPICS) - 2)] == list(TOPICS[2:])


async def test_messages_come_when_the_table_can_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FETCH_AGAIN_S", 0.0)
    async with broker() as door:
        found, failed = door.parts.retained._table, 0

        class Failing:
            async def get_many(self, keys: Sequence[str]) -> dict[str, Cell]:
                nonlocal failed
                failed += 1
                if failed < 3:
                    raise StoreUnavailable("ask", "cut off")
                return await found.get_many(keys)

            def __getattr__(self, name: str) -> Any:
                return getattr(found, name)

        door.parts.retained._table = Failing()  # type: ignore[assignment]
        reader = await door.peer("reader")
        await subscribed(reader, "hall/#", ONE)
        got = await messages(reader, 1)
        assert got[0].topic == TOPICS[0] and got[0].payload == LARGE and failed >= 3

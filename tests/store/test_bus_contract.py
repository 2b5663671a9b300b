"""What every bus promises (``ports.Bus``), asked of the twin in memory and of JetStream's."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tocsin.errors import DeadlineExceeded, NoResponder, Refused, StoreUnavailable
from tocsin.ports import PAYLOAD_MAX_BYTES, BusMessage, Store

Opener = Callable[[], Awaitable[Store]]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A first token that no other test uses."""
    return f"bus{zlib.crc32(request.node.nodeid.encode())}"


async def take(messages: AsyncIterator[BusMessage], count: int) -> list[BusMessage]:
    taken: list[BusMessage] = []
    async with asyncio.timeout(20):
        while len(taken) < count:
            taken.append(await anext(messages))
    return taken


async def test_a_message_reaches_every_subscriber_in_order(opener: Opener, topic: str) -> None:
    one, other = await opener(), await opener()
    async with (
        one.bus.subscribe(f"{topic}.a") as near,
        other.bus.subscribe(f"{topic}.*") as far,
        other.bus.subscribe(f"{topic}.>") as wide,
    ):
        for i in range(50):
            await one.bus.publish(f"{topic}.a", str(i).encode())
        expected = [BusMessage(f"{topic}.a", str(i).encode()) for i in range(50)]
        for messages in (near, far, wide):
            assert await take(messages, 50) == expected


async def test_a_subscriber_gets_nothing_from_before_and_nothing_else(store: Store, topic: str) -> None:
    await store.bus.publish(f"{topic}.a", b"before")
    async with store.bus.subscribe(f"{topic}.a") as messages:
        await store.bus.publish(f"{topic}.b", b"other")
        await store.bus.publish(f"{topic}.a", b"mine")
        assert await take(messages, 1) == [BusMessage(f"{topic}.a", b"mine")]


async def test_of_a_group_one_member_gets_each_message(opener: Opener, topic: str) -> None:
    one, other = await opener(), await opener()
    seen: list[bytes] = []
    complete = asyncio.Event()

    async def collect(messages: AsyncIterator[BusMessage]) -> None:
        async for message in messages:
            seen.append(message.payload)
            if len(seen) == 30:
                complete.set()

    async with (
        one.bus.subscribe(topic, group="g") as first,
        other.bus.subscribe(topic, group="g") as second,
        one.bus.subscribe(topic) as everything,
    ):
        collecting = [asyncio.create_task(collect(first)), asyncio.create_task(collect(second))]
        for i in range(30):
            await one.bus.publish(topic, str(i).encode())
        await take(everything, 30)
        async with asyncio.timeout(20):
            await complete.wait()
        for task in collecting:
            task.cancel()
        await asyncio.gather(*collecting, return_exceptions=True)
    assert sorted(seen, key=int) == [str(i).encode() for i in range(30)]


async def test_a_request_is_answered(opener: Opener, topic: str) -> None:
    server, client = await opener(), await opener()

    async def answer(delivery: BusMessage) -> bytes:
        return delivery.subject.encode() + b" " + delivery.payload

    async with server.bus.serve(f"{topic}.*", answer):
        answers = await asyncio.gather(
            *(client.bus.request(f"{topic}.{i}", b"?", deadline_s=10) for i in range(20))
        )
    assert answers == [f"{topic}.{i} ?".encode() for i in range(20)]


async def test_a_slow_answer_holds_up_nobody(store: Store, topic: str) -> None:
    release = asyncio.Event()

    async def answer(delivery: BusMessage) -> bytes:
        if delivery.payload == b"slow":
            await release.wait()
        return delivery.payload

    async with store.bus.serve(topic, answer):
        slow = asyncio.create_task(store.bus.request(topic, b"slow", deadline_s=20))
        assert await store.bus.request(topic, b"quick", deadline_s=10) == b"quick"
        release.set()
        assert await slow == b"slow"


async def test_nobody_there_is_said_at_once(store: Store, topic: str) -> None:
    with pytest.raises(NoResponder):
        async with asyncio.timeout(20):
            await store.bus.request(topic, b"", deadline_s=60)

    async def answer(delivery: BusMessage) -> bytes:
        return b""

    async with store.bus.serve(topic, answer):
        assert await store.bus.request(topic, b"", deadline_s=10) == b""
    with pytest.raises(NoResponder):
        async with asyncio.timeout(20):
            await store.bus.request(topic, b"", deadline_s=60)


async def test_an_answer_that_does_not_come_is_a_deadline(store: Store, topic: str) -> None:
    async def answer(delivery: BusMessage) -> bytes:
        raise RuntimeError("an answerer with a bug")

    async with store.bus.serve(topic, answer):
        with pytest.raises(DeadlineExceeded):
            await store.bus.request(topic, b"", deadline_s=0.2)


@pytest.mark.parametrize("bad", ["", "a b", "a..b", "$JS.API.INFO", "_INBOX.x", "a.*", "a.>"])
async def test_a_bad_subject_is_refused(store: Store, bad: str) -> None:
    with pytest.raises(Refused):
        await store.bus.publish(bad, b"")
    with pytest.raises(Refused):
        await store.bus.request(bad, b"", deadline_s=1)


async def test_a_message_that_is_too_large_is_refused_and_costs_nothing(store: Store, topic: str) -> None:
    async with store.bus.subscribe(topic) as messages:
        with pytest.raises(Refused):
            await store.bus.publish(topic, b"x" * (PAYLOAD_MAX_BYTES + 1))
        await store.bus.publish(topic, b"x" * PAYLOAD_MAX_BYTES)
        assert len((await take(messages, 1))[0].payload) == PAYLOAD_MAX_BYTES


async def test_closing_the_store_ends_a_subscription(opener: Opener, topic: str) -> None:
    store = await opener()
    async with store.bus.subscribe(topic) as messages:
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StopAsyncIteration):
            async with asyncio.timeout(20):
                await waiting
    with pytest.raises(StoreUnavailable):
        await store.bus.publish(topic, b"")
    with pytest.raises(StoreUnavailable):
        async with store.bus.subscribe(topic):
            pass

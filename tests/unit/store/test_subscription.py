"""A slow reader costs bounded memory, and what it loses is counted."""

from __future__ import annotations

import asyncio

from tocsin.ports import BusMessage
from tocsin.store.subscription import Subscription


async def test_what_is_over_the_bounds_is_dropped_and_counted() -> None:
    waiting = Subscription(pending_max=3, pending_max_bytes=100)
    taken = [waiting.put(BusMessage("a", bytes(size))) for size in (40, 40, 40, 20, 0)]
    assert taken == [True, True, False, True, False]
    assert waiting.dropped == 2
    assert [len((await anext(waiting)).payload) for _ in range(3)] == [40, 40, 20]
    assert waiting.put(BusMessage("a", bytes(100)))


async def test_its_end_comes_behind_what_waits() -> None:
    waiting = Subscription()
    waiting.put(BusMessage("a", b"1"))
    waiting.end()
    assert [delivery.payload async for delivery in waiting] == [b"1"]


async def test_a_reader_waits_for_what_comes() -> None:
    waiting = Subscription()
    reading = asyncio.ensure_future(anext(waiting))
    await asyncio.sleep(0)
    waiting.put(BusMessage("a", b"1"))
    assert (await reading).payload == b"1"

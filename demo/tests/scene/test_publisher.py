"""Who publishes emergencies: each at its time, none for good lost without a word."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tocsin.errors import BrokerUnreachable
from tocsin_demo.scene.publisher import EmergencyPublisher
from tocsin_demo.traces import Emergency

FIRE = Emergency(0.0, "fire-1", "fire", 1.0, 2.0, 500.0)
STORM = Emergency(0.0, "storm-2", "storm", 3.0, 4.0, 2_000.0)
NEVER = Emergency(1e6, "flood-3", "flood", 0.0, 0.0, 1.0)
DEADLINE_S = 10.0


class Client:
    """Takes what is published, when it may."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        self.may = asyncio.Event()
        self.refuses = False

    async def publish(self, topic: str, value: dict[str, Any], *, qos: int) -> None:
        assert qos == 2
        await self.may.wait()
        if self.refuses:
            raise BrokerUnreachable("h", 1, "it is gone for good")
        self.taken.append((topic, value["number"]))


@pytest.fixture
def publisher() -> EmergencyPublisher:
    made = EmergencyPublisher([("127.0.0.1", 1)])
    made._client = Client()  # type: ignore[assignment]
    return made


def client_of(publisher: EmergencyPublisher) -> Client:
    client = publisher._client
    assert isinstance(client, Client)
    return client


async def test_one_that_the_network_is_slow_to_take_holds_no_other_up(publisher: EmergencyPublisher) -> None:
    async with asyncio.timeout(DEADLINE_S):
        playing = asyncio.create_task(publisher.play([FIRE, STORM], time.monotonic()))
        while publisher._number < 2:
            await asyncio.sleep(0)
        assert publisher.published == 0
        client_of(publisher).may.set()
        await playing
    assert sorted(client_of(publisher).taken) == [("city/fire", 1), ("city/storm", 2)]
    assert publisher.published == 2
    assert [(number, each.id) for _, number, each in publisher.told] == [(1, "fire-1"), (2, "storm-2")]


async def test_it_rests_when_told_and_what_was_begun_is_published(publisher: EmergencyPublisher) -> None:
    async with asyncio.timeout(DEADLINE_S):
        playing = asyncio.create_task(publisher.play([FIRE, NEVER], time.monotonic()))
        while publisher._number < 1:
            await asyncio.sleep(0)
        publisher.rest()
        await asyncio.sleep(0)
        assert not playing.done()
        client_of(publisher).may.set()
        await playing
    assert client_of(publisher).taken == [("city/fire", 1)]


async def test_what_cannot_be_published_is_raised(publisher: EmergencyPublisher) -> None:
    client_of(publisher).refuses = True
    client_of(publisher).may.set()
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ExceptionGroup) as caught:
            await publisher.play([FIRE, NEVER], time.monotonic())
    assert isinstance(caught.value.exceptions[0], BrokerUnreachable)

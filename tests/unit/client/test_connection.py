"""The client against a broker's door, over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.door import Door
from tocsin.client import Client, Message
from tocsin.client.connection import INBOX_MAX
from tocsin.config import Limits
from tocsin.errors import BrokerUnreachable, SubscriptionRefused, WireError

DEADLINE_S = 10.0


async def first(client: Client) -> Message:
    async with asyncio.timeout(DEADLINE_S):
        return await anext(client.messages())


async def test_a_client_hears_what_another_publishes() -> None:
    async with (
        Door(Limits()) as door,
        Client("127.0.0.1", door.port) as one,
        Client("127.0.0.1", door.port) as two,
    ):
        await one.subscribe("a/#")
        two.publish("a/b", b"hello")
        assert await first(one) == Message("a/b", b"hello")


async def test_flush_returns_when_the_broker_has_read_everything() -> None:
    async with Door(Limits()) as door, Client("127.0.0.1", door.port) as client:
        for number in range(1_000):
            client.publish("a", b"%d" % number)
        await client.flush()
        assert door.exchange.counts.published == 1_000


async def test_nobody_there_is_said_in_words() -> None:
    async with Door(Limits()) as door:
        port = door.port
    with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}.*is it running there"):
        await Client("127.0.0.1", port).connect()


async def test_a_refused_subscription_is_an_error() -> None:
    async with Door(Limits(subscriptions_per_client=1)) as door, Client("127.0.0.1", door.port) as client:
        await client.subscribe("a")
        with pytest.raises(SubscriptionRefused, match="'b'"):
            await client.subscribe("b")


@pytest.mark.parametrize("bad", ["", "a/#/b", "a+"])
async def test_a_bad_filter_is_refused_before_it_is_sent(bad: str) -> None:
    async with Door(Limits()) as door, Client("127.0.0.1", door.port) as client:
        with pytest.raises(WireError):
            await client.subscribe(bad)
        with pytest.raises(WireError):
            client.publish("a/#", b"")
        await client.flush()


async def test_the_end_of_the_broker_ends_the_iteration_with_an_error() -> None:
    async with Door(Limits()) as door, Client("127.0.0.1", door.port) as client:
        await client.subscribe("a")
        await door.listener.close()
        with pytest.raises(BrokerUnreachable, match="shutting down"):
            await first(client)
        with pytest.raises(BrokerUnreachable):
            client.publish("a", b"")


async def test_a_client_that_redials_keeps_its_subscriptions() -> None:
    door = Door(Limits())
    await door.__aenter__()
    client = Client("127.0.0.1", door.port, redial=True)
    await client.connect()
    await client.subscribe("a")
    await door.__aexit__(None, None, None)
    async with Door(Limits(), port=door.port) as again, Client("127.0.0.1", again.port) as publisher:
        async with asyncio.timeout(DEADLINE_S):
            while "a" not in [added for change in again.interests for added in change[0]]:
                await asyncio.sleep(0.01)
        publisher.publish("a", b"again")
        assert (await first(client)).payload == b"again"
        client.close()


async def test_an_inbox_that_is_full_drops_the_oldest_and_counts() -> None:
    async with Door(Limits()) as door, Client("127.0.0.1", door.port) as client:
        await client.subscribe("a")
        for number in range(INBOX_MAX + 10):
            client.publish("a", b"%d" % number)
            if number % 1_000 == 0:
                await client.flush()
        await client.flush()
        assert client.dropped == 10
        assert (await first(client)).payload == b"10"

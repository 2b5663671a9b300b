"""The bound on the different filters that a broker's clients may have, as clients meet it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.broker.harness import Door
from tocsin.client import AsyncClient
from tocsin.config import Limits
from tocsin.errors import SubscriptionRefused

DEADLINE_S = 10.0


def client_of(door: Door, **options: Any) -> AsyncClient:
    return AsyncClient(f"mqtt://127.0.0.1:{door.port}", **options)


async def test_a_filter_over_the_bound_is_refused_unless_it_is_known() -> None:
    async with Door(Limits(filters_max=2)) as door, client_of(door) as one, client_of(door) as two:
        await one.subscribe("a", "b")
        with pytest.raises(
            SubscriptionRefused, match="this broker's clients have 2 different filters already"
        ):
            await one.subscribe("c", qos=1)
        heard = await two.subscribe("a")
        await one.publish("a", "still")
        assert (await heard.get(DEADLINE_S)).text == "still"
        async with client_of(door) as three:
            with pytest.raises(SubscriptionRefused):
                await three.subscribe("c")
        await one.close()
        await two.subscribe("c")
        assert door.exchange.interests.count == 2


async def test_a_client_that_comes_back_keeps_its_filters() -> None:
    options: dict[str, Any] = {"client_id": "durable", "session_expiry_s": 60}
    async with Door(Limits(filters_max=1)) as door, client_of(door) as publisher:
        first = client_of(door, **options)
        await first.connect()
        await first.subscribe("a", qos=1)
        await first.close()
        async with client_of(door) as other:
            await other.subscribe("b")
            async with client_of(door, **options) as back:
                heard = await back.subscribe("a", qos=1)
                await publisher.publish("a", "for you", qos=1)
                assert (await heard.get(DEADLINE_S)).text == "for you"

"""The different filters of a broker's clients: counted, told, and bounded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.harness import Door
from tocsin.broker.forwarding.filters import Interests
from tocsin.client import AsyncClient
from tocsin.config import Limits
from tocsin.core.forwarding.table import ForwardingTable, Subscription
from tocsin.errors import SubscriptionRefused

DEADLINE_S = 10.0
TARGETS = ("one", "two")
FILTERS = ("a", "b/#", "c", "$share/g/a")
STEPS = st.tuples(
    st.sampled_from(("subscribe", "resume", "unsubscribe", "forget")),
    st.sampled_from(TARGETS),
    st.sampled_from(FILTERS),
)


@given(st.lists(STEPS, max_size=40), st.integers(1, 3))
def test_the_broker_declares_its_clients_filters_within_the_bound(
    steps: list[tuple[str, str, str]], most: int
) -> None:
    told: set[str] = set()

    def tell(added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        assert not told & set(added) and set(removed) <= told
        told.update(added)
        told.difference_update(removed)

    interests: Interests[str] = Interests(ForwardingTable(), tell, most)
    wanted: set[tuple[str, str]] = set()
    for step, target, name in steps:
        match step:
            case "subscribe" | "resume":
                names = {each for _, each in wanted}
                fits = step == "resume" or name in names or len(names) < most
                assert interests.subscribe(target, name, Subscription(), bound=step == "subscribe") is fits
                if fits:
                    wanted.add((target, name))
            case "unsubscribe":
                interests.unsubscribe(target, name)
                wanted.discard((target, name))
            case "forget":
                interests.forget(target)
                wanted = {each for each in wanted if each[0] != target}
        assert told == {each for _, each in wanted}
        assert interests.count == len(told)


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

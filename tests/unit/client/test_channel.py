"""Channels through the client, at a broker on a real socket, with a pipeline that is written by hand."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator

import pytest
from mqtt5 import PublishPacket, QoS

from tests.unit.broker.harness import Door, until
from tests.unit.broker.pipeline import NEAR, WIDE, Pipeline
from tocsin.client import AsyncClient, Client, Notification
from tocsin.client.channel import SEEN_MAX, Notifications, topic_of
from tocsin.config import Limits
from tocsin.errors import FormatNewer, Malformed, SubscriptionRefused
from tocsin.model.results import result_position
from tocsin.store.memory.store import MemoryServer, MemoryStore

FOR_ALICE = ("Near", ("alice",))


@pytest.fixture
async def pipeline() -> AsyncIterator[Pipeline[MemoryStore]]:
    made = Pipeline(MemoryStore(MemoryServer()))
    await made.define(NEAR, WIDE)
    async with made.serve():
        yield made


@pytest.fixture
async def door(pipeline: Pipeline[MemoryStore]) -> AsyncIterator[Door]:
    async with Door(Limits(), store=pipeline.store) as opened:
        yield opened


def url(door: Door) -> str:
    return f"mqtt://127.0.0.1:{door.port}"


async def test_a_channel_is_an_iterator_of_values(door: Door, pipeline: Pipeline[MemoryStore]) -> None:
    async with AsyncClient(url(door)) as client, client.channel("Near", user="alice") as alice:
        await pipeline.tick({FOR_ALICE: [{"n": 1, "kind": "flood"}, {"n": 2}]}, priority=3)
        first = await alice.get(10)
        assert first == Notification(
            "Near",
            1,
            {"n": 1, "kind": "flood"},
            datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=datetime.UTC),
            "1-0",
            3,
            result_position(1, 0),
        )
        async for second in alice:
            assert second.value == {"n": 2}
            break


async def test_parameters_are_given_in_their_order_or_by_their_names(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    async with AsyncClient(url(door)) as client:
        by_name = await client.channel("Wide", kind="a/b&c", radius=5)
        other = await client.channel("Wide", 5.5, "x", qos=0)
        await pipeline.tick({("Wide", (5.0, "a/b&c")): [{"n": 1}], ("Wide", (5.5, "x")): [{"n": 2}]})
        assert (await by_name.get(10)).value == {"n": 1}
        assert (await other.get(10)).value == {"n": 2}


@pytest.mark.parametrize(
    ("channel", "values", "words"),
    [("Nowhere", (), "no channel 'Nowhere'"), ("Near", ("a", "b"), r"Near\(user STRING\)")],
)
async def test_what_the_broker_refuses_names_the_signature(
    door: Door, channel: str, values: tuple[str, ...], words: str
) -> None:
    async with AsyncClient(url(door)) as client:
        with pytest.raises(SubscriptionRefused, match=words):
            await client.channel(channel, *values)


async def test_a_session_that_lasts_gets_what_it_missed(door: Door, pipeline: Pipeline[MemoryStore]) -> None:
    async with AsyncClient(url(door), client_id="a", session_expiry_s=600) as client:
        await client.channel("Near", "alice")
    await until(lambda: not door.listener.clients)
    await pipeline.tick({FOR_ALICE: [{"n": 1}]})
    async with AsyncClient(url(door), client_id="a", session_expiry_s=600) as client:
        alice = await client.channel("Near", "alice")
        assert (await alice.get(10)).value == {"n": 1}


async def test_the_blocking_client_has_channels_too(door: Door, pipeline: Pipeline[MemoryStore]) -> None:
    subscribed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read() -> list[object]:
        with Client(url(door)) as client, client.channel("Near", user="alice") as alice:
            loop.call_soon_threadsafe(subscribed.set)
            return [alice.get(10).value["n"] for _ in range(2)]

    reading = asyncio.create_task(asyncio.to_thread(read))
    await asyncio.wait_for(subscribed.wait(), 10)
    await pipeline.tick({FOR_ALICE: [{"n": 1}, {"n": 2}]})
    assert await reading == [1, 2]


# ── without a broker ────────────────────────────────────────────────────────────────────────────────────────


def packet(number: int, *, packet_id: int | None = 1, payload: bytes = b"{}", **more: str) -> PublishPacket:
    said = {
        "channel": "Near",
        "execution": "1",
        "time": "2024-05-31T10:00:00.000Z",
        "id": f"1-{number}",
        **more,
    }
    qos = QoS.AT_MOST_ONCE if packet_id is None else QoS.AT_LEAST_ONCE
    return PublishPacket("t", payload, qos=qos, packet_id=packet_id, user_properties=list(said.items()))


async def test_a_result_that_comes_again_is_acknowledged_and_not_given_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled: list[PublishPacket] = []
    client = AsyncClient()
    monkeypatch.setattr(client, "settle", settled.extend)
    near = Notifications(client, "t", 1, 10)
    first, again = packet(1, packet_id=1), packet(1, packet_id=7)
    near.take("t", first)
    near.take("t", again)
    near.take("t", packet(2))
    assert [item.id for item, _ in near._items] == ["1-1", "1-2"]
    assert settled == [again]
    assert client.duplicates == 1
    for number in range(SEEN_MAX + 2):
        near.take("t", packet(number + 10))
    assert len(near._seen) == SEEN_MAX


async def test_at_qos_0_the_oldest_goes_when_nobody_reads() -> None:
    client = AsyncClient()
    near = Notifications(client, "t", 0, 2)
    for number in range(3):
        near.take("t", packet(number, packet_id=None))
    assert ([item.id for item, _ in near._items], near.dropped, client.dropped) == (["1-1", "1-2"], 1, 1)


async def test_a_result_of_a_newer_version_ends_the_subscription_with_advice() -> None:
    near = Notifications(AsyncClient(), "t", 1, 10)
    near._open = True
    near.take("t", packet(1, v="1"))
    near.take("t", packet(2, v="2"))
    assert (await near.get(1)).id == "1-1"
    with pytest.raises(FormatNewer, match="Upgrade this process"):
        await near.get(1)


@pytest.mark.parametrize("bad", [{"payload": b"[1]"}, {"execution": "x"}, {"time": "noon"}])
async def test_what_is_no_notification_ends_the_subscription_in_words(bad: dict[str, str]) -> None:
    near = Notifications(AsyncClient(), "t", 1, 10)
    near._open = True
    near.take("t", packet(1, **bad))  # type: ignore[arg-type]
    with pytest.raises(Malformed, match="notification of a channel"):
        await near.get(1)


@pytest.mark.parametrize(
    ("values", "named", "topic"),
    [
        ((), {}, "$channel/Near"),
        (("a/b", 5, 2.5, True), {}, "$channel/Near/a%2Fb/5/2.5/true"),
        ((), {"day": datetime.date(2024, 5, 31)}, "$channel/Near?day=2024-05-31"),
        (
            (datetime.datetime(2024, 5, 31, 10, tzinfo=datetime.UTC),),
            {},
            "$channel/Near/2024-05-31T10:00:00%2B00:00",
        ),
    ],
)
def test_values_are_written_as_a_subscription(
    values: tuple[object, ...], named: dict[str, object], topic: str
) -> None:
    assert topic_of("Near", values, named) == topic


@pytest.mark.parametrize(
    ("values", "named", "words"), [((1,), {"a": 1}, "not both"), ((None,), {}, "NoneType")]
)
def test_what_is_no_parameter_is_refused_in_words(
    values: tuple[object, ...], named: dict[str, object], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        topic_of("Near", values, named)

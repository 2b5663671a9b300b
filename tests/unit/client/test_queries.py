"""The client's queries, sets and streams on two brokers with a coordinator: nothing scripted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest

from tests.unit.broker.coordination import coordinator
from tests.unit.broker.harness import Door
from tocsin.client import AsyncClient, Changed, Joined, Left, Set
from tocsin.config import Limits
from tocsin.errors import PublishRefused
from tocsin.store.memory.store import MemoryServer, MemoryStore

DEADLINE_S = 10.0
ROOM = 'Location/Room = "410" AND floor > 3'
SAID = {"Location/Room": "410", "floor": 4}


class Network(NamedTuple):
    here: Door
    there: Door


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    server = MemoryServer()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(coordinator(MemoryStore(server)))
        doors = [
            await stack.enter_async_context(
                Door(Limits(), store=MemoryStore(server), broker=name, takes_part=True)
            )
            for name in ("north-1", "north-2")
        ]
        yield Network(*doors)


def client_of(door: Door, **options: Any) -> AsyncClient:
    return AsyncClient(f"mqtt://127.0.0.1:{door.port}", **options)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_query_gets_messages_once_the_streams_metadata_satisfies_it(
    network: Network, qos: int
) -> None:
    async with client_of(network.here) as sensor, client_of(network.there) as reader:
        found = await reader.query(ROOM, qos=qos)
        stream = sensor.stream("building/4/temp", qos=qos)
        await stream.publish("before")
        await stream.publish(21.5, SAID)
        await stream.publish(21.6)
        await stream.publish("elsewhere", {"Location/Room": "411"})
        await stream.publish("back", {"Location/Room": "410"})
        heard = [await found.get(DEADLINE_S) for _ in range(3)]
        assert [(each.topic, each.text) for each in heard] == [
            ("building/4/temp", text) for text in ("21.5", "21.6", "back")
        ]


async def test_a_message_that_a_filter_and_a_query_want_reaches_both_once(network: Network) -> None:
    async with client_of(network.here) as sensor, client_of(network.there) as reader:
        found, heard = await reader.query(ROOM, qos=1), await reader.subscribe("b/#", qos=1)
        stream = sensor.stream("b/1", SAID, qos=1)
        for number in range(5):
            await stream.publish(number)
        for inbox in (found, heard):
            assert [(await inbox.get(DEADLINE_S)).json() for _ in range(5)] == list(range(5))


async def test_a_query_with_streams_knows_the_metadata_of_every_message(network: Network) -> None:
    async with client_of(network.here) as sensor, client_of(network.there) as reader:
        found = await reader.query(ROOM, with_streams=True)
        stream = sensor.stream("b/1", SAID)
        await stream.publish(1)
        await stream.publish(2, unit="°C")
        for number, unit in ((1, None), (2, "°C")):
            message = await found.get(DEADLINE_S)
            assert message.json() == number and message.metadata is not None
            assert message.metadata["floor"] == 4 and message.metadata.get("unit") == unit
            assert message.metadata["client"] == sensor.client_id


async def test_what_is_told_of_a_set_can_be_read_as_plain_messages(network: Network) -> None:
    async with client_of(network.here) as sensor, client_of(network.there) as reader:
        await sensor.stream("b/0", SAID, qos=1).publish("first")
        told = await (await reader.subscribe(f"$streams/{ROOM}")).get(DEADLINE_S)
        assert [each["topic"] for each in told.json()["streams"]] == ["b/0"]


async def test_a_set_is_told_and_each_change_of_it(network: Network) -> None:
    async with client_of(network.there) as reader:
        async with client_of(network.here) as sensor:
            await sensor.stream("b/0", SAID, qos=1).publish("first")
            found = await reader.streams(ROOM)
            told = await found.get(DEADLINE_S)
            assert isinstance(told, Set) and set(told.streams) == {"b/0"}
            stream = sensor.stream("b/1")
            await stream.describe(SAID)  # a stream is there from its first message
            await stream.publish("first")
            joined = await found.get(DEADLINE_S)
            assert isinstance(joined, Joined) and joined.topic == "b/1"
            await stream.describe(floor=5)
            changed = await found.get(DEADLINE_S)
            assert isinstance(changed, Changed) and changed.metadata["floor"] == 5
            await stream.forget()
            assert isinstance(await found.get(DEADLINE_S), Left)
            assert set(found.streams) == {"b/0"}
        left = await found.get(DEADLINE_S)
        assert isinstance(left, Left) and left.topic == "b/0", "its publisher's session has ended"


async def test_a_permanent_stream_stays_when_its_publisher_leaves(network: Network) -> None:
    async with client_of(network.there) as reader:
        async with client_of(network.here) as sensor:
            await sensor.stream("b/1", SAID, permanent=True, qos=1).publish("x")
        async with client_of(network.here) as other:
            await other.stream("b/2", SAID, qos=1).publish("x")
            found = await reader.streams(ROOM)
            told = await found.get(DEADLINE_S)
            assert isinstance(told, Set) and set(told.streams) == {"b/1", "b/2"}
        left = await found.get(DEADLINE_S)
        assert isinstance(left, Left) and left.topic == "b/2"
        assert set(found.streams) == {"b/1"}


async def test_a_durable_query_gets_what_it_missed_in_the_next_process(network: Network) -> None:
    durable: dict[str, Any] = {"client_id": "durable", "session_expiry_s": 60}
    async with client_of(network.here) as sensor:
        stream = sensor.stream("b/1", SAID, qos=1)
        async with client_of(network.there, **durable) as reader:
            found = await reader.query(ROOM, qos=1)
            await stream.publish("one")
            assert (await found.get(DEADLINE_S)).text == "one"
        await stream.publish("two")
        await stream.publish("not here", {"Location/Room": "9"})
        await stream.publish("three", {"Location/Room": "410"})
        async with client_of(network.here, **durable) as again:
            found = await again.query(ROOM, qos=1)
            assert [(await found.get(DEADLINE_S)).text for _ in range(2)] == ["two", "three"]


async def test_a_description_beyond_what_the_broker_takes_is_refused_in_words(network: Network) -> None:
    async with client_of(network.here) as sensor:
        with pytest.raises(PublishRefused):
            await sensor.publish("$meta/a", b"[1]", qos=1)
        assert sensor.connected

"""Channels across brokers of a real network, on real NATS, with a pipeline that is written by hand: cells, files and
notices. Brokers are killed; clients move."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import psutil
import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tests.integration.peers import Connect
from tests.integration.running import DEADLINE_S, Heard, operator_store, until, up
from tests.integration.test_first_message import PahoClient
from tests.unit.broker.harness import Peer
from tests.unit.broker.pipeline import NEAR, WIDE, Pipeline
from tocsin.client import AsyncClient
from tocsin.client.subscription import Subscription
from tocsin.errors import PublishRefused
from tocsin.model.results import k_of
from tocsin.runtime.network.directory import read_network
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.wire.mqtt.connect import V5

pytest.importorskip("pyarrow", reason="the extra spark is not installed")

ONE = QoS.AT_LEAST_ONCE
ALICE = "$channel/Near/alice"
FOR_ALICE = ("Near", ("alice",))
K_ALICE = k_of("Near", ("alice",))


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def ready(storage: Path) -> Iterator[dict[str, Any]]:
    with up("--set", f"pipeline.storage={storage}") as told:
        yield told


def pid_of(ready: dict[str, Any], broker: str) -> int:
    """The broker's process now; an earlier test may have killed the first one."""
    file = read_network(Path(ready["state"]))
    assert file is not None
    running = psutil.Process(file.pid).children(recursive=True)
    return next(each.pid for each in running if each.cmdline()[-2:] == ["broker", broker])


@pytest.fixture
async def pipeline(ready: dict[str, Any], storage: Path) -> AsyncIterator[Pipeline[JetStreamStore]]:
    store = await operator_store(ready)
    made = Pipeline(store, storage / "results", network="tocsin")
    made.ticks = await (await store.log(made.places.notices)).last()  # of earlier tests
    await made.define(NEAR, WIDE)
    yield made
    await store.close()


async def subscribe(peer: Peer, name: str = ALICE) -> None:
    peer.send(SubscribePacket(1, [TopicFilter(name, max_qos=ONE)]))
    answer = await peer.first(SubAckPacket)
    assert int(answer.reason_codes[0]) == 1, answer.reason_str


async def take(peer: Peer, count: int) -> list[int]:
    found = []
    for _ in range(count):
        packet = await peer.first(PublishPacket)
        peer.send(PubAckPacket(packet.packet_id or 0))
        found.append(json.loads(packet.payload)["n"])
    return found


async def patient(peer: Peer) -> PublishPacket:
    """The next message, however long it takes to come."""
    while True:
        with contextlib.suppress(TimeoutError):
            return await peer.first(PublishPacket)


async def held(pipeline: Pipeline[JetStreamStore], k: str, brokers: set[str]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (await pipeline.held()).get(k, set()) != brokers:
            await asyncio.sleep(0.05)


async def test_a_client_moves_between_brokers_and_misses_nothing(
    pipeline: Pipeline[JetStreamStore], connect: Connect
) -> None:
    first = await connect("north-1", "mover", expiry_s=600)
    await subscribe(first)
    assert (await pipeline.held())[K_ALICE] == {"north-1"}
    await pipeline.tick({FOR_ALICE: [{"n": 1}]})
    assert await take(first, 1) == [1]
    first.close()
    await pipeline.tick({FOR_ALICE: [{"n": 2}, {"n": 3}]})
    known, seen = await pipeline.held(), await pipeline.seen()
    second = await connect("south-1", "mover", expiry_s=600)
    assert await take(second, 2) == [2, 3]
    await pipeline.tick({FOR_ALICE: [{"n": 4}]}, held=known, seen=seen)  # it began before the move
    assert await take(second, 1) == [4]
    await held(pipeline, K_ALICE, {"south-1"})
    await pipeline.tick({FOR_ALICE: [{"n": 5}]})
    assert await take(second, 1) == [5]


async def test_a_broker_that_is_killed_holds_on_to_what_its_sessions_want(
    ready: dict[str, Any], pipeline: Pipeline[JetStreamStore], connect: Connect
) -> None:
    bob, k_bob = ("Near", ("bob",)), k_of("Near", ("bob",))
    lasting = await connect("north-2", "lasting", expiry_s=600)
    passing = await connect("north-2", "passing")
    await subscribe(lasting, "$channel/Near/bob")
    await subscribe(passing, "$channel/Near/carol")
    await pipeline.tick({bob: [{"n": 1}]})
    await lasting.first(PublishPacket)  # and not acknowledged
    os.kill(ready["pids"]["broker/north-2"], signal.SIGKILL)
    await pipeline.tick({bob: [{"n": 2}]})
    await held(pipeline, k_of("Near", ("carol",)), set())  # found by the scan after the restart
    assert (await pipeline.held())[k_bob] == {"north-2"}
    await pipeline.tick({bob: [{"n": 3}]})
    again = await connect("north-2", "lasting", expiry_s=600)
    assert await take(again, 3) == [1, 2, 3]


async def test_members_at_two_brokers_share_results_when_one_is_killed(
    ready: dict[str, Any], pipeline: Pipeline[JetStreamStore], connect: Connect
) -> None:
    gina, k, name = ("Near", ("gina",)), k_of("Near", ("gina",)), "$share/workers/$channel/Near/gina"
    silent = await connect("north-2", "worker-1")  # it acknowledges nothing
    await subscribe(silent, name)
    south = next(each for each in ready["brokers"] if each["id"] == "south-1")
    got: list[int] = []

    async def work(results: Subscription) -> None:
        async for message in results:
            got.append(json.loads(message.text)["n"])

    async with AsyncClient(f"mqtt://{south['host']}:{south['port']}", client_id="worker-2") as client:
        working = asyncio.create_task(work(await client.subscribe(name, qos=1)))
        assert (await pipeline.held())[k] == {"north-2"}  # once, for all members
        numbers, sent = count(), asyncio.create_task(patient(silent))
        async with asyncio.timeout(DEADLINE_S):
            while not sent.done():  # whoever is quick gets more: at last the other gets one, too
                await pipeline.tick({gina: [{"n": next(numbers)} for _ in range(3)]})
                await asyncio.wait((sent,), timeout=0.5)
        os.kill(pid_of(ready, "north-2"), signal.SIGKILL)
        assert json.loads(sent.result().payload)["n"] not in got
        await pipeline.tick({gina: [{"n": next(numbers)} for _ in range(3)]})
        everything = list(range(next(numbers)))
        async with asyncio.timeout(DEADLINE_S):
            while sorted(got) != everything:
                assert len(got) == len(set(got))
                await asyncio.sleep(0.05)
        await held(pipeline, k, {"south-1"})
        working.cancel()


async def test_critical_results_are_first_also_after_a_kill_and_at_another_broker(
    ready: dict[str, Any], pipeline: Pipeline[JetStreamStore], connect: Connect
) -> None:
    eve, name = ("Near", ("eve",)), "$channel/Near/eve"

    def urgency(payload: dict[str, int]) -> int:
        return 8 if payload["n"] >= 100 else 0

    peer = await connect("south-2", "urgent", expiry_s=600)
    await subscribe(peer, name)
    await pipeline.tick({eve: [{"n": 100}, {"n": 1}, {"n": 2}]}, priority=urgency)
    assert await take(peer, 1) == [100]
    await peer.first(PublishPacket)  # and not acknowledged
    os.kill(ready["pids"]["broker/south-2"], signal.SIGKILL)
    await pipeline.tick({eve: [{"n": 3}, {"n": 103}, {"n": 4}]}, priority=urgency)
    await pipeline.tick({eve: [{"n": 5}, {"n": 105}]}, priority=urgency)
    again = await connect("north-1", "urgent", expiry_s=600)
    found = await take(again, 7)
    if found[0] == 100:  # that it was acknowledged was not stored when the broker was killed
        found = [*found[1:], *await take(again, 1)]
    assert found == [103, 105, 1, 2, 3, 4, 5]


async def test_results_that_cannot_be_reached_come_over_the_bus(
    pipeline: Pipeline[JetStreamStore], connect: Connect, storage: Path
) -> None:
    peer = await connect("north-1", "remote")
    await subscribe(peer, "$channel/Wide/5/flood")
    hidden = storage / "hidden"
    async with pipeline.serve():
        pipeline.root = hidden  # no broker knows of this one
        await pipeline.tick({("Wide", (5.0, "flood")): [{"n": number} for number in range(5)]})
        assert await take(peer, 5) == list(range(5))


async def test_a_python_client_pulls_results_at_any_broker(
    ready: dict[str, Any], pipeline: Pipeline[JetStreamStore], connect: Connect
) -> None:
    peer = await connect("south-1", "pushed")
    await subscribe(peer, "$channel/Near/frida")
    for number in range(4):
        await pipeline.tick({("Near", ("frida",)): [{"n": number}]})
    assert await take(peer, 4) == [0, 1, 2, 3]
    broker = ready["brokers"][0]
    async with AsyncClient(f"mqtt://{broker['host']}:{broker['port']}") as client:
        newest = await client.results("Near", "frida", newest=2)
        assert [each.value["n"] for each in newest.results] == [2, 3] and not newest.more
        behind = await client.results("Near", user="frida", since=newest.results[0].position)
        assert [each.value["n"] for each in behind.results] == [3]
        with pytest.raises(PublishRefused, match=r"Nowhere"):
            await client.results("Nowhere")


def test_mosquitto_sub_and_mqtt_311_get_results_as_json(
    ready: dict[str, Any], debian_program: Callable[[str, str], str], storage: Path
) -> None:
    program = debian_program("mosquitto_sub", "mosquitto-clients")
    broker = ready["brokers"][0]
    name = "$channel/Near/dora"
    sub = Heard([program, "-h", broker["host"], "-p", str(broker["port"]), "-v", "-q", "1", "-t", name])
    old = PahoClient((broker["host"], broker["port"]), paho.MQTTv311, name)

    async def tick() -> bool:
        store = await operator_store(ready)
        try:
            made = Pipeline(store, storage / "results", network="tocsin")
            made.ticks = await (await store.log(made.places.notices)).last()
            await made.define(NEAR)
            if k_of("Near", ("dora",)) not in await made.held():
                return False
            await asyncio.sleep(0.5)  # mosquitto_sub does not say when it is subscribed
            await made.tick({("Near", ("dora",)): [{"n": 1, "text": "grüße"}]})
            return True
        finally:
            await store.close()

    try:
        until(lambda: asyncio.run(tick()), lambda: None, "a subscription")
        until(lambda: bool(sub.lines) and bool(old.heard), lambda: None, "the result")
    finally:
        sub.stop()
        old.stop()
    said = json.loads(sub.lines[0].removeprefix(f"{name} "))
    assert said == json.loads(old.heard[0][1]) == {"n": 1, "text": "grüße"}


async def test_results_of_10_kb_to_10_mb_arrive_whole_and_in_order(
    ready: dict[str, Any], pipeline: Pipeline[JetStreamStore]
) -> None:
    """At a client that is there, at another broker where it comes back, and in answers to its questions."""
    large, name = ("Near", ("large",)), "$channel/Near/large"
    sizes = (10_000, 100_000, 1_000_000, 10_000_000)
    at = {each["id"]: f"mqtt://{each['host']}:{each['port']}" for each in ready["brokers"]}

    def results(first: int) -> list[dict[str, Any]]:
        """Each with a text that no other has, of that length."""
        return [{"n": first + i, "text": f"{first + i:08}" * (size // 8)} for i, size in enumerate(sizes)]

    async def read(inbox: Subscription) -> list[dict[str, Any]]:
        async with asyncio.timeout(DEADLINE_S):
            return [json.loads((await anext(inbox)).text) for _ in sizes]

    narrow = await small(ready, "north-1", "narrow", max_packet_size=500_000)
    await subscribe(narrow, name)
    async with AsyncClient([at["north-1"]], client_id="wide", session_expiry_s=600) as client:
        inbox = await client.subscribe(name, qos=1)
        await pipeline.tick({large: results(0)})
        assert await read(inbox) == results(0)
        pulled = await client.results("Near", "large", newest=1)
        assert [each.value for each in pulled.results] == results(0)[-1:]
    assert await take(narrow, 2) == [0, 1]  # what is larger than it takes is left out
    narrow.close()
    await pipeline.tick({large: results(4)})  # while it is away
    async with AsyncClient([at["south-1"]], client_id="wide", session_expiry_s=600) as client:
        assert await read(await client.subscribe(name, qos=1)) == results(4)


async def small(ready: dict[str, Any], broker: str, client: str, *, max_packet_size: int) -> Peer:
    """A client that takes no larger packets."""
    where = next(each for each in ready["brokers"] if each["id"] == broker)
    peer = Peer(*await asyncio.open_connection(where["host"], where["port"]), V5)
    peer.send(ConnectPacket(client, clean_start=True, max_packet_size=max_packet_size))
    assert int((await peer.receive(ConnAckPacket)).reason_code) == 0
    return peer

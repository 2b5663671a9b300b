"""The store is away for longer than it remembers ids, and than sessions last: a wire between the network and a server.

Answers of the server are lost first, so that what was asked for happens and nobody knows; then nothing passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.integration.faults import Wire, wait_for
from tests.integration.running import up
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers

WINDOW_S = 120  # for which the store remembers ids
EXPIRY_S = 5  # of the worker's session
JOBS = 5
BROKERS = [{"id": "north-1", "cluster": "north"}]


class Client:
    """An MQTT 5 client that takes one message at a time, and acknowledges when it is told to."""

    def __init__(
        self, address: tuple[str, int], name: str, *, expiry_s: int = 0, at_once: bool = True
    ) -> None:
        self.took: list[str] = []
        self.ended: list[str] = []  # why its connections did
        self._at_once = at_once
        self._held: list[paho.MQTTMessage] = []
        self._granted = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5, manual_ack=True)
        self._client.on_message = self._on_message
        self._client.on_subscribe = lambda *_: self._granted.set()
        self._client.on_disconnect = lambda client, data, flags, reason, properties: self.ended.append(
            str(reason)
        )
        said = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        said.SessionExpiryInterval = expiry_s
        said.ReceiveMaximum = 1
        self._client.connect(*address, clean_start=True, keepalive=10, properties=said)
        self._client.loop_start()
        wait_for(self._client.is_connected, f"{name} is in")

    def _on_message(self, client: paho.Client, data: object, message: paho.MQTTMessage) -> None:
        self.took.append(message.payload.decode())
        self._held.append(message)
        if self._at_once:
            self.acknowledge()

    def acknowledge(self) -> None:
        """What it holds, and from now on what comes."""
        self._at_once = True
        while self._held:
            message = self._held.pop()
            self._client.ack(message.mid, message.qos)

    def subscribe(self, topic: str, qos: int) -> None:
        self._client.subscribe(topic, qos)
        assert self._granted.wait(30), "SUBACK"

    def publish(self, topic: str, payload: str, qos: int) -> paho.MQTTMessageInfo:
        return self._client.publish(topic, payload, qos)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@contextlib.contextmanager
def network(directory: Path, wire: Wire, token: str) -> Iterator[tuple[str, int]]:
    """A network that reaches its store through a wire; where its broker is."""
    host, port = wire.address
    sets = (f"nats.urls=nats://{host}:{port}", f"nats.token={token}", f"brokers={json.dumps(BROKERS)}")
    options = [word for each in sets for word in ("--set", each)]
    with up(*options, level="error", state=directory) as ready:
        broker = ready["brokers"][0]
        yield broker["host"], broker["port"]


async def forget_soon(servers: LocalServers, window_s: int) -> None:
    """Have the log of messages remember ids for so long."""
    store = await JetStreamStore.connect(servers.urls, token=servers.token)
    try:
        stream = await store.stream("tocsin-messages")
        config = (await stream.api("look", "STREAM.INFO", {}))["config"]
        await stream.api("change", "STREAM.UPDATE", {**config, "duplicate_window": window_s * 1_000_000_000})
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("window_s", "away_s"),
    [
        pytest.param(1, 10, id="quick"),
        pytest.param(WINDOW_S, 130, id="real", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_a_store_outage_beyond_the_duplicate_window_costs_only_time(
    tmp_path: Path, window_s: int, away_s: int
) -> None:
    """QoS 2 comes once; and a client that stays connected keeps its session of some seconds, and its backlog."""
    with LocalServers(tmp_path / "nats") as servers, contextlib.ExitStack() as stack:
        wire = Wire(("127.0.0.1", servers.plans[0].port))
        stack.callback(wire.close)
        address = stack.enter_context(network(tmp_path / "state", wire, servers.token))
        if window_s != WINDOW_S:
            asyncio.run(forget_soon(servers, window_s))
        clients = [
            Client(address, "worker", expiry_s=EXPIRY_S, at_once=False),
            Client(address, "taker", expiry_s=600),
            Client(address, "publisher"),  # without a session to be stored before the message is appended
        ]
        for client in clients:
            stack.callback(client.close)
        worker, taker, publisher = clients
        worker.subscribe("jobs", 1)
        taker.subscribe("once", 2)
        for number in range(JOBS):
            publisher.publish("jobs", f"job {number}", 1).wait_for_publish(30)
        wait_for(lambda: worker.took == ["job 0"], "the worker has the first job")
        publisher.publish(
            "once", "first", 2
        )  # so that the stream is known, and the next one does not wait for that
        wait_for(lambda: taker.took == ["first"], "the first came")

        wire.deaf = True
        publisher.publish("once", "only", 2)
        time.sleep(3)
        wire.block()
        time.sleep(away_s)
        wire.unblock()

        wait_for(lambda: len(taker.took) > 1, "the message came")
        worker.acknowledge()
        wait_for(lambda: len(worker.took) >= JOBS, "the worker has all jobs")
        publisher.publish("once", "last", 2)
        wait_for(lambda: taker.took[-1] == "last", "what was published last came")
        assert taker.took == ["first", "only", "last"]
        assert worker.took == [f"job {number}" for number in range(JOBS)]
        assert worker.ended == [], "it was connected all the time"

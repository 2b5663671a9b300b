"""Messages across the broker network, with the clients that people use, on processes started by ``tocsin up``."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.integration.running import DEADLINE_S, Heard, until, up

Address = tuple[str, int]


@pytest.fixture(scope="module")
def network() -> Iterator[dict[str, Address]]:
    """The brokers of a network that lasts for this module, by id."""
    with up() as ready:
        yield {broker["id"]: (broker["host"], broker["port"]) for broker in ready["brokers"]}


@pytest.mark.parametrize(("sub_version", "pub_version"), [("mqttv5", "mqttv311"), ("mqttv311", "mqttv5")])
def test_mosquitto_sub_in_one_cluster_hears_mosquitto_pub_in_another(
    network: dict[str, Address],
    debian_program: Callable[[str, str], str],
    sub_version: str,
    pub_version: str,
) -> None:
    sub_program = debian_program("mosquitto_sub", "mosquitto-clients")
    pub_program = debian_program("mosquitto_pub", "mosquitto-clients")
    host, port = network["north-1"]
    topic = f"a/{sub_version}"
    there, its_port = network["south-2"]
    sub = Heard([sub_program, "-h", there, "-p", str(its_port), "-V", sub_version, "-v", "-t", f"{topic}/#"])

    def publish() -> None:
        where = ["-h", host, "-p", str(port), "-V", pub_version]
        command = [pub_program, *where, "-t", f"{topic}/x", "-m", "hi"]
        subprocess.run(command, check=True, timeout=DEADLINE_S)

    try:
        until(lambda: bool(sub.lines), publish, "a message from north to south")
    finally:
        sub.stop()
    assert set(sub.lines) == {f"{topic}/x hi"}


class PahoClient:
    """A paho client in its own thread, connected and with what it heard."""

    def __init__(self, address: Address, protocol: int, *filters: str) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self._granted = threading.Event()
        self._connected = threading.Event()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, protocol=protocol)  # type: ignore[arg-type]
        self.client.on_message = lambda client, data, message: self.heard.append(
            (message.topic, bytes(message.payload))
        )
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = lambda *arguments: self._granted.set()
        self._filters = filters
        self.client.connect(*address)
        self.client.loop_start()
        assert self._connected.wait(DEADLINE_S)
        if filters:
            assert self._granted.wait(DEADLINE_S)

    def _on_connect(self, client: paho.Client, *details: Any) -> None:
        if self._filters:
            client.subscribe([(topic_filter, 0) for topic_filter in self._filters])
        self._connected.set()

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.mark.parametrize("protocol", [paho.MQTTv5, paho.MQTTv311], ids=["MQTT 5", "MQTT 3.1.1"])
def test_paho_clients_in_two_clusters_hear_each_other_in_order_and_once(
    network: dict[str, Address], protocol: int
) -> None:
    topic = f"b/{protocol}"
    subscriber = PahoClient(network["south-1"], protocol, f"{topic}/+")
    publisher = PahoClient(network["north-2"], protocol)
    try:
        until(
            lambda: bool(subscriber.heard),
            lambda: publisher.client.publish(f"{topic}/probe", b"probe"),
            "a message from north to south",
        )
        for number in range(200):
            publisher.client.publish(f"{topic}/{number % 3}", str(number).encode())

        def numbers() -> list[int]:
            return [int(payload) for _, payload in subscriber.heard if payload != b"probe"]

        until(lambda: len(numbers()) >= 200, lambda: None, "200 messages")
        assert numbers() == list(range(200))
    finally:
        subscriber.stop()
        publisher.stop()


def test_every_broker_reaches_every_other_exactly_once(network: dict[str, Address]) -> None:
    clients = {broker: PahoClient(address, paho.MQTTv5, "c/#") for broker, address in network.items()}
    try:
        for source, publisher in clients.items():
            until(
                lambda source=source: all(  # type: ignore[misc]
                    any(topic == f"c/probe/{source}" for topic, _ in client.heard)
                    for client in clients.values()
                ),
                lambda source=source, publisher=publisher: publisher.client.publish(  # type: ignore[misc]
                    f"c/probe/{source}", b""
                ),
                f"a message from {source} to everybody",
            )
        for source, publisher in clients.items():
            publisher.client.publish(f"c/once/{source}", b"x")
        expected = sorted(f"c/once/{source}" for source in clients)

        def once(client: PahoClient) -> list[str]:
            return sorted(topic for topic, _ in client.heard if topic.startswith("c/once/"))

        until(
            lambda: all(len(once(client)) >= len(expected) for client in clients.values()),
            lambda: None,
            "one message from each to each",
        )
        assert {broker: once(client) for broker, client in clients.items()} == dict.fromkeys(
            clients, expected
        )
    finally:
        for client in clients.values():
            client.stop()


def test_a_bad_client_is_closed_and_nobody_else_notices(network: dict[str, Address]) -> None:
    subscriber = PahoClient(network["north-1"], paho.MQTTv5, "d/#")
    publisher = PahoClient(network["north-1"], paho.MQTTv5)
    try:
        for garbage in (
            b"\xff" * 64,
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x10\xff\xff\xff\xff\x7f",
            b"\x30\x02\x00\x00",
        ):
            with socket.create_connection(network["north-1"], timeout=DEADLINE_S) as bad:
                bad.sendall(garbage)
                while bad.recv(1024):
                    pass
        until(
            lambda: bool(subscriber.heard),
            lambda: publisher.client.publish("d/x", b"still here"),
            "a message beside bad clients",
        )
    finally:
        subscriber.stop()
        publisher.stop()

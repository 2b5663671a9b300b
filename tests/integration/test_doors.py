"""Doors under attack, on real processes: floods of wrong passwords, groups of others, pages of others."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    Packet,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tests.integration.running import DEADLINE_S, up
from tocsin.errors import WireError
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5

BROKERS = (
    'brokers=[{"id":"one","cluster":"n","port":0,"ws_port":0},'
    '{"id":"two","cluster":"n","port":0},{"id":"open","cluster":"n","port":0,"ws_port":0}]'
)
GROUP = "$share/workers/jobs"
RULES = """
[[rules]]
allow = "both"
topics = ["#"]

[[rules]]
allow = "subscribe"
topics = ["$share/workers"]
users = ["bob"]
"""


class Client:
    """A client that speaks packets, one after the other."""

    def __init__(
        self, broker: dict[str, Any], user: str, client_id: str, password: str | None = None
    ) -> None:
        self._socket = socket.create_connection((broker["host"], broker["port"]), timeout=DEADLINE_S)
        self._decoder = Decoder(1 << 20, role="client", version=V5)
        self._packets: list[Packet | WireError] = []
        secret = (f"{user}'s password" if password is None else password).encode()
        self.send(ConnectPacket(client_id, username=user, password=secret, clean_start=True))
        answer = self.receive(ConnAckPacket)
        self.code, self.reason = int(answer.reason_code), answer.reason_str or ""

    def send(self, packet: Packet) -> None:
        self._socket.sendall(encode(packet, V5))

    def receive(self, kind: type[Any]) -> Any:
        """The next packet of this kind; others are passed over."""
        while True:
            while self._packets:
                packet = self._packets.pop(0)
                if isinstance(packet, kind):
                    return packet
            data = self._socket.recv(65_536)
            assert data, f"the connection ended before a {kind.__name__} came"
            self._packets += self._decoder.feed(data)

    def subscribe(self, pattern: str) -> tuple[int, str]:
        self.send(SubscribePacket(1, [TopicFilter(pattern, max_qos=QoS.AT_LEAST_ONCE)]))
        answer = self.receive(SubAckPacket)
        return int(answer.reason_codes[0]), answer.reason_str or ""

    def publish(self, topic: str, payload: bytes) -> int:
        self.send(PublishPacket(topic, payload, qos=QoS.AT_LEAST_ONCE, packet_id=1))
        return int(self.receive(PubAckPacket).reason_code)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    directory = tmp_path_factory.mktemp("doors")
    users = directory / "users"
    for name in ("alice", "bob", "mallory", "late"):
        command = [
            sys.executable,
            "-m",
            "tocsin",
            "user",
            "add",
            name,
            "--password-stdin",
            "--file",
            str(users),
        ]
        subprocess.run(command, input=f"{name}'s password", text=True, check=True, timeout=DEADLINE_S)
    (directory / "rules.toml").write_text(RULES)
    options = ["--set", BROKERS, "--set", f"access.users={users}"]
    options += ["--set", f"access.rules={directory / 'rules.toml'}"]
    with up(*options) as ready:
        yield {broker["id"]: broker for broker in ready["brokers"]}


def test_a_group_belongs_to_its_creator_and_to_users_that_rules_admit(
    brokers: dict[str, dict[str, Any]],
) -> None:
    alice = Client(brokers["one"], "alice", "worker")
    assert alice.subscribe(GROUP)[0] == 1
    mallory, bob = Client(brokers["two"], "mallory", "thief"), Client(brokers["two"], "bob", "helper")
    code, reason = mallory.subscribe(GROUP)
    assert code == 0x80 and "belongs to another user" in reason
    assert bob.subscribe(GROUP)[0] == 1, "a rule names the group"
    publisher = Client(brokers["two"], "bob", "publisher")
    for number in range(20):
        assert publisher.publish("jobs", str(number).encode()) == 0
    got: list[bytes] = []
    for worker in (alice, bob):
        worker._socket.settimeout(2.0)
        while True:
            try:
                message = worker.receive(PublishPacket)
            except TimeoutError:
                break
            got.append(message.payload)
            worker.send(PubAckPacket(message.packet_id))
    assert sorted(map(int, got)) == list(range(20)), "the members have all of them, and mallory none"
    for client in (alice, mallory, bob, publisher):
        client.close()


def test_a_flood_of_wrong_passwords_does_not_lock_out_a_first_login(
    brokers: dict[str, dict[str, Any]],
) -> None:
    over = threading.Event()

    def flood(number: int) -> None:
        count = 0
        while not over.is_set():
            count += 1
            try:
                Client(brokers["one"], "alice", f"guess-{number}-{count}", "wrong").close()
            except (AssertionError, OSError):
                time.sleep(0.01)

    threads = [threading.Thread(target=flood, args=(number,), daemon=True) for number in range(60)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(3.0)  # for the queue to be long
        honest = Client(brokers["one"], "late", "honest")
        assert honest.code == 0, honest.reason
        honest.close()
    finally:
        over.set()
        for thread in threads:
            thread.join(DEADLINE_S)


@pytest.mark.parametrize(
    ("origin", "code"), [(None, 0x00), ("http://localhost:3000", 0x00), ("https://evil.example", 0x87)]
)
def test_a_page_of_somebody_else_is_no_client_of_this_machine(
    brokers: dict[str, dict[str, Any]], origin: str | None, code: int
) -> None:
    broker = brokers["open"]
    with socket.create_connection((broker["host"], broker["ws_port"]), timeout=DEADLINE_S) as web:
        head = [
            "GET /mqtt HTTP/1.1",
            f"Host: {broker['host']}:{broker['ws_port']}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
            "Sec-WebSocket-Protocol: mqtt",
            *([f"Origin: {origin}"] if origin else []),
        ]
        web.sendall("\r\n".join([*head, "", ""]).encode())
        answered = b""
        while b"\r\n\r\n" not in answered:
            answered += web.recv(4_096)
        packet = encode(ConnectPacket("page", clean_start=True), V5)
        web.sendall(bytes((0x82, 0x80 | len(packet))) + bytes(4) + packet)  # a mask of zeros
        frame = answered.partition(b"\r\n\r\n")[2]
        while len(frame) < 6:
            frame += web.recv(4_096)
        connack = frame[2:] if frame[1] < 126 else frame[4:]
        assert (connack[0], connack[3]) == (0x20, code)

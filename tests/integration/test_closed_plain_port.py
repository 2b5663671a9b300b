"""A network without plain ports: clients come over TLS, brokers over their links, and everything works as ever."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from cryptography import x509
from mqtt5 import ConnectPacket

from tests.client_authority import ClientAuthority
from tests.integration.running import Heard, until, up
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V311

pytestmark = pytest.mark.timeout(170)
STEP_S = 60.0


class Closed:
    """The network's ready line, and the authority of its brokers' certificate."""

    def __init__(self, line: dict[str, Any], authority: Path) -> None:
        self.line = line
        self.authority = authority

    def server(self, broker: str) -> Server:
        found = next(each for each in self.line["brokers"] if each["id"] == broker)
        assert found["port"] == -1
        return Server(found["host"], found["tls_port"], "mqtts")

    def client(self, *brokers: str, **options: Any) -> AsyncClient:
        context = ssl.create_default_context(cafile=str(self.authority))
        return AsyncClient([self.server(each) for each in brokers], tls=context, **options)

    def command(self, *words: str) -> list[str]:
        state = ("--state", self.line["state"], "--cafile", str(self.authority))
        return [sys.executable, "-m", "tocsin", *words, *state]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    directory = tmp_path_factory.mktemp("tls")
    authority = ClientAuthority(directory, "authority")
    own = authority.issue("broker", names=[x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    brokers = [
        {"id": each, "cluster": "north", "port": -1, "tls_port": 0, "tls_host": "127.0.0.1"}
        for each in ("north-1", "north-2")
    ]
    hub = {"id": "north-hub", "cluster": "north", "role": "routing", "port": -1}
    sets = [f"brokers={json.dumps([*brokers, hub])}", f"tls.certificate={own.path}", f"tls.key={own.path}"]
    with up(*(word for each in sets for word in ("--set", each)), level="error") as line:
        yield Closed(line, authority.path)


def test_nothing_listens_in_plain_but_for_this_user(closed: Closed) -> None:
    parent = psutil.Process(closed.line["pids"]["broker/north-1"]).parent()
    assert parent is not None
    known = {
        each[name] for each in closed.line["brokers"] for name in ("tls_port", "link_port") if name in each
    }
    for child in parent.children(recursive=True):
        if "broker" in child.cmdline():
            found = {each.laddr.port for each in child.net_connections("tcp") if each.status == "LISTEN"}
            assert found <= known, child.cmdline()


def test_the_coordinators_door_is_no_way_around_tls(closed: Closed) -> None:
    door = closed.line["door"]
    with socket.create_connection((door["host"], door["port"]), STEP_S) as plain:
        plain.sendall(encode(ConnectPacket("stranger", clean_start=True), V311))
        assert plain.recv(4) == b"\x20\x02\x00\x05"  # CONNACK: not authorized


def test_the_command_line_finds_the_way_over_tls(closed: Closed) -> None:
    heard = Heard(closed.command("sub", "-b", "north-2", "--count", "1", "closed/a"))
    try:
        publish = closed.command("pub", "-b", "north-1", "closed/a", "hello")
        until(
            lambda: bool(heard.lines),
            lambda: subprocess.run(publish, check=True, timeout=STEP_S),
            "a message",
        )
        assert any("hello" in line for line in heard.lines)
    finally:
        heard.stop()


async def test_a_broker_that_stops_sends_its_clients_to_another_one_over_tls(closed: Closed) -> None:
    async with asyncio.timeout(STEP_S), closed.client("north-1", client_id="moves") as client:
        server = closed.server("north-1")
        assert client.server == f"{server.host}:{server.port}"
        other = closed.server("north-2")
        os.kill(closed.line["pids"]["broker/north-1"], signal.SIGTERM)
        while not (client.connected and client.server == f"{other.host}:{other.port}"):
            await asyncio.sleep(0.05)


def test_chaos_has_its_clients_come_over_tls(closed: Closed) -> None:
    words = ("chaos", "--kill", "broker/north-2@1s", "--subscribers", "4", "--publishers", "2", "--json")
    done = subprocess.run(closed.command(*words), capture_output=True, text=True, timeout=2 * STEP_S)
    assert done.returncode == 0, done.stderr[-2_000:]

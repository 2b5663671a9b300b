"""One address for a network: clients that know the coordinators' door, while brokers die. Real processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.integration.running import DEADLINE_S, up
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.runtime.network.directory import read_network

BROKERS = json.dumps([{"id": f"north-{each}", "cluster": "north"} for each in (1, 2, 3)])


def ask(network: dict[str, Any], path: str) -> Any:
    where = f"http://127.0.0.1:{network['door']['port']}{path}"
    with urllib.request.urlopen(where, timeout=DEADLINE_S) as answer:
        return json.load(answer)


def explained(network: dict[str, Any], home: str) -> Any:
    """Why the door sends a client elsewhere whose home is lost."""
    command = [sys.executable, "-P", "-m", "tocsin", "explain", "door", "phone", "--home", home, "--json"]
    done = subprocess.run(
        [*command, "--state", network["state"]],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    return json.loads(done.stdout)


@contextlib.contextmanager
def nobody_restarts(network: dict[str, Any]) -> Iterator[None]:
    """While this lasts, what is dead stays dead."""
    file = read_network(Path(network["state"]))
    assert file is not None
    os.kill(file.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(file.pid, signal.SIGCONT)


# A program of ours with a lasting session. It knows one broker, and prints what it hears.
LISTENER = """
import sys
from tocsin.client import Client

with Client(sys.argv[1], client_id="listener", session_expiry_s=600) as client:
    messages = client.subscribe("a/#", qos=1)
    print("listens", flush=True)
    for message in messages:
        print(message.text, flush=True)
"""


@contextlib.contextmanager
def listener(server: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-P", "-c", LISTENER, server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield program
        finally:
            program.kill()


class Phone:
    """A client of MQTT 3.1.1 that knows one address, and dials it again when it is cut off."""

    def __init__(self, port: int) -> None:
        self._heard: queue.Queue[bytes] = queue.Queue()
        self.connected = threading.Semaphore(0)
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, "phone", clean_session=False, protocol=paho.MQTTv311
        )
        self._client.on_connect = self._on_connect
        self._client.on_message = lambda client, data, message: self._heard.put(bytes(message.payload))
        self._client.on_subscribe = lambda *told: self.connected.release()
        self._client.connect_async("127.0.0.1", port, keepalive=60)
        self._client.loop_start()

    def _on_connect(self, client: paho.Client, *told: Any) -> None:
        if not told[2].is_failure:
            client.subscribe("a/#", qos=1)

    def hear(self, payload: bytes) -> None:
        """Wait for a message; at QoS 1 earlier ones may come again."""
        while self._heard.get(timeout=DEADLINE_S) != payload:
            pass

    def __enter__(self) -> Phone:
        return self

    def __exit__(self, *how: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        self._client.__del__()  # paho closes its own pair of sockets nowhere else


async def test_one_address_is_enough_while_two_brokers_die() -> None:
    with up("--set", f"brokers={BROKERS}", level="error") as network, nobody_restarts(network):
        door = Server("127.0.0.1", network["door"]["port"])
        with Phone(door.port) as phone:
            dead: list[str] = []
            for number, how in (
                (1, signal.SIGKILL),
                (2, signal.SIGSTOP),
            ):  # the sockets of the second stay open
                assert await asyncio.to_thread(phone.connected.acquire, timeout=DEADLINE_S)
                dead.append(ask(network, "/v1/broker?client=phone")["broker"])
                os.kill(network["pids"][f"broker/{dead[-1]}"], how)
                # A program whose only known broker is dead gets in, and publishes.
                known = Server(*address(network, dead[-1]))
                async with asyncio.timeout(DEADLINE_S), AsyncClient([known, door]) as program:
                    assert program.server != f"{known.host}:{known.port}"
                    await program.publish("a/b", f"message {number}", qos=1)
                await asyncio.to_thread(phone.hear, b"message %d" % number)
            assert len(set(dead)) == 2, "the phone was passed on to another broker"
            assert explained(network, dead[0])["broker"] not in dead
            os.kill(network["pids"][f"broker/{dead[1]}"], signal.SIGCONT)


async def test_a_program_away_during_three_changes_of_plan_gets_in() -> None:
    brokers = json.dumps([{"id": f"north-{each}", "cluster": "north"} for each in range(1, 5)])
    with up("--set", f"brokers={brokers}", level="error") as network, nobody_restarts(network):
        door = Server("127.0.0.1", network["door"]["port"])
        host, port = address(network, "north-1")
        with listener(f"{host}:{port}") as program:
            assert program.stdout is not None
            assert await asyncio.to_thread(program.stdout.readline) == "listens\n"
            os.kill(program.pid, signal.SIGSTOP)
            dead: list[str] = []
            for number in range(1, 4):
                dead.append(f"north-{number}")
                os.kill(network["pids"][f"broker/{dead[-1]}"], signal.SIGKILL)
                async with asyncio.timeout(DEADLINE_S):  # until the network has another plan
                    while (await asyncio.to_thread(explained, network, dead[-1]))["broker"] in dead:
                        await asyncio.sleep(0.2)
            async with asyncio.timeout(DEADLINE_S), AsyncClient([door]) as other:
                await other.publish("a/b", "there you are", qos=1)
            os.kill(program.pid, signal.SIGCONT)
            async with asyncio.timeout(DEADLINE_S):
                assert await asyncio.to_thread(program.stdout.readline) == "there you are\n"


async def test_pub_and_sub_get_in_though_their_broker_is_dead() -> None:
    """They are told no address: they try the first broker, then the door."""
    with up("--set", f"brokers={BROKERS}", level="error") as network, nobody_restarts(network):
        os.kill(network["pids"]["broker/north-1"], signal.SIGKILL)
        async with asyncio.timeout(DEADLINE_S):  # until the door knows: before, it sends them to that broker
            while (await asyncio.to_thread(explained, network, "north-1"))["broker"] == "north-1":
                await asyncio.sleep(0.2)
        tocsin = (sys.executable, "-P", "-m", "tocsin")
        state = ("--state", network["state"])
        listening = await asyncio.create_subprocess_exec(
            *tocsin, "sub", "a/b", "-q", "1", "-n", "1", *state, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(DEADLINE_S):
            while listening.returncode is None:  # until its subscription is there to be told of
                said = await asyncio.create_subprocess_exec(
                    *tocsin, "pub", "a/b", "there you are", "-q", "1", *state
                )
                assert await said.wait() == 0
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(listening.wait(), 0.5)
        out, _ = await listening.communicate()
        assert listening.returncode == 0 and b"there you are" in out

"""``tocsin drain`` empties a broker under load, and nobody loses a message: real processes, ours and paho's clients."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from mqtt5 import ConnAckPacket, ConnectPacket
from paho.mqtt.enums import CallbackAPIVersion

from tests.integration.running import READY_DEADLINE_S, up
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.client.subscription import Subscription
from tocsin.core.access.admission import USE_ANOTHER_SERVER
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5

BROKERS = json.dumps([{"id": each, "cluster": "north"} for each in ("north-1", "north-2")])
AGAIN_S = 0.05
FOLLOWERS = 12


@pytest.fixture
def network() -> Iterator[dict[str, Any]]:
    sets = (f"brokers={BROKERS}", "balance.grace_s=1", "balance.rate=20")
    with up(*(word for each in sets for word in ("--set", each)), level="error") as line:
        yield line


async def drain(network: dict[str, Any], *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code of ``tocsin drain``, and what it says."""
    argv = (sys.executable, "-P", "-m", "tocsin", "drain", *options, "--json", "--state", network["state"])
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    return process.returncode or 0, json.loads(said)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(AGAIN_S)


async def gather(subscription: Subscription, into: list[int]) -> None:
    async for message in subscription:
        into.append(int(message.payload))


async def refusal(server: Server) -> int:
    """The reason code with which a broker answers the CONNECT of a newcomer."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(encode(ConnectPacket("newcomer"), V5))
    (answer,) = Decoder(1_000, role="client", version=V5).feed(await reader.read(1_000))
    writer.close()
    assert isinstance(answer, ConnAckPacket)
    return int(answer.reason_code)


async def test_a_drained_broker_is_empty_and_nobody_lost_a_message(network: dict[str, Any]) -> None:
    first, second = (Server(*address(network, name)) for name in ("north-1", "north-2"))
    away = AsyncClient([first], client_id="away", session_expiry_s=600)
    async with asyncio.timeout(READY_DEADLINE_S):
        async with away:
            await away.subscribe("load", qos=1)
        told: list[int] = []  # a client of another make
        phone = Phone(first, told)
        await until(lambda: phone.ready)
        clients = [AsyncClient([first], client_id=f"c{n}", session_expiry_s=600) for n in range(FOLLOWERS)]
        heard: list[list[int]] = [[] for _ in clients]
        for client in clients:
            await client.connect()
        asked = [client.subscribe("load", qos=1) for client in clients]
        await asyncio.gather(*asked)
        readers = [asyncio.create_task(gather(*each)) for each in zip(asked, heard, strict=True)]
        sent = 0
        async with AsyncClient([second]) as publisher:
            draining = asyncio.create_task(drain(network, "north-1", "--wait", "30"))
            while not draining.done():
                await publisher.publish("load", str(sent).encode(), qos=1)
                sent += 1
                await asyncio.sleep(0.01)
            code, said = draining.result()
            assert (code, said["draining"][0]["clients"]) == (0, 0)
            assert await refusal(first) == USE_ANOTHER_SERVER
            returning = AsyncClient([second], client_id="away", session_expiry_s=600)
            missed: list[int] = []
            async with returning:
                readers.append(asyncio.create_task(gather(returning.subscribe("load", qos=1), missed)))
                phone.close()
                phone = Phone(second, told)
                everybody = [*heard, missed, told]
                await until(lambda: all(set(each) >= set(range(sent)) for each in everybody))
        assert (await drain(network, "north-1", "--undo"))[1] == {"draining": []}
        for reader in readers:
            reader.cancel()
        for client in clients:
            await client.close()
        phone.close()


class Phone:
    """A client of MQTT 3.1.1 with a session, which follows no redirect: it is let go after the grace."""

    def __init__(self, server: Server, heard: list[int]) -> None:
        self.ready = False
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id="phone", clean_session=False, protocol=paho.MQTTv311
        )
        self._client.on_connect = lambda client, *_: client.subscribe("load", qos=1)
        self._client.on_subscribe = self._subscribed
        self._client.on_message = lambda client, data, message: heard.append(int(message.payload))
        self._client.connect(server.host, server.port)
        self._client.loop_start()

    def _subscribed(self, *_: Any) -> None:
        self.ready = True

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

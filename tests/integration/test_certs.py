"""Certificates of a network that runs are replaced, its authority too, and nothing is interrupted for long."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mqtt5 import ConnectPacket

from tests.integration.running import up
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V311

pytestmark = pytest.mark.timeout(170)
BROKERS = json.dumps([{"id": each, "cluster": "north"} for each in ("north-1", "north-2")])
STEP_S = 60.0


def certs(network: dict[str, Any], *words: str) -> str:
    command = [sys.executable, "-m", "tocsin", "certs", *words, "--state", network["state"]]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=STEP_S).stdout


async def passed_on(network: dict[str, Any]) -> None:
    """An old client is passed on by the coordinators' door, which proves itself with the new certificate."""
    answer = b""
    while answer != b"\x20\x02\x00\x00":
        await asyncio.sleep(0.2)
        reader, writer = await asyncio.open_connection(network["door"]["host"], network["door"]["port"])
        writer.write(encode(ConnectPacket("old", clean_start=True), V311))
        answer = await reader.read(4)
        writer.close()


async def test_an_authority_is_replaced_while_messages_flow() -> None:
    with up("--set", f"brokers={BROKERS}", level="error") as network:
        before = json.loads(await asyncio.to_thread(certs, network, "list", "--json"))
        heard: list[int] = []
        async with (
            asyncio.timeout(2 * STEP_S),
            AsyncClient([Server(*address(network, "north-2"))]) as subscriber,
            AsyncClient([Server(*address(network, "north-1"))]) as publisher,
        ):
            # Above QoS 0: through the store, whose servers take up new certificates as well.
            inbox, durable = await subscriber.subscribe("live"), await subscriber.subscribe("kept", qos=1)

            async def listen() -> None:
                async for message in inbox:
                    heard.append(int(message.text))

            listening = asyncio.create_task(listen())
            rotating = asyncio.create_task(asyncio.to_thread(certs, network, "rotate", "--authority"))
            number = 0
            while not rotating.done() or not heard or heard[-1] < number - 50:
                number += 1
                await publisher.publish("live", str(number))
                await asyncio.sleep(0.02)
            assert "believed no more" in await rotating
            later = number + 25
            while not heard or heard[-1] < later:  # the link is there, with new certificates
                number += 1
                await publisher.publish("live", str(number))
                await asyncio.sleep(0.02)
            assert heard == sorted(set(heard)), "once each, in order"
            await publisher.publish("kept", b"!", qos=1)
            assert (await anext(aiter(durable))).payload == b"!"
            listening.cancel()
            await passed_on(network)
        after = json.loads(await asyncio.to_thread(certs, network, "list", "--json"))
        assert before["authorities"] != after["authorities"] and len(after["authorities"]) == 1
        assert all(each["newest_authority"] for each in after["certificates"])
        for log in (Path(network["state"]) / "logs").iterdir():
            assert "cannot be used" not in log.read_text(errors="replace"), log

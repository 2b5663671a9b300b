"""A latency budget is kept by a straight connection while the way over the routing broker is slow: real processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tests.integration.running import up
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
STEP_S = 120.0
EVERY_S = 0.05
TOPIC = "line/1"
BROKERS = json.dumps(
    [
        {"id": "hub-1", "cluster": "cloud", "role": "routing"},
        {"id": "east-1", "cluster": "east"},
        {"id": "west-1", "cluster": "west"},
    ]
)


@pytest.fixture
def network() -> Iterator[dict[str, Any]]:
    with up("--set", f"brokers={BROKERS}", level="error") as line:
        yield line


async def tocsin(network: dict[str, Any], *words: str) -> Any:
    """What a verb says in JSON."""
    port = network["nats"][0].rpartition(":")[2]
    where = ("--state", network["state"], "--set", f"nats.port={port}", "--set", f"brokers={BROKERS}")
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tocsin", *words, "--json", *where), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await running.communicate()
    return json.loads(out)


@contextlib.asynccontextmanager
async def slow(network: dict[str, Any], link: str) -> AsyncIterator[None]:
    words = ("--state", network["state"], "--json", "--subscribers", "1", "--publishers", "1", "--rate", "1")
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tocsin", "chaos", *words, "--lag", f"{link}=150ms:300s@0.1s"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert running.stderr is not None
    async with asyncio.timeout(STEP_S):
        while b"connections with it" not in (line := await running.stderr.readline()):
            assert line, "it has ended"
    try:
        yield
    finally:
        running.terminate()
        await running.communicate()


async def ways(network: dict[str, Any], fit: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What is explained of the topic's ways, once that is such."""
    async with asyncio.timeout(STEP_S):
        while True:
            explained = await tocsin(network, "explain", "route", TOPIC, "--from", "east-1")
            for found in explained["ways"] or ():
                if fit(found):
                    assert isinstance(found, dict)
                    return found
            await asyncio.sleep(0.2)


def takes_a_copy(found: dict[str, Any]) -> bool:
    taken = {each["way"] for each in found["ways"] if each["taken"]}
    return "straight" in taken and (found["seen"] or {}).get("ahead", 0) > 20


async def test_a_straight_way_keeps_the_budget_that_the_usual_one_misses(network: dict[str, Any]) -> None:
    async with (
        AsyncClient([Server(*address(network, "west-1"))]) as subscriber,
        AsyncClient([Server(*address(network, "west-1"))]) as other,
        AsyncClient([Server(*address(network, "east-1"))]) as publisher,
        slow(network, "hub-1~west-1"),
    ):
        listening = await subscriber.subscribe(f"$qos/budget=100ms/{TOPIC}")
        plain = await other.subscribe("line/+")
        heard: list[int] = []
        usual: list[int] = []

        async def publish() -> None:
            number = 0
            while True:
                number += 1
                await publisher.publish(TOPIC, number, offer="budget=100ms")
                await asyncio.sleep(EVERY_S)

        async def note(of: Any, into: list[int]) -> None:
            async for message in of:
                into.append(message.json())

        tasks = [
            asyncio.create_task(each) for each in (publish(), note(listening, heard), note(plain, usual))
        ]
        try:
            found = await ways(network, takes_a_copy)
            assert found["over"] == "hub-1" and found["alone"] > 0.5 > found["expected"]
            count = len(usual) + 20
            async with asyncio.timeout(STEP_S):
                while len(usual) < count:
                    await asyncio.sleep(0.05)
        finally:
            for task in tasks:
                task.cancel()
        assert heard == sorted(set(heard))  # each once, in order
        assert usual == sorted(set(usual))  # who has no budget gets nothing of a copy

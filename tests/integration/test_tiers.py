"""A cloud of routing brokers carries between clusters of edge brokers: real processes and real clients at QoS 0."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tests.integration.running import up
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server

pytestmark = pytest.mark.timeout(240)
STEP_S = 90.0
PUBLISH_S = 0.01
CLOUD = ("cloud-1", "cloud-2", "cloud-3")
TOPICS = tuple(f"line/{number}" for number in range(12))
BROKERS = json.dumps(
    [
        *({"id": each, "cluster": "cloud", "role": "routing"} for each in CLOUD),
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
    options = (
        "--json",
        "--state",
        network["state"],
        "--set",
        f"nats.port={port}",
        "--set",
        f"brokers={BROKERS}",
    )
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tocsin", *words, *options), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await running.communicate()
    return json.loads(out)


async def members(network: dict[str, Any], fits: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """How many slots each member carries, once that is such."""
    async with asyncio.timeout(STEP_S):
        while True:
            tiers = await tocsin(network, "routing", "status")
            found = {each["broker"]: each["slots"] for tier in tiers for each in tier["members"]}
            if fits(found):
                return found
            await asyncio.sleep(0.2)


def shared(carried: dict[str, int]) -> bool:
    """Whether every member has its part: by load, so that it may be few slots that bring much."""
    return len(carried) == len(CLOUD) and min(carried.values()) > 0


class Traffic:
    """Numbered messages from a client in the east to one in the west, on all topics in turn."""

    def __init__(self) -> None:
        self.sent = 0
        self.heard: dict[str, list[int]] = {each: [] for each in TOPICS}

    def since(self, number: int) -> list[int]:
        """What was heard of what was sent from a number on."""
        return [each for heard in self.heard.values() for each in heard if each >= number]

    async def flows(self, messages: int = 100) -> int:
        """Wait until as many messages as that, sent from now on, have all come; the last of them."""
        async with asyncio.timeout(STEP_S):
            while True:
                first = self.sent
                while self.sent < first + messages:
                    await asyncio.sleep(PUBLISH_S)
                for _ in range(100):
                    if {*range(first, first + messages)} <= {*self.since(first)}:
                        return first + messages - 1
                    await asyncio.sleep(PUBLISH_S)


@contextlib.asynccontextmanager
async def traffic(
    network: dict[str, Any], at_once: int = 1, *, reliable: bool = False
) -> AsyncIterator[Traffic]:
    found = Traffic()
    async with (
        AsyncClient([Server(*address(network, "west-1"))]) as subscriber,
        AsyncClient([Server(*address(network, "east-1"))]) as publisher,
    ):
        request = "reliability=reliable" if reliable else None
        offer = "reliability=reliable" if reliable else None
        listening = await subscriber.subscribe("line/+", request=request)

        async def hear() -> None:
            async for message in listening:
                found.heard[message.topic].append(int(message.payload))

        async def publish() -> None:
            while True:
                for _ in range(at_once):
                    topic = TOPICS[found.sent % len(TOPICS)]
                    await publisher.publish(topic, b"%d" % found.sent, offer=offer)
                    found.sent += 1
                await asyncio.sleep(PUBLISH_S)

        tasks = [asyncio.create_task(hear()), asyncio.create_task(publish())]
        try:
            await found.flows()
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_members_share_and_moves_cost_no_message(network: dict[str, Any]) -> None:
    await members(network, shared)
    async with traffic(network) as flowing:
        began = flowing.sent
        for broker in ("cloud-1", "cloud-2"):
            await tocsin(network, "drain", broker)
            carried = await members(network, lambda found, broker=broker: not found[broker])  # type: ignore[misc]
            assert sum(carried.values()) == 1_024
            await tocsin(network, "drain", broker, "--undo")
            await members(network, shared)
        await flowing.flows()
        ended = max(flowing.since(began))
        for topic, heard in flowing.heard.items():
            assert heard == sorted(set(heard)), f"{topic}: each once, in order"
        lost = {*range(began, ended + 1)} - {*flowing.since(began)}
        assert not lost
        await pinned(network)
        explained = await tocsin(network, "explain", "route", "line/1", "--from", "east-1")
        (over,) = explained["over"]
        assert over["tier"] == "cloud" and over["carrier"] in CLOUD and over["deputy"] in CLOUD
        assert [each["broker"] for each in over["onward"]] == ["west-1"]


async def test_moving_every_slot_costs_no_message(network: dict[str, Any]) -> None:
    await members(network, shared)
    async with traffic(network, at_once=10) as flowing:
        began = flowing.sent
        for broker in (*CLOUD, CLOUD[0]):
            await ordered(network, "move", "0-1023", broker)
            assert await members(network, lambda found, broker=broker: found[broker] == 1_024)  # type: ignore[misc]
        await ordered(network, "drain", CLOUD[0])
        left = await members(network, lambda found: not found[CLOUD[0]])
        assert sum(left.values()) == 1_024
        ended = await flowing.flows()
        for topic, heard in flowing.heard.items():
            assert heard == sorted(set(heard)), f"{topic}: each once, in order"
        assert not {*range(began, ended + 1)} - {*flowing.since(began)}
        (tier,) = await tocsin(network, "routing", "status")
        loads = {each["broker"]: each["load"]["messages_s"] for each in tier["members"]}
        assert loads[CLOUD[0]] == 0 and sum(loads.values()) > 0


async def pinned(network: dict[str, Any]) -> None:
    """Every member in turn gets a topic."""
    for broker in CLOUD:
        await ordered(network, "pin", "line/1", broker)
        found = await tocsin(network, "explain", "route", "line/1", "--from", "east-1")
        assert found["over"][0]["carrier"] == broker
        (tier,) = await tocsin(network, "routing", "status")
        assert [(each["broker"], each["topic"]) for each in tier["pins"]] == [(broker, "line/1")]
    await ordered(network, "pin", "line/1", "--undo")
    (tier,) = await tocsin(network, "routing", "status")
    assert tier["pins"] == []


async def ordered(network: dict[str, Any], *words: str) -> None:
    port = network["nats"][0].rpartition(":")[2]
    options = ("--state", network["state"], "--set", f"nats.port={port}", "--set", f"brokers={BROKERS}")
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tocsin", "routing", *words, *options)
    )
    assert await running.wait() == 0


async def test_a_killed_member_is_replaced_by_its_deputies(network: dict[str, Any]) -> None:
    await members(network, shared)
    async with traffic(network) as flowing:
        os.kill(network["pids"]["broker/cloud-2"], signal.SIGKILL)
        await flowing.flows()
        for topic, heard in flowing.heard.items():
            assert len(heard) == len(set(heard)), f"{topic}: each once"
        await members(network, shared)  # it is started again, and gets its part
        await flowing.flows()


async def test_a_reliable_flow_loses_nothing_when_members_are_killed(network: dict[str, Any]) -> None:
    await members(network, shared)
    async with traffic(network, at_once=5, reliable=True) as flowing:
        began = flowing.sent
        for broker in CLOUD[:2]:
            os.kill(network["pids"][f"broker/{broker}"], signal.SIGKILL)
            await asyncio.sleep(1)
        ended = await flowing.flows()
        for topic, heard in flowing.heard.items():
            assert heard == sorted(set(heard)), f"{topic}: each once, in order"
        assert not {*range(began, ended + 1)} - {*flowing.since(began)}


async def test_members_in_reserve_are_not_started_before_they_are_needed() -> None:
    with up("--set", f"brokers={BROKERS}", "--set", "routing.least=2", level="error") as line:
        assert {each for each in line["pids"] if "cloud" in each} == {"broker/cloud-1", "broker/cloud-2"}
        (tier,) = await tocsin(line, "routing", "status")
        async with asyncio.timeout(STEP_S):
            while not (tier["growing"] and tier["growing"]["members"] == 2):
                await asyncio.sleep(0.3)
                (tier,) = await tocsin(line, "routing", "status")
        assert {each["broker"] for each in tier["members"]} == {"cloud-1", "cloud-2"}
        async with traffic(line) as flowing:
            await flowing.flows()

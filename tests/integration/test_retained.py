"""Retained messages that are many or large, on real processes: brokers come back with them, memory is bounded."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubscribePacket,
    TopicFilter,
)

from tests.integration.running import READY_DEADLINE_S, up
from tests.integration.test_elsewhere import address
from tests.unit.broker.harness import Peer
from tocsin.wire.mqtt.connect import V5

BROKERS = json.dumps([{"id": "north-1", "cluster": "north"}, {"id": "north-2", "cluster": "north"}])
SIZE = 1_000_000  # about as large as a message may be
AGAIN_S = 0.1
SET = ("--set", f"brokers={BROKERS}")


async def come(network: dict[str, Any], broker: str, client_id: str) -> Peer:
    """A client that is let in, sooner or later."""
    async with asyncio.timeout(READY_DEADLINE_S):
        while True:
            try:
                peer = Peer(*await asyncio.open_connection(*address(network, broker)), V5)
                peer.send(ConnectPacket(client_id, clean_start=True, receive_max=1_000))
                await peer.receive(ConnAckPacket)
                return peer
            except (OSError, asyncio.IncompleteReadError, AssertionError):
                await asyncio.sleep(AGAIN_S)


async def retain(network: dict[str, Any], count: int, size: int) -> None:
    peer = await come(network, "north-1", "publisher")
    for number in range(count):
        payload = number.to_bytes(4, "big") * (size // 4)
        packet_id = number % 50_000 + 1
        packet = PublishPacket(
            f"state/{number}", payload, qos=QoS.AT_LEAST_ONCE, packet_id=packet_id, retain=True
        )
        peer.send(packet)
        if number % 50 == 49 or size == SIZE or number == count - 1:
            while (await peer.receive(PubAckPacket)).packet_id != packet_id:
                pass
    peer.writer.close()


async def served(network: dict[str, Any], broker: str, count: int) -> None:
    """A client is let in, and gets all of them."""
    peer = await come(network, broker, f"reader-at-{broker}")
    peer.send(SubscribePacket(1, [TopicFilter("state/#", max_qos=QoS.AT_MOST_ONCE)]))
    got: dict[str, int] = {}
    async with asyncio.timeout(READY_DEADLINE_S):
        while len(got) < count:
            packet = await peer.first(PublishPacket)
            assert packet.retain and packet.topic not in got
            got[packet.topic] = int.from_bytes(packet.payload[:4], "big")
    assert got == {f"state/{number}": number for number in range(count)}
    peer.writer.close()


async def survive(state: Path, count: int) -> None:
    with up(*SET, state=state, level="error") as network:
        await retain(network, count, SIZE)
        await served(network, "north-1", count)
        await served(network, "north-2", count)
        os.kill(network["pids"]["broker/north-2"], signal.SIGKILL)
        await served(network, "north-2", count)
    with up(*SET, state=state, level="error") as network:
        await served(network, "north-1", count)
        await served(network, "north-2", count)


async def test_brokers_come_back_and_serve_24_retained_messages_of_a_megabyte(tmp_path: Path) -> None:
    await survive(tmp_path / "state", 24)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_brokers_come_back_and_serve_150_retained_messages_of_a_megabyte(tmp_path: Path) -> None:
    await survive(tmp_path / "state", 150)


def tocsin(*words: str, state: Path) -> str:
    command = [sys.executable, "-m", "tocsin", *words, "--state", str(state)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READY_DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_an_operator_lists_and_removes_retained_messages_without_a_broker(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up(*SET, state=state, level="error") as network:
        await retain(network, 5, 40_000)
        pids = [network["pids"][f"broker/{name}"] for name in ("north-1", "north-2")]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            listed = json.loads(tocsin("retained", "list", "state/+", "--limit", "2", "--json", state=state))
            assert (listed["messages"], listed["bytes"], len(listed["largest"])) == (5, 200_000, 2)
            assert "5 retained messages" in tocsin("retained", "list", state=state)
            removed = json.loads(tocsin("retained", "remove", "state/4", "--yes", "--json", state=state))
            assert removed == {"removed": 1, "bytes": 40_000, "left": 0}
            (line,) = map(json.loads, (state / "audit" / "audit.log").read_text().splitlines())
            assert (line["action"], line["name"], line["outcome"]) == ("remove retained", "state/4", "done")
            assert line["result"] == "removed 1 retained messages, 40,000 bytes"
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        await served(network, "north-1", 4)
        await served(network, "north-2", 4)


@pytest.fixture
def network() -> Iterator[dict[str, Any]]:
    with up(*SET, level="error") as line:
        yield line


async def test_subscribing_again_and_again_without_reading_costs_no_memory(network: dict[str, Any]) -> None:
    await retain(network, 5_000, 400)
    broker = psutil.Process(network["pids"]["broker/north-1"])
    before = broker.memory_info().rss
    greedy = await come(network, "north-1", "greedy")
    for number in range(1, 401):
        greedy.send(SubscribePacket(number, [TopicFilter("#", max_qos=QoS.AT_MOST_ONCE)]))
    await greedy.writer.drain()
    watcher = await come(network, "north-1", "watcher")
    for _ in range(30):
        await asyncio.sleep(AGAIN_S)
    watcher.writer.close()
    grown = broker.memory_info().rss - before
    greedy.writer.close()
    # What it may have waiting at most (outbound_max_bytes), and a margin; it was 96 MiB, and rising.
    assert grown < 40 << 20, f"{grown >> 20} MiB"

"""Links that are slow, lossy or narrow for a while: ``tocsin chaos --lag, --loss, --rate`` against real processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.integration.running import up
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server

BROKERS = json.dumps([{"id": "north-1", "cluster": "north"}, {"id": "north-2", "cluster": "north"}])
OPTIONS = ("--set", f"brokers={BROKERS}")
LOAD = ("--subscribers", "4", "--publishers", "2", "--rate", "4")
LAG_S = 0.4
RATE = 20_000
DEADLINE_S = 150.0


@pytest.fixture(scope="module")
def network() -> Iterator[dict[str, Any]]:
    with up(*OPTIONS, level="error") as line:
        yield line


@contextlib.asynccontextmanager
async def chaos(network: dict[str, Any], *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A run whose first fault has begun; it is waited for at the end, and every promise was kept."""
    words = ("tocsin", "chaos", "--state", network["state"], "--json", *LOAD, *options)
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert running.stdout is not None and running.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        while b"connections with it" not in (line := await running.stderr.readline()):
            assert line, "it has ended"
        yield running
        running.terminate()  # heals, and gives the account
        out, told = await running.communicate()
    account = json.loads(out)
    assert running.returncode == 0 and account["kept"], told
    assert account["faults"][0]["pids"] and account["faults"][0]["amount"]


async def test_a_lagging_link_delivers_late_and_then_in_time_again(network: dict[str, Any]) -> None:
    async with (
        AsyncClient([Server(*address(network, "north-2"))]) as subscriber,
        AsyncClient([Server(*address(network, "north-1"))]) as publisher,
    ):
        listening = await subscriber.subscribe("weather/lag")
        async with asyncio.timeout(DEADLINE_S):
            await publisher.publish("weather/lag", b"before")
            assert (await listening.get()).payload == b"before"
        async with chaos(network, "--lag", f"north-1~north-2={LAG_S * 1_000:g}ms:300s@0.1s"):
            began_s = time.monotonic()
            for number in range(5):
                await publisher.publish("weather/lag", b"%d" % number)
            heard = [(await listening.get()).payload for _ in range(5)]
            assert time.monotonic() - began_s >= LAG_S
            assert heard == [b"0", b"1", b"2", b"3", b"4"]
        async with asyncio.timeout(DEADLINE_S):
            await publisher.publish("weather/lag", b"after")
            assert (await listening.get()).payload == b"after"


async def test_a_narrow_link_takes_as_long_as_its_bytes_need(network: dict[str, Any]) -> None:
    async with (
        AsyncClient([Server(*address(network, "north-2"))]) as subscriber,
        AsyncClient([Server(*address(network, "north-1"))]) as publisher,
        chaos(network, "--rate", f"north-1~north-2={RATE}B:300s@0.1s"),
    ):
        listening = await subscriber.subscribe("weather/rate")
        await publisher.publish("weather/rate", b"first", qos=1)
        await listening.get()
        began_s = time.monotonic()
        for _ in range(3):
            await publisher.publish("weather/rate", b"x" * 4_000)
        for _ in range(3):
            assert len((await listening.get()).payload) == 4_000
        assert time.monotonic() - began_s >= 3 * 4_000 / RATE


async def test_a_lossy_link_keeps_order_and_loses_nothing(network: dict[str, Any]) -> None:
    async with (
        AsyncClient([Server(*address(network, "north-2"))]) as subscriber,
        AsyncClient([Server(*address(network, "north-1"))]) as publisher,
        chaos(network, "--loss", "north-1~north-2=10%:300s@0.1s"),
    ):
        listening = await subscriber.subscribe("weather/loss")
        await publisher.publish("weather/loss", b"first", qos=1)
        await listening.get()
        for number in range(30):
            await publisher.publish("weather/loss", b"%d" % number)
            await asyncio.sleep(0.01)
        heard = [int((await listening.get()).payload) for _ in range(30)]
        assert heard == list(range(30))

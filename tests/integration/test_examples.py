"""The small clients of ``examples/``: their broker is killed, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.integration.running import READY_DEADLINE_S, up
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server

EXAMPLES = Path(__file__).parents[2] / "examples"
BROKERS = json.dumps(
    [
        {"id": "north-1", "cluster": "north"},
        {"id": "north-2", "cluster": "north"},
        {"id": "east", "cluster": "east"},
    ]
)
QUERY = "Room = '410' AND Kind = 'a+b#c'"
COUNT = 20
PUBLISHER = (sys.executable, "-I", str(EXAMPLES / "small_client.py"), "publish")
VALUE = ("sensors/9", "21.5", "Room=410", "Kind=a+b#c")


@contextlib.asynccontextmanager
async def running(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def line(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    return (await stream.readline()).decode().rstrip("\n")


@pytest.fixture(params=["python", "c"])
def subscriber(
    request: pytest.FixtureRequest, tmp_path: Path, debian_program: Callable[[str, str], str]
) -> list[str]:
    """The command of a small subscriber, but for its server and query."""
    if request.param == "python":
        return [sys.executable, "-I", str(EXAMPLES / "small_client.py"), "subscribe"]
    program = tmp_path / "small_client"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-fsanitize=address,undefined"]
    subprocess.run(
        [debian_program("gcc", "build-essential"), *flags, "-o", program, EXAMPLES / "small_client.c"],
        check=True,
    )
    return [str(program)]


async def test_a_small_subscriber_outlives_its_broker_and_misses_nothing(subscriber: list[str]) -> None:
    with up("--set", f"brokers={BROKERS}", level="error") as network:
        home, other = (address(network, name) for name in ("north-1", "east"))
        place = "{}:{}".format(*home)
        async with (
            asyncio.timeout(2 * READY_DEADLINE_S),
            AsyncClient([Server(*other)]) as client,
            running(*subscriber, place, QUERY) as process,
        ):
            assert await line(process.stderr) == "ready"
            async with running(*PUBLISHER, f"127.0.0.1:1,{place}", *VALUE) as publisher:
                assert await publisher.wait() == 0
            assert await line(process.stdout) == "sensors/9 21.5"
            stream = client.stream("sensors/7", Room="410", Kind="a+b#c", qos=1)
            for number in range(COUNT):
                if number == COUNT // 2:
                    os.kill(network["pids"]["broker/north-1"], signal.SIGKILL)
                await stream.publish(str(number))
            heard: list[str] = []
            while not heard or heard[-1] != f"sensors/7 {COUNT - 1}":
                heard.append(await line(process.stdout))
                assert heard[-1], "it goes on"
            first = [each for each in dict.fromkeys(heard) if each != "sensors/9 21.5"]  # QoS 1 may repeat
            assert first == [f"sensors/7 {number}" for number in range(COUNT)]

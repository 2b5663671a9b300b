"""Brokers of one release and the next in one network, one that is too new, and one that is upgraded: real processes.

A child of the network whose name is in a file speaks the levels that the file says. The file is read when the child
starts (``sitecustomize``, which Python runs first), so that a child that is killed comes back as another release.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.running import up
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server

pytestmark = pytest.mark.timeout(200)
DEADLINE_S = 60.0
BROKERS = json.dumps([{"id": f"north-{number}", "cluster": "north"} for number in (1, 2)])
RELEASES = """
import json, sys
from pathlib import Path

if "tocsin" in sys.orig_argv:
    releases = json.loads((Path(__file__).parent / "releases.json").read_text())
    name = sys.orig_argv[-1]
    import tocsin.model.versions as versions
    versions.RAISE_AFTER_US = 1_000_000
    if name in releases:
        versions.SPEAKS = versions.Levels(*releases[name])
"""


class Mixed:
    """A network whose processes are of the releases that the test says."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(RELEASES)
        self.line: dict[str, Any] = {}
        self.variables = {"PYTHONPATH": str(directory)}
        self.releases({})

    def releases(self, found: dict[str, tuple[int, int]]) -> None:
        (self._directory / "releases.json").write_text(json.dumps(found))

    def status(self) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "tocsin", "coordinator", "status", "--json"]
        done = subprocess.run(
            [*command, "--state", self.line["state"]], capture_output=True, text=True, timeout=DEADLINE_S
        )
        found: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
        return found

    def level(self) -> int:
        return max((each["level"] for each in self.status() if each["role"] == "leader"), default=0)

    def pid(self, name: str) -> int:
        """The process of a child; 0 if there is none just now."""
        last = name.rpartition("/")[2]
        for child in psutil.Process(self.line["parent"]).children():
            with contextlib.suppress(psutil.Error):
                if child.cmdline()[-1:] == [last]:
                    return child.pid
        return 0

    def replace(self, name: str) -> None:
        """Kill a child; it comes back as the release that the file says now."""
        until(lambda: self.pid(name) != 0, f"{name} there")
        before = self.pid(name)
        os.kill(before, signal.SIGKILL)
        until(lambda: self.pid(name) not in (0, before), f"{name} back")

    async def change(self, name: str, releases: dict[str, tuple[int, int]]) -> None:
        """Have a child come back, of the release that is said now."""
        self.releases(releases)
        await asyncio.to_thread(self.replace, name)

    async def says(self, words: str) -> None:
        """Return when a process has logged this."""
        logs = Path(self.line["state"]) / "logs"

        def said() -> bool:
            return any(words in each.read_text(errors="replace") for each in logs.iterdir())

        await asyncio.to_thread(until, said, words)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_S:g} s"
        time.sleep(0.2)


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Mixed]:
    network = Mixed(tmp_path / "releases")
    options = ("--set", f"brokers={BROKERS}")
    with up(*options, level="error", state=tmp_path / "state", variables=network.variables) as line:
        parent = psutil.Process(line["pids"]["broker/north-1"]).ppid()
        network.line = {**line, "parent": parent, "state": str(tmp_path / "state")}
        yield network


class Traffic:
    """A publisher at one broker and a subscriber at the other, at QoS 2."""

    def __init__(self, mixed: Mixed) -> None:
        one, two = (Server(*address(mixed.line, name)) for name in ("north-1", "north-2"))
        self.publisher = AsyncClient([one], client_id="publisher", session_expiry_s=600)
        self.subscriber = AsyncClient([two], client_id="lasting", session_expiry_s=600, keep_alive_s=2)
        self.heard: list[str] = []

    async def __aenter__(self) -> Traffic:
        await self.publisher.connect()
        await self.subscriber.connect()
        subscription = await self.subscriber.subscribe("a/#", qos=2)

        async def read() -> None:
            async for message in subscription:
                self.heard.append(message.text)

        self._reading = asyncio.create_task(read())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._reading.cancel()
        await self.publisher.close(settle=False)
        await self.subscriber.close(settle=False)

    async def goes_on(self, text: str) -> None:
        await self.publisher.publish("a/b", text, qos=2)
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.heard:
                await asyncio.sleep(0.05)


async def test_a_broker_one_release_newer_joins_and_a_later_one_cannot(mixed: Mixed) -> None:
    async with Traffic(mixed) as traffic:
        await traffic.goes_on("old and old")
        await mixed.change("broker/north-2", {"north-2": (1, 2)})
        await traffic.goes_on("old and new")

        await mixed.change("broker/north-2", {"north-2": (3, 4)})
        await mixed.says("speaks levels 3 to 4")
        await traffic.publisher.publish("a/b", "while one stays out", qos=2)
        assert mixed.level() == 1

        await mixed.change("broker/north-2", {})
        await traffic.goes_on("old and old again")
        assert "while one stays out" in traffic.heard
    assert len(traffic.heard) == len(set(traffic.heard)), "QoS 2 comes once"


@pytest.mark.slow
async def test_the_level_rises_when_every_process_is_of_the_next_release(mixed: Mixed) -> None:
    async with Traffic(mixed) as traffic:
        await mixed.change("broker/north-2", {"north-2": (1, 2)})
        await traffic.goes_on("old and new")
        await asyncio.sleep(2)  # longer than the leader waits before it raises the level
        assert mixed.level() == 1

        everybody = {name: (1, 2) for name in ("north-1", "north-2", "coordinator-1")}
        for name in ("coordinator-1", "broker/north-1"):
            await mixed.change(name, everybody)
        await asyncio.to_thread(until, lambda: mixed.level() == 2, "the level of the new release")
        await traffic.goes_on("new and new")

        await mixed.change("broker/north-2", {**everybody, "north-2": (1, 1)})
        await mixed.says("speaks level 1 of")
        await mixed.change("broker/north-2", everybody)
        await traffic.goes_on("new and new again")
    assert len(traffic.heard) == len(set(traffic.heard)), "QoS 2 comes once"

"""Brokers of one release and the next in one network, one that is too new, and one that is upgraded: real processes.

A child of the network whose name is in a file speaks the levels that the file says. The file is read when the child
starts (``sitecustomize``, which Python runs first), so that a child that is killed comes back as another release.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.running import up
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server

pytestmark = pytest.mark.timeout(240)
DEADLINE_S = 60.0
BROKERS = json.dumps([{"id": f"north-{number}", "cluster": "north"} for number in (1, 2)])
RELEASES = """
import json, sys
from pathlib import Path

if "tocsin" in sys.orig_argv:
    releases = json.loads((Path(__file__).parent / "releases.json").read_text())
    name = sys.orig_argv[-1]
    import tocsin.core.coordination.levels as levels
    import tocsin.model.versions as versions
    levels.RAISE_AFTER_US = 1_000_000
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

    def brokers(self) -> int:
        return max((each["brokers"] for each in self.status() if each["role"] == "leader"), default=0)

    def pid(self, name: str) -> int:
        verb = name.rpartition("/")[2]
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = line.read_bytes().split(b"\0")
                parent = (line.parent / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if words[-2:-1] == [verb.encode()] and int(parent) == self.line["parent"]:
                return int(line.parent.name)
        return 0

    def replace(self, name: str) -> None:
        """Kill a child; it comes back as the release that the file says now."""
        before = self.pid(name)
        os.kill(before, signal.SIGKILL)
        until(lambda: self.pid(name) not in (0, before), f"{name} back")


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
        parent = int(
            Path(f"/proc/{line['pids']['broker/north-1']}/stat").read_text().rpartition(")")[2].split()[1]
        )
        network.line = {**line, "parent": parent, "state": str(tmp_path / "state")}
        yield network


async def test_releases_that_follow_each_other_work_together_and_one_that_is_too_new_stays_out(
    mixed: Mixed,
) -> None:
    one, two = (Server(*address(mixed.line, name)) for name in ("north-1", "north-2"))
    assert mixed.level() == 1
    heard: list[str] = []
    subscriber = AsyncClient([two], client_id="lasting", session_expiry_s=600, keep_alive_s=2)
    async with AsyncClient([one], client_id="publisher", session_expiry_s=600) as publisher, subscriber:
        subscription = await subscriber.subscribe("a/#", qos=2)

        async def read() -> None:
            async for message in subscription:
                heard.append(message.text)

        reading = asyncio.create_task(read())

        async def goes_on(text: str) -> None:
            await publisher.publish("a/b", text, qos=2)
            async with asyncio.timeout(DEADLINE_S):
                while text not in heard:
                    await asyncio.sleep(0.05)

        def change(name: str, releases: dict[str, tuple[int, int]]) -> None:
            mixed.releases(releases)
            mixed.replace(name)

        await goes_on("old and old")

        # One broker of the next release: the network stays at what both speak.
        newer: dict[str, tuple[int, int]] = {"north-2": (1, 2)}
        await asyncio.to_thread(change, "broker/north-2", newer)
        await asyncio.to_thread(until, lambda: mixed.brokers() == 2, "both brokers")
        await goes_on("old and new")
        await asyncio.sleep(2)  # longer than the leader waits before it raises the level
        assert mixed.level() == 1

        # One that is too new: it stays out, says why, and everything else goes on.
        await asyncio.to_thread(change, "broker/north-2", {"north-2": (3, 4)})
        await asyncio.to_thread(until, lambda: "speaks levels 3 to 4" in words(mixed), "the words")
        await publisher.publish("a/b", "while one stays out", qos=2)
        assert mixed.level() == 1

        # The release before it again, then every process of it: the level rises.
        await asyncio.to_thread(change, "broker/north-2", newer)
        await goes_on("back again")
        assert "while one stays out" in heard
        everybody = {name: (1, 2) for name in ("north-1", "north-2", "coordinator-1")}
        for name in ("coordinator-1", "broker/north-1"):
            await asyncio.to_thread(change, name, everybody)
        await asyncio.to_thread(until, lambda: mixed.level() == 2, "the level of the new release")
        await goes_on("new and new")

        # From here on the old release stays out.
        await asyncio.to_thread(change, "broker/north-2", {**everybody, "north-2": (1, 1)})
        await asyncio.to_thread(until, lambda: "speaks level 1 of" in words(mixed), "the words")
        await asyncio.to_thread(change, "broker/north-2", everybody)
        await goes_on("new and new again")
        reading.cancel()
    assert len(heard) == len(set(heard)), "QoS 2 comes once"


def words(mixed: Mixed) -> str:
    """All that the processes have logged."""
    logs = Path(mixed.line["state"]) / "logs"
    return "\n".join(each.read_text(errors="replace") for each in logs.iterdir())

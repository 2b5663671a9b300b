"""The state of earlier releases (``tests/data``), and whether a network of today finds all that is in it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.data.make_state import BROKERS, FOREVER_S, SETTINGS
from tocsin.client import AsyncClient
from tocsin.client.message import Message
from tocsin.client.subscription import Subscription
from tocsin.client.values import Set
from tocsin.errors import DeadlineExceeded

DATA = Path(__file__).parents[1] / "data"
DEADLINE_S = 60.0
QUIET_S = 1.0  # after which nothing more is taken to come


def unpack(release: str, state: Path) -> dict[str, Any]:
    """The state directory of a release; what must be found in it."""
    state.mkdir(mode=0o700)
    with tarfile.open(DATA / f"{release}.tar.xz") as archive:
        # As extractall(filter="tar") does, which Python 3.11.0 to 3.11.3 have not.
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)
        archive.extractall(state)
    found: dict[str, Any] = json.loads((DATA / f"{release}.json").read_text())
    return found


def options(**others: object) -> list[str]:
    """Of ``tocsin up``, with which nothing in it expires."""
    return [word for key, value in {**SETTINGS, **others}.items() for word in ("--set", f"{key}={value}")]


class Finder:
    """Looks for everything in a network that runs."""

    def __init__(self, ready: dict[str, Any]) -> None:
        self.at = {each["id"]: f"mqtt://{each['host']}:{each['port']}" for each in ready["brokers"]}
        self._state = ready["state"]

    @asynccontextmanager
    async def client(self, broker: str, name: str) -> AsyncIterator[AsyncClient]:
        async with AsyncClient(self.at[broker], client_id=name, session_expiry_s=FOREVER_S) as client:
            yield client

    async def all(self, expected: dict[str, Any]) -> None:
        await self.sessions(expected["sessions"])
        await self.group(expected["group"])
        await self.retained(expected["retained"])
        await self.streams(expected)

    async def sessions(self, expected: dict[str, Any]) -> None:
        """Each goes on at another broker than it was at, with all that waits for it, and takes new messages."""
        filters = {"worker": "jobs/#", "clerk": "orders/#"}
        for name, each in expected.items():
            async with self.client(each["broker"], name) as client:
                found = client.query('Room = "410"', qos=1) if name == "asker" else None
                heard = found or client.subscribe(filters[name], qos=2 if name == "clerk" else 1)
                texts = [message.text for message in await self.until_quiet(heard)]
                if "exactly" in each:
                    assert texts == each["exactly"], name
                else:
                    assert [text for text in texts if text in each["least"]] == each["least"], (name, texts)
                    assert "critical" in texts or "9" in texts
                if found is None:
                    await client.publish(filters[name].replace("#", "new"), "new", qos=1)
                    assert (await heard.get(DEADLINE_S)).text == "new"

    async def group(self, expected: dict[str, Any]) -> None:
        first, second = expected["members"]
        async with self.client("south-1", first) as one, self.client("north-1", second) as two:
            heard = [each.subscribe("$share/crew/tasks/#", qos=1) for each in (one, two)]
            found: list[str] = []

            async def take(each: Subscription) -> None:
                async for message in each:
                    found.append(message.text)

            takers = [asyncio.create_task(take(each)) for each in heard]
            async with asyncio.timeout(DEADLINE_S):
                while len(found) < len(expected["messages"]):
                    await asyncio.sleep(0.1)
            await asyncio.sleep(QUIET_S)
            for taker in takers:
                taker.cancel()
        assert sorted(found) == expected["messages"]

    async def retained(self, expected: dict[str, str]) -> None:
        for broker in self.at:
            async with AsyncClient(self.at[broker]) as client:
                heard = client.subscribe("state/#", qos=1)
                found = {(await heard.get(DEADLINE_S)).topic: None for _ in expected}
                assert set(found) == set(expected), broker

    async def streams(self, expected: dict[str, Any]) -> None:
        async with AsyncClient(self.at["north-1"]) as client:
            rooms = await client.streams('Room = "410"').get(DEADLINE_S)
            numbered = await client.streams("number >= 0").get(DEADLINE_S)
        assert isinstance(rooms, Set) and isinstance(numbered, Set)
        assert set(rooms.streams) == set(expected["streams"])
        for topic, said in expected["streams"].items():
            assert said.items() <= dict(rooms.streams[topic]).items()
        assert len(numbered.streams) == expected["described"]

    async def until_quiet(self, heard: Any) -> list[Message]:
        found = [await heard.get(DEADLINE_S)]
        while True:
            try:
                found.append(await heard.get(QUIET_S))
            except DeadlineExceeded:
                return found

    async def channel(self, expected: dict[str, Any]) -> None:
        async with self.client("north-1", expected["session"]) as client:
            result = await client.channel("Alarms", "flood").get(DEADLINE_S)
            assert result.value == {"level": expected["level"]}

    def rows(self) -> list[Any]:
        words = ["sql", "-o", "json", "--wait", "120", "--state", self._state]
        done = subprocess.run(
            [sys.executable, "-m", "tocsin", *words],
            input="SELECT kind, level FROM Reports",
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


__all__ = ["BROKERS", "Finder", "options", "unpack"]

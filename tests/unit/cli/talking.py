"""A pipeline for the command line: over a bus in memory, with answers that a test gives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tocsin.client.sql import Pipeline, Reply
from tocsin.model.feeding import status_subject
from tocsin.ports import BusMessage
from tocsin.store.memory.store import MemoryServer, MemoryStore


class Fake:
    """What a pipeline would say, and what it was asked."""

    def __init__(self) -> None:
        self.scripts: list[str] = []
        self.reply: Callable[[str], Reply] = lambda text: Reply()
        self.status: dict[str, Any] = {"channels": [], "datasets": [], "feeds": []}
        self.feeder: dict[str, Any] = {"feeds": [], "http": ""}

    async def _sql(self, delivery: BusMessage) -> bytes:
        text = msgspec.json.decode(delivery.payload)["text"]
        self.scripts.append(text)
        return msgspec.json.encode(self.reply(text))

    async def _status(self, delivery: BusMessage) -> bytes:
        return msgspec.json.encode(self.status)

    async def _feeder(self, delivery: BusMessage) -> bytes:
        return msgspec.json.encode(self.feeder)

    @asynccontextmanager
    async def reached(self, *options: object) -> AsyncIterator[Pipeline]:
        bus = MemoryStore(MemoryServer()).bus
        async with (
            bus.serve("net.pipeline.sql.operator", self._sql),
            bus.serve("net.pipeline.status", self._status),
            bus.serve(status_subject("net"), self._feeder),
        ):
            yield Pipeline(bus, "net", wait_s=0.0, on_wait=lambda: None)


def fake_in(monkeypatch: pytest.MonkeyPatch, module: str) -> Fake:
    """A pipeline that a module of the command line reaches."""
    fake = Fake()
    monkeypatch.setattr(f"{module}.reach", fake.reached)
    return fake

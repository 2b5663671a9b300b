"""Definitions without Spark: real storage and language, a store in memory, and an engine that only remembers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from tocsin.core.channels.schedule import Schedule
from tocsin.model.catalogue import Column
from tocsin.model.channel_names import ChannelNames
from tocsin.pipeline.definitions.catalogue import Catalogue
from tocsin.pipeline.definitions.definitions import Definitions
from tocsin.pipeline.definitions.statements import StatementRunner
from tocsin.pipeline.execution.compiled import Compiled, Selection
from tocsin.pipeline.execution.subscriptions import Subscriptions
from tocsin.pipeline.ingest.progress import Progress
from tocsin.pipeline.storage.landing import Landing
from tocsin.pipeline.storage.results import ResultsStore
from tocsin.store.memory.store import MemoryServer, MemoryStore

PLACES = ChannelNames("net")


class RememberingEngine:
    """What was defined; a SELECT gives its own SQL."""

    def __init__(self) -> None:
        self.defined: dict[str, Compiled] = {}

    def define(self, compiled: Compiled) -> None:
        self.defined[compiled.channel.name.lower()] = compiled

    def drop(self, name: str) -> None:
        self.defined.pop(name.lower(), None)

    def invalid(self, name: str) -> int:
        return 0

    def explain(self, name: str) -> str:
        return f"plan of {self.defined[name.lower()].channel.name}"

    def select(self, selection: Selection, limit: int) -> pa.Table:
        return pa.table({"sql": [selection.sql] * limit})


class Workshop:
    """Definitions, their desk, and what is around them."""

    def __init__(self, root: Path, server: MemoryServer | None = None) -> None:
        self.root = root
        self.server = server or MemoryServer()
        self.store = MemoryStore(self.server)
        self.engine = RememberingEngine()
        self.threads = ThreadPoolExecutor(1)
        self.now = 1_000_000_000
        self.woken = 0

    async def open(self) -> None:
        self.progress = Progress(await self.store.table(PLACES.progress))
        await self.progress.load()
        self.catalogue = Catalogue(await self.store.table(PLACES.catalogue), self.progress)
        await self.catalogue.load()
        self.definitions = Definitions(
            self.catalogue,
            Landing(self.root),
            ResultsStore(self.root / "results"),
            self.engine,  # type: ignore[arg-type]
            Schedule(),
            self.progress,
            Subscriptions(),
            self.threads,
            clock=lambda: self.now,
            wake=self._wake,
            check=self._check,
        )
        await self.definitions.open()
        self.desk = StatementRunner(self.definitions, self.threads)

    def _wake(self) -> None:
        self.woken += 1

    def _check(self, compiled: Compiled, text: str, at: int) -> tuple[Column, ...]:
        return tuple(Column(name, "STRING") for name in compiled.template.columns)

    async def run(self, text: str, limit: int = 100) -> Any:
        return await self.desk.run(text, limit=limit)

    async def again(self) -> Workshop:
        """The same, after a restart."""
        await self.progress.write()
        other = Workshop(self.root, self.server)
        await other.open()
        return other

    def close(self) -> None:
        self.threads.shutdown()

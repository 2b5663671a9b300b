"""A pipeline as brokers see it: it defines channels, and a tick commits results for what is held, in files or behind
the bus."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from tocsin.broker.channels.result_reader import DatasetFiles
from tocsin.model.catalogue import Channel, Parameter, encode_definition, key_of
from tocsin.model.channel_names import ChannelNames
from tocsin.model.priority import CRITICAL
from tocsin.model.results import (
    BackendSubscription,
    Execution,
    Notice,
    ResultFile,
    Value,
    decode_notice,
    decode_subscription,
    encode_notice,
    k_of,
)
from tocsin.ports import BusMessage, Record, Store
from tocsin.results.reader import ResultsReader

StoreT = TypeVar("StoreT", bound=Store)
NEAR = Channel("Near", (Parameter("user", "STRING"),), (), "SELECT 1", every_s=10)
WIDE = Channel("Wide", (Parameter("radius", "DOUBLE"), Parameter("kind", "STRING")), (), "SELECT 1")
AT_US = 1_700_000_000_123_456


class Pipeline(Generic[StoreT]):
    """Commits results of channels as the pipeline does. ``root`` is where their files are; without it, ``serve`` has
    them."""

    def __init__(self, store: StoreT, root: Path | None = None, network: str = "net") -> None:
        self.store = store
        self.places = ChannelNames(network)
        self.root = root
        self.ticks = 0
        self.fails = 0  # how often a question about results is answered with an error
        self._files: dict[tuple[int, str], list[dict[str, Any]]] = {}  # (tick, broker) → rows

    async def define(self, *channels: Channel) -> None:
        table = await self.store.table(self.places.catalogue)
        for channel in channels:
            await table.put(key_of(channel), encode_definition(channel))

    async def held(self) -> dict[str, set[str]]:
        """k → the brokers that there are rows for: those that hold it in earnest, or if none does the standbys."""
        earnest: dict[str, set[str]] = {}
        standby: dict[str, set[str]] = {}
        for each in await self._cells():
            (standby if each.standby else earnest).setdefault(each.k, set()).add(each.broker)
        return {**standby, **earnest}

    async def _cells(self) -> list[BackendSubscription]:
        table = await self.store.table(self.places.subscriptions)
        cells = [await table.get(key) for key in await table.keys()]
        return [decode_subscription(cell.value) for cell in cells if cell is not None]

    async def seen(self) -> int:
        table = await self.store.table(self.places.subscriptions)
        async for change in table.watch():
            if change.kind == "ready":
                return change.revision
        return 0

    async def tick(
        self,
        results: Mapping[tuple[str, tuple[Value, ...]], list[Any]],
        *,
        priority: int | Callable[[Any], int] = 0,
        held: dict[str, set[str]] | None = None,
        seen: int | None = None,
    ) -> Notice:
        """Commit results: (channel, values) → payloads, for every broker that holds it (``held``: that held it).

        ``priority``: of all of them, or by payload.
        """
        self.ticks += 1
        seen = await self.seen() if seen is None else seen
        brokers = await self.held() if held is None else held
        rows: dict[str, list[dict[str, Any]]] = {}
        counts: dict[str, tuple[int, int]] = {}
        ordinal = 0
        for (channel, values), payloads in results.items():
            k = k_of(channel, values)
            for payload in payloads:
                row = {
                    "tick": self.ticks,
                    "part": 0,
                    "row": ordinal,
                    "channel": channel,
                    "execution": self.ticks,
                }
                given = priority if isinstance(priority, int) else priority(payload)
                row |= {"k": k, "priority": given, "payload": json.dumps(payload)}
                several, critical = counts.get(channel, (0, 0))
                counts[channel] = (several + 1, critical + (given >= CRITICAL))
                for broker in brokers.get(k, ()):
                    rows.setdefault(broker, []).append(row)
                ordinal += 1
        files = tuple(self._write(broker, each) for broker, each in rows.items())
        executions = tuple(Execution(channel, self.ticks, *counted) for channel, counted in counts.items())
        notice = Notice(self.ticks, AT_US, executions, files, 0, ordinal, seen)
        log = await self.store.log(self.places.notices)
        await log.append([Record(self.places.notices_subject, encode_notice(notice), notice.id)])
        return notice

    def _write(self, broker: str, rows: list[dict[str, Any]]) -> ResultFile:
        name = f"broker={broker}/{self.ticks}.parquet"
        if self.root is not None:
            import pyarrow as pa
            import pyarrow.parquet as pq

            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows), self.root / name)
        self._files[self.ticks, broker] = rows
        return ResultFile(broker, name, len(rows))

    def files(self) -> DatasetFiles | None:
        return None if self.root is None else DatasetFiles(ResultsReader(self.root))

    # ── over the bus ────────────────────────────────────────────────────────────────────────────────────────

    def serve(self) -> AbstractAsyncContextManager[None]:
        return self.store.bus.serve(self.places.service("results"), self._answer)

    async def _answer(self, delivery: BusMessage) -> bytes:
        if self.fails:
            self.fails -= 1
            return msgspec.json.encode({"error": "not just now"})
        asked = msgspec.json.decode(delivery.payload)
        tick = decode_notice(bytes.fromhex(asked["notice"])).tick
        found: dict[int, dict[str, Any]] = {}
        for (of, broker), rows in self._files.items():
            for row in rows:
                if of == tick and (broker == asked["broker"] or row["k"] in asked["ks"]):
                    found[row["row"]] = row
        left = [found[each] for each in sorted(found) if each >= asked["from_ordinal"]]
        columns = ("row", "channel", "execution", "k", "priority", "payload")
        some = [[row[column] for column in columns] for row in left[:2]]  # little at a time
        return msgspec.json.encode({"rows": some, "next": left[2]["row"] if len(left) > 2 else None})

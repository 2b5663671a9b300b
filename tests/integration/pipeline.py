"""What tests of the pipeline share: a store on loopback, the process beside it, and somebody who talks to both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tocsin.errors import DeadlineExceeded, NoResponder
from tocsin.model.channel_names import ChannelNames
from tocsin.model.results import BackendSubscription, Notice, decode_notice, encode_subscription
from tocsin.ports import Record
from tocsin.results.reader import Result, ResultsReader
from tocsin.runtime.faults import kill_points as points
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers

NETWORK = "tocsin"
DEADLINE_S = 120.0


class PipelineProcess:
    """``tocsin pipeline``, started and killed at will."""

    def __init__(self, servers: LocalServers, state: Path, settings: Sequence[str] = ()) -> None:
        self.state = state
        self._servers = servers
        self._settings = tuple(settings)
        self.process: subprocess.Popen[bytes] | None = None
        self._output = state / "pipeline.log"

    def start(self, kill_at: str = "", mark: str = "killed") -> None:
        """Start it; with ``kill_at`` (point:count) it is killed when it comes there, once for each ``mark``."""
        chosen = (
            f"nats.urls={','.join(self._servers.urls)}",
            f"nats.token={self._servers.token}",
            f"state={self.state}",
            "spark.master=local[2]",
            "spark.heap=1g",
            "spark.ui_port=-1",
            "log.level=debug",
            *self._settings,
        )
        environment = dict(os.environ)
        if kill_at:
            environment[points.KILL] = f"{kill_at}:{self.state / mark}"
        command = [sys.executable, "-P", "-m", "tocsin", "pipeline"]
        self.state.mkdir(parents=True, exist_ok=True)
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, *(word for each in chosen for word in ("--set", each))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def output(self) -> str:
        return self._output.read_text("utf-8", "replace")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(DEADLINE_S)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(DEADLINE_S) == 0, self.output()[-3_000:]


class Talk:
    """Somebody who feeds, subscribes, asks, and reads what was told."""

    def __init__(self, store: JetStreamStore, state: Path) -> None:
        self.store = store
        self.places = ChannelNames(NETWORK)
        self.reader = ResultsReader(state / "datasets" / "results")
        self._records = 0
        self._name = secrets.token_hex(4)  # so that no other one's records have the same ids

    async def ask(self, verb: str, deadline_s: float = DEADLINE_S, **asked: Any) -> Any:
        """A request to the pipeline, again until it is there to answer."""
        deadline = time.monotonic() + deadline_s
        while True:
            try:
                answer = await self.store.bus.request(
                    self.places.service(verb), msgspec.json.encode(asked), deadline_s=deadline_s
                )
                return msgspec.json.decode(answer)
            except (NoResponder, DeadlineExceeded):
                assert time.monotonic() < deadline, f"nobody answers {verb}"
                await asyncio.sleep(0.1)

    async def sql(self, text: str, limit: int = 1_000) -> list[dict[str, Any]]:
        reply = await self.ask("sql", text=text, limit=limit)
        assert reply["error"] is None, reply["error"]
        answers: list[dict[str, Any]] = reply["results"]
        return answers

    async def feed(self, feed: str, *records: Any) -> None:
        log = await self.store.log(self.places.feeds)
        batch = []
        for record in records:
            self._records += 1
            payload = record if isinstance(record, bytes) else msgspec.json.encode(record)
            batch.append(
                Record(self.places.feed_subject(feed), payload, f"{feed}-{self._name}-{self._records}")
            )
        for start in range(0, len(batch), 500):
            await log.append(batch[start : start + 500])

    async def subscribe(self, channel: str, *values: Any, broker: str = "north-1") -> str:
        table = await self.store.table(self.places.subscriptions)
        subscription = BackendSubscription(channel, values, broker)
        await table.put(subscription.key, encode_subscription(subscription))
        return subscription.k

    async def unsubscribe(self, channel: str, *values: Any, broker: str = "north-1") -> None:
        table = await self.store.table(self.places.subscriptions)
        await table.delete(BackendSubscription(channel, values, broker).key)

    async def notices(self) -> list[Notice]:
        log = await self.store.log(self.places.notices)
        found: list[Notice] = []
        start = 0
        while True:
            page = await log.read(self.places.notices_subject, start)
            found += [decode_notice(entry.payload) for entry in page.entries]
            if not page.entries:
                return found
            start = page.next

    async def results(self, broker: str = "north-1") -> list[Result]:
        """All that a broker was told of, in the order of notices."""
        return [each for notice in await self.notices() for each in self.reader.read(notice, broker)]

    async def until_results(
        self, count: int, broker: str = "north-1", deadline_s: float = DEADLINE_S
    ) -> list[Result]:
        deadline = time.monotonic() + deadline_s
        while True:
            found = await self.results(broker)
            if len(found) >= count:
                return found
            assert time.monotonic() < deadline, f"{len(found)} results of {count}"
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def talking(servers: LocalServers, state: Path) -> AsyncIterator[Talk]:
    store = await JetStreamStore.connect(servers.urls, token=servers.token, deadline_s=10)
    try:
        yield Talk(store, state)
    finally:
        await store.close()

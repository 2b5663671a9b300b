"""What tests of the feeder share: the process, and what a pipeline and brokers would write."""

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

import msgspec

from tocsin.errors import DeadlineExceeded, NoResponder
from tocsin.model.catalogue import Definition, encode_definition, key_of
from tocsin.model.channel_names import ChannelNames
from tocsin.model.feeding import RECORDS, status_subject
from tocsin.model.publication import Publication, encode_publication
from tocsin.model.subjects import messages_log, subject_of
from tocsin.ports import Entry, Log, Record
from tocsin.runtime.faults import kill_points as points
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers

NETWORK = "tocsin"
PLACES = ChannelNames(NETWORK)
DEADLINE_S = 60.0


class Child:
    """A process of ours, started and killed at will."""

    def __init__(self, servers: LocalServers, state: Path, *words: str, sets: tuple[str, ...] = ()) -> None:
        self._sets = (
            f"nats.urls={','.join(servers.urls)}",
            f"nats.token={servers.token}",
            f"state={state}",
            "feeds.http_port=0",
            "feeds.folder_poll_s=0.1",
            f"feeds.folders={state.parent}",
            "log.level=debug",
            *sets,
        )
        self._words = words
        self._marker = state / "killed"
        self._output = state / f"{words[0]}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, kill_at: str = "") -> None:
        environment = dict(os.environ)
        if kill_at:
            environment[points.KILL] = f"{kill_at}:{self._marker}"
        sets = [word for each in self._sets for word in ("--set", each)]
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tocsin", *self._words, *sets],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    async def killed(self) -> None:
        """Wait until it was killed at its point."""
        assert self.process is not None
        code = await asyncio.to_thread(self.process.wait, DEADLINE_S)
        assert code == -signal.SIGKILL, self._output.read_text()[-3_000:]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(DEADLINE_S) == 0, self._output.read_text()[-3_000:]


@contextlib.contextmanager
def child(
    servers: LocalServers, state: Path, *words: str, sets: tuple[str, ...] = (), start: bool = True
) -> Iterator[Child]:
    made = Child(servers, state, *words, sets=sets)
    if start:
        made.start()
    try:
        yield made
    finally:
        made.stop()


class Town:
    """A store, and what a pipeline and brokers would write there."""

    messages: Log
    feeds: Log

    def __init__(self, store: JetStreamStore) -> None:
        self.store = store

    async def open(self) -> None:
        keep_s, keep_bytes = 604_800, 10 << 30
        self.messages = await self.store.log(messages_log(NETWORK, keep_s, keep_bytes))
        self.feeds = await self.store.log(PLACES.feeds)

    async def remember_ids_for(self, window_s: float) -> None:
        """Have the log of feeds forget ids sooner than it would."""
        self.feeds = await self.store.log(msgspec.structs.replace(PLACES.feeds, dedupe_window_s=window_s))

    async def define(self, *definitions: Definition) -> None:
        table = await self.store.table(PLACES.catalogue)
        for each in definitions:
            await table.put(key_of(each), encode_definition(each))

    async def publish(self, topic: str, numbers: range) -> None:
        records = []
        for number in numbers:
            publication = Publication(topic, json.dumps({"n": number}).encode(), 1, "somebody")
            records.append(
                Record(subject_of(topic, NETWORK), encode_publication(publication), f"{topic}-{number}")
            )
        for start in range(0, len(records), 500):
            await self.messages.append(records[start : start + 500])

    async def entries(self, feed: str) -> list[Entry]:
        found: list[Entry] = []
        start = 0
        while True:
            page = await self.feeds.read(PLACES.feed_subject(feed), start)
            found += page.entries
            if page.next > page.last:
                return found
            start = page.next

    async def records(self, feed: str) -> list[Any]:
        found: list[Any] = []
        for entry in await self.entries(feed):
            said = json.loads(RECORDS.open(entry.payload))
            found += said if isinstance(said, list) else [said]
        return found

    async def until(self, feed: str, count: int) -> list[Any]:
        deadline = time.monotonic() + DEADLINE_S
        while len(found := await self.records(feed)) < count:
            assert time.monotonic() < deadline, f"{len(found)} records of {count}"
            await asyncio.sleep(0.05)
        return found

    async def status(self, ready: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """What the feeder says, once it says something that is ready."""
        deadline = time.monotonic() + DEADLINE_S
        said: dict[str, Any] = {}
        while time.monotonic() < deadline:
            with contextlib.suppress(NoResponder, DeadlineExceeded):
                answer = await self.store.bus.request(status_subject(NETWORK), b"{}", deadline_s=5.0)
                said = msgspec.json.decode(answer)
                if ready(said):
                    return said
            await asyncio.sleep(0.05)
        raise AssertionError(f"not ready: {said}")


def running(said: dict[str, Any]) -> bool:
    return bool(said["feeds"]) and all(each["state"] == "running" for each in said["feeds"])

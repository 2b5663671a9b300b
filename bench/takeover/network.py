"""A network of three brokers that ``tocsin up`` runs: one that is killed and kept down, and its two backups."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import psutil

from tocsin.client import AsyncClient
from tocsin.config import Nats
from tocsin.model.catalogue import Channel, Parameter, encode_definition, key_of
from tocsin.model.channel_names import ChannelNames
from tocsin.runtime.network.directory import read_network
from tocsin.runtime.network.store_access import embedded
from tocsin.store.jetstream.store import JetStreamStore

LOST: Final = "north-1"
BACKUPS: Final = {"local": "north-2", "remote": "south-1"}
CHANNEL: Final = Channel("Near", (Parameter("x", "BIGINT"),), (), "", every_s=3_600)
DEADLINE_S: Final = 120.0
AGAIN_S: Final = 0.2
LOOK_S: Final = 0.02
COPIED_BYTES: Final = 150  # of a subscription in a copy, at least
STORE: Final = "store-1"
COPIED: Final = "tocsin_broker_replication_bytes_sent_total"


class Network:
    """A network that ``tocsin up`` started, from its ready line."""

    def __init__(self, ready: dict[str, Any], store: JetStreamStore) -> None:
        said = read_network(Path(ready["state"]))
        assert said is not None, "a network that runs has said where"
        port = next(each.metrics_port for each in said.brokers if each.id == LOST)
        self._metrics = f"http://127.0.0.1:{port}/metrics"
        self._pids: dict[str, int] = ready["pids"]
        self._addresses = {each["id"]: f"mqtt://{each['host']}:{each['port']}" for each in ready["brokers"]}
        self._names = ChannelNames(ready["network"])
        self._store = store
        self._parent = psutil.Process(psutil.Process(self._pids[f"broker/{LOST}"]).ppid())
        self._held: psutil.Process | None = None  # the lost broker's next process
        self._holding: asyncio.Task[None] | None = None

    async def define(self) -> None:
        table = await self._store.table(self._names.catalogue)
        await table.put(key_of(CHANNEL), encode_definition(CHANNEL))

    def publisher(self, broker: str) -> AsyncClient:
        return AsyncClient([self._addresses[broker]], client_id="publisher", deadline_s=DEADLINE_S)

    def client(self, number: int, broker: str) -> AsyncClient:
        return AsyncClient(
            [self._addresses[broker]], client_id=f"c-{number}", session_expiry_s=600, deadline_s=DEADLINE_S
        )

    async def until_prepared(self, subscriptions: int) -> None:
        """Until the local backup has a standby cell for each of them."""
        table = await self._store.table(self._names.subscriptions)
        while True:
            keys = await table.keys()
            if sum(key.endswith("._standby") for key in keys) >= subscriptions:
                return
            await asyncio.sleep(AGAIN_S)

    async def until_copied(self, subscriptions: int) -> None:
        """Until the local backup has all subscriptions in its copy."""
        topic = "$SYS/broker/replication/copies/bytes"
        async with AsyncClient([self._addresses[BACKUPS["local"]]]) as client:
            async for message in await client.subscribe(topic):
                if int(message.payload) >= subscriptions * COPIED_BYTES:
                    return

    def processor_s(self, process: str) -> float:
        """The processor time of a process so far, of all its threads."""
        threads = Path(f"/proc/{self._pids[process]}/task").iterdir()
        return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9

    async def copied_bytes(self) -> int:
        """The bytes that the first broker has sent to its backups; what it publishes of that is up to 10 s old."""
        text = (await asyncio.to_thread(urllib.request.urlopen, self._metrics)).read().decode()
        found = next(line for line in text.splitlines() if line.startswith(COPIED))
        return int(float(found.rpartition(" ")[2]))

    def kill(self) -> None:
        """Kill the first broker, and keep it down: the process that is started in its place is stopped."""
        psutil.Process(self._pids[f"broker/{LOST}"]).send_signal(signal.SIGKILL)
        self._holding = asyncio.create_task(self._hold())

    async def _hold(self) -> None:
        known = self._pids[f"broker/{LOST}"]
        while self._held is None:
            for each in self._parent.children():
                with contextlib.suppress(psutil.Error):
                    if each.pid != known and each.cmdline()[-1:] == [LOST]:
                        each.send_signal(signal.SIGSTOP)
                        self._held = each
            await asyncio.sleep(LOOK_S)

    async def release(self) -> None:
        """Let go of what was stopped: ``tocsin up`` could not end it."""
        if self._holding is not None:
            self._holding.cancel()
            await asyncio.gather(self._holding, return_exceptions=True)
        if self._held is not None:
            with contextlib.suppress(psutil.Error):
                self._held.send_signal(signal.SIGCONT)


@contextlib.asynccontextmanager
async def network(*more: str) -> AsyncIterator[Network]:
    brokers: list[dict[str, Any]] = [
        {"id": each, "cluster": each.partition("-")[0]} for each in (LOST, *BACKUPS.values())
    ]
    brokers[0]["metrics_port"] = 0  # any; `tocsin up` says which
    sets = (
        f"brokers={json.dumps(brokers)}",
        "pipeline.enabled=never",
        "log.level=error",
        "limits.connection_rate=0",
        *more,
    )
    options = ["--ephemeral", "--auto-ports", *(word for each in sets for word in ("--set", each))]
    argv = [sys.executable, "-P", "-m", "tocsin", "up", *options]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE, limit=1 << 20)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            ready = json.loads(await process.stdout.readline())
        nats = embedded(Nats(urls=tuple(ready["nats"])), ready["state"])
        store = await JetStreamStore.open(nats, "operator", name="bench", deadline_s=30)
        found = Network(ready, store)
        try:
            yield found
        finally:
            await found.release()
            await store.close()
    finally:
        process.terminate()
        await process.wait()

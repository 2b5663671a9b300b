"""The parts of a broker, opened over a store."""

from __future__ import annotations

from pathlib import Path

from tocsin.broker.parts import Stored
from tocsin.config import Messages, Settings
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers


async def test_a_small_disk_gets_a_smaller_log_and_not_none(tmp_path: Path) -> None:
    with LocalServers(tmp_path, file_max_bytes=1 << 28) as servers:
        store = await JetStreamStore.connect(servers.urls, token=servers.token, deadline_s=20)
        try:
            settings = Settings(network="net", messages=Messages(keep_s=3_600, keep_bytes=10 << 30))
            stored = await Stored.open(store, settings)
            assert await stored.messages.last() == 0
            stream = await store.stream("net-messages")
            config = (await stream.api("look", "STREAM.INFO", {}))["config"]
            assert 1 << 26 <= config["max_bytes"] <= 1 << 28
        finally:
            await store.close()

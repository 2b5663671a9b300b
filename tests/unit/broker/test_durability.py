"""The durable side of a broker as a whole."""

from __future__ import annotations

from pathlib import Path

from tocsin.broker.durability import Durability
from tocsin.store.jetstream import JetStreamStore
from tocsin.store.testing import LocalServers


async def test_a_small_disk_gets_a_smaller_log_and_not_none(tmp_path: Path) -> None:
    with LocalServers(tmp_path, file_max_bytes=1 << 28) as servers:
        store = await JetStreamStore.connect(servers.urls, token=servers.token, deadline_s=20)
        try:
            durability = await Durability.open(
                store,
                network="net",
                broker="north-1",
                life="1",
                keep_s=3_600,
                keep_bytes=10 << 30,
                commits_max=10,
                retained_max=10,
                groups_max=10,
                members_max=10,
                dispatch=lambda entry, publication: None,
                announce=lambda publication: None,
                pressure=lambda held: None,
                unwanted=lambda messages: None,
            )
            assert durability.journal.tail == 0
            stream = await store.stream("net-messages")
            config = (await stream.api("look", "STREAM.INFO", {}))["config"]
            assert 1 << 26 <= config["max_bytes"] <= 1 << 28
        finally:
            await store.close()

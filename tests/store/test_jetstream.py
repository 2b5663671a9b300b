"""What only the store on JetStream has: its streams, its statistics and its server's say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tocsin.errors import Refused, StoreFull
from tocsin.ports import LogSpec, Record, TableSpec
from tocsin.store.jetstream.lots import LOT_MIN
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.jetstream.table import JetStreamTable
from tocsin.store.servers.testing import LocalServers


@pytest.fixture
async def store(servers: LocalServers) -> AsyncIterator[JetStreamStore]:
    opened = await JetStreamStore.connect(servers.urls, token=servers.token, deadline_s=10)
    yield opened
    await opened.close()


async def configuration(store: JetStreamStore, name: str) -> dict[str, object]:
    answer = await (await store.stream(name)).api("look", "STREAM.INFO", {})
    found: dict[str, object] = answer["config"]
    return found


async def test_a_log_is_a_durable_stream_of_its_name(store: JetStreamStore) -> None:
    spec = LogSpec(
        "shape", ("shape.>",), max_age_s=60, max_bytes=1 << 20, max_per_subject=9, dedupe_window_s=30
    )
    await store.log(spec)
    found = await configuration(store, "shape")
    expected = {
        "storage": "file",
        "num_replicas": 1,
        "max_age": 60 * 10**9,
        "max_bytes": 1 << 20,
        "max_msgs_per_subject": 9,
        "duplicate_window": 30 * 10**9,
        "allow_atomic": True,
        "allow_direct": True,
        "discard": "old",
    }
    assert {key: found[key] for key in expected} == expected


async def test_a_table_is_a_key_value_bucket(store: JetStreamStore) -> None:
    await store.table(TableSpec("shape"))
    found = await configuration(store, "KV_shape")
    assert found["subjects"] == ["$KV.shape.>"]
    assert (found["max_msgs_per_subject"], found["allow_msg_ttl"], found["discard"]) == (1, True, "new")


async def test_many_writes_to_a_table_are_few_answers(store: JetStreamStore) -> None:
    table = await store.table(TableSpec("crowded"))
    asked = 0
    ask = store.connection.ask

    async def counted(*words: Any, **more: Any) -> Any:
        nonlocal asked
        asked += 1
        return await ask(*words, **more)

    store.connection.ask = counted  # type: ignore[method-assign]
    for revisions in ([0] * 600, range(1, 601)):
        writes = (table.compare_and_set(f"k{n}", b"", revision=at) for n, at in enumerate(revisions))
        assert len(set(await asyncio.gather(*writes))) == 600
    assert asked <= 2 * 2 * LOT_MIN


async def test_a_table_that_takes_no_lots_is_written_all_the_same(
    store: JetStreamStore, servers: LocalServers
) -> None:
    await store.table(TableSpec("older"))
    config = await configuration(store, "KV_older") | {"allow_atomic": False}
    stream = await store.stream("KV_older")
    await stream.api("make older", "STREAM.UPDATE", config)
    table = JetStreamTable(stream, TableSpec("older"))
    for revision in (0, None):
        writes = (
            table.put(f"k{n}", b"") if revision is None else table.compare_and_set(f"k{n}", b"", revision=0)
            for n in range(100)
        )
        assert len(set(await asyncio.gather(*writes))) == 100


async def test_opening_a_log_again_changes_nothing(store: JetStreamStore) -> None:
    spec = LogSpec("again", ("again.>",))
    await store.log(spec)
    before = await configuration(store, "again")
    await store.log(spec)
    assert await configuration(store, "again") == before


async def test_statistics_count_what_was_done(store: JetStreamStore, servers: LocalServers) -> None:
    log = await store.log(LogSpec("counted", ("counted.>",)))
    batch = [Record("counted.a", b"", str(i)) for i in range(5)]
    await log.append(batch)
    await log.append(batch)
    await log.append([batch[0]])
    figures = store.statistics()
    assert figures.connected
    assert figures.url == servers.urls[0]
    assert (figures.appends, figures.records, figures.repeats) == (3, 11, 6)
    assert (figures.retries, figures.reconnects, figures.bus_dropped) == (0, 0, 0)


async def test_more_replicas_than_servers_are_refused(servers: LocalServers) -> None:
    store = await JetStreamStore.connect(servers.urls, token=servers.token, replicas=3, deadline_s=10)
    with pytest.raises(Refused):
        await store.log(LogSpec("wide", ("wide.>",)))
    await store.close()


async def test_an_append_that_is_cancelled_leaves_the_store_usable(store: JetStreamStore) -> None:
    log = await store.log(LogSpec("cancelled", ("cancelled.>",)))
    for i in range(40):
        batch = [Record("cancelled.a", b"x" * 500, f"{i}-{j}") for j in range(50)]
        appending = asyncio.create_task(log.append(batch))
        for _ in range(i % 7):
            await asyncio.sleep(0)
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
        assert len(await log.append(batch)) == 50
    assert await log.last() == 2_000


async def test_a_table_that_is_full_can_still_be_read_and_grown(store: JetStreamStore) -> None:
    small = await store.table(TableSpec("small", max_bytes=4_000))
    with pytest.raises(StoreFull):
        for i in range(20):
            await small.put(f"k{i}", b"x" * 500)
    larger = await store.table(TableSpec("small", max_bytes=40_000))
    await larger.put("again", b"x" * 500)
    assert "again" in await larger.keys()


async def test_shares_bound_what_says_nothing_of_it_and_others_leave_them(
    servers: LocalServers,
) -> None:
    shares = {"shared-log": 1 << 20, "shared-table": 1 << 20, "own-table": 1 << 20}
    store = await JetStreamStore.connect(servers.urls, token=servers.token, deadline_s=10, shares=shares)
    log = await store.log(LogSpec("shared-log", ("shared-log.>",)))
    table = await store.table(TableSpec("shared-table"))
    other = await JetStreamStore.connect(servers.urls, token=servers.token, deadline_s=10)
    await other.log(LogSpec("shared-log", ("shared-log.>",)))
    await other.table(TableSpec("shared-table"))
    with pytest.raises(StoreFull):
        for number in range(40):
            await log.append([Record("shared-log.a", b"x" * 100_000, f"{number}")])
    with pytest.raises(StoreFull):
        for number in range(40):
            await table.put(f"k{number}", b"x" * 100_000)
    assert (await (await other.table(TableSpec("own-table"))).put("a", b"x" * 100_000)) > 0
    await other.close()
    await store.close()


async def test_concurrent_opens_of_one_table_with_different_bounds_all_succeed(
    servers: LocalServers,
) -> None:
    shares = {f"contested-{number}": 1 << 20 for number in range(20)}
    store = await JetStreamStore.connect(servers.urls, token=servers.token, deadline_s=10, shares=shares)
    other = await JetStreamStore.connect(servers.urls, token=servers.token, deadline_s=10)
    for name, share in shares.items():
        bounded, free = await asyncio.gather(store.table(TableSpec(name)), other.table(TableSpec(name)))
        assert await free.put("a", b"x") > 0 and await bounded.get("a") is not None
        config = (await (await store.stream(f"KV_{name}")).api("look", "STREAM.INFO", {}))["config"]
        assert config["max_bytes"] == share
    await other.close()
    await store.close()


async def test_a_share_that_the_server_has_no_room_for_is_left_out(tmp_path: Path) -> None:
    with LocalServers(tmp_path, file_max_bytes=32 << 20) as small:
        store = await JetStreamStore.connect(
            small.urls, token=small.token, deadline_s=10, shares={"large": 1 << 40}
        )
        table = await store.table(TableSpec("large"))
        assert await table.put("a", b"x") > 0
        await store.close()

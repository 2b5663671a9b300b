"""A stream as a file and back, on real servers: every position, id, time and revision is what it was."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tocsin.errors import Refused, StoreError
from tocsin.ports import LogSpec, Record, TableSpec
from tocsin.store.jetstream import snapshots
from tocsin.store.jetstream.snapshots import Saved
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers

FACTS = LogSpec("net-facts", ("net.f.>",))
CELLS = TableSpec("net-cells")


async def filled(store: JetStreamStore) -> None:
    log, table = await store.log(FACTS), await store.table(CELLS)
    await store.log(LogSpec("other-facts", ("other.f.>",)))
    for start in range(0, 300, 100):
        await log.append([Record("net.f.a", b"%d" % n, f"id-{n}") for n in range(start, start + 100)])
    await log.trim(before=50)
    for number in range(3):
        await table.put("a", b"%d" % number)
    await table.put("gone", b"x")
    await table.delete("gone")


async def saved(store: JetStreamStore, directory: Path) -> list[Saved]:
    names = await snapshots.stream_names(store, "net")
    assert names == ["KV_net-cells", "net-facts"], "those of this network"
    return [await snapshots.save(store, name, directory / name, name) for name in names]


@pytest.mark.parametrize("servers", [1, pytest.param(3, marks=pytest.mark.slow)])
async def test_what_is_restored_is_what_was_saved(tmp_path: Path, servers: int) -> None:
    with LocalServers(tmp_path / "from") as source:
        store = await JetStreamStore.connect(source.urls, token=source.token)
        await filled(store)
        before = await (await store.log(FACTS)).read("net.f.>", 0)
        cell = await (await store.table(CELLS)).get("a")
        found = await saved(store, tmp_path)
        await store.close()
    with LocalServers(tmp_path / "to", servers=servers) as target:
        store = await JetStreamStore.connect(target.urls, token=target.token, replicas=servers)
        for each in found:
            await snapshots.load(store, each, tmp_path / each.file, replicas=servers)
        log, table = await store.log(FACTS), await store.table(CELLS)
        assert (await log.read("net.f.>", 0)).entries == before.entries
        assert await log.append([Record("net.f.a", b"new", "new")]) == (301,)
        assert await table.get("a") == cell and await table.get("gone") is None
        with pytest.raises(StoreError):
            await snapshots.load(store, found[1], tmp_path / found[1].file, replicas=servers)
        assert (await log.read("net.f.>", 0)).last == 301, "what was there stays"
        await store.close()


async def test_a_large_stream_is_saved_piece_by_piece(tmp_path: Path) -> None:
    told: list[int] = []
    with LocalServers(tmp_path / "from") as source:
        store = await JetStreamStore.connect(source.urls, token=source.token)
        log = await store.log(FACTS)
        for number in range(40):
            # What cannot be compressed, so that the server has to wait for what it sends.
            payload = number.to_bytes(4) * 4 + _noise(number, 1 << 19)
            await log.append([Record("net.f.a", payload, f"id-{number}")])
        each = await snapshots.save(store, "net-facts", tmp_path / "f", "f", told.append)
        assert each.bytes == told[-1] == (tmp_path / "f").stat().st_size > 20 << 20
        assert len(told) > 100
        before = await log.read("net.f.a", 40)
        await store.close()
    with LocalServers(tmp_path / "to") as target:
        store = await JetStreamStore.connect(target.urls, token=target.token)
        await snapshots.load(store, each, tmp_path / "f", replicas=1)
        log = await store.log(FACTS)
        assert (await log.read("net.f.a", 40)).entries == before.entries
        await store.close()


async def test_keys_are_forgotten_without_a_trace(tmp_path: Path) -> None:
    with LocalServers(tmp_path / "from") as source:
        store = await JetStreamStore.connect(source.urls, token=source.token)
        table = await store.table(CELLS)
        for key in ("life.a", "life.b", "lives"):
            await table.put(key, b"x")
        assert await snapshots.cell(store, "net-cells", "lives") == b"x"
        await snapshots.forget(store, "net-cells", "life.>")
        assert set(await table.keys()) == {"lives"}
        assert await snapshots.cell(store, "net-cells", "life.a") is None
        with pytest.raises(Refused):
            await snapshots.save(store, "nothing", tmp_path / "x", "x")
        await store.close()


def _noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)

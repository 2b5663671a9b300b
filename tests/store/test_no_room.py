"""Real servers that are full: they say so, and what they acknowledged stays."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.store.writing import FACTS, connected, everything
from tocsin.errors import OutcomeUnknown, StoreFull
from tocsin.ports import Log, Record
from tocsin.store.servers.testing import LocalServers


class Filling:
    """Appends until there is no room, and what came of it."""

    def __init__(self, size: int, batch: int) -> None:
        self._size = size
        self._batch = batch
        self.acknowledged: dict[str, int] = {}
        self.unacknowledged: list[Record] = []

    async def run(self, log: Log) -> None:
        """Until the store is full. A batch may have been cut in two by then, which is said as an unknown outcome."""
        for turn in range(10_000):
            records = [Record("facts.a", b"x" * self._size, f"{turn}-{i}") for i in range(self._batch)]
            try:
                positions = await log.append(records)
            except (StoreFull, OutcomeUnknown) as error:
                assert isinstance(error, StoreFull) or self._batch > 1
                self.unacknowledged = records
                with pytest.raises((StoreFull, OutcomeUnknown)):
                    await log.append(records)
                return
            self.acknowledged.update((record.id, at) for record, at in zip(records, positions, strict=True))
        raise AssertionError("the store was never full")

    async def check(self, log: Log) -> None:
        """What was acknowledged is there, and only what was not may or may not be."""
        entries = await everything(log)
        kept = {entry.id: entry.position for entry in entries}
        assert len(kept) == len(entries)
        assert self.acknowledged.items() <= kept.items()
        assert kept.keys() - self.acknowledged.keys() <= {record.id for record in self.unacknowledged}

    async def check_repeat(self, log: Log) -> None:
        """Once there is room, the same append happens, once."""
        positions = await log.append(self.unacknowledged)
        ids = [entry.id for entry in await everything(log)]
        assert len(ids) == len(set(ids))
        assert len(set(positions)) == len(self.unacknowledged)
        assert {record.id for record in self.unacknowledged} <= set(ids)


@pytest.mark.parametrize("batch", [1, 20])
async def test_a_store_at_its_limit_says_so_and_loses_nothing(tmp_path: Path, batch: int) -> None:
    with LocalServers(tmp_path, file_max_bytes=4 << 20) as servers:
        async with connected(servers, deadline_s=5) as store:
            log = await store.log(FACTS)
            filling = Filling(20_000, batch)
            await filling.run(log)
            await filling.check(log)
            assert await log.trim(before=len(filling.acknowledged) // 2) > 0
            await filling.check_repeat(log)


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """A file system of that size; skips where it cannot be mounted."""
    if os.geteuid() != 0:
        pytest.skip("a small file system can only be mounted by root")
    directory.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", str(directory).encode(), b"tmpfs", 0, f"size={size}".encode()) != 0:
        pytest.skip(f"a small file system cannot be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield directory
    finally:
        libc.umount2(str(directory).encode(), 2)


def enlarge(disk: Path, size: str) -> None:
    remount = 32  # MS_REMOUNT
    assert (
        ctypes.CDLL(None).mount(b"tmpfs", str(disk).encode(), b"tmpfs", remount, f"size={size}".encode()) == 0
    )


@pytest.mark.parametrize("batch", [1, 20])
async def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path, batch: int) -> None:
    with (
        small_disk(tmp_path / "disk", "16m") as disk,
        LocalServers(disk, file_max_bytes=1 << 30) as servers,
    ):
        filling = Filling(50_000, batch)
        async with connected(servers, deadline_s=5) as store:
            await filling.run(await store.log(FACTS))
        servers.kill("store-1")
        enlarge(disk, "96m")
        servers.start("store-1")
        async with connected(servers) as store:
            log = await store.log(FACTS)
            await filling.check(log)
            await filling.check_repeat(log)

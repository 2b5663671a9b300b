"""Three real servers: they keep the promises of one, and lose a leader without losing a record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.store.writing import FACTS, Writers, connected, everything
from tocsin.errors import StoreUnavailable, TocsinError
from tocsin.ports import Record, TableSpec
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers


async def leader_of(store: JetStreamStore, stream: str) -> str:
    """The server that leads a stream."""
    while True:
        try:
            opened = await store.stream(stream)
            answer = await opened.api("who leads", "STREAM.INFO", {})
        except StoreUnavailable:
            continue
        if leader := answer.get("cluster", {}).get("leader"):
            return str(leader)
        await asyncio.sleep(0.05)


async def lose_leaders(directory: Path, losses: int) -> None:
    with LocalServers(directory, servers=3) as servers:
        async with connected(servers) as store:
            log = await store.log(FACTS)
            followed: list[str] = []

            async def follow() -> None:
                async for entry in log.follow("facts.>", 0):
                    followed.append(entry.id)

            following = asyncio.create_task(follow())
            async with Writers(log, 3) as writers:
                for _ in range(losses):
                    await writers.progress(200)
                    leader = await leader_of(store, "facts")
                    servers.kill(leader)
                    await writers.progress(200)
                    servers.start(leader)
                await writers.progress(200)
            await writers.check()
            expected = [entry.id for entry in await everything(log)]
            async with asyncio.timeout(30):
                while len(followed) < len(expected):
                    await asyncio.sleep(0.02)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            assert followed == expected, "a follower missed or repeated something"


async def test_a_cluster_that_loses_its_leader_goes_on_by_itself(tmp_path: Path) -> None:
    await lose_leaders(tmp_path, 1)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_cluster_that_loses_many_leaders_goes_on_by_itself(tmp_path: Path) -> None:
    await lose_leaders(tmp_path, 8)


async def test_a_cluster_keeps_the_promises_of_one_server(tmp_path: Path) -> None:
    with LocalServers(tmp_path, servers=3) as servers:
        async with connected(servers) as store, connected(servers) as other:
            log = await store.log(FACTS)
            for i in range(40):
                batch = [Record(f"facts.{i}", b"", f"{i}-{j}") for j in range(3)]
                positions = await log.append(batch)
                assert await log.append([*batch, Record("facts.x", b"", f"{i}-new")]) == (
                    *positions,
                    positions[-1] + 1,
                )
                page = await log.read(f"facts.{i}", 0)
                assert tuple(entry.position for entry in page.entries) == positions, (
                    "one reads what one wrote"
                )
                assert page.next == positions[-1] + 2
                assert await log.append(batch, expected=positions[0] - 1) == positions
                with pytest.raises(TocsinError):
                    await log.append([Record("facts.y", b"", f"{i}-late")], expected=positions[0])
            table = await store.table(TableSpec("leases"))
            same = await other.table(TableSpec("leases"))
            for i in range(20):
                revision = await table.put(f"k{i}", b"1")
                found = await same.get(f"k{i}")
                assert found is not None
                assert found.revision == revision
            assert len(await same.keys()) == 20
        careless = await JetStreamStore.connect(servers.urls, token=servers.token, replicas=1, deadline_s=30)
        await careless.log(FACTS)
        assert (await careless.stream("facts")).replicas == 3, "whoever opens a log takes no replica away"
        await careless.close()

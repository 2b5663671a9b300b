"""A server of three whose disk fails goes on as if there were nothing new: followers that are on it come loose."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.store.test_cluster import leader_of
from tests.store.writing import FACTS, connected
from tocsin.errors import TocsinError
from tocsin.ports import Record
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers

FOLLOWERS = 6  # some of them are on each server
DEADLINE_S = 60.0


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["leader", "another"])
async def test_followers_leave_a_server_whose_fsync_fails(
    tmp_path: Path, debian_program: Callable[[str, str], str], victim: str
) -> None:
    strace = debian_program("strace", "strace")
    with LocalServers(tmp_path, servers=3) as servers:
        async with connected(servers, deadline_s=4) as store:
            log = await store.log(FACTS)
            await log.append([Record("facts.a", b"", "0")])
            got: list[list[str]] = [[] for _ in range(FOLLOWERS)]

            async def follow(heard: list[str]) -> None:
                async for entry in log.follow("facts.>", 0):
                    heard.append(entry.id)

            tasks = [asyncio.create_task(follow(each)) for each in got]
            async with asyncio.timeout(DEADLINE_S):
                while not all(got):
                    await asyncio.sleep(0.02)
            failing = await _chosen(store, servers, victim)
            with failing_fsyncs(strace, servers.pid(failing), tmp_path / "trace") as begun:
                async with asyncio.timeout(DEADLINE_S):
                    last = await _append_until(begun, store)
                    while any(heard[-1] != last for heard in got):
                        await asyncio.sleep(0.02)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    assert all(heard == got[0] for heard in got), "one missed or repeated something"


async def _chosen(store: JetStreamStore, servers: LocalServers, victim: str) -> str:
    leader = await leader_of(store, "facts")
    return leader if victim == "leader" else next(name for name in servers.names if name != leader)


@contextmanager
def failing_fsyncs(strace: str, pid: int, trace: Path) -> Iterator[Callable[[], bool]]:
    """While it lasts no fsync of a process succeeds; whether one has failed already."""
    command = [strace, "-f", "-qq", "-p", str(pid), "-o", str(trace)]
    command += ["-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO"]
    with subprocess.Popen(command) as tracer:
        try:
            yield lambda: trace.exists() and "INJECTED" in trace.read_text("utf-8", "replace")
        finally:
            tracer.send_signal(signal.SIGINT)


async def _append_until(holds: Callable[[], bool], store: JetStreamStore) -> str:
    """Append until something holds, and then once more: the id of the last, which is durable."""
    log = await store.log(FACTS)
    number, over = 0, False
    while not over:
        number += 1
        over = holds()
        while True:
            try:
                await log.append([Record("facts.a", b"", str(number))])
                break
            except TocsinError as error:
                assert error.retryable
        await asyncio.sleep(0.05)
    return str(number)

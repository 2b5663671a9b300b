"""Clients that only spend cannot push a broker, a coordinator or the store beyond the sum that the settings state.

The attacks are those of ``python -m bench.spending``, which runs for as long as one likes. Here they have some twenty
seconds and small budgets, and an honest client goes on beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench.spending.attacks import ATTACKS
from bench.spending.honest import Honest
from tests.integration.running import up
from tocsin.config import load
from tocsin.core.budgets.budget import Kind
from tocsin.core.budgets.stated_sum import sums_of

ROOT = Path(__file__).parents[2]
BROKERS = json.dumps([{"id": "north-1", "cluster": "north", "port": 0}])
SMALL = {
    "brokers": BROKERS,
    "limits.connections_max": "1000",
    "limits.filters_max": "10000",
    "coordinator.streams_max_bytes": str(32 << 20),
    "coordinator.queries_max_bytes": str(32 << 20),
    "coordinator.snapshot_every_bytes": str(16 << 20),
    "budgets.store_bytes": str(128 << 20),
    "budgets.retained_bytes": str(32 << 20),
    **{kind.setting: str(16 << 20) for kind in Kind},
}
SECONDS = 20.0


@pytest.fixture(scope="module")
def pid() -> Iterator[tuple[int, str, int]]:
    """The process of ``tocsin up``, and where its broker is."""
    options = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    before = {child.pid for child in psutil.Process().children()}
    with up(*options, level="error") as ready:
        found = next(child for child in psutil.Process().children() if child.pid not in before)
        yield found.pid, ready["brokers"][0]["host"], ready["brokers"][0]["port"]


def processes(pid: int) -> dict[str, int]:
    """RSS in bytes, by the process's name in the sum."""
    found: dict[str, int] = {}
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words, size = child.cmdline(), child.memory_info().rss
            for name in ("broker", "coordinator"):
                if name in words:
                    found[name] = max(size, found.get(name, 0))
            if words and "nats-server" in words[0]:
                found["store"] = max(size, found.get("store", 0))
    return found


async def test_spending_clients_stay_within_the_stated_sum(pid: tuple[int, str, int]) -> None:
    process, host, port = pid
    stated = {each.process: each.bytes for each in sums_of(load(flags=dict(SMALL)).settings)}
    honest = Honest(host, port)
    talking = asyncio.create_task(honest.run())
    words = ("-m", "bench.spending", "--attack", f"{host}:{port}", "--only", *sorted(ATTACKS))
    attackers = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT)
    most: dict[str, int] = {}
    try:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(0.5)
            for name, size in processes(process).items():
                most[name] = max(size, most.get(name, 0))
        assert attackers.returncode is None, "the attackers ended"
    finally:
        attackers.kill()
        await attackers.wait()
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
    shown = {name: f"{size >> 20} of {stated[name] >> 20} MiB" for name, size in most.items()}
    print(shown, f"pings {len(honest.pings_ms)}, acknowledged {len(honest.commits_ms)}, lost {honest.lost}")
    assert most.keys() == stated.keys()
    assert all(size <= stated[name] for name, size in most.items()), shown
    assert honest.pings_ms and honest.commits_ms, "an honest client is served beside them"

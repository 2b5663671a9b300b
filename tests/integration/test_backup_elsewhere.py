"""``tocsin backup`` where it is harder: NATS servers of one's own with keys and TLS, and a pipeline that writes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.running import up
from tests.integration.test_elsewhere import address
from tests.store.secured import SecuredServers
from tocsin.client import AsyncClient
from tocsin.client.address import Server

DEADLINE_S = 150.0
BROKERS = "brokers=" + json.dumps([{"id": f"north-{n}", "cluster": "north"} for n in (1, 2)])


def tocsin(*words: str, text: str = "") -> str:
    command = [sys.executable, "-P", "-m", "tocsin", *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sets(*chosen: str) -> list[str]:
    return [word for each in chosen for word in ("--set", each)]


def options(servers: SecuredServers) -> list[str]:
    """How an operator tells of servers of one's own: address, authority, and a key for each role."""
    nats = servers.nats
    return sets(
        BROKERS,
        f"nats.urls={servers.urls[0]}",
        f"nats.ca={nats.ca}",
        f"nats.credentials={nats.credentials}",
        f"nats.tls_name={nats.tls_name}",
        f"nats.tls_handshake={nats.tls_handshake}",
    )


@pytest.mark.timeout(240)
async def test_servers_of_ones_own_with_keys_and_tls_are_saved_and_filled(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    with SecuredServers(tmp_path / "first") as servers:
        given = options(servers)
        with up(*given, state=tmp_path / "state", level="error") as ready:
            one, two = (Server(*address(ready, name)) for name in ("north-1", "north-2"))
            async with AsyncClient([two], client_id="away", session_expiry_s=3_600) as client:
                await client.subscribe("jobs", qos=2)
            async with AsyncClient([one]) as client:
                await client.publish("state", "on", qos=1, retain=True)
                for number in range(20):
                    await client.publish("jobs", str(number), qos=1)
            said = await asyncio.to_thread(
                tocsin, "backup", "create", str(saved), *given, "--state", str(tmp_path / "state")
            )
            assert "network tocsin" in said
    assert "whole" in tocsin("backup", "verify", str(saved))

    with SecuredServers(tmp_path / "second") as servers:
        given = options(servers)
        state = tmp_path / "again"
        tocsin("backup", "restore", str(saved), *given, "--state", str(state))
        with up(*given, state=state, level="error") as ready:
            async with AsyncClient(
                [Server(*address(ready, "north-1"))], client_id="away", session_expiry_s=3_600
            ) as client:
                jobs = client.subscribe("jobs", qos=2)
                assert [(await jobs.get(60)).text for _ in range(20)] == [str(n) for n in range(20)]
                assert (await client.subscribe("state", qos=1).get(60)).text == "on"
                await client.publish("jobs", "new", qos=2)
                assert (await jobs.get(60)).text == "new", "positions go on"


SPARK = sets(
    "brokers=" + json.dumps([{"id": "north-1", "cluster": "north"}]),
    "spark.master=local[2]",
    "spark.heap=1g",
    "spark.ui_port=-1",
    "pipeline.metrics_port=0",
    "feeds.metrics_port=0",
)
SCRIPT = """
CREATE DATASET Readings (n INT NOT NULL);
CREATE FEED Wire INTO Readings FROM TOPIC 'readings';
CREATE CHANNEL All() CONTINUOUS AS SELECT r.n FROM NEW Readings r;
"""


def readings(state: Path) -> Counter[int]:
    rows = tocsin(
        *("sql", "-o", "json", "--wait", "120", "--limit", "100000", "--state", str(state)),
        text="SELECT n FROM Readings",
    )
    return Counter(json.loads(line)["n"] for line in rows.splitlines())


@pytest.mark.slow
@pytest.mark.xdist_group("networks with spark")
@pytest.mark.timeout(480)
async def test_a_backup_while_the_pipeline_writes_has_every_record_once(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    first, second, saved = tmp_path / "first", tmp_path / "second", tmp_path / "saved"
    sent: list[int] = []
    with up(*SPARK, state=first, level="error", spark=True) as ready:
        await asyncio.to_thread(tocsin, "sql", "--wait", "120", "--state", str(first), text=SCRIPT)
        async with AsyncClient([Server(*address(ready, "north-1"))], client_id="p") as publisher:

            async def load() -> None:
                while True:
                    number = len(sent)
                    await publisher.publish("readings", json.dumps({"n": number}), qos=1)
                    sent.append(number)
                    await asyncio.sleep(0.005)

            loading = asyncio.create_task(load())
            async with asyncio.timeout(DEADLINE_S):
                while not (found := await asyncio.to_thread(readings, first)) or len(found) < 100:
                    await asyncio.sleep(1)
            before = len(sent)
            told = await asyncio.to_thread(tocsin, "backup", "create", str(saved), "--state", str(first))
            assert len(sent) > before, "it went on meanwhile"
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
    assert "whole" in tocsin("backup", "verify", str(saved))
    tocsin("backup", "restore", str(saved), "--state", str(second))

    with up(*SPARK, state=second, level="error", spark=True) as ready:
        async with asyncio.timeout(DEADLINE_S):
            while not set(range(before)) <= set(found := await asyncio.to_thread(readings, second)):
                await asyncio.sleep(1)
        async with AsyncClient([Server(*address(ready, "north-1"))], client_id="p") as publisher:
            await publisher.publish("readings", '{"n": -1}', qos=1)
        async with asyncio.timeout(DEADLINE_S):
            while -1 not in (found := await asyncio.to_thread(readings, second)):
                await asyncio.sleep(1)
        numbers = set(found) - {-1}
        assert numbers == set(range(max(numbers) + 1)), "of what came meanwhile, the first part: no gap"
        twice = sorted(number for number, times in found.items() if times > 1)
        assert not twice or "twice" in told, twice

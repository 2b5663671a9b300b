"""``tocsin backup`` on real processes: of a network that runs under load, and of one that is stopped; and back."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.running import up
from tests.integration.stored import Finder, options, unpack
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.errors import DeadlineExceeded, FormatNewer
from tocsin.runtime.network.backup import BackupUnusable, verify

pytestmark = pytest.mark.timeout(240)
BROKERS = ("--set", "brokers=" + json.dumps([{"id": f"north-{n}", "cluster": "north"} for n in (1, 2)]))
DEADLINE_S = 60.0


def backup(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tocsin", "backup", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)


def done(*words: str) -> str:
    found = backup(*words)
    assert found.returncode == 0, found.stderr
    return found.stdout


def refused(*words: str) -> str:
    found = backup(*words)
    assert found.returncode == 2, (found.returncode, found.stdout, found.stderr)
    return found.stderr


def audit(state: Path, action: str) -> list[dict[str, str]]:
    lines = map(json.loads, (state / "audit" / "audit.log").read_text().splitlines())
    return [each for each in lines if each["action"] == action]


async def test_nothing_acknowledged_before_a_backup_of_a_running_network_is_lost(tmp_path: Path) -> None:
    first, second, saved = tmp_path / "first", tmp_path / "second", tmp_path / "backup"
    acknowledged: list[str] = []
    with up(*BROKERS, state=first, level="error") as ready:
        one, two = (Server(*address(ready, name)) for name in ("north-1", "north-2"))
        async with AsyncClient([two], client_id="away", session_expiry_s=3_600) as client:
            await client.subscribe("jobs/#", qos=2)
        async with AsyncClient([one], client_id="publisher", session_expiry_s=3_600) as publisher:
            await publisher.publish("state", "on", qos=1, retain=True)
            await publisher.stream("lamp", qos=1, permanent=True, Room="410").publish("x")

            async def load() -> None:
                number = 0
                while True:
                    await publisher.publish(f"jobs/{number % 7}", str(number), qos=1 + number % 2)
                    acknowledged.append(str(number))
                    number += 1

            loading = asyncio.create_task(load())
            while len(acknowledged) < 50:
                await asyncio.sleep(0.05)
            before = list(acknowledged)
            told = await asyncio.to_thread(done, "create", str(saved), "--state", str(first))
            assert len(acknowledged) > len(before), "it went on meanwhile"
            loading.cancel()
        assert "network tocsin" in told

    assert stat.S_IMODE(saved.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in saved.rglob("*") if each.is_file()} == {0o600}
    assert "whole" in done("verify", str(saved))
    assert "not empty" in refused("restore", str(saved), "--state", str(first))
    done("restore", str(saved), "--state", str(second))

    with up(*BROKERS, state=second, level="error") as ready:
        one, two = (Server(*address(ready, name)) for name in ("north-1", "north-2"))
        async with AsyncClient([one], client_id="away", session_expiry_s=3_600) as client:
            jobs = client.subscribe("jobs/#", qos=2)
            heard = [(await jobs.get(DEADLINE_S)).text]
            while True:
                try:
                    heard.append((await jobs.get(2)).text)
                except DeadlineExceeded:
                    break
            assert heard[: len(before)] == before, "all of it, in order"
            assert len(heard) == len(set(heard))
            retained = await client.subscribe("state", qos=1).get(DEADLINE_S)
            assert retained.text == "on"
            lamps = await client.streams('Room = "410"').get(DEADLINE_S)
            assert "lamp" in getattr(lamps, "streams", {})
            await client.publish("jobs/new", "new", qos=2)
            assert (await jobs.get(DEADLINE_S)).text == "new", "positions go on"


async def test_a_stopped_network_is_saved_and_restored_with_all_that_it_had(tmp_path: Path) -> None:
    state, saved, again = tmp_path / "state", tmp_path / "backup", tmp_path / "again"
    expected = unpack("release-0.1.0", state)
    done("create", str(saved), "--state", str(state))
    manifest = json.loads((saved / "manifest.json").read_text())
    assert manifest["versions"]["data/reports"] >= 1
    assert any(each["path"].endswith(".parquet") for each in manifest["files"])
    assert "is not empty" in refused("create", str(saved), "--state", str(state))

    name = refused("restore", str(saved), "--state", str(again), "--set", "network=other")
    assert "--set network=tocsin" in name and not (again / "nats").exists()
    done("restore", str(saved), "--state", str(again))
    assert [line["outcome"] for line in audit(state, "create backup")] == ["done", "failed"]
    assert [line["outcome"] for line in audit(again, "restore backup")] == ["done"]
    with up(*options(), state=again, level="error") as ready:
        await Finder(ready).all(expected)
    found = {each.relative_to(again / "datasets") for each in (again / "datasets").rglob("*.parquet")}
    assert found == {each.relative_to(state / "datasets") for each in (state / "datasets").rglob("*.parquet")}


def test_a_damaged_or_unfinished_backup_is_refused(tmp_path: Path) -> None:
    state, saved = tmp_path / "state", tmp_path / "backup"
    unpack("release-0.1.0", state)
    done("create", str(saved), "--state", str(state))
    log = saved / "streams" / "tocsin-messages"
    whole = log.read_bytes()
    log.write_bytes(whole[:-1])
    assert "bytes" in refused("restore", str(saved), "--state", str(tmp_path / "again"))
    log.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(BackupUnusable, match="SHA-256"):
        verify(saved)
    log.unlink()
    with pytest.raises(BackupUnusable, match="damaged"):
        verify(saved)
    log.write_bytes(whole)
    assert verify(saved).network == "tocsin"
    (table,) = (saved / "datasets" / "data" / "reports" / "rows").glob("*.parquet")
    table.unlink()
    with pytest.raises(BackupUnusable, match="damaged"):
        verify(saved)
    manifest = saved / "manifest.json"
    said = manifest.read_text()
    manifest.write_text(said.replace('"max_bytes": ', '"max_bytes": 9', 1))
    assert "manifest.json is not what was saved" in refused("verify", str(saved))
    (saved / "manifest.sha256").unlink()  # as in backups of earlier releases
    manifest.write_text(said.replace('"v": 1', '"v": 2', 1))
    with pytest.raises(FormatNewer, match="Upgrade this process"):
        verify(saved)
    manifest.unlink()
    with pytest.raises(BackupUnusable, match=r"no manifest\.json"):
        verify(saved)

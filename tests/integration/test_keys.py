"""Keys of the store on a running network: users of SQL, keys of machines elsewhere, and roles whose key is replaced."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.integration.running import up
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.config import Nats
from tocsin.errors import NoResponder, Refused, TocsinError
from tocsin.runtime.network.directory import read_network
from tocsin.runtime.network.store_access import embedded
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.nats.login import login_of

pytestmark = pytest.mark.timeout(240)
DEADLINE_S = 60.0
BROKERS = ("--set", "brokers=" + json.dumps([{"id": f"north-{n}", "cluster": "north"} for n in (1, 2)]))


def tocsin(state: Path, *words: str) -> str:
    command = [sys.executable, "-m", "tocsin", "store", *words, "--state", str(state)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def operator_reaches(state: Path) -> None:
    command = [sys.executable, "-m", "tocsin", "coordinator", "status", "--json", "--state", str(state)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def let_in(state: Path, seed: Path, role: str) -> bool:
    found = read_network(state)
    assert found is not None
    nats = msgspec.structs.replace(embedded(Nats(urls=found.nats), state), credentials=str(seed))
    login = msgspec.structs.replace(login_of(nats, "operator"), role=role)
    try:
        store = await JetStreamStore.connect(nats.addresses(), login=login, deadline_s=5)
    except Refused:
        return False
    try:
        if role.startswith("user."):
            asked = f"{found.network}.pipeline.sql.{role.removeprefix('user.')}"
            await store.bus.request(asked, b"{}", deadline_s=5)
    except NoResponder:
        pass  # no pipeline: but the question was carried
    except TocsinError:
        return False
    finally:
        await store.close()
    return True


async def until_let_in(state: Path, seed: Path, role: str, wanted: bool) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await let_in(state, seed, role) is not wanted:
            await asyncio.sleep(0.2)


async def test_sql_users_and_foreign_keys_come_and_go_without_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up(*BROKERS, state=state, level="error") as ready:
        for words, file, role in (
            (("user", "add", "ann"), "user-ann.nk", "user.ann"),
            (("key", "add", "broker", "south-1"), "broker@south-1.nk", "broker"),
        ):
            kept = Path(shutil.copy(state / "nats" / "keys" / "operator.nk", tmp_path / file))
            tocsin(state, *words)
            shutil.copy(state / "nats" / "keys" / file, kept)
            await until_let_in(state, kept, role, True)
            tocsin(state, words[0], "remove", *words[2:])
            await until_let_in(state, kept, role, False)
        listed = tocsin(state, "key", "list").splitlines()
        assert [line.split()[:2] for line in listed] == [
            [role, "-"] for role in ("broker", "coordinator", "pipeline", "feeder", "operator")
        ]
        async with AsyncClient([Server(*address(ready, "north-1"))]) as client:
            await client.publish("a", "1", qos=1)
    actions = [
        json.loads(line)["action"] for line in (state / "audit" / "audit.log").read_text().splitlines()
    ]
    assert actions == ["add user of SQL", "remove user of SQL", "add key", "remove key"]


async def test_keys_are_replaced_under_load_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    state = tmp_path / "state"
    stolen = {role: tmp_path / f"{role}.nk" for role in ("broker", "coordinator", "operator")}
    with up(*BROKERS, state=state, level="error") as ready:
        one, two = (Server(*address(ready, name)) for name in ("north-1", "north-2"))
        async with (
            AsyncClient([one], client_id="p", session_expiry_s=600) as publisher,
            AsyncClient([two], client_id="s", session_expiry_s=600) as subscriber,
        ):
            jobs = subscriber.subscribe("jobs", qos=1)
            await jobs.open()
            sent: list[str] = []

            async def load() -> None:
                while True:
                    await publisher.publish("jobs", str(len(sent)), qos=1)
                    sent.append(str(len(sent)))

            loading = asyncio.create_task(load())
            for role, path in stolen.items():
                shutil.copy(state / "nats" / "keys" / f"{role}.nk", path)
                before = len(sent)
                tocsin(state, "key", "rotate", role)
                await until_let_in(state, path, role, False)
                async with asyncio.timeout(DEADLINE_S):
                    while len(sent) < before + 20:
                        await asyncio.sleep(0.1)
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            heard: list[str] = []
            async with asyncio.timeout(DEADLINE_S):
                while not set(sent) <= set(heard):
                    heard.append((await jobs.get(DEADLINE_S)).text)
        await asyncio.to_thread(operator_reaches, state)
        assert all(map(runs, ready["pids"].values())), "nobody had to be started again"

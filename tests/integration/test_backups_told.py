"""Clients know the backups of their broker beforehand, and go there when it is killed: real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from typing import Any

from tests.integration.running import AGAIN_S, DEADLINE_S, READY_DEADLINE_S, up
from tests.integration.test_elsewhere import address
from tests.integration.test_home import until
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.client.options import Connection

BROKERS = json.dumps(
    [{"id": f"north-{each}", "cluster": "north"} for each in range(1, 6)]
    + [{"id": "south-1", "cluster": "south"}]
)
CLIENTS = 12


def planned(network: dict[str, Any]) -> list[str]:
    """The addresses of the local and the remote backup that the plan has for the first broker."""
    where = ("north-1", "--json", "--state", network["state"])
    command = [sys.executable, "-P", "-m", "tocsin", "explain", "backup", *where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    found = json.loads(done.stdout) if done.returncode == 0 else {"local": {}, "remote": {}}
    names = [found[each].get("chosen") for each in ("local", "remote")]
    return ["{}:{}".format(*address(network, name)) for name in names if name is not None]


async def test_all_clients_of_a_killed_broker_go_to_its_planned_backup() -> None:
    with up("--set", f"brokers={BROKERS}", level="error") as network:
        places: dict[str, list[str]] = {}

        def client(name: str) -> AsyncClient:
            went = places[name] = []

            def told(connection: Connection) -> None:
                if connection.up:
                    went.append(connection.server)

            home = Server(*address(network, "north-1"))
            return AsyncClient([home], client_id=name, on_connection=told, session_expiry_s=600)

        async with asyncio.timeout(2 * READY_DEADLINE_S), AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client(f"c-{each}")) for each in range(CLIENTS)]
            for each in clients:
                await each.subscribe(f"a/{each.client_id}", qos=1)
            while len(backups := await asyncio.to_thread(planned, network)) < 2:
                await asyncio.sleep(AGAIN_S)
            await until(lambda: all(list(each.others[:2]) == backups for each in clients))
            os.kill(network["pids"]["broker/north-1"], signal.SIGKILL)
            await until(lambda: all(len(went) > 1 for went in places.values()))
            assert {went[1] for went in places.values()} == {backups[0]}

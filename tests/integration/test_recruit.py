"""A used-up standby is followed by an edge broker that is recruited, and promoted in its turn: real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.running import READY_DEADLINE_S, operator_store, up
from tests.integration.test_elsewhere import address
from tests.integration.test_home import until
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.client.subscription import Subscription
from tocsin.coordinator.status import Status, read_all
from tocsin.core.coordination.names import StoreNames
from tocsin.ports import Table

BROKERS = json.dumps(
    [
        {"id": "north-1", "cluster": "north"},
        {"id": "north-2", "cluster": "north"},
        {"id": "north-3", "cluster": "north", "may_stand_by": True},
        {"id": "spare", "cluster": "north", "role": "standby"},
    ]
)
SETS = (
    f"brokers={BROKERS}",
    "recovery.standbys_wanted=1",
    "recovery.recruit_after_s=1",
    "balance.grace_s=1",
)
AGAIN_S = 0.1
NETWORK = "tocsin"


@pytest.fixture
def network() -> Iterator[dict[str, Any]]:
    with up(*(word for each in SETS for word in ("--set", each)), level="error") as line:
        yield line


async def leader(table: Table, fits: Callable[[Status], bool]) -> Status:
    """What the leader says, as soon as that fits."""
    while True:
        for each in await read_all(table):
            if each.role == "leader" and fits(each):
                return each
        await asyncio.sleep(AGAIN_S)


async def said(network: dict[str, Any], *words: str) -> Any:
    """What a verb says in JSON."""
    argv = (sys.executable, "-P", "-m", "tocsin", *words, "--json", "--state", network["state"])
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    return json.loads((await process.communicate())[0])


async def gather(subscription: Subscription, into: set[int]) -> None:
    async for message in subscription:
        into.add(int(message.payload))


async def test_a_recruit_takes_the_place_that_the_standby_loses(network: dict[str, Any]) -> None:
    first, second, third = (Server(*address(network, name)) for name in ("north-1", "north-2", "north-3"))
    store = await operator_store(network)
    table = await store.table(StoreNames(NETWORK).table)
    stopped: list[int] = []

    def stop(broker: str) -> None:
        stopped.append(network["pids"][f"broker/{broker}"])
        os.kill(stopped[-1], signal.SIGSTOP)

    sent: list[int] = []

    async def publish() -> None:
        async with AsyncClient([second], session_expiry_s=600, client_id="publisher") as publisher:
            while True:
                await publisher.publish("load", str(len(sent)).encode(), qos=1)
                sent.append(len(sent))
                await asyncio.sleep(0.02)

    heard: list[set[int]] = [set(), set()]
    clients = [
        AsyncClient([home, second], session_expiry_s=600, client_id=f"c-{number}", keep_alive_s=2)
        for number, home in enumerate((first, third))
    ]
    async with asyncio.timeout(READY_DEADLINE_S):
        tasks = []
        for client, into in zip(clients, heard, strict=True):
            await client.connect()
            subscription = await client.subscribe("load", qos=1)
            tasks.append(asyncio.create_task(gather(subscription, into)))
        tasks.append(asyncio.create_task(publish()))
        await leader(table, lambda each: each.standbys == ("spare",) and each.brokers == 4)
        try:
            stop("north-1")
            await leader(table, lambda each: each.promoted == {"spare": "north-1"})
            recruited = await leader(table, lambda each: each.standbys == ("north-3",))
            assert [(each.broker, each.stands_by) for each in recruited.recruits] == [("north-3", True)]
            (row,) = await said(network, "explain", "standby", "north-3")
            assert row["recruiting"]["state"] == "stands by"
            assert clients[1].server != f"{third.host}:{third.port}", "its client was moved"
            stop("spare")
            await leader(table, lambda each: each.promoted == {"north-3": "north-1"})
            lacking = await leader(table, lambda each: bool(each.lacking))
            assert "may_stand_by" in lacking.lacking[0].obstacles["north-2"]
        finally:
            for process in stopped:
                os.kill(process, signal.SIGCONT)
        await leader(table, lambda each: (each.standbys, each.recruits, each.brokers) == (("spare",), (), 4))
        tasks.pop().cancel()
        expected = set(sent)
        await until(lambda: all(expected <= each for each in heard))
        for task in tasks:
            task.cancel()
        for client in clients:
            await client.close()
    await store.close()

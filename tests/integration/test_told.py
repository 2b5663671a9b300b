"""Clients of a frozen broker are told at once that it is lost: real processes, one of them stopped with SIGSTOP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack

from tests.integration.running import READY_DEADLINE_S, up
from tests.integration.test_elsewhere import address
from tests.integration.test_home import until
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.client.subscription import Subscription
from tocsin.client.watching import watches

BROKERS = json.dumps([{"id": f"north-{each}", "cluster": "north"} for each in (1, 2)])
KEEP_ALIVE_S = 1_000  # so that a client leaves a silent broker for no other reason than that it is told to
PEOPLE = 5


async def test_clients_of_a_frozen_broker_are_told_and_served_elsewhere() -> None:
    with up("--set", f"brokers={BROKERS}", "--set", "membership.detect=aggressive", level="error") as network:
        home, other = (Server(*address(network, name)) for name in ("north-1", "north-2"))
        backup, frozen = f"{other.host}:{other.port}", network["pids"]["broker/north-1"]

        def client(name: str, *, watch: bool = True) -> AsyncClient:
            options = {"session_expiry_s": 600, "keep_alive_s": KEEP_ALIVE_S, "watch": watch}
            return AsyncClient([home], client_id=name, **options)  # type: ignore[arg-type]

        async with asyncio.timeout(2 * READY_DEADLINE_S), AsyncExitStack() as stack:
            told = [await stack.enter_async_context(client(f"told-{n}")) for n in range(PEOPLE)]
            deaf = await stack.enter_async_context(client("deaf", watch=False))
            news = [await stack.enter_async_context(each.subscribe("news", qos=1)) for each in told]
            plain = await stack.enter_async_context(AsyncClient([other], watch=False))
            losses = await stack.enter_async_context(plain.subscribe("$SYS/broker/network/lost/+"))
            await until(lambda: all(each.watched and each.others[:1] == (backup,) for each in told))
            assert len(watches()) == 1, "the clients of this program share one connection"
            os.kill(frozen, signal.SIGSTOP)
            try:
                await until(lambda: all(each.connected and each.server == backup for each in told))
                assert deaf.connected and deaf.server == f"{home.host}:{home.port}" and not deaf.watched
                loss = json.loads((await losses.get()).payload)
                assert (loss["v"], loss["broker"], loss["stand_in"]) == (1, "north-1", "north-2")
                assert loss["servers"] == [f"mqtt://{backup}"]
                await plain.publish("news", "after", qos=1)
                assert [await text_of(each) for each in news] == ["after"] * PEOPLE
            finally:
                os.kill(frozen, signal.SIGCONT)
            assert (await losses.get()).payload == b"", "it is back"


async def text_of(news: Subscription) -> str:
    return (await news.get()).text

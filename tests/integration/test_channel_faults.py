"""From a feed to a lasting MQTT subscriber while whatever is between is killed: each result is there once, and arrives.

One network on a real store and a real Spark, with a subscriber that comes and goes. Killed are the driver (the
pipeline's process), Spark's Java, a Python worker, and the store's server: in a task, before the commit, between commit
and notice, and while the notice is under way (the log has it, and the driver does not know).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.faults import DEADLINE_S, Subscriber, Traps, Wire, kill
from tests.integration.pipeline import Talk, talking
from tests.integration.running import up
from tocsin.runtime.faults.kill_points import AFTER_COMMIT, AFTER_NOTICE, BEFORE_COMMIT, IN_TASK, KILL, STOP
from tocsin.store.servers.testing import LocalServers

pytest.importorskip("pyspark", reason="install the extra tocsin[spark]")
pytestmark = [pytest.mark.xdist_group("networks with spark")]

SCRIPT = """
CREATE DATASET Reports (n BIGINT NOT NULL, who STRING);
CREATE FEED Wire INTO Reports FROM HTTP;
CREATE CHANNEL About(who STRING) CONTINUOUS AS SELECT r.n FROM NEW Reports r WHERE r.who = :who;
"""


class Network:
    """All of it, and the faults."""

    def __init__(
        self,
        ready: dict[str, Any],
        servers: LocalServers,
        wire: Wire,
        talk: Talk,
        driver_traps: Traps,
        task_traps: Traps,
    ) -> None:
        self._ready = ready
        self._servers = servers
        self._wire = wire
        self._talk = talk
        self._driver = driver_traps
        self._task = task_traps
        broker = ready["brokers"][0]
        self.subscriber = Subscriber((broker["host"], broker["port"]), "$channel/About/ann")
        self.total = 0

    async def feed(self, count: int = 5) -> None:
        records = [{"n": self.total + n, "who": "ann"} for n in range(count)]
        await self._talk.feed("Wire", *records)
        self.total += count

    async def arrived(self, what: str) -> None:
        await asyncio.to_thread(self.subscriber.got, Counter(range(self.total)), what)

    # ── who there is ────────────────────────────────────────────────────────────────────────────────────────

    def driver(self) -> psutil.Process:
        supervisor = psutil.Process(self._ready["pids"]["broker/a"]).parent()
        assert supervisor is not None
        return next(each for each in supervisor.children() if each.cmdline()[-1:] == ["pipeline"])

    def java(self) -> psutil.Process:
        family = self.driver().children(recursive=True)
        return next(each for each in family if "java" in each.name())

    async def caught(self, traps: Traps, variable: str, point: str) -> int:
        """Set a trap, bring something to run, and wait until somebody is in it."""
        traps.arm(variable, point)
        await self.feed()
        return await asyncio.to_thread(traps.sprung, variable, point)

    # ── faults ──────────────────────────────────────────────────────────────────────────────────────────────

    async def kill_python_worker(self) -> None:
        await self.caught(self._task, KILL, IN_TASK)

    async def kill_driver_in_task(self) -> None:
        worker = await self.caught(self._task, STOP, IN_TASK)
        self.driver().kill()
        kill(worker)

    async def kill_java_in_task(self) -> None:
        worker = await self.caught(self._task, STOP, IN_TASK)
        self.java().kill()
        kill(worker)

    async def kill_driver_at(self, point: str) -> None:
        await self.caught(self._driver, KILL, point)

    async def kill_java_at(self, point: str) -> None:
        driver, java = await self.caught(self._driver, STOP, point), self.java()
        java.kill()
        os.kill(driver, signal.SIGCONT)

    async def kill_store_at(self, point: str) -> None:
        driver = await self.caught(self._driver, STOP, point)
        (name,) = self._servers.names
        self._servers.kill(name)
        os.kill(driver, signal.SIGCONT)
        await asyncio.sleep(1.0)  # for the driver to find nobody there
        self._servers.start(name)

    async def in_the_middle_of_a_notice(self) -> int:
        """The log has the notice, and whoever sent it does not know; the driver's id."""
        before = len(await self._talk.notices())
        driver = await self.caught(self._driver, STOP, AFTER_COMMIT)
        self._wire.deaf = True
        os.kill(driver, signal.SIGCONT)
        async with asyncio.timeout(DEADLINE_S):
            while len(await self._talk.notices()) == before:
                await asyncio.sleep(0.05)
        return driver

    async def kill_driver_in_the_middle_of_a_notice(self) -> None:
        kill(await self.in_the_middle_of_a_notice())
        self._wire.cut()

    async def kill_store_in_the_middle_of_a_notice(self) -> None:
        await self.in_the_middle_of_a_notice()
        (name,) = self._servers.names
        self._servers.kill(name)
        self._servers.start(name)
        self._wire.cut()

    # ── what is promised ────────────────────────────────────────────────────────────────────────────────────

    async def check(self) -> None:
        """Each result is once in the dataset of results, and each tick was told of once."""
        ticks = [notice.tick for notice in await self._talk.notices()]
        assert ticks == sorted(set(ticks)), "told twice, or in another order"
        (kept,) = await self._talk.sql("SELECT COUNT(*) AS n, COUNT(DISTINCT n) AS d FROM RESULTS OF About")
        assert kept["rows"] == [[self.total, self.total]]


@contextlib.asynccontextmanager
async def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Network]:
    driver_traps, task_traps = Traps(tmp_path / "driver"), Traps(tmp_path / "task")
    for name, value in driver_traps.variables(BEFORE_COMMIT, AFTER_COMMIT, AFTER_NOTICE).items():
        monkeypatch.setenv(name, value)
    conf = {f"spark.executorEnv.{name}": value for name, value in task_traps.variables(IN_TASK).items()}
    with LocalServers(tmp_path / "nats") as servers:
        host, _, port = servers.urls[0].rpartition("//")[2].partition(":")
        wire = Wire((host, int(port)))
        settings = {
            "brokers": json.dumps([{"id": "a", "cluster": "c"}]),
            "nats.urls": f"nats://{wire.address[0]}:{wire.address[1]}",
            "nats.token": servers.token,
            "spark.master": "local[2]",
            "spark.heap": "1g",
            "spark.ui_port": "-1",
            "spark.conf": json.dumps(conf),
        }
        options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        try:
            with up(*options, level="error", spark=True) as ready:
                state = Path(ready["state"])
                async with talking(servers, state) as talk:
                    made = Network(ready, servers, wire, talk, driver_traps, task_traps)
                    try:
                        await talk.sql(SCRIPT)
                        yield made
                    finally:
                        made.subscriber.leave()
        finally:
            wire.close()


Fault = Callable[[Network], Awaitable[None]]

QUICK: dict[str, Fault] = {
    "a Python worker, in a task": Network.kill_python_worker,
    "the store, in the middle of a notice": Network.kill_store_in_the_middle_of_a_notice,
    "the driver, between commit and notice": lambda net: net.kill_driver_at(AFTER_COMMIT),
}
OTHERS: dict[str, Fault] = {
    "the driver, in a task": Network.kill_driver_in_task,
    "Java, in a task": Network.kill_java_in_task,
    "the driver, before the commit": lambda net: net.kill_driver_at(BEFORE_COMMIT),
    "Java, before the commit": lambda net: net.kill_java_at(BEFORE_COMMIT),
    "the store, before the commit": lambda net: net.kill_store_at(BEFORE_COMMIT),
    "Java, between commit and notice": lambda net: net.kill_java_at(AFTER_COMMIT),
    "the store, between commit and notice": lambda net: net.kill_store_at(AFTER_COMMIT),
    "the driver, in the middle of a notice": Network.kill_driver_in_the_middle_of_a_notice,
    "the driver, behind the notice": lambda net: net.kill_driver_at(AFTER_NOTICE),
}


async def suffer(net: Network, faults: dict[str, Fault]) -> None:
    """One fault after the other; at every second one the subscriber is away."""
    subscriber = net.subscriber
    await asyncio.to_thread(subscriber.come)
    await net.feed()
    await net.arrived("before any fault")
    for number, (what, fault) in enumerate(faults.items()):
        if number % 2:
            subscriber.leave()
        await asyncio.wait_for(fault(net), DEADLINE_S)
        await net.feed(2)
        if number % 2:
            await asyncio.to_thread(subscriber.come)
        await net.arrived(what)
    await net.check()


@pytest.mark.timeout(600)
async def test_a_lasting_subscriber_gets_each_result_once_whoever_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with network(tmp_path, monkeypatch) as net:
        await suffer(net, QUICK)


@pytest.mark.slow
@pytest.mark.timeout(2_400)
async def test_a_lasting_subscriber_gets_each_result_once_whoever_is_killed_wherever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with network(tmp_path, monkeypatch) as net:
        await suffer(net, OTHERS)

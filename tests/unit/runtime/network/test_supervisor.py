"""The supervisor with real, small children: their reports, their output, their ends, and the order of it all."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tocsin.config import Settings, to_json
from tocsin.core.supervision.machine import Child, Failure, Row
from tocsin.errors import StoreUnavailable
from tocsin.runtime.network.supervisor import Plan, Supervisor, child_environment, log_path

DEADLINE_S = 60.0
OURS = """
import sys
from tocsin.runtime.process import inherited_settings, run
settings = inherited_settings()
async def main(process):
    print("hello from", process.name, flush=True)
    process.report("ready", clients=3)
    await process.stopped()
    with open(sys.argv[2], "a") as file:
        file.write(process.name + "\\n")
sys.exit(run(sys.argv[1], settings, main))
"""


class Network:
    """A supervisor and what it said."""

    def __init__(self, directory: Path, *plans: Plan) -> None:
        self.directory = directory
        self.ready = asyncio.Event()
        self.supervisor = Supervisor(plans, logs=directory, on_ready=self.ready.set, on_change=self._changed)
        self.task: asyncio.Task[Failure | None] | None = None
        self._waiting: list[tuple[Callable[[], bool], asyncio.Event]] = []

    def _changed(self) -> None:
        for condition, event in self._waiting:
            if condition():
                event.set()

    async def __aenter__(self) -> Network:
        self.task = asyncio.create_task(self.supervisor.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        event = asyncio.Event()
        self._waiting.append((condition, event))
        if not condition():
            waiting = asyncio.create_task(event.wait())
            assert self.task is not None
            await asyncio.wait((waiting, self.task), timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            assert event.is_set(), self.task

    async def outcome(self) -> Failure | None:
        assert self.task is not None
        async with asyncio.timeout(DEADLINE_S):
            return await self.task

    def row(self, name: str) -> Row:
        return next(row for row in self.supervisor.rows() if row.name == name)


def ours(directory: Path, name: str, stage: int = 0, script: str = OURS) -> Plan:
    argv = (sys.executable, "-c", script, name, str(directory / "order"))
    return Plan(Child(name, stage), argv, to_json(Settings()))


def alive(pid: int | None) -> bool:
    return pid is not None and psutil.pid_exists(pid)


async def test_children_start_report_and_stop_in_order(tmp_path: Path) -> None:
    async with Network(tmp_path, ours(tmp_path, "low", 0), ours(tmp_path, "broker/high", 1)) as network:
        async with asyncio.timeout(DEADLINE_S):
            await network.ready.wait()
        assert network.row("low").facts == {"clients": 3}
        pids = [row.pid for row in network.supervisor.rows()]
        assert all(map(alive, pids))
        network.supervisor.stop()
        assert await network.outcome() is None
        assert not any(map(alive, pids))
    assert (tmp_path / "order").read_text().split() == ["broker/high", "low"]
    assert log_path(tmp_path, "broker/high") == tmp_path / "broker-high.log"
    assert "hello from broker/high" in (tmp_path / "broker-high.log").read_text()


async def test_a_killed_child_is_restarted(tmp_path: Path) -> None:
    async with Network(tmp_path, ours(tmp_path, "a")) as network:
        await network.until(lambda: network.row("a").health == "ready")
        first = network.row("a").pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await network.until(lambda: network.row("a").health == "backing off")
        assert network.row("a").problem == "ended by signal 9"
        await network.until(lambda: network.row("a").health == "ready")
        assert network.row("a").pid != first and network.row("a").restarts == 1


async def test_a_child_that_cannot_start_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    script = "import sys; print('tocsin: no such broker. Name another.', file=sys.stderr); sys.exit(2)"
    async with Network(tmp_path, ours(tmp_path, "a", 0), ours(tmp_path, "b", 1, script)) as network:
        assert await network.outcome() == Failure("b", 2, "no such broker. Name another.")
        assert [row.health for row in network.supervisor.rows()] == ["stopped", "stopped"]


async def test_a_program_that_is_not_there_is_given_up(tmp_path: Path) -> None:
    async with Network(tmp_path, Plan(Child("a", 0), (str(tmp_path / "none"),))) as network:
        failure = await network.outcome()
        assert failure is not None and failure.code == 127
        assert "cannot be started: No such file" in failure.words


async def test_a_child_that_does_not_report_is_asked_until_it_is_ready(tmp_path: Path) -> None:
    tries = 0

    async def ready() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StoreUnavailable("connect", "not yet")

    plan = Plan(Child("nats", 0, reports=False), ("/bin/sleep", "600"), ready=ready)
    async with Network(tmp_path, plan) as network:
        await network.until(lambda: "not yet" in network.row("nats").problem)
        await network.until(lambda: network.row("nats").health == "ready")
        assert tries == 3 and network.row("nats").problem == ""


async def test_a_child_that_ignores_the_request_is_killed_when_asked_again(tmp_path: Path) -> None:
    script = "trap '' TERM; echo trapped; sleep 600"
    log = tmp_path / "stubborn.log"

    async def ready() -> None:
        if not log.exists() or "trapped" not in log.read_text():
            raise StoreUnavailable("trap", "not yet")

    plan = Plan(Child("stubborn", 0, reports=False), ("/bin/sh", "-c", script), ready=ready)
    async with Network(tmp_path, plan) as network:
        await network.until(lambda: network.row("stubborn").health == "ready")
        pid = network.row("stubborn").pid
        network.supervisor.stop()
        assert alive(pid)
        network.supervisor.stop()
        assert await network.outcome() is None
        assert not alive(pid)


async def test_a_cancelled_supervisor_leaves_no_process(tmp_path: Path) -> None:
    async with Network(tmp_path, ours(tmp_path, "a")) as network:
        await network.until(lambda: network.row("a").health == "ready")
        pid = network.row("a").pid
    assert not alive(pid)


async def test_a_stop_while_a_child_is_being_made_reaches_it(tmp_path: Path) -> None:
    async with Network(tmp_path, ours(tmp_path, "a")) as network:
        await network.until(lambda: network.row("a").health == "starting")
        network.supervisor.stop()
        assert await network.outcome() is None


async def test_nonsense_on_the_status_line_is_ignored(tmp_path: Path) -> None:
    script = """
import os, sys
fd = int(os.environ["TOCSIN_STATUS_FD"])
os.read(fd, 1 << 20)
for line in (b"nonsense", b"[1]", b'{"state": "well"}', b"x" * 100_000, b'{"state": "ready", "problem": 7}'):
    sent = 0
    while sent < len(line): sent += os.write(fd, line[sent:])
    os.write(fd, b"\\n")
os.read(fd, 1)
"""
    async with Network(tmp_path, ours(tmp_path, "a", 0, script)) as network:
        await network.until(lambda: network.row("a").health == "ready")
        assert network.row("a").problem == "7"


def test_children_do_not_inherit_settings_or_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_NATS__TOKEN", "hush")
    monkeypatch.setenv("OTHER", "x")
    environment = child_environment(5)
    assert environment["TOCSIN_STATUS_FD"] == "5" and environment["OTHER"] == "x"
    assert not [name for name in environment if name.startswith("TOCSIN_") and name != "TOCSIN_STATUS_FD"]
    assert "TOCSIN_STATUS_FD" not in child_environment(None)

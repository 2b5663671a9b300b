"""A process of ours: settings from its parent, reports to it, and every way to stop. All with real processes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tocsin.config import Settings, to_json
from tocsin.errors import OperatorError
from tocsin.runtime.process import COLLECT_AFTER, STATUS_VARIABLE, inherited_settings

DEADLINE_S = 60.0

HEAD = """
import asyncio, gc, os, sys
from tocsin.config import Settings
from tocsin.errors import PortTaken, StoreUnavailable
from tocsin.runtime.process import inherited_settings, run
settings = inherited_settings() or Settings()
async def waits(process):
    process.report("ready", clients=3, state_directory=settings.state)
    await process.stopped()
async def hangs(process):
    process.report("ready")
    await asyncio.Event().wait()
async def spins(process):
    process.report("ready")
    await asyncio.sleep(0)
    while True: pass
async def refused(process): raise PortTaken("127.0.0.1", 1883, "broker a", "brokers[0].port")
async def unlucky(process): raise StoreUnavailable("connect", "no server")
async def broken(process): raise ZeroDivisionError("a bug")
async def returns(process): process.report("ready")
async def collects(process):
    process.report("ready", after=gc.get_threshold()[0], spared=gc.get_freeze_count())
"""


class Child:
    """A process with the given main, and its parent's end of the status line."""

    def __init__(self, main: str, *, settings: Settings | None = None, line: bool = True) -> None:
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(DEADLINE_S)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
        if line:
            environment[STATUS_VARIABLE] = str(theirs.fileno())
        self.process = subprocess.Popen(
            [sys.executable, "-c", HEAD + f"sys.exit(run('test', settings, {main}))"],
            env=environment,
            pass_fds=[theirs.fileno()] if line else [],
            stderr=subprocess.PIPE,
            text=True,
        )
        theirs.close()
        if line:
            self.ours.sendall(to_json(settings or Settings()) + b"\n")
        self.reports = self.ours.makefile("r", encoding="utf-8")

    def report(self, state: str) -> dict[str, Any]:
        """The next report of that state."""
        for line in self.reports:
            report: dict[str, Any] = json.loads(line)
            if report["state"] == state:
                return report
        raise AssertionError(f"the status line ended before {state}")

    def end(self) -> tuple[int, str]:
        """The exit code and the last line: of a structured one, the event."""
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        assert "Traceback (" not in errors.replace('"exception":"Traceback (', "")
        last = errors.splitlines()[-1]
        return self.process.returncode, json.loads(last)["event"] if last.startswith("{") else last

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        self.reports.close()
        self.ours.close()


Start = Callable[..., Child]


@pytest.fixture
def start() -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def start_it(main: str, **options: Any) -> Child:
            child = Child(main, **options)
            stack.callback(child.close)
            return child

        yield start_it


def test_settings_come_from_the_parent_and_reports_go_to_it(start: Start) -> None:
    child = start("waits", settings=Settings(state="/somewhere"))
    assert child.report("ready") == {
        "v": 1,
        "state": "ready",
        "clients": 3,
        "state_directory": "/somewhere",
    }


def test_the_last_report_is_repeated(start: Start) -> None:
    child = start("waits")
    assert child.report("ready") == child.report("ready") == child.report("ready")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_good_order(start: Start, number: signal.Signals) -> None:
    child = start("waits")
    child.report("ready")
    child.process.send_signal(number)
    child.report("stopping")
    assert child.end() == (0, "process stopped")


def test_the_end_of_the_status_line_stops_it(start: Start) -> None:
    child = start("waits")
    child.report("ready")
    child.ours.shutdown(socket.SHUT_RDWR)
    assert child.end()[0] == 0


def test_asked_twice_a_main_that_hangs_is_cancelled(start: Start) -> None:
    child = start("hangs")
    child.report("ready")
    child.process.send_signal(signal.SIGTERM)
    child.report("stopping")
    child.process.send_signal(signal.SIGTERM)
    _, errors = child.process.communicate(timeout=DEADLINE_S)
    assert child.process.returncode == 1 and "asked twice" in errors


def test_a_main_that_returns_ends_the_process(start: Start) -> None:
    assert start("returns").end() == (0, "process stopped")


def test_the_garbage_collector_spares_what_was_imported_and_looks_rarely(start: Start) -> None:
    report = start("collects").report("ready")
    assert report["after"] == COLLECT_AFTER
    assert report["spared"] > 10_000


def test_without_a_parent_it_runs_by_hand(start: Start) -> None:
    child = start("returns", line=False)
    assert child.end() == (0, "process stopped")


def test_an_operators_error_is_one_sentence_and_exit_code_2(start: Start) -> None:
    code, errors = start("refused").end()
    assert code == 2
    assert errors.startswith("tocsin: broker a cannot listen on 127.0.0.1:1883")


def test_another_error_of_ours_is_one_sentence_and_exit_code_1(start: Start) -> None:
    code, errors = start("unlucky").end()
    assert code == 1
    assert errors.startswith("tocsin: connect: the store is not available")


def test_a_bug_is_logged_with_its_trace_and_exit_code_1(start: Start) -> None:
    child = start("broken")
    _, errors = child.process.communicate(timeout=DEADLINE_S)
    line = json.loads(errors.splitlines()[-1])
    assert child.process.returncode == 1
    assert line["event"] == "process failed" and line["exception"].endswith("ZeroDivisionError: a bug")


PARENT = """
import socket, subprocess, sys, os
from tocsin.config import Settings, to_json
ours, theirs = socket.socketpair()
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], pass_fds=[theirs.fileno()],
    env={**os.environ, "TOCSIN_STATUS_FD": str(theirs.fileno())}, stdout=subprocess.DEVNULL)
theirs.close()
ours.sendall(to_json(Settings()) + b"\\n")
for line in ours.makefile():
    if '"ready"' in line: break
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("main", ["waits", "hangs", "spins"])
def test_it_ends_when_its_parent_is_killed_even_if_it_hangs(main: str) -> None:
    body = (
        HEAD
        + f"import tocsin.runtime.process as p; p.ORPHAN_GRACE_S = 1; sys.exit(run('test', settings, {main}))"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, body], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None and parent.stdin is not None
    pid = int(parent.stdout.readline())
    # Readable when the process is gone, whoever its parent is by then.
    watched = os.pidfd_open(pid)
    with open(watched, "rb", buffering=0):
        parent.kill()
        parent.communicate()
        assert _gone(watched)


def _gone(watched: int) -> bool:
    return bool(select.select([watched], [], [], DEADLINE_S)[0])


@pytest.mark.parametrize("value", ["x", "-1", "987654"])
def test_a_status_line_that_leads_nowhere_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATUS_VARIABLE, value)
    with pytest.raises(OperatorError) as caught:
        inherited_settings()
    assert "Unset" in caught.value.remedy


def test_a_status_line_without_settings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        monkeypatch.setenv(STATUS_VARIABLE, str(theirs.fileno()))
        ours.sendall(b'{"nats": 3}\n')
        with pytest.raises(OperatorError):
            inherited_settings()


def test_a_process_started_by_hand_inherits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STATUS_VARIABLE, raising=False)
    assert inherited_settings() is None

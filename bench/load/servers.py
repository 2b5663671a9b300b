"""The brokers that are measured, each started on loopback, on a core of its own, and stopped in the end.

``Server.cpu_s`` is the time of the broker process alone; ``family_cpu_s`` is that of everything it needs, which for
Tocsin includes the store and the coordinator. Cores: the generator has one, all brokers share the other; one works
at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

from bench.load.crowd import Address
from bench.load.dialect import Dialect, LoadError, Mqtt, Nats
from tocsin.store.servers.embedded import find_program, free_ports

HOST: Final = "127.0.0.1"
START_S: Final = 60.0
STOP_S: Final = 20.0
INSTALL_S: Final = 240.0
CONNECTIONS_MAX: Final = 18_000  # more than any load makes, less than the usual limit of open files


class Server:
    """A running broker."""

    def __init__(self, name: str, dialect: Dialect, address: Address, process: psutil.Process) -> None:
        self.name = name
        self.dialect = dialect
        self.address = address
        self.process = process  # that which talks to clients
        self.family: tuple[psutil.Process, ...] = (process,)

    def cpu_s(self) -> float:
        return _cpu_s(self.process.pid)

    def family_cpu_s(self) -> float:
        return sum(_cpu_s(each.pid) for each in self.family)

    def memory_bytes(self) -> int:
        return self.process.memory_info().rss

    def open_files(self) -> int:
        return self.process.num_fds()


def _cpu_s(pid: int) -> float:
    """User and system time of all threads, to the nanosecond: Linux's CPU clock of another process."""
    return time.clock_gettime(~pid << 3 | 2)


def cores() -> tuple[int, int]:
    """The core of the generator and that of the brokers."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


def mosquitto_program() -> str | None:
    """Where mosquitto is, installed if need be and allowed; None if there is none to be had."""
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    found = shutil.which("mosquitto", path=places)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "mosquitto"]):
            with contextlib.suppress(subprocess.SubprocessError):
                subprocess.run(
                    ["apt-get", "-qq", *arguments],
                    env=environment,
                    timeout=INSTALL_S,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=False,
                )
        found = shutil.which("mosquitto", path=places)
    return found


@contextlib.contextmanager
def _started(
    argv: Sequence[str], directory: Path, *, piped: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A process on the brokers' core; its children are there as well."""
    mine = os.sched_getaffinity(0)
    environment = {name: each for name, each in os.environ.items() if not name.startswith("TOCSIN_")}
    with (directory / "output.log").open("wb") as output:
        os.sched_setaffinity(0, {cores()[1]})
        try:
            process = subprocess.Popen(
                argv,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else output,
                stderr=output,
            )
        finally:
            os.sched_setaffinity(0, mine)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _await_port(process: subprocess.Popen[bytes], address: Address, directory: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(address, 1):
            return
        time.sleep(0.02)
    said = (directory / "output.log").read_text("utf-8", "replace")[-400:]
    raise LoadError(f"{process.args!r} does not listen on {address}: {said}")


@contextlib.contextmanager
def mosquitto(program: str, directory: Path, *, durable: bool = False) -> Iterator[Server]:
    """Mosquitto as it comes; or one that keeps what it acknowledges, as far as it can."""
    directory.mkdir(parents=True)
    (port,) = free_ports(HOST, 1)
    # Started as root it becomes a user that cannot read our directory, unless it is told who to be.
    lines = [f"listener {port} {HOST}", "allow_anonymous true", f"user {pwd.getpwuid(os.geteuid()).pw_name}"]
    if durable:
        lines += [
            "persistence true",
            f"persistence_location {directory}/",
            "autosave_interval 1",
            "autosave_on_changes true",
            "max_queued_messages 0",
        ]
    (directory / "mosquitto.conf").write_text("\n".join(lines) + "\n")
    with _started([program, "-c", str(directory / "mosquitto.conf")], directory) as process:
        _await_port(process, (HOST, port), directory)
        yield Server("mosquitto", Mqtt(), (HOST, port), psutil.Process(process.pid))


@contextlib.contextmanager
def bare(directory: Path) -> Iterator[Server]:
    """A server on our event loop that only answers: what no broker on it can get below."""
    directory.mkdir(parents=True)
    (port,) = free_ports(HOST, 1)
    program = Path(__file__).with_name("bare.py")
    with _started([sys.executable, str(program), str(port)], directory) as process:
        _await_port(process, (HOST, port), directory)
        yield Server("bare", Mqtt(), (HOST, port), psutil.Process(process.pid))


@contextlib.contextmanager
def nats(directory: Path, *, durable: bool = False) -> Iterator[Server]:
    """A NATS server; with JetStream that syncs every write, if it is to be durable."""
    directory.mkdir(parents=True)
    (port,) = free_ports(HOST, 1)
    # Pings would be counted as deliveries: there are none while a load runs.
    lines = [f'host: "{HOST}"', f"port: {port}", 'ping_interval: "30m"', "max_connections: 64000"]
    if durable:
        lines.append(f'jetstream {{ store_dir: "{directory}/data", sync_interval: always }}')
    (directory / "nats.conf").write_text("\n".join(lines) + "\n")
    with _started([str(find_program()), "-c", str(directory / "nats.conf")], directory) as process:
        _await_port(process, (HOST, port), directory)
        yield Server("nats", Nats(), (HOST, port), psutil.Process(process.pid))


@contextlib.contextmanager
def tocsin(directory: Path, *, name: str = "tocsin", python: str = sys.executable) -> Iterator[Server]:
    """A network of one broker, with the coordinator and the store that it needs. ``python``: where it is installed."""
    directory.mkdir(parents=True)
    options = [
        "--auto-ports",
        "--state",
        str(directory / "state"),
        "--set",
        'brokers=[{"id": "bench", "cluster": "bench"}]',
        "--set",
        f"limits.connections_max={CONNECTIONS_MAX}",
        "--set",
        "pipeline.enabled=never",
    ]
    argv = [python, "-P", "-m", "tocsin", "up", *options]
    with _started(argv, directory, piped=True) as process:
        assert process.stdout is not None, "its output is piped"
        line = process.stdout.readline() if select.select([process.stdout], [], [], START_S)[0] else b""
        if not line:
            said = (directory / "output.log").read_text("utf-8", "replace")[-400:]
            raise LoadError(f"tocsin up does not get ready: {said}")
        (at,) = json.loads(line)["brokers"]
        family = psutil.Process(process.pid).children(recursive=True)
        brokers = [each for each in family if "broker" in each.cmdline()]
        if len(brokers) != 1:
            raise LoadError(f"there are {len(brokers)} broker processes, not one")
        server = Server(name, Mqtt(), (at["host"], at["port"]), brokers[0])
        server.family = tuple(family)
        yield server

"""The network that runs on a state directory: its parts, and the processes that they are at this moment.

The directory's lock says whose children they are; its ``network.json`` where brokers and store listen. Parts are
restarted, so that processes are looked for whenever they are needed. A process is taken for a part only if it is a
child of the network's parent, of this user, and its command line is the one with which that part is started. It is then
held by a descriptor (``pidfd``) and looked at once more: a signal can reach that process or nobody, even if its number
is used again.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psutil

from tocsin.chaos.targets import Part, PartKind
from tocsin.errors import OperatorError
from tocsin.model.network import broker_address
from tocsin.runtime.faults.partition_socket import socket_path
from tocsin.runtime.network.directory import BrokerAddress, NetworkFile, StateDirectory, read_network
from tocsin.runtime.network.plan import own_command

OWN: Final = own_command()[1:]  # how a process of ours is started, behind the interpreter
STORE_PROGRAM: Final = "nats-server"
STORE_CONFIG: Final = "nats.conf"


class Child:
    """One process of a part. ``close`` it."""

    def __init__(self, name: str, pid: int, descriptor: int) -> None:
        self.name = name
        self.pid = pid
        self._descriptor = descriptor

    def signal(self, number: signal.Signals) -> bool:
        """Whether it was still there."""
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Running:
    """A network that a ``tocsin up`` on this machine looks after."""

    def __init__(self, state: Path, parent: int, file: NetworkFile) -> None:
        self.state = state
        self.file = file
        self._parent = parent
        self._began = psutil.Process(parent).create_time()
        self.parts = self._find_parts()

    @classmethod
    def find(cls, state: Path) -> Running:
        """``OperatorError`` if no network runs there."""
        parent, file = StateDirectory.holder(state), read_network(state)
        if parent and file is not None and file.pid == parent:
            with contextlib.suppress(psutil.Error):
                return cls(state.resolve(), parent, file)
        raise OperatorError(
            f"no network runs on {state}",
            "Start one with `tocsin up`, or name its state directory with --state DIR; `tocsin up` shows it",
        )

    @property
    def alive(self) -> bool:
        """Whether the parent that was found first still runs."""
        try:
            return psutil.Process(self._parent).create_time() == self._began
        except psutil.Error:
            return False

    def _find_parts(self) -> tuple[Part, ...]:
        """Brokers as the network's file has them; everything else as it runs now."""
        stores = dict(enumerate(map(_address, self.file.nats), 1))
        found = [
            Part(broker_address(each.id), "broker", each.cluster, each.role, each.links_at, _entrance(each))
            for each in self.file.brokers
        ]
        for name, _ in self._children():
            kind = _kind(name)
            if kind == "store":
                found.append(Part(name, kind, address=stores.get(int(name.rpartition("-")[2]))))
            elif kind != "broker":
                found.append(Part(name, kind))
        order: dict[PartKind, int] = {"store": 0, "coordinator": 1, "broker": 2, "pipeline": 3, "feeder": 4}
        return tuple(sorted(found, key=lambda part: order[part.kind]))

    @property
    def store_addresses(self) -> tuple[tuple[str, int], ...]:
        return tuple(map(_address, self.file.nats))

    @property
    def partitions(self) -> bool:
        """Whether the processes let themselves be cut off."""
        brokers = [part.name for part in self.parts if part.kind == "broker"]
        return any(socket_path(self.state, name).exists() for name in brokers)

    def check_partitions(self, asked: str) -> None:
        """``OperatorError`` if they do not."""
        if not self.partitions:
            raise OperatorError(
                f"{asked}: the processes of this network do not let themselves be cut off",
                'Start it without chaos.enabled = "never", in a directory with a short path, or leave partitions out',
            )

    def children(self, names: Sequence[str]) -> list[Child]:
        """The processes of these parts, of those that have one now."""
        wanted, held = set(names), list[Child]()
        for name, process in self._children():
            if name in wanted and (child := self._hold(name, process)) is not None:
                held.append(child)
        return held

    def stopped(self) -> list[Child]:
        """The processes that do not run because somebody paused them."""
        held: list[Child] = []
        for name, process in self._children():
            with contextlib.suppress(psutil.Error):
                paused = process.status() == psutil.STATUS_STOPPED
                if paused and (child := self._hold(name, process)) is not None:
                    held.append(child)
        return held

    def _children(self) -> Iterator[tuple[str, psutil.Process]]:
        if not self.alive:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._parent).children():
                if name := self._name(process):
                    yield name, process

    def _name(self, process: psutil.Process) -> str:
        """The part that a process is by its command line; empty if none."""
        try:
            if process.uids().real != os.getuid():
                return ""
            return part_name(process.cmdline(), self.state)
        except psutil.Error:
            return ""

    def _hold(self, name: str, process: psutil.Process) -> Child | None:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            return None  # it has just ended
        child = Child(name, process.pid, descriptor)
        with contextlib.suppress(psutil.Error):
            # Behind the descriptor, what the number means does not change any more.
            same = psutil.Process(process.pid).create_time() == process.create_time()
            if same and process.ppid() == self._parent and self._name(process) == name:
                return child
        child.close()
        return None


def part_name(argv: Sequence[str], state: Path) -> str:
    """Which part of the network on ``state`` a command line starts; empty if none."""
    if len(argv) == 3 and Path(argv[0]).name == STORE_PROGRAM and argv[1] == "-c":
        config = Path(argv[2])
        ours = config.name == STORE_CONFIG and config.parent.parent == state / "nats"
        return config.parent.name if ours else ""
    ours = tuple(argv[1 : 1 + len(OWN)]) == OWN
    return _own_name(argv[1 + len(OWN) :]) if ours else ""


def _own_name(words: Sequence[str]) -> str:
    match list(words):
        case ["broker", str(broker_id)]:
            return broker_address(broker_id)
        case ["coordinator", "--id", str(name)]:
            return name
        case ["pipeline" | "feeder" as name]:
            return name
    return ""


def _kind(name: str) -> PartKind:
    if name == "pipeline":
        return "pipeline"
    if name == "feeder":
        return "feeder"
    if name.startswith("store-"):
        return "store"
    return "broker" if name.startswith("broker/") else "coordinator"


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 4222


def _entrance(broker: BrokerAddress) -> tuple[str, int, str] | None:
    """Where our clients come in: in plain if they can, else over TLS."""
    entrances = broker.entrances()
    scheme = next((each for each in ("mqtt", "ws", "mqtts", "wss") if each in entrances), None)
    return None if scheme is None else (*entrances[scheme], scheme)

"""The stage of a scenario with whole processes: a network's store and wires, its brokers, coordinators and clients.

A scenario puts up a ``Stage`` and adds who plays on it. A process is a node under its own name: a broker's node has the
broker's id, so that faults, promises and ``process.broker.broker_at`` speak of it as the settings do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from tocsin.broker import assembly
from tocsin.config import Settings
from tocsin.config.broker import Broker, Role
from tocsin.core.coordination.names import StoreNames
from tocsin.model.channel_names import ChannelNames
from tocsin.model.network import Address
from tocsin.model.subjects import messages_log
from tocsin.ports import LogSpec, TableSpec
from tocsin.sim.chance import MILLION
from tocsin.sim.network import Link
from tocsin.sim.process.broker import (
    LINK_PORT,
    PORT,
    MakeFiles,
    broker_process,
    coordinator_process,
    identity,
)
from tocsin.sim.process.client import MqttClient
from tocsin.sim.process.machine import Main, SimulatedProcess
from tocsin.sim.process.restless import Client
from tocsin.sim.process.wires import Wires
from tocsin.sim.world import World

NETWORK: Final = "t"
LOG: Final = messages_log(NETWORK, None, None)
SESSIONS: Final = TableSpec(f"{NETWORK}-sessions")
GROUPS: Final = TableSpec(f"{NETWORK}-groups")
RETAINED: Final = TableSpec(f"{NETWORK}-retained")
NAMES: Final = StoreNames(NETWORK)
CHANNELS: Final = ChannelNames(NETWORK)

RESTART_US: Final = MILLION  # until a supervisor starts a process again that has ended by itself
MOVED: Final = "--"  # in the name of a host: behind it, how often the node there has moved
READ: Final = "wanted"  # of the message log, whatever the settings say: more can go wrong than with "all"
_CONNECTION: Final = Link(fifo=True)
_EQUAL: Final[Mapping[str, float]] = {}


def configured(name: str, cluster: str = "here", role: Role = "edge") -> Broker:
    """A broker's part of the settings."""
    return Broker(id=name, cluster=cluster, role=role, host=name, port=PORT, link_port=LINK_PORT)


def server(broker: str) -> str:
    """Where the library's clients reach a broker."""
    return f"mqtt://{broker}:{PORT}"


def node_of(server: str) -> Address:
    """The node whose server that is, or was before the node moved."""
    return server.partition(":")[0].partition(MOVED)[0]


class Hosts:
    """Where nodes are: each at the host of its name, until it moves to another. Nobody answers at the host before."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._moves: dict[Address, int] = {}  # node → how often it has moved
        self._on_move: Callable[[Address], None] = lambda node: None

    def on_move(self, tell: Callable[[Address], None]) -> None:
        """Call this with each node that moves."""
        self._on_move = tell

    def host_of(self, node: Address) -> str:
        moves = self._moves.get(node, 0)
        return f"{node}{MOVED}{moves}" if moves else node

    def node_at(self, host: str, port: int) -> Address | None:
        node = host.partition(MOVED)[0]
        return node if self.host_of(node) == host else None

    def move(self, node: Address) -> None:
        """The machine of a node gets another address; connections by the old one bring nothing any more."""
        self._moves[node] = self._moves.get(node, 0) + 1
        self._world.tell(node, f"its machine has moved to {self.host_of(node)}")
        self._on_move(node)


class Stage:
    """A network's store and wires in a world. ``messages`` is the message log, for scenarios that change its spec;
    ``doors`` are the coordinators that have a door for clients."""

    def __init__(
        self, world: World, settings: Settings, *, messages: LogSpec = LOG, doors: tuple[str, ...] = ()
    ) -> None:
        assert settings.network == NETWORK, f"the store's names are those of network {NETWORK}"
        self.world = world
        door = msgspec.structs.replace(settings.door, port=-1, public=tuple(map(server, doors)))
        messages_read = msgspec.structs.replace(settings.messages, read=READ)
        self.settings = msgspec.structs.replace(settings, door=door, messages=messages_read)
        self._doors = doors
        world.network.link_of = lambda sender, receiver: _CONNECTION
        for log in (messages, NAMES.commands, NAMES.snapshots, CHANNELS.notices):
            world.log(log)
        tables = (SESSIONS, NAMES.table, CHANNELS.catalogue, CHANNELS.subscriptions, GROUPS, RETAINED)
        for table in (*tables, TableSpec(f"{NETWORK}-network")):
            world.table(table)
        self.hosts = Hosts(world)
        self.wires = Wires(world, network=settings.network, port_of=self.hosts.node_at)
        self.hosts.on_move(self.wires.strand)

    def add_coordinators(self, *names: str) -> None:
        for name in names:
            self._add(name, partial(coordinator_process, self.settings, name, door=name in self._doors))

    def add_brokers(
        self,
        began: Callable[[str, SimulatedProcess, assembly.Broker], None] = lambda node, process, broker: None,
        results: MakeFiles | None = None,
        fit: Mapping[str, float] = _EQUAL,
    ) -> None:
        """All brokers of the settings. ``began`` is told of each that begins, at which node and in which process;
        ``results`` makes the port of each process to result files; ``fit`` has machines that are not as fit as can
        be."""
        for each in self.settings.brokers:
            self.wires.prove(each.id, identity(self.settings, each.id))
            told = partial(began, each.id)
            fitness, host = fit.get(each.id, 1.0), partial(self.hosts.host_of, each.id)
            self._add(each.id, partial(broker_process, self.settings, each.id, told, results, fitness, host))

    def add_program(self, name: Address, main: Main) -> None:
        """A process that uses the library, and is not started again."""
        self.world.add(name, lambda _disk: SimulatedProcess(name, main))

    def add_client(self, address: Address, make: Callable[[], Client]) -> None:
        """A client that keeps its memory through all faults, and speaks MQTT."""
        self.world.add(address, lambda _disk: MqttClient(make()))

    def _add(self, name: str, make: Callable[[], Any]) -> None:
        self.world.add(name, lambda _disk: make(), restart_after_us=RESTART_US)

"""Brokers and coordinators as they ship, in simulated processes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from tocsin.broker.assembly import Broker, run_broker
from tocsin.broker.channels.result_reader import ResultFiles
from tocsin.broker.identity import info_of
from tocsin.broker.links.link import LinkSecurity
from tocsin.config import Broker as Configured
from tocsin.config import Settings
from tocsin.coordinator.door.keeper import DoorPorts
from tocsin.coordinator.main import run_coordinator
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.participant.readdressing import Addresses, At
from tocsin.model.network import Address, broker_address, coordinator_address
from tocsin.runtime.machines.driver import bus_subject
from tocsin.runtime.process import State
from tocsin.runtime.security.credentials import Identity
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.world import World

PORT: Final = 1_883  # for clients, of every broker
LINK_PORT: Final = 1_884


class _Host:
    """The process of a broker or coordinator, as it sees it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.is_heard = False

    def report(self, state: State, **facts: object) -> None:
        """Nobody listens."""

    async def stopped(self) -> None:
        await asyncio.get_running_loop().create_future()


CAPACITY: Final = 100.0  # messages a second that a simulated member of a tier can carry


class _Fitness:
    """A machine that is as fit as the world says."""

    def __init__(self, fit: float) -> None:
        self._fit = fit

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()

    def score(self, *, standby: bool = False) -> tuple[float | None, tuple[str, ...]]:
        return self._fit, ()

    def terms(self, *, standby: bool = False) -> dict[str, tuple[float, float]]:
        return {"processor": (self._fit, 1.0)}

    def busy(self, carried: float) -> float:
        return min(1.0, carried / CAPACITY)


class _Believed:
    """In the place of certificates: who dials and who listens is told by the world (``wires``)."""

    client = cast(ssl.SSLContext, object())

    def __init__(self) -> None:
        self.believed: frozenset[bytes] = frozenset()
        self.problem: str | None = None
        self.server = self.client

    async def replaced(self) -> None:
        await asyncio.get_running_loop().create_future()


def identity(settings: Settings, broker: str) -> str:
    """The identity in a broker's certificate."""
    return Identity(settings.network, "broker", broker).uri


def broker_at(world: World, node: Address) -> Broker | None:
    """The broker that runs at a node, for looking; None while there is none."""
    process: object = world.machine(node)
    runs = process.runs if isinstance(process, SimulatedProcess) else None
    return runs if isinstance(runs, Broker) else None


def coordinator_at(world: World, node: Address) -> Coordinator | None:
    """The same of a coordinator."""
    process: object = world.machine(node)
    runs = process.runs if isinstance(process, SimulatedProcess) else None
    return runs if isinstance(runs, Coordinator) else None


def coordinator_process(settings: Settings, name: str, *, door: bool = False) -> SimulatedProcess:
    """One coordinator of a network, with a door for clients or without."""
    address: Address = coordinator_address(name)

    async def main(process: SimulatedProcess) -> None:
        def began(machine: Coordinator) -> None:
            process.runs = machine

        def listen() -> Any:
            return {"port": process.sockets.listen(PORT)}

        ports = DoorPorts(listen, _Believed()) if door else None
        await run_coordinator(_Host(settings), name, process.store, (name, 1), began, ports)

    proof = Identity(settings.network, "coordinator", name).uri
    return SimulatedProcess(address, main, proof=proof, hears=bus_subject(settings.network, address))


Began = Callable[[SimulatedProcess, Broker], None]
MakeFiles = Callable[[SimulatedProcess], ResultFiles]  # the port of a broker's process to result files


class _Site:
    """The site of a broker whose machine is at the host that the world says."""

    is_fixed = False

    def __init__(self, process: SimulatedProcess, configured: Configured, host: Callable[[], str]) -> None:
        self._sockets = process.sockets
        self._configured = configured
        self._host = host
        self.addresses = self._now()

    def _now(self) -> Addresses:
        host = self._host()
        listening = {"port": (host, PORT), "link_port": (host, LINK_PORT)}
        return Addresses(listening, info_of(msgspec.structs.replace(self._configured, host=host)))

    async def look(self) -> Addresses:
        return self._now()

    def begin(self) -> Any:
        return self.listen(self.addresses.listening)

    def listen(self, at: Mapping[str, At]) -> Any:
        return {name: self._sockets.listen(port) for name, (_, port) in at.items()}


def broker_process(
    settings: Settings,
    broker: str,
    began: Began = lambda process, broker: None,
    results: MakeFiles | None = None,
    fit: float = 1.0,
    host: Callable[[], str] | None = None,
) -> SimulatedProcess:
    """One broker of a network, by its name in the settings. ``began`` is told of it, and of each that a standby is;
    ``fit`` is the score of its machine, ``host`` says where that is now, if not where the settings say."""
    configured = settings.broker(broker)
    assert configured is not None, f"no broker {broker} in the settings"
    security = LinkSecurity(settings.network, _Believed())
    address: Address = broker_address(broker)

    async def main(process: SimulatedProcess) -> None:
        def runs(broker: Broker) -> None:
            process.runs = broker
            began(process, broker)

        files = None if results is None else results(process)
        site = _Site(process, configured, host or (lambda: configured.host))
        await run_broker(_Host(settings), site, process.store, security, files, _Fitness(fit), runs)

    return SimulatedProcess(
        address, main, proof=identity(settings, broker), hears=bus_subject(settings.network, address)
    )

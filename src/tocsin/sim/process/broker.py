"""Brokers and coordinators as they ship, in simulated processes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from tocsin.broker.assembly import Broker, run_broker
from tocsin.broker.channels.result_reader import ResultFiles
from tocsin.broker.identity import info_of
from tocsin.broker.links.link import LinkSecurity
from tocsin.config import Settings
from tocsin.coordinator.door.keeper import DoorPorts
from tocsin.coordinator.main import run_coordinator
from tocsin.core.coordination.coordinator import Coordinator
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


def broker_process(
    settings: Settings,
    broker: str,
    began: Began = lambda process, broker: None,
    results: MakeFiles | None = None,
    fit: float = 1.0,
) -> SimulatedProcess:
    """One broker of a network, by its name in the settings. ``began`` is told of it, and of each that a standby is;
    ``fit`` is the score of its machine."""
    configured = settings.broker(broker)
    assert configured is not None, f"no broker {broker} in the settings"
    own = info_of(configured)
    security = LinkSecurity(settings.network, _Believed())
    address: Address = broker_address(broker)

    async def main(process: SimulatedProcess) -> None:
        def listen() -> Any:
            listening = process.sockets.listen
            return {"port": listening(PORT), "link_port": listening(LINK_PORT)}

        def runs(broker: Broker) -> None:
            process.runs = broker
            began(process, broker)

        files = None if results is None else results(process)
        await run_broker(_Host(settings), own, process.store, security, listen, files, _Fitness(fit), runs)

    return SimulatedProcess(
        address, main, proof=identity(settings, broker), hears=bus_subject(settings.network, address)
    )

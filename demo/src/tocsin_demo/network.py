"""A network for an experiment: on free ports, in a temporary directory, looked after as ``tocsin up`` does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

from tocsin.config import Broker, Log, Nats, Pipeline, Settings
from tocsin.core.supervision.machine import Failure, Row
from tocsin.errors import OperatorError
from tocsin.runtime.network import plan as network
from tocsin.runtime.network.ephemeral import ephemeral_directory
from tocsin.runtime.network.supervisor import Supervisor

READY_S: Final = 90.0


class Running:
    """A network, from when its processes are started; ``running`` returns it when it is ready."""

    def __init__(self, settings: Settings, supervisor: Supervisor, directory: Path) -> None:
        self.settings = settings  # with the ports and the secret that were chosen
        self.directory = directory  # where it keeps its state, and its logs
        self._supervisor = supervisor

    def rows(self) -> tuple[Row, ...]:
        """Its processes as they are now."""
        return self._supervisor.rows()

    @property
    def servers(self) -> dict[str, tuple[str, int]]:
        """Where each broker listens."""
        return {broker.id: (broker.host, broker.port) for broker in self.settings.brokers}

    def leader(self) -> int | None:
        """The process id of the coordinator that leads, as it last said itself; None if none does."""
        for row in self._supervisor.rows():
            if row.facts.get("leads") and row.health == "ready":
                return row.pid
        return None


def network_of(
    *, coordinators: Literal[1, 3, 5] = 1, servers: Literal[1, 3] = 1, brokers: tuple[Broker, ...] = ()
) -> Settings:
    """Settings of a network of so many, that are otherwise the defaults. It need not have brokers."""
    return Settings(
        network="lab",
        coordinators=coordinators,
        nats=Nats(servers=servers),
        brokers=brokers,
        pipeline=Pipeline(enabled="never"),
        log=Log(level="error"),
    )


@asynccontextmanager
async def running(
    settings: Settings, *, on_change: Callable[[Running], None] = lambda network: None
) -> AsyncIterator[Running]:
    """A network while the context lasts; it leaves nothing behind, however the context ends.

    ``on_change`` is told whenever something happens to one of its processes, at once. `tocsin sql` and `tocsin chaos`
    find the network by its directory (``--state``).
    """
    with ephemeral_directory() as directory:
        settings = network.prepare(settings, directory, auto_ports=True)
        directory.write_network(network.addresses(settings))
        ready = asyncio.Event()
        supervisor = Supervisor(
            network.plans(settings, directory),
            logs=directory.logs,
            inherit=(directory.lock,),
            on_ready=ready.set,
            on_change=lambda: on_change(found),
        )
        found = Running(settings, supervisor, directory.path)
        looking_after = asyncio.create_task(supervisor.run())
        try:
            await wait_until_ready(ready, looking_after)
            yield found
        finally:
            if not looking_after.done():
                supervisor.stop("lab:done")
            await asyncio.shield(looking_after)


async def wait_until_ready(
    ready: asyncio.Event, looking_after: asyncio.Task[Failure | None], deadline_s: float = READY_S
) -> None:
    """Until a supervisor has said that all are ready; ``OperatorError`` if it gives up, or takes too long."""
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait((waiting, looking_after), timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if ready.is_set():
        return
    failure = looking_after.result() if looking_after.done() else None
    why = f"{failure.child}: {failure.words}" if failure else f"not ready within {deadline_s:g} s"
    raise OperatorError(f"the experiment's network did not start ({why})", "Run `tocsin doctor`")

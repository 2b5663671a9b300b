"""A network whose brokers can be killed: a killed broker stays away until it is started again.

``tocsin up`` restarts what ends, within a second or two, which is before a loss is noticed. Here the store and the
coordinators are looked after together, and each broker by itself; after a kill nobody looks after it any more.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
import psutil

from tocsin.config import Broker, Settings
from tocsin.core.supervision.machine import Failure
from tocsin.errors import OperatorError
from tocsin.model.network import broker_address
from tocsin.runtime.network import plan as network
from tocsin.runtime.network.directory import StateDirectory
from tocsin.runtime.network.ephemeral import ephemeral_directory
from tocsin.runtime.network.plan import BROKER_STAGE
from tocsin.runtime.network.supervisor import Plan, Supervisor, log_path
from tocsin.store.jetstream.store import JetStreamStore
from tocsin_demo.network import wait_until_ready
from tocsin_labs.chronicle import Chronicle

STORE: Final = "store-1"  # the process of the store's only server
AT_ONCE: Final = 8  # brokers that are started at a time: each computes for more than a second
READY_S: Final = 120.0
BROKER_BYTES: Final = 150 << 20  # that a broker's process takes, generously
CALM_SHARE: Final = 0.6  # of all processors: below it the network counts as at rest
CALM_LOOK_S: Final = 1.0

Argv = tuple[str, ...]
NOWHERE: Final[Mapping[str, Callable[[Argv], Argv]]] = MappingProxyType({})


class Kept:
    """Some processes that are looked after together."""

    def __init__(self, plans: Sequence[Plan], directory: StateDirectory) -> None:
        self._ready = asyncio.Event()
        self.supervisor = Supervisor(
            tuple(plans), logs=directory.logs, inherit=(directory.lock,), on_ready=self._ready.set
        )
        self._task: asyncio.Task[Failure | None] = asyncio.create_task(self.supervisor.run())

    async def ready(self) -> None:
        await wait_until_ready(self._ready, self._task, READY_S)

    def pids(self) -> dict[str, int]:
        return {row.name: row.pid for row in self.supervisor.rows() if row.pid is not None}

    def stop(self) -> None:
        if not self._task.done():
            self.supervisor.stop("lab:done")

    async def close(self) -> None:
        self.stop()
        await asyncio.shield(self._task)


class Fleet:
    """A network that runs; ``start`` its brokers."""

    def __init__(
        self,
        settings: Settings,
        directory: StateDirectory,
        base: Kept,
        store: JetStreamStore,
        housed: Mapping[str, Callable[[Argv], Argv]] = NOWHERE,
    ) -> None:
        self.settings = settings  # with the ports and the secret that were chosen
        self.store = store  # a connection of the experiment's own
        self.chronicle = Chronicle(store, settings.network)
        self._directory = directory
        self._base = base
        self._plans = {plan.child.name: plan for plan in network.plans(settings, directory)}
        for name, house in housed.items():
            plan = self._plans[broker_address(name)]
            self._plans[broker_address(name)] = msgspec.structs.replace(plan, argv=house(plan.argv))
        self._brokers: dict[str, Kept] = {}
        self._killed: list[Kept] = []

    @property
    def brokers(self) -> dict[str, Broker]:
        """All that the settings name, whether or not they run."""
        return {broker.id: broker for broker in self.settings.brokers}

    def address(self, name: str) -> tuple[str, int]:
        broker = self.brokers[name]
        return broker.host, broker.port

    @property
    def state(self) -> Path:
        """The directory in which its processes have their sockets for faults."""
        return self._directory.path

    def link_port(self, name: str) -> int:
        """By which port the others know a broker."""
        return self.brokers[name].link_port

    def pids(self) -> dict[str, int]:
        """The processes that run: ``store-1``, ``coordinator-1``, ``broker/NAME``."""
        found = self._base.pids()
        for kept in self._brokers.values():
            found |= kept.pids()
        return found

    async def start(self, names: Iterable[str]) -> None:
        """Start brokers, some at a time, and wait until they are ready."""
        names = list(names)
        for at in range(0, len(names), AT_ONCE):
            some = names[at : at + AT_ONCE]
            for name in some:
                assert name not in self._brokers, "runs already"
                self._brokers[name] = Kept((self._plans[broker_address(name)],), self._directory)
            await asyncio.gather(*(self._brokers[name].ready() for name in some))

    async def stop(self, name: str) -> None:
        """Stop a broker in order (SIGTERM), and leave it away."""
        kept = self._brokers.pop(name)
        self._killed.append(kept)
        await kept.close()

    def kill(self, names: Sequence[str]) -> float:
        """Kill brokers (SIGKILL), all at once, and leave them dead; when that was (monotonic, seconds)."""
        pids = [self.pids()[broker_address(name)] for name in names]
        killed_s = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for name in names:
            kept = self._brokers.pop(name)
            kept.stop()
            self._killed.append(kept)
        return killed_s

    def freeze(self, name: str) -> float:
        """Stop a broker without ending it (SIGSTOP), as if it were cut off; when that was."""
        os.kill(self.pids()[broker_address(name)], signal.SIGSTOP)
        return time.monotonic()

    def thaw(self, name: str) -> None:
        os.kill(self.pids()[broker_address(name)], signal.SIGCONT)

    async def calm(self, deadline_s: float) -> float:
        """Wait until the processes rest, within reason; the share of one processor that they take, all together."""
        end = time.monotonic() + deadline_s
        while True:
            share = await self.busy(CALM_LOOK_S)
            if share < CALM_SHARE or time.monotonic() > end:
                return share

    async def busy(self, seconds: float) -> float:
        """The share of one processor that the network's processes take, over so many seconds."""
        before, began = self._worked(), time.monotonic()
        await asyncio.sleep(seconds)
        after, took = self._worked(), time.monotonic() - began
        return sum(after[pid] - before[pid] for pid in after if pid in before) / took

    def _worked(self) -> dict[int, float]:
        found: dict[int, float] = {}
        for pid in self.pids().values():
            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.Error:
                continue
            found[pid] = times.user + times.system
        return found

    def words(self, name: str) -> list[bytes]:
        """The lines that a broker has written to its log."""
        path = log_path(self._directory.logs, broker_address(name))
        return path.read_bytes().splitlines() if path.exists() else []

    @asynccontextmanager
    async def traced(self) -> AsyncIterator[Path]:
        """While the context lasts, the store's server writes down each message; in that file, which goes with it."""
        config, trace = (self._directory.nats / STORE / name for name in ("nats.conf", "trace.log"))
        plain = config.read_text()
        config.write_text(f"{plain}trace: true\nlog_file: {json.dumps(str(trace))}\n")
        self._reload()
        try:
            yield trace
        finally:
            config.write_text(plain)
            self._reload()
            trace.unlink(missing_ok=True)

    def _reload(self) -> None:
        os.kill(self._base.pids()[STORE], signal.SIGHUP)

    async def close(self) -> None:
        for kept in self._brokers.values():
            kept.stop()
        await asyncio.gather(*(kept.close() for kept in (*self._brokers.values(), *self._killed)))


def check_room(brokers: int) -> None:
    """``OperatorError`` if so many do not fit into this machine's memory."""
    free, needed = psutil.virtual_memory().available, brokers * BROKER_BYTES
    if needed > free:
        problem = f"{brokers} brokers need about {needed >> 20} MiB of memory, and {free >> 20} MiB are free"
        raise OperatorError(problem, "Stop other programs, or use --quick")


@asynccontextmanager
async def fleet(
    settings: Settings, housed: Mapping[str, Callable[[Argv], Argv]] = NOWHERE
) -> AsyncIterator[Fleet]:
    """The store and the coordinators of a network while the context lasts, and whatever brokers are started.

    ``housed``: how the commands of some brokers are to be changed.
    """
    check_room(len(settings.brokers))
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(ephemeral_directory())
        settings = network.prepare(settings, directory, auto_ports=True)
        plans = network.plans(settings, directory)
        base = Kept([plan for plan in plans if plan.child.stage < BROKER_STAGE], directory)
        stack.push_async_callback(base.close)
        await base.ready()
        store = await JetStreamStore.open(settings.nats, "operator", name="lab")
        stack.push_async_callback(store.close)
        made = Fleet(settings, directory, base, store, housed)
        stack.push_async_callback(made.close)
        await stack.enter_async_context(made.chronicle.followed())
        yield made

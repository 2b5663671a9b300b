"""Detection with real processes: brokers and a coordinator as they ship, on a real server.

Five brokers; one after the other is killed (SIGKILL) and started again. Meanwhile processors are busy, processes are
frozen (SIGSTOP), or all links of a broker are reset (``ss --kill``, which takes root). The bus is TCP: it loses
nothing, and loss is measured in the simulator. Detection ends when the command log says that the broker is lost, as
this process hears it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import psutil
import uvloop

from bench.detection.figures import Figures
from bench.detection.peer import Contender
from tocsin.config import Broker, Nats, Settings, to_json
from tocsin.config import Log as Logging
from tocsin.core.coordination.names import StoreNames
from tocsin.runtime.security.authority import Authority
from tocsin.runtime.security.credentials import certificates_directory
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.embedded import free_ports
from tocsin.store.servers.testing import LocalServers
from tocsin.wire.internal.commands import Joined, Lost, Said, decode_batch
from tocsin.wire.internal.control import Beat, Pulse, decode_envelope

PLACES: Final = StoreNames("bench")
BROKERS: Final = 5
BUSY: Final = 4  # processes that do nothing but compute
SETTLE_S: Final = 3.0  # from the last broker's joining to the next kill: detectors learn
TRAFFIC_S, QUICK_TRAFFIC_S = 20.0, 5.0
DEADLINE_S: Final = 60.0
ROOT: Final = Path(__file__).parent.parent.parent
COMMON: Final = """
import sys
from bench.detection.peer import FixedCoordinator
from tocsin.config import from_json
from tocsin.coordinator import main as coordinator
from tocsin.broker import main as broker
from tocsin.runtime.process import run
name, fixed, settings = sys.argv[1:]
if fixed == "fixed":
    coordinator.Coordinator = FixedCoordinator
serve = coordinator.serve if name == "coordinator" else broker.serve
sys.exit(run(name, from_json(settings.encode()), lambda process: serve(process, name)))
"""


class Traffic(msgspec.Struct, kw_only=True):
    """The cost of beats and pulses, for each broker and second."""

    contender: str
    beats_s: float
    beat_bytes: float  # of one
    pulses_s: float
    pulse_bytes: float
    payload_bytes_s: float  # of both, as they are on the bus
    counted_bytes_s: float  # the same, as the server counts what it hands to a listener
    connection_bytes_s: (
        float  # all that a broker's connection carries both ways, the store's traffic included
    )

    def words(self) -> str:
        return (
            f"{self.beats_s:.1f} beats of {self.beat_bytes:.0f} B and {self.pulses_s:.1f} pulses of "
            f"{self.pulse_bytes:.0f} B: {self.payload_bytes_s:.0f} B/s a broker (the server counts "
            f"{self.counted_bytes_s:.0f}); all of a broker's connection {self.connection_bytes_s:.0f} B/s"
        )


class Stage:
    """The processes of one contender."""

    def __init__(self, contender: Contender, directory: Path) -> None:
        self.contender = contender
        self.names = [f"broker-{number}" for number in range(1, BROKERS + 1)]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.members: set[str] = set()
        self.killed: set[str] = set()  # and not started again yet
        self.false = 0
        self._lost: dict[str, asyncio.Future[float]] = {}
        self._joined = asyncio.Event()
        self._directory = directory
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        servers = LocalServers(self._directory)
        (self.monitor,) = free_ports("127.0.0.1", 1)
        with servers.plans[0].config.open("a") as config:
            config.write(f'http: "127.0.0.1:{self.monitor}"\n')
        self.store_ports = {int(url.rpartition(":")[2]) for url in servers.urls}
        self._stack.enter_context(servers)
        self._stack.callback(self._end)
        self.store = await JetStreamStore.connect(
            servers.urls, token=servers.token, name="bench", deadline_s=30
        )
        self._stack.push_async_callback(self.store.close)
        self.ear = await JetStreamStore.connect(
            servers.urls, token=servers.token, name="bench-ear", deadline_s=30
        )
        self._stack.push_async_callback(self.ear.close)
        self._settings = Settings(
            network=PLACES.network,
            state=str(self._directory / "state"),
            nats=Nats(urls=servers.urls, token=servers.token),
            brokers=tuple(Broker(id=name, cluster="lan", role="edge") for name in self.names),
            membership=self.contender.membership,
            log=Logging(level="error"),
        )
        authority = Authority.open_or_make(
            certificates_directory(self._settings.state), self._settings.network
        )
        for each in self._settings.brokers:
            authority.ensure(each.id, role="broker")
        follower = asyncio.create_task(self._follow())
        self._stack.callback(follower.cancel)
        for name in ("coordinator", *self.names):
            self.start(name)
        await self.settled()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def start(self, name: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        fixed = "fixed" if self.contender.fixed else "adaptive"
        command = (sys.executable, "-c", COMMON, name, fixed, to_json(self._settings))
        self.processes[name] = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        self.killed.discard(name)

    def _end(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    async def _follow(self) -> None:
        log = await self.store.log(PLACES.commands)
        async for entry in log.follow(PLACES.commands_subject, 1):
            for command in decode_batch(entry.payload).commands:
                if isinstance(command, Said) and isinstance(command.commands[0], Joined):
                    self.members.add(command.broker)
                    self._joined.set()
                elif isinstance(command, Lost):
                    self._note_loss(command.broker)

    def _note_loss(self, broker: str) -> None:
        self.members.discard(broker)
        waiting = self._lost.pop(broker, None)
        if waiting is not None:
            waiting.set_result(time.monotonic())
        elif broker not in self.killed:
            self.false += 1

    async def settled(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.members) < len(self.names):
                self._joined.clear()
                await self._joined.wait()
        await asyncio.sleep(SETTLE_S)

    async def kill(self, name: str) -> float | None:
        """Seconds from its end until it is missed; None if it never was."""
        lost: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._lost[name] = lost
        self.killed.add(name)
        killed_s = time.monotonic()
        self.processes[name].kill()
        self.processes[name].send_signal(signal.SIGCONT)
        try:
            async with asyncio.timeout(DEADLINE_S / 2):
                return await lost - killed_s
        except TimeoutError:
            return None
        finally:
            self._lost.pop(name, None)
            self.processes[name].wait()

    async def connections(self) -> dict[str, dict[str, Any]]:
        """The server's figures of each connection, by its name."""
        url = f"http://127.0.0.1:{self.monitor}/connz?limit=100"
        data = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read())
        return {each.get("name", ""): each for each in json.loads(data)["connections"]}

    async def traffic(self, seconds: float) -> Traffic:
        """Measure the cost of beats and pulses while nothing happens."""
        beats, pulses = [0, 0], [0, 0]  # how many, bytes
        async with self.ear.bus.subscribe(f"{PLACES.network}.to.>") as heard:
            before, began_s = await self.connections(), time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    async for delivery in heard:
                        message = decode_envelope(delivery.payload).message
                        if not isinstance(message, Beat | Pulse):
                            continue  # how links are, now and then
                        kind = beats if isinstance(message, Beat) else pulses
                        kind[0] += 1
                        kind[1] += len(delivery.payload)
            after, span_s = await self.connections(), time.monotonic() - began_s
        share = len(self.names) * span_s
        carried = sum(
            after[name][way] - before[name][way]
            for name in (f"broker {each}" for each in self.names)
            for way in ("in_bytes", "out_bytes")
        )
        return Traffic(
            contender=self.contender.name,
            beats_s=beats[0] / share,
            beat_bytes=beats[1] / max(1, beats[0]),
            pulses_s=pulses[0] / share,
            pulse_bytes=pulses[1] / max(1, pulses[0]),
            payload_bytes_s=(beats[1] + pulses[1]) / share,
            counted_bytes_s=(after["bench-ear"]["out_bytes"] - before["bench-ear"]["out_bytes"]) / share,
            connection_bytes_s=carried / share,
        )


@asynccontextmanager
async def _calm(stage: Stage) -> AsyncIterator[None]:
    yield


def _compute() -> subprocess.Popen[bytes]:
    return subprocess.Popen((sys.executable, "-c", "while True: pass"))


@asynccontextmanager
async def _busy(stage: Stage) -> AsyncIterator[None]:
    working = [_compute() for _ in range(BUSY)]
    try:
        yield
    finally:
        for each in working:
            each.kill()
            each.wait()


@asynccontextmanager
async def _freezing(
    stage: Stage, names: Sequence[str], every_s: float, between_s: tuple[float, float]
) -> AsyncIterator[None]:
    """Freeze one of these after the other."""
    chance = random.Random(1)

    async def freeze() -> None:
        while True:
            await asyncio.sleep(every_s * chance.uniform(0.5, 1.5))
            name = chance.choice(names)
            process = stage.processes[name]
            if name in stage.killed or process.poll() is not None:
                continue
            process.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(chance.uniform(*between_s))
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)

    freezing = asyncio.create_task(freeze())
    try:
        yield
    finally:
        freezing.cancel()
        await asyncio.gather(freezing, return_exceptions=True)


def _reset_links(pid: int, store_ports: set[int]) -> None:
    """Reset all connections of a process but those to the store."""
    for each in psutil.Process(pid).net_connections("tcp"):
        if each.status == psutil.CONN_ESTABLISHED and each.raddr.port not in store_ports:
            here, there = (f"{end.ip}:{end.port}" for end in (each.laddr, each.raddr))
            subprocess.run(
                ("ss", "--kill", "-tnH", "src", here, "dst", there), check=True, capture_output=True
            )


@asynccontextmanager
async def _resetting(stage: Stage, every_s: float) -> AsyncIterator[None]:
    """Reset the links of one broker after the other."""
    chance = random.Random(1)

    async def reset() -> None:
        while True:
            await asyncio.sleep(every_s * chance.uniform(0.5, 1.5))
            name = chance.choice(stage.names)
            with contextlib.suppress(psutil.NoSuchProcess):
                if name not in stage.killed:
                    pid = stage.processes[name].pid
                    await asyncio.to_thread(_reset_links, pid, stage.store_ports)

    resetting = asyncio.create_task(reset())
    try:
        yield
    finally:
        resetting.cancel()
        ended = await asyncio.gather(resetting, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError), ended


Condition = Callable[[Stage], AbstractAsyncContextManager[None]]
CONDITIONS: Final[dict[str, Condition]] = {
    "calm": _calm,
    f"{BUSY} busy processes on the cores": _busy,
    "brokers freeze 0.2-1 s": lambda stage: _freezing(stage, stage.names, 1.0, (0.2, 1.0)),
    "links are reset": lambda stage: _resetting(stage, 1.0),
    "coordinator freezes 0.3-1.5 s": lambda stage: _freezing(stage, ["coordinator"], 3.0, (0.3, 1.5)),
}


async def _measure(
    contender: Contender, conditions: Sequence[str], kills: int, directory: Path
) -> tuple[dict[str, Figures], Traffic]:
    async with Stage(contender, directory) as stage:
        traffic = await stage.traffic(QUICK_TRAFFIC_S if kills == 1 else TRAFFIC_S)
        table: dict[str, Figures] = {}
        for condition in conditions:
            began_s, stage.false = time.monotonic(), 0
            figures = Figures(brokers=BROKERS, seconds=0.0)
            async with CONDITIONS[condition](stage):
                for turn in range(kills):
                    name = stage.names[turn % BROKERS]
                    await asyncio.sleep(random.Random(turn).uniform(0.0, 0.5))
                    took_s = await stage.kill(name)
                    if took_s is None:
                        figures.missed += 1
                    else:
                        figures.times_s.append(took_s)
                    stage.start(name)
                    await stage.settled()
            figures.seconds = time.monotonic() - began_s
            figures.false = stage.false
            table[condition] = figures
        return table, traffic


def measure(
    contender: Contender, conditions: Sequence[str], kills: int
) -> tuple[dict[str, Figures], Traffic]:
    """One contender under these conditions, and what its heartbeats cost."""
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_measure(contender, conditions, kills, Path(directory)))

"""The peer: NATS servers, a leaf node in each LAN and a cluster of servers in the cloud, with the same delays.

A leaf node dials one server of the cloud through ``proxy``, which delays. The cloud's servers are joined with each
other, so that a message crosses from one of them to another; that is not delayed.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Final

from tocsin.errors import OperatorError
from tocsin.store.servers.embedded import find_program
from tocsin_demo.worker import Worker
from tocsin_labs.pubsubcoord import proxy
from tocsin_labs.pubsubcoord.plan import Wan
from tocsin_labs.pubsubcoord.proxy import Job
from tocsin_labs.pubsubcoord.site import Site

HOST: Final = "127.0.0.1"
READY_S: Final = 20.0
LOOK_S: Final = 0.05


class Leaves(Site):
    """Servers that run."""

    def __init__(self, wan: Wan, ports: Mapping[str, int], pids: Mapping[str, int]) -> None:
        super().__init__(_names("leaf", wan.lans), _names("server", wan.hubs))
        self._ports, self._pids = ports, pids

    @property
    def entrances(self) -> list[tuple[str, int]]:
        return [(HOST, self._ports[name]) for name in self.edges]

    def processes(self) -> Mapping[str, int]:
        return self._pids

    async def delay(self) -> None:
        """The proxy's delays last."""


def _names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number}" for number in range(1, count + 1)]


@asynccontextmanager
async def leaves(wan: Wan) -> AsyncIterator[Leaves]:
    """The servers while the context lasts."""
    program = str(find_program(""))
    leaf_names, hub_names = _names("leaf", wan.lans), _names("server", wan.hubs)
    ports = _free_ports([*leaf_names, *hub_names])
    routes = _free_ports(hub_names)
    entrances = _free_ports(hub_names)  # for leaf nodes
    delayed = _free_ports(leaf_names)  # of the proxy
    joins = [
        ((HOST, delayed[leaf]), (HOST, entrances[hub_names[number % wan.hubs]]))
        for number, leaf in enumerate(leaf_names)
    ]
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tocsin-lab-")))
        between = await Worker.start(proxy.MODULE, "proxy", Job(tuple(joins), wan.wan_lag_s))
        stack.push_async_callback(between.close)
        await between.until("ready")
        pids = {}
        meshed = ", ".join(f'"nats://{HOST}:{routes[name]}"' for name in hub_names)
        for name in hub_names:
            lines = (
                f'listen: "{HOST}:{ports[name]}"\nserver_name: {name}\n'
                f'leafnodes {{ listen: "{HOST}:{entrances[name]}" }}\n'
                f'cluster {{ name: cloud, listen: "{HOST}:{routes[name]}", routes: [{meshed}] }}\n'
            )
            (directory / f"{name}.conf").write_text(lines)
            pids[name] = await _start(program, directory / f"{name}.conf", stack)
        for name in leaf_names:
            lines = (
                f'listen: "{HOST}:{ports[name]}"\nserver_name: {name}\n'
                f'leafnodes {{ remotes: [{{ url: "nats-leaf://{HOST}:{delayed[name]}" }}] }}\n'
            )
            (directory / f"{name}.conf").write_text(lines)
            pids[name] = await _start(program, directory / f"{name}.conf", stack)
        for name in (*hub_names, *leaf_names):
            await _listens(ports[name])
        yield Leaves(wan, ports, pids)


def _free_ports(names: list[str]) -> dict[str, int]:
    """A port for each, that nobody has now."""
    probes = [socket.create_server((HOST, 0)) for _ in names]
    try:
        return {name: probe.getsockname()[1] for name, probe in zip(names, probes, strict=True)}
    finally:
        for probe in probes:
            probe.close()


async def _start(program: str, config: Path, stack: AsyncExitStack) -> int:
    process = await asyncio.create_subprocess_exec(
        *(program, "-c", str(config)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )

    async def end() -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    stack.push_async_callback(end)
    return process.pid


async def _listens(port: int) -> None:
    end_s = asyncio.get_running_loop().time() + READY_S
    while True:
        with closing(socket.socket()) as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        if asyncio.get_running_loop().time() > end_s:
            raise OperatorError("a NATS server of the peer did not start", "Try again with --only failure")
        await asyncio.sleep(LOOK_S)

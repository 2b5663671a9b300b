"""Keeps the door of one coordinator: opens it once the log is read, and says how it is.

A port that another program has does not stop the coordinator: the network needs it more than its door. The keeper
tries again, and says what is wrong.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from tocsin.config import Settings
from tocsin.coordinator.door.listener import DoorListener
from tocsin.coordinator.door.proxy import Proxy, Tls
from tocsin.coordinator.door.view import View
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.door.door import Door
from tocsin.errors import OperatorError, PortTaken
from tocsin.ports import Table
from tocsin.runtime.machines.clock import now_us
from tocsin.runtime.machines.listening import listen_on
from tocsin.runtime.network.mdns import Announcement, is_wanted

LOOK_S: Final = 1.0  # how often it is asked how full brokers are, or whether a port is free
LEAVES: Final = 5  # … and how often in that time whether brokers are lost

Listen = Callable[[], Mapping[str, socket.socket]]  # the sockets that listen, by the names of their settings


class DoorPorts:
    """What a door needs of its process. The simulator has its own sockets and proofs."""

    def __init__(
        self,
        listen: Listen,
        tls: Tls | None,
        context: ssl.SSLContext | None = None,
        problem: str = "",
        announcement: Announcement | None = None,
        renew: Callable[[], bool] = lambda: False,
    ) -> None:
        """``tls``: by what the coordinator proves itself to brokers; ``context``: for clients over TLS; ``problem``:
        why nobody can be passed on; ``announcement``: in the local network; ``renew`` reads the files behind
        ``tls`` and ``context`` again if they changed, and says whether they did."""
        self.listen = listen
        self.tls = tls
        self.context = context
        self.problem = problem
        self.announcement = announcement
        self.renew = renew


class DoorKeeper:
    """The door of one coordinator, for as long as ``run`` runs."""

    deciding: type[Door] = Door  # so that a variant can be tried

    def __init__(self, settings: Settings, machine: Coordinator, table: Table, ports: DoorPorts) -> None:
        chosen = settings.door
        self._ports = ports
        self._view = View(machine, table)
        self._door = self.deciding(chosen.proxy, chosen.cluster, chosen.names())
        proxy = None if ports.tls is None else Proxy(settings.network, ports.tls, self._silent)
        self.listener = DoorListener(
            self._door, self._view, proxy, settings.limits, chosen.connections_max, ports.context
        )
        self._lacks = ports.problem if chosen.proxy != "never" else ""  # for passing clients on
        self._closed = ""  # why the door is not open
        self._log = structlog.get_logger()

    @property
    def problem(self) -> str:
        """Why the door is not open, or not to everybody; empty if all is well."""
        return self._closed or self._lacks

    def facts(self) -> dict[str, object]:
        return {"passed_on": self.listener.clients, "redirected": self.listener.redirected}

    async def run(self) -> None:
        """Open the door and keep it; until cancelled."""
        announcement = self._ports.announcement
        try:
            await self._open()
            if announcement is not None:
                await announcement.open()
            while True:
                await self._view.look()
                self._renew()
                for _ in range(LEAVES):
                    self._leave_the_lost()
                    await asyncio.sleep(LOOK_S / LEAVES)
        finally:
            if announcement is not None:
                await announcement.close()
            await self.listener.close()

    def _leave_the_lost(self) -> None:
        """Have clients come again that were passed on to a broker that is lost."""
        proxy = self.listener.proxy
        if proxy is not None and self._view.is_ready:
            proxy.leave(self._view.directory().is_there)

    def _renew(self) -> None:
        try:
            if self._ports.renew():
                self._log.info("certificates of the door changed")
        except OperatorError as error:
            self._log.error("changed certificates cannot be used; all stays as it was", problem=str(error))

    async def _open(self) -> None:
        listening = self._try()
        while listening is None:
            await asyncio.sleep(LOOK_S)
            listening = self._try()
        await self._view.look()
        self.listener.open(listening)
        self._log.info("the door is open")

    def _try(self) -> Mapping[str, socket.socket] | None:
        """The sockets; None if the log is not read yet, or another program has a port."""
        if not self._view.is_ready:
            return None
        try:
            listening = self._ports.listen()
        except PortTaken as error:
            if self._closed != str(error):
                self._log.error("the door cannot be opened", problem=str(error))
            self._closed = str(error)
            return None
        self._closed = ""
        return listening

    def _silent(self, broker: str) -> None:
        self._door.silent(broker, now_us())


def real_ports(settings: Settings, name: str) -> DoorPorts | None:
    """What the door of a coordinator needs on this machine; None if the settings ask for no door."""
    # Certificates take a while to import, and some coordinators have no door.
    from tocsin.runtime.security.credentials import PeerTls, certificates_directory, existing_credentials
    from tocsin.runtime.security.tls import Certificates

    chosen = settings.door
    if not chosen.ports():
        return None
    tls, problem = None, ""
    try:
        directory = certificates_directory(settings.state)
        tls = PeerTls(existing_credentials(directory, "coordinator", name))
    except OperatorError as error:
        problem = f"the door passes no clients on: {error}"
        structlog.get_logger().warning("the door passes no clients on", problem=str(error))
    certificates = Certificates(settings.tls) if chosen.tls_port >= 0 else None

    def listen() -> Mapping[str, socket.socket]:
        shared = settings.coordinators > 1
        opened: dict[str, socket.socket] = {}
        try:
            for each, port in chosen.ports().items():
                opened[each] = listen_on(
                    chosen.host, port, f"the door of {name}", f"door.{each}", shared=shared
                )
        except PortTaken:
            for listening in opened.values():
                listening.close()
            raise
        return opened

    announcement = Announcement(settings.network, name, chosen) if is_wanted(chosen) else None
    followed = [each for each in (tls, certificates) if each is not None]

    def renew() -> bool:
        return any([each.reload() for each in followed])

    context = None if certificates is None else certificates.context
    return DoorPorts(listen, tls, context, problem, announcement, renew)

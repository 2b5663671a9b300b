"""Moves a broker to another address while it serves: looks where its machine is, and opens its doors there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tocsin.broker.site import Site
from tocsin.core.coordination.participant.readdressing import (
    Announce,
    At,
    CannotListen,
    ListenAt,
    Listens,
    Looked,
    Readdressing,
)
from tocsin.core.machine import Effect, Event
from tocsin.errors import OperatorError
from tocsin.model.network import BrokerInfo
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Ending

LOOK_S: Final = (
    2.0  # a look costs a file's date and a name; clients need longer to find out that we have gone
)


class Mover:
    """Keeps one broker at the addresses of its site. ``open_doors`` lets clients and peers in by sockets instead of
    those of the same names; ``announce`` tells the network where the broker is."""

    def __init__(
        self,
        site: Site,
        cause: str,
        open_doors: Callable[[Mapping[str, socket.socket]], Awaitable[None]],
        announce: Callable[[BrokerInfo], None],
    ) -> None:
        self._site = site
        self._cause = cause
        self._open_doors = open_doors
        self._announce = announce
        self._machine = Readdressing(site.addresses)
        self._ending = Ending()
        self._shell = Shell(self._machine, self._carry_out, self._ending.fail)

    @property
    def problem(self) -> str | None:
        """Why the broker is not where it should be; None: it is."""
        return self._machine.problem

    async def run(self) -> None:
        """Look for ever, unless nothing can change; raise what the broker cannot go on after."""
        if not self._site.is_fixed:
            self._shell.spawn(self._look())
        try:
            await self._ending.wait()
        finally:
            self._shell.close()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                looked = Looked(addresses=await self._site.look(), cause=self._cause)
            except OperatorError as error:
                looked = Looked(addresses=None, problem=str(error), cause=self._cause)
            self._post(looked)

    def _post(self, event: Event) -> None:
        self._shell.post(event)
        self._site.addresses = self._machine.addresses

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ListenAt(listening=listening):
                self._shell.spawn(self._listen(listening))
            case Announce(info=info):
                self._announce(info)
            case _:
                self._shell.carry_out(effect)

    async def _listen(self, listening: Mapping[str, At]) -> None:
        try:
            sockets = self._site.listen(listening)
        except OperatorError as error:
            self._post(CannotListen(problem=str(error), cause=self._cause))
            return
        await self._open_doors(sockets)
        self._post(Listens(cause=self._cause))

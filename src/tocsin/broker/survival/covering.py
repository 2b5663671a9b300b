"""The shell of ``core.survival.covering``: words over the bus, and routes that lead to who covers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable
from itertools import islice
from typing import Final

import structlog

from tocsin.broker.delivery.announcements import Spawn
from tocsin.broker.forwarding.routes import Routes
from tocsin.core.access.ownership import may_take
from tocsin.core.filters import QueryFilter, TopicFilter, filter_type
from tocsin.core.machine import Effect
from tocsin.core.replication.backup import Backup
from tocsin.core.survival.covering import (
    ClientReturned,
    CoveringMachine,
    CoversChanged,
    TellAll,
    WordHeard,
)
from tocsin.errors import TocsinError
from tocsin.model.network import BrokerInfo
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Bus, BusMessage
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Failed
from tocsin.wire.internal.replication import (
    LOCAL,
    Covering,
    covering_subject,
    decode_covering,
    encode_covering,
)

LOOKED_AT: Final = 1_000  # subscriptions of a client that are held against what is wanted here already


class Covers:
    """The covers of one broker, its own and those of others. ``wants``: whether a client here has a filter already;
    ``told``: whether the coordinator knows everything that clients here want; ``gone`` names the lost brokers."""

    def __init__(
        self,
        own: BrokerInfo,
        bus: Bus,
        backup: Backup,
        routes: Routes,
        *,
        network: str,
        wants: Callable[[str], bool],
        told: Callable[[], bool],
        gone: Callable[[], Collection[str]],
        spawn: Spawn,
        failed: Failed,
    ) -> None:
        self.subject = covering_subject(network)
        self.machine = CoveringMachine(own, told)
        self._own = own
        self._bus = bus
        self._backup = backup
        self._routes = routes
        self._wants = wants
        self._gone = gone
        self._spawn = spawn
        self._shell = Shell(self.machine, self._carry_out, failed)
        self._log = structlog.get_logger()

    def came(self, client: str, owner: str) -> None:
        """A client of this user has come: if a broker that this one backs locally had it, have its messages too."""
        for primary, copy in self._backup.copies.items():
            replica = copy.clients.get(client) if copy.role == LOCAL else None
            if replica is None or not may_take(replica.head.owner, owner):
                continue
            was_there = replica.head.connected or primary in self._gone()
            if was_there and self._is_new(replica.subscriptions):
                self._shell.post(ClientReturned(primary=primary, cause=client))

    def _is_new(self, names: Iterable[str]) -> bool:
        """Whether a client's subscriptions need routes that are not there yet, as far as a few of them say."""
        for name in islice(names, LOOKED_AT):
            kind = filter_type(name)
            if kind is QueryFilter or (kind is TopicFilter and not self._wants(name)):
                return True
        return False

    async def hear(self, words: AsyncIterator[BusMessage]) -> None:
        """Hear who covers for whom, for as long as the broker lives."""
        async for word in words:
            try:
                said = decode_covering(word.payload)
            except UNREADABLE as error:
                self._log.warning("a word of a stand-in is unreadable", problem=str(error))
                continue
            self._shell.post(WordHeard(word=said, cause=f"{said.by.id}:covers for {said.primary}"))

    def close(self) -> None:
        """Nothing is said or believed any more."""
        self._shell.close()

    def statistics(self) -> dict[str, int]:
        return {"covering": len(self.machine.covers), "covered": self.machine.covered}

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case TellAll(word=word):
                self._spawn(self._tell(word))
            case CoversChanged(began=began, over=over):
                self._routes.cover(began, over)
            case _:
                self._shell.carry_out(effect)

    async def _tell(self, word: Covering) -> None:
        try:
            await self._bus.publish(self.subject, encode_covering(word))
        except TocsinError as error:  # it is said again
            self._log.debug("a word of a stand-in was not said", problem=str(error))

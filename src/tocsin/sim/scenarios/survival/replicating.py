"""The part of ``broker.replicating`` and ``broker.clientele``: a broker's state to its backups, copies of others' here.

Messages go over the bus, which loses, repeats and delays them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from tocsin.core.coordination.signals import BackupsKnown
from tocsin.core.forwarding import Subscription
from tocsin.core.machine import Effect, Received, Started
from tocsin.core.replication.backup import Backup
from tocsin.core.replication.gamma import Standing, option_of
from tocsin.core.replication.primary import Primary
from tocsin.core.replication.signals import (
    Altered,
    Awaited,
    BackupsSet,
    Came,
    Forgotten,
    Kept,
    Policy,
    Prepare,
    PrimariesSet,
    Released,
    Unprepare,
    WillsLeft,
)
from tocsin.model.network import Scheme
from tocsin.sim.chance import MILLION
from tocsin.sim.scenarios.survival.part import Part
from tocsin.wire.replication import Applied, Behind, Bequest, Declined, Head, Option, Positions

if TYPE_CHECKING:
    from tocsin.sim.scenarios.survival.broker import SurvivalBroker
    from tocsin.sim.scenarios.survival.service import SurvivalService

POLICY = Policy(period_us=1_500_000, wait_us=500_000)

Act = Callable[[bool], None]  # is told whether every backup has it


class Away:
    """A client that went, as it was then."""

    def __init__(self, service: SurvivalService, will: Bequest | None, now_us: int) -> None:
        self.until_us = now_us + service.expiry_s * MILLION  # when its session is over
        self.head = service.head(connected=False, will=will)
        self.subscriptions = dict(service.machine.subscriptions)
        self.positions = service.positions


class Clientele:
    """The state that is copied: clients that are here, as their connections have it, and those that are away."""

    def __init__(self, services: Mapping[str, SurvivalService]) -> None:
        self._services = services
        self.away: dict[str, Away] = {}
        self.settled: dict[str, str] = {}  # client → the id of its newest will that is

    def _one(self, client: str) -> SurvivalService | Away | None:
        service = self._services.get(client)
        return service if service is not None and service.here else self.away.get(client)

    def clients(self) -> Iterable[str]:
        here = [client for client, service in self._services.items() if service.here]
        return [*here, *(client for client in self.away if client not in here)]

    def head(self, client: str) -> Head | None:
        one = self._one(client)
        if one is None:
            return None
        return one.head if isinstance(one, Away) else one.head(connected=True, will=one.bequest())

    def subscriptions(self, client: str) -> Mapping[str, Subscription]:
        one = self._one(client)
        if one is None:
            return {}
        return one.subscriptions if isinstance(one, Away) else one.machine.subscriptions

    def names(self, client: str) -> Iterable[str]:
        return tuple(self.subscriptions(client))

    def option(self, client: str, name: str) -> Option | None:
        found = self.subscriptions(client).get(name)
        return None if found is None else option_of(found)

    def positions(self, client: str) -> Positions | None:
        one = self._one(client)
        return None if one is None else one.positions

    def void(self, client: str) -> str:
        return self.settled.get(client, "")

    def voided(self) -> Iterable[str]:
        return tuple(self.settled)


class Replicating:
    """See the module's text."""

    def __init__(self, broker: SurvivalBroker, primary: type[Primary], backup: type[Backup]) -> None:
        self._broker = broker
        self.active = False  # there are backups
        self.clientele = Clientele(broker.attended)
        self.primary = primary(broker.address, self.clientele, broker.policy, broker.others)
        self.backup = backup(broker.address)
        self._sending = Part(broker, "primary", self.primary, self._on_primary)
        self._keeping = Part(broker, "backup", self.backup, self._on_backup)
        self._tickets = 0
        self.waiting: dict[int, Act] = {}

    def start(self) -> None:
        # A process is younger than one before it by its clock, as the real ones say.
        self._sending.tell(Started(incarnation=self._broker.now_us, cause=f"{self._broker.address}:start"))

    def hear(self, event: Received) -> None:
        to_primary = isinstance(event.message, Applied | Behind | Declined)
        if to_primary:
            self._sending.tell(event)
        else:
            self._keeping.tell(event)

    def know(self, known: BackupsKnown) -> None:
        """Who backs this broker, and whom it backs."""
        local, remote = (None if each is None else each.id for each in (known.local, known.remote))
        self.active = bool(local or remote)
        if not self.active:
            self.clientele.away.clear()
        self._sending.tell(BackupsSet(local=local, remote=remote, cause=known.cause))
        self._keeping.tell(PrimariesSet(primaries=(*known.locally, *known.remotely), cause=known.cause))

    def take_over(self, primary: str) -> Iterator[Standing]:
        """What is known of the clients of a broker that is gone; kept until ``release``."""
        self._keeping.tell(Kept(primary=primary, cause=f"{self._broker.address}:{primary}"))
        return self.backup.take_over(primary)

    def has(self, primary: str, client: str) -> bool | None:
        return self.backup.has(primary, client)

    def settled(self, primary: str, client: str) -> bool:
        return self.backup.settled(primary, client)

    def release(self, primary: str) -> None:
        self._keeping.tell(Forgotten(primary=primary, cause=f"{self._broker.address}:{primary}"))

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def came(self, client: str, greet: Act, *, waits: bool) -> None:
        if self.active:
            self.clientele.away.pop(client, None)
            self._sending.tell(Came(client=client, cause=client))
        if waits:
            self.when_synced(client, greet)
        else:
            greet(True)

    def changed(self, client: str, name: str) -> None:
        if self.active:
            self._sending.tell(Altered(client=client, names=(name,), cause=client))

    def went(self, service: SurvivalService) -> None:
        """A connection is over; its session lasts for a while."""
        present = self._broker.services.get(service.client)
        newer = present is not None and present is not service and present.here
        will = self._broker.bequeathing.wills.unsettled(service.client)
        if will is not None and self._broker.past is not None:
            will = msgspec.structs.replace(will, since=self._broker.tail)
        if will is None and service.will_id:
            self._note_void(service.client, service.will_id)
        if self.active and not newer:
            self.clientele.away[service.client] = Away(service, will, self._broker.now_us)
            self._sending.tell(Altered(client=service.client, cause=service.client))

    def moved(self, client: str) -> None:
        """It has come to another broker."""
        if self.active and self.clientele.away.pop(client, None) is not None:
            self._sending.tell(Altered(client=client, cause=client))

    def expire(self) -> None:
        """Forget whose time is over, and whose will does not wait."""
        now_us = self._broker.now_us
        for client, away in tuple(self.clientele.away.items()):
            if away.until_us < now_us and away.head.will is None:
                del self.clientele.away[client]
                self._sending.tell(Altered(client=client, cause=client))

    def will_settled(self, client: str) -> None:
        """No will of a client is left here: it is in the log, or was dropped."""
        away = self.clientele.away.get(client)
        if self.active and away is not None and away.head.will is not None:
            self._note_void(client, away.head.will.record_id)
            away.head = msgspec.structs.replace(away.head, will=None)
            self._sending.tell(Altered(client=client, cause=client))

    def _note_void(self, client: str, will_id: str) -> None:
        self.clientele.settled[client] = will_id
        self.backup.note_void(will_id)

    def when_synced(self, client: str, act: Act) -> None:
        if not self.active:
            act(True)
            return
        self._tickets += 1
        self.waiting[self._tickets] = act
        self._sending.tell(Awaited(client=client, ticket=self._tickets, cause=client))

    # ── the machines' effects ───────────────────────────────────────────────────────────────────────────────

    def _on_primary(self, effect: Effect) -> None:
        assert isinstance(effect, Released), f"no way to carry out {effect}"
        for ticket in effect.tickets:
            self.waiting.pop(ticket)(effect.synced)

    def _on_backup(self, effect: Effect) -> None:
        match effect:
            case Prepare(primary=primary, names=names):
                self._broker.keeping.stand_by(primary, names)
            case Unprepare(primary=primary, names=names):
                self._broker.keeping.stand_down(primary, names)
            case WillsLeft(primary=primary, wills=wills):
                self._broker.bequeathing.restarted(primary, wills)
            case _:
                raise AssertionError(f"no way to carry out {effect}")


def head_of(session: str, epoch: int, expiry_s: int, *, connected: bool, will: Bequest | None) -> Head:
    return Head(connected, Scheme.MQTT, expiry_s, session, will=will, epoch=epoch)

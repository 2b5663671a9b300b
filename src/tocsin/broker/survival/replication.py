"""The shell of ``core.replication``: this broker's state to its backups, and copies of the states of those it backs.

Both sides speak over the bus, on one subject of each broker; the machines repeat lost messages. While the
broker has no backups nothing is sent, nobody waits, and what happens to clients is not even looked at.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final

import structlog

from tocsin.broker.channels.standby_cells import StandbyCellWriter
from tocsin.broker.client import Client
from tocsin.broker.survival.client_state import ClientState, ConnectedClients
from tocsin.config import Replication
from tocsin.core.channels.channel_filter import ChannelFilter
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.filters import QueryFilter, filter_type
from tocsin.core.machine import Effect, Received, Send, Started, TimerFired
from tocsin.core.replication.backup import Backup
from tocsin.core.replication.gamma import ClientSnapshot, Left
from tocsin.core.replication.primary import Primary, resend_timer
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
from tocsin.errors import TocsinError
from tocsin.model.network import BrokerInfo, broker_address
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Bus, BusMessage
from tocsin.runtime.machines.clock import monotonic_s, wall_us
from tocsin.runtime.machines.shell import PendingCallbacks, Shell
from tocsin.runtime.machines.tasks import Ending
from tocsin.wire.internal.replication import (
    LOCAL,
    REMOTE,
    Applied,
    Begun,
    Behind,
    Bequest,
    Declined,
    Mourned,
    decode_replication,
    encode_replication,
    subject,
)

OUTBOX_MAX: Final = 1_000  # messages that wait for the bus; the oldest go first, and are sent again later
SWEEP_S: Final = 30.0  # between two looks at whose session is over

Act = Callable[[], None]
QueriesPrepared = Callable[[str, tuple[str, ...], bool], None]  # of a primary: wanted, or no longer
WillsLeftBehind = Callable[[str, tuple[Left, ...]], None]
Detour = Callable[[str, bytes], bool]  # sends to a broker that the bus does not reach; False if it cannot


def policy_of(settings: Replication) -> Policy:
    return Policy(
        settings.mode,
        settings.period_ms * 1_000,
        settings.threshold,
        settings.wait_ms * 1_000,
        settings.threshold_bytes,
    )


class Replicating:
    """Both sides of replication at one broker, of whose ``clients`` backups have copies. ``wills_left`` is told of
    wills that a broker which is back has forgotten, ``queries_prepared`` of queries that clients of a broker have which
    this one backs locally; ``others`` are the names that other brokers may have."""

    def __init__(
        self,
        bus: Bus,
        clients: ConnectedClients[Any],
        standing_by: StandbyCellWriter,
        *,
        network: str,
        broker: str,
        wills_left: WillsLeftBehind,
        queries_prepared: QueriesPrepared = lambda primary, names, wanted: None,
        policy: Policy | None = None,
        others: Iterable[str] = (),
    ) -> None:
        self.active = False  # there are backups
        self._others = tuple(others)
        self._clients = clients
        self.client_state = ClientState(clients, monotonic_s)
        self.primary = Primary(broker, self.client_state, policy or Policy(), self._others)
        self.backup = Backup(broker)
        self._bus = bus
        self._standing_by = standing_by
        self._network = network
        self._broker = broker
        self._ending = Ending()
        self._shell = Shell(self.primary, self._carry_out, self._ending.fail)
        self._post = self._shell.post
        self._backup_shell = Shell(self.backup, self._carry_out_backup, self._ending.fail)
        self._post_backup = self._backup_shell.post
        self._tickets = PendingCallbacks()  # of what is to be done when the backups know
        self._outbox: deque[Send] = deque(maxlen=OUTBOX_MAX)
        self._filled = asyncio.Event()
        self._wills_left = wills_left
        self._queries_prepared = queries_prepared
        self.sent_bytes = 0
        self.malformed = 0
        self._log = structlog.get_logger()
        self._post(Started(incarnation=wall_us(), cause=f"{broker}:start"))

    def statistics(self) -> dict[str, int]:
        return {
            **self.primary.statistics(),
            **self.backup.statistics(),
            "replication_bytes": self.sent_bytes,
            "standbys_waiting": len(self._standing_by),
        }

    def problem(self) -> str | None:
        """The current problems, as text."""
        lacking = self.primary.problems()
        return f"{' and '.join(lacking)} not in step" if lacking else None

    # ── the plan ────────────────────────────────────────────────────────────────────────────────────────────

    def set_backups(self, local: BrokerInfo | None, remote: BrokerInfo | None, epoch: int = 0) -> None:
        """Set the backups of this broker."""
        names = [None if each is None else each.id for each in (local, remote)]
        self.active = any(names)
        if not self.active:
            self.client_state.forget()
        cause = f"{self._broker}:backups"
        self._post(BackupsSet(local=names[0], remote=names[1], epoch=epoch, cause=cause))

    def set_primaries(self, primaries: Iterable[str]) -> None:
        """Set the brokers that this broker backs."""
        self._post_backup(PrimariesSet(primaries=tuple(primaries), cause=f"{self._broker}:primaries"))

    def take_over(self, primary: str, *, meanwhile: bool = False) -> Iterator[ClientSnapshot]:
        """The copy of a lost broker's clients; kept until ``release``."""
        cause = f"{self._broker}:stand in for {primary}"
        self._post_backup(Kept(primary=primary, meanwhile=meanwhile, cause=cause))
        return self.backup.take_over(primary)

    def mourn(self, primary: str) -> None:
        """Tell all that this broker stands in for another: they may know wills that it does not."""
        for other in self._others:
            if other not in (primary, self._broker):
                word = Mourned(primary)
                self._outbox.append(
                    Send(to=broker_address(other), message=word, cause=f"{self._broker}:mourns {primary}")
                )
        self._filled.set()

    def has(self, primary: str, client: str) -> bool | None:
        """Whether a client belongs to a broker, by its copy; None: the copy is from before the loss."""
        return self.backup.has(primary, client)

    def settled(self, primary: str, client: str) -> bool:
        """Whether a broker that is stood in for has said since that no will of a client is left."""
        return self.backup.settled(primary, client)

    def known(self, client: str) -> ClientSnapshot | None:
        """The state of a client that is not here: it was here, or is at a broker that this broker backs."""
        here = self.client_state.standing(client)
        if here is not None:
            return here
        found = [copy.standing(client) for copy in self.backup.copies.values()]
        return next((each for each in found if each is not None and each.head.session), None)

    def is_here(self, client: str, owner: str) -> bool:
        """Whether a client of this user is connected to this broker, or about to be."""
        return self._clients.has_user(client, owner)

    def release(self, primary: str) -> None:
        """The copy of a broker is needed no longer, unless that broker goes on with it."""
        self._post_backup(Forgotten(primary=primary, cause=f"{self._broker}:stand down for {primary}"))

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def came(self, client: str, greet: Act, *, waits: bool) -> None:
        """A client is here, with its session: greet it, if it ``waits`` when the backups know of it."""
        if (connection := self._clients.present.get(client)) is not None:
            self.backup.note_here(connection.will_id)
        self.client_state.came(client)
        if self.active:
            self._post(Came(client=client, cause=client))
        if waits:
            self.when_synced(client, greet)
        else:
            greet()

    def changed(self, client: str, name: str) -> None:
        """A client has a subscription that it had not, or no longer, or with other options."""
        if self.active:
            self._post(Altered(client=client, names=(name,), cause=client))

    def went(self, connection: Client, expiry_s: int, will: Bequest | None) -> None:
        """A client's connection is about to be over; its session is kept for so long, and its will is not settled."""
        newer = self.client_state.served_elsewhere(connection)
        self.backup.note_gone(connection.will_id)
        if will is None:
            self.backup.note_void(connection.will_id)
        # Backups that are named later have to know the wills that wait by then.
        if (self.active or will is not None) and connection.epoch and not newer:
            forgotten = self.client_state.went(connection, expiry_s, will)
            for client in filter(None, (connection.client_id, forgotten)):
                self._altered(client)

    def moved(self, client: str, owner: str) -> None:
        """A client of this user has come to another broker."""
        if self.client_state.owned_by(client, owner) and self.client_state.gone(client):
            self._altered(client)

    def over(self, session: StoredSession) -> None:
        """A stored session is no more."""
        if self.client_state.gone(session.client, session.uid):
            self._altered(session.client)

    def will_settled(self, client: str) -> None:
        """No will of a client is left here: it is in the log, was sent, or was dropped."""
        if self.client_state.will_settled(client):
            self.backup.note_void(self.client_state.void(client))
            self._altered(client)

    def will_published(self, client: Client | None, will_id: str) -> None:
        """The log has a will, whoever put it there. If its client is still connected here, a backup took this broker
        for lost: the will is settled all the same, here and at the backups, since it is announced once."""
        self.backup.note_void(will_id)
        if client is not None and client.will_id == will_id:
            client.will_announced()
            self._altered(client.client_id)

    def rights_changed(self) -> None:
        """The rules are others: backups are to know the wills that may be published now, and no others."""
        for client in tuple(self.client_state.bequeathing()):
            self._altered(client)

    def _altered(self, client: str) -> None:
        if self.active:
            self._post(Altered(client=client, cause=client))

    def when_synced(self, client: str, act: Act) -> None:
        """Do something once every backup has what is so of a client now, or ``replication.wait_ms`` is over; at once
        if there are none."""
        if not self.active:
            act()
            return
        self._post(Awaited(client=client, ticket=self._tickets.give(act), cause=client))

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, detour: Detour) -> None:
        """Send, hear and tidy up, for as long as the broker lives."""
        try:
            async with (
                self._bus.subscribe(subject(self._network, self._broker)) as words,
                asyncio.TaskGroup() as group,
            ):
                group.create_task(self._hear(words))
                group.create_task(self._send(detour))
                group.create_task(self._sweep())
                group.create_task(self._standing_by.run())
                group.create_task(self._ending.wait())
        finally:
            self._shell.close()
            self._backup_shell.close()

    async def _hear(self, words: AsyncIterator[BusMessage]) -> None:
        async for word in words:
            self.hear(word.payload)

    def nudge(self) -> None:
        """Send unanswered updates again now: the backups may be reachable again."""
        for role in (LOCAL, REMOTE):
            self._post(TimerFired(name=resend_timer(role), cause=f"{self._broker}:nudge"))

    def hear(self, payload: bytes) -> None:
        """A message of another broker's replication."""
        try:
            envelope = decode_replication(payload)
        except UNREADABLE as error:
            self.malformed += 1
            self._log.warning("a message of replication is unreadable", problem=str(error))
            return
        event = Received(sender=envelope.sender, message=envelope.message, cause=envelope.cause)
        if isinstance(envelope.message, Applied | Behind | Declined | Begun):
            self._post(event)
        if not isinstance(envelope.message, Applied | Behind | Declined):
            self._post_backup(event)

    async def _send(self, detour: Detour) -> None:
        own = broker_address(self._broker)
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._outbox:
                send = self._outbox.popleft()
                payload = encode_replication(own, send.cause, send.message)
                self.sent_bytes += len(payload)
                target = send.to.removeprefix(broker_address(""))
                if detour(target, payload):
                    continue
                try:
                    await self._bus.publish(subject(self._network, target), payload)
                except TocsinError as error:  # it is sent again later
                    self._log.debug("a message of replication was not sent", problem=str(error))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            for client in tuple(self.client_state.expired()):
                self._altered(client)

    # ── the machines' effects ───────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._outbox.append(effect)
                self._filled.set()
            case Released(tickets=tickets):
                self._tickets.redeem(tickets)
            case _:
                self._shell.carry_out(effect)

    def _carry_out_backup(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._outbox.append(effect)
                self._filled.set()
            case Prepare(primary=primary, names=names):
                channels, queries = _kinds(names)
                if channels:
                    self._standing_by.prepare(primary, channels)
                self._queries_prepared(primary, queries, True)
            case Unprepare(primary=primary, names=names):
                channels, queries = _kinds(names)
                if channels:
                    self._standing_by.unprepare(primary, channels)
                self._queries_prepared(primary, queries, False)
            case WillsLeft(primary=primary, wills=wills):
                self._wills_left(primary, wills)
            case _:
                self._backup_shell.carry_out(effect)


def _kinds(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Subscriptions to channels, and queries."""
    channels = tuple(name for name in names if filter_type(name) is ChannelFilter)
    return channels, tuple(name for name in names if filter_type(name) is QueryFilter)

"""The shell of ``core.survival.provisional``: looks at the store, serves clients without it, settles their sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

import msgspec
import structlog

from tocsin.broker.client import Client
from tocsin.broker.delivery.client_delivery import DurableDelivery
from tocsin.broker.retained.replay import Copy, Pages
from tocsin.core.delivery.grant import Frames, Grant
from tocsin.core.delivery.stored_session import decode_session, encode_session, kept_s, session_key
from tocsin.core.delivery.taking import NotYours
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import Effect
from tocsin.core.replication.gamma import ClientSnapshot
from tocsin.core.retained.kept import Kept
from tocsin.core.survival.provisional import (
    AskAnew,
    AskedAnew,
    AwaitEnd,
    ClientCame,
    ClientWent,
    ConnectionsOver,
    HurryClients,
    LeaderHeard,
    LeaderLost,
    LookAtStore,
    Outcome,
    ProvisionalService,
    ProvisionalState,
    Record,
    SessionServed,
    SessionSettled,
    SettleSession,
    SettlingOver,
    StoreLooked,
    admit,
    recorded,
    settle,
)
from tocsin.errors import Conflict, TocsinError
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Entry, Table
from tocsin.runtime.machines.clock import token_hex
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Failed
from tocsin.wire.internal.replication import Positions
from tocsin.wire.mqtt.reasons import DEGRADED

ANSWER_S: Final = 1.5  # for the store: nothing was heard over the same connection for seconds already
LOOK_KEY: Final = "looked-for"  # no session has it: their keys are digests

IN_FORCE: Final = f"{DEGRADED}this cluster is cut off; the subscription is in force here, and is stored later"
GIVEN_UP: Final = (
    f"{DEGRADED}this cluster is cut off; the subscription is gone here, and from the store later"
)
SETTLES: Final = "a provisional session is written over what was known of it"

Act = Callable[[], None]


class CutOff(TocsinError):
    """This broker cannot reach the store, and knows nothing of a session that the client may have."""

    retryable = True

    def __init__(self, client: str) -> None:
        self.client = client
        super().__init__(
            f"this cluster is cut off, and knows no session of {client!r}: come back later, or begin with a clean start"
        )


class HasTail(Protocol):
    """The message log, as it is seen from here."""

    @property
    def tail(self) -> int: ...


class ProvisionalDelivery(DurableDelivery):
    """The delivery of a client whose session is not taken: it has subscriptions, and nothing that must be kept."""

    __slots__ = ("_held", "_positions")

    provisional = True

    def __init__(self, *arguments: Any, record: Record, positions: Positions | None) -> None:
        super().__init__(*arguments)
        self._held = dict(record.subscriptions)
        self._positions = positions
        self.session, self.session_epoch = record.uid, record.epoch

    def begin(self, *arguments: Any, **options: Any) -> None:
        session, epoch = self.session, self.session_epoch
        super().begin(*arguments, **options)
        self.session, self.session_epoch = session, epoch

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        return self._held

    @property
    def positions(self) -> Positions | None:
        """As they were known: they do not move."""
        return self._positions

    @property
    def room(self) -> bool:
        return False

    def subscribed(self, topic_filter: str, subscription: Subscription) -> None:
        self._held[topic_filter] = subscription
        self._changed(self._connection.client_id, topic_filter)

    def begins(self, topic_filter: str, before: Subscription, subscription: Subscription) -> None:
        if self._held.get(topic_filter) is before:
            self.subscribed(topic_filter, subscription)

    def unsubscribed(self, topic_filter: str) -> None:
        self._held.pop(topic_filter, None)
        self._forget_replay(topic_filter)
        self._changed(self._connection.client_id, topic_filter)

    def when_durable(self, act: Act) -> None:
        act()

    def release(self, packet_id: int, act: Act) -> None:
        """Never: the client says it again, when its session is taken."""

    def hand_in(self, entry: Entry, critical: bool, granted: Grant, frames: Frames) -> None:
        """Not now: its session's position brings it."""

    def hand_in_result(self, place: int, critical: bool, granted: Grant, frames: Frames) -> None:
        """The same."""

    def replay(self, name: str, pages: Pages, copy: Copy) -> None:
        """Retained messages, at QoS 0."""

        def at_qos_0(after: str | None) -> Iterator[tuple[Kept, Grant | None]]:
            for kept, granted in pages(after):
                yield kept, None if granted is None else msgspec.structs.replace(granted, qos=0)

        super().replay(name, at_qos_0, copy)


class Clients(Protocol):
    """The connected clients."""

    def ask_anew(self, client_id: str) -> None:
        """Have a connected client reconnect."""
        ...

    def release_waits(self) -> None:
        """Nobody need wait for the store any longer to hear of subscriptions."""
        ...


class Provisional:
    """Whether one broker is cut off, and the clients that it serves then. ``known`` is what copies say of a client,
    ``log`` how far the message log is known. ``ended`` returns when nothing of a client's connections is left to store.
    """

    def __init__(
        self,
        table: Table,
        clients: Clients,
        log: HasTail,
        *,
        broker: str,
        known: Callable[[str], ClientSnapshot | None],
        ended: Callable[[str], Awaitable[None]],
        failed: Failed,
    ) -> None:
        self._clients = clients
        self._ended = ended
        self._message_log = log
        self._table = table
        self._broker = broker
        self._known = known
        self._waiting: dict[str, asyncio.Event] = {}  # client → when its record is settled
        self._log = structlog.get_logger()
        self._machine = ProvisionalService()
        self._shell = Shell(self._machine, self._carry_out, failed)
        self._post = self._shell.post

    @property
    def cut_off(self) -> bool:
        """The store does not answer, and no leader was heard when that began."""
        return self._machine.cut_off

    @property
    def severed(self) -> bool:
        """No leader is heard."""
        return self._machine.state in (ProvisionalState.SEVERED, ProvisionalState.CUT_OFF)

    @property
    def settling(self) -> bool:
        """Whether anything is left to be held against its cell."""
        return self._machine.busy

    def statistics(self) -> dict[str, int]:
        machine = self._machine
        return {
            "cut_off": int(machine.cut_off),
            "provisional": len(machine.here),
            "sessions_settled": machine.settled,
            "sessions_let_go": machine.let_go,
        }

    # ── whether ─────────────────────────────────────────────────────────────────────────────────────────────

    def sever(self) -> None:
        """No leader is heard."""
        self._post(LeaderLost(cause=f"{self._broker}:severed"))

    def restore(self) -> None:
        """One is."""
        self._post(LeaderHeard(cause=f"{self._broker}:restored"))

    def close(self) -> None:
        """Nothing is looked at or settled any more."""
        self._shell.close()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case LookAtStore(cause=cause):
                self._shell.spawn(self._look(cause))
            case HurryClients():
                self._clients.release_waits()
            case AskAnew(client=client, cause=cause):
                self._clients.ask_anew(client)
                self._post(AskedAnew(client=client, cause=cause))
            case AwaitEnd(client=client, cause=cause):
                self._shell.spawn(self._await_end(client, cause))
            case SettleSession(record=record, here=here, cause=cause):
                self._shell.spawn(self._settle(record, here, cause))
            case SettlingOver(client=client):
                if (over := self._waiting.pop(client, None)) is not None:
                    over.set()
            case _:
                self._shell.carry_out(effect)

    async def _look(self, cause: str) -> None:
        reached = True
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._table.get(LOOK_KEY)
        except (TocsinError, TimeoutError):
            reached = False
        self._post(StoreLooked(reached=reached, cause=cause))

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def admit(self, client: str, *, owner: str, clean: bool, expiry_s: int) -> Record | None:
        """As which session a client is served; None without one. Raises ``NotYours``, ``CutOff``."""
        known = self._machine.records.get(client)
        standing = self._known(client) if known is None else None
        if standing is not None and standing.head.session:
            known = recorded(standing)
        found = admit(client, known, owner=owner, clean=clean, expiry_s=expiry_s, tail=self._message_log.tail)
        if found == "not yours":
            raise NotYours(client)
        if found == "unknown":
            raise CutOff(client)
        assert not isinstance(found, str)
        if found is not None:
            self._post(SessionServed(record=found, cause=client))
        return found

    def began_anew(self, client: str, owner: str) -> None:
        """A client without a session came: a known session of it is forgotten, if nobody takes it before. Raises
        ``NotYours``."""
        self.admit(client, owner=owner, clean=True, expiry_s=0)

    def owner_of(self, client: str) -> str | None:
        """The owner of a client id's session, by the copies; None: they know of none."""
        standing = self._known(client)
        return None if standing is None else standing.head.owner

    def positions(self, client: str) -> Positions | None:
        """How far a client is, as copies have it."""
        standing = self._known(client)
        return None if standing is None else standing.positions

    def came(self, client: str, delivery: ProvisionalDelivery) -> None:
        self._post(ClientCame(client=client, delivery=delivery, cause=client))

    def left(self, connection: Client, owner: str, expiry_s: int) -> None:
        """A connection is over; its session is kept for so long."""
        client, delivery = connection.client_id, connection.delivery
        if self._machine.state is ProvisionalState.JOINED and not delivery.provisional:
            return  # most do: the machine would do nothing
        session = Record(
            client=client,
            owner=owner,
            uid=delivery.session,
            epoch=delivery.session_epoch,
            expiry_s=expiry_s,
            fresh=False,
            tail=self._message_log.tail,
            subscriptions=dict(delivery.subscriptions),
        )
        went = ClientWent(delivery=delivery, record=session, provisional=delivery.provisional, cause=client)
        self._post(went)

    # ── settling ────────────────────────────────────────────────────────────────────────────────────────────

    async def settled(self, client: str) -> None:
        """Return when nothing of an earlier, provisional session of this client is left to be held against its cell."""
        while self._machine.settles(client):
            await self._waiting.setdefault(client, asyncio.Event()).wait()

    async def _await_end(self, client: str, cause: str) -> None:
        await self._ended(client)
        self._post(ConnectionsOver(client=client, cause=cause))

    async def _settle(self, record: Record, here: bool, cause: str) -> None:
        outcome: Outcome
        try:
            outcome = await self._write(record, here)
        except Conflict:
            outcome = "let go"  # somebody has taken it just now
        except TocsinError as error:
            facts = {"subscriber": record.client, "problem": str(error)}
            self._log.info("a provisional session is not settled yet", **facts)
            outcome = "failed"
        self._post(SessionSettled(client=record.client, outcome=outcome, cause=cause))

    async def _write(self, record: Record, here: bool) -> Outcome:
        key = session_key(record.client)
        # Fresh: by an old cell changes would be dropped as another broker's business, and nothing would tell.
        cell = await self._table.get(key, fresh=True)
        try:
            stored = None if cell is None else decode_session(cell.value)
        except UNREADABLE:
            return "let go"  # the broker that takes it announces that
        found = settle(record, stored, here=here, broker=self._broker, uid=token_hex(8))
        revision = 0 if cell is None else cell.revision
        if found == "forget":
            await self._table.delete(key, revision=revision)
        if isinstance(found, str):
            return found
        ttl_s = kept_s(found)
        self._log.debug(SETTLES, subscriber=record.client, epoch=record.epoch)
        await self._table.compare_and_set(key, encode_session(found), revision=revision, ttl_s=ttl_s)
        return "written"

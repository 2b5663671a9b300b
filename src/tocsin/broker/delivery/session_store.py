"""Stored sessions: taking one over, writing it, letting it go. One cell of a table for each client that wants one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Final

import structlog

from tocsin.broker.channels.backend_subscriptions import BackendSubscriptions
from tocsin.core.access.admission import SLICE
from tocsin.core.access.ownership import may_take
from tocsin.core.budgets.session_quota import SessionQuota
from tocsin.core.delivery.session_cell import SESSIONS
from tocsin.core.delivery.stored_session import StoredSession, decode_session, session_key
from tocsin.core.delivery.taking import (
    LOST_PATIENCE_MS,
    AskHandOver,
    ChannelsHeld,
    ClientGone,
    CopiedPositions,
    CountRoom,
    GiveUpChannels,
    HandOverEnded,
    HoldChannels,
    KeepChannels,
    NoSession,
    RoomCounted,
    SessionReplaced,
    SessionTaken,
    SessionTaking,
    TakeAsked,
    TakeFailed,
    TakingState,
    Unreadable,
)
from tocsin.core.machine import Effect, Event, GetKey, PutKey, Say, Stored, StoreFailed
from tocsin.errors import Conflict, DeadlineExceeded, StoreFull, StoreUnavailable, TocsinError
from tocsin.model.versions import UNREADABLE, Format
from tocsin.ports import KEYS_MAX, Bus, BusMessage, Cell, Table
from tocsin.runtime.machines.clock import token_hex, wall_us
from tocsin.runtime.machines.shell import outcome
from tocsin.runtime.machines.tasks import Ending, Tasks

HAND_OVER: Final = Format("a request for a session", spoken=True)
HANDED: Final = Format("the answer to a request for a session", spoken=True)


class SessionReads:
    """Reads of session cells, gathered: what is asked for while a request to the store is under way is the next one.

    When a broker is lost its clients come to its backup within a second, and each needs its session. Read one by one,
    the reads are most of what such a client costs. Reads that are not ``fresh`` may show old news
    (``ports.Table.get_many``).
    """

    def __init__(self, table: Table, *, fresh: bool = False) -> None:
        self._table = table
        self._fresh = fresh
        self._waiting: dict[str, list[asyncio.Future[Cell | None]]] = {}  # by key
        self._reads = False  # a request is under way, or about to begin
        self._tasks = Tasks("reads of sessions", Ending().fail)  # a failure goes to those that wait

    async def get(self, key: str) -> Cell | None:
        """The value of a key, read together with others."""
        loop = asyncio.get_running_loop()
        if not self._reads:
            self._reads = True
            loop.call_soon(self._begin)  # with others of this turn
        found: asyncio.Future[Cell | None] = loop.create_future()
        self._waiting.setdefault(key, []).append(found)
        return await found

    def _begin(self) -> None:
        self._tasks.spawn(self._read())

    async def _read(self) -> None:
        """Read what is asked for, until there is nothing more."""
        try:
            while self._waiting:
                keys = list(itertools.islice(self._waiting, KEYS_MAX))
                await self._read_some({key: self._waiting.pop(key) for key in keys})
        finally:
            self._reads = False

    async def _read_some(self, waiting: dict[str, list[asyncio.Future[Cell | None]]]) -> None:
        try:
            if len(waiting) == 1:
                (key,) = waiting
                cell = await self._table.get(key, fresh=self._fresh)
                found = {} if cell is None else {key: cell}
            else:
                found = await self._table.get_many(tuple(waiting), fresh=self._fresh)
        except TocsinError as error:
            failed = [*waiting.values()]
            if isinstance(error, StoreUnavailable):  # those who asked meanwhile would only wait for the same
                failed += self._waiting.values()
                self._waiting = {}
            for future in itertools.chain.from_iterable(failed):
                if not future.done():
                    future.set_exception(error)
            return
        for number, (key, futures) in enumerate(waiting.items(), 1):
            for future in futures:
                if not future.done():
                    future.set_result(found.get(key))
            if number % SLICE == 0:  # others are served before the next of a crowd go on
                await asyncio.sleep(0)


class Sessions:
    """The sessions of the network, as one broker sees them."""

    def __init__(
        self,
        table: Table,
        bus: Bus,
        *,
        network: str,
        broker: str,
        over: Callable[[StoredSession], None] = lambda session: None,
        lost: Callable[[str], bool] = lambda broker: False,
        backend: BackendSubscriptions | None = None,
        quota: SessionQuota | None = None,
    ) -> None:
        self.table = table
        self._reads = SessionReads(table)
        self._fresh_reads = SessionReads(table, fresh=True)
        self._backend = backend  # of the channels in sessions
        self.quota = quota or SessionQuota(1_000_000, 1 << 40, 100)
        self._bus = bus
        self._network = network
        self._broker = broker
        self._over = over  # told of a session that is replaced or forgotten
        self._lost = lost  # whether a broker counts as lost
        self._log = structlog.get_logger()

    async def take(
        self,
        client: str,
        *,
        owner: str,
        clean: bool,
        expiry_s: int,
        tail: int,
        came_us: int = 0,
        copied: CopiedPositions | None = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> tuple[StoredSession, int, bool] | None:
        """Make a client's session ours, resumed or (``clean``, or there is none) new: with its cell's revision, and
        whether it was resumed. None if there is none, and none is to last (``expiry_s`` 0).

        The broker that has the client now is asked to let it go, so that none of its state is lost, unless the client
        came there after it came here (``came_us``). ``copied`` are positions from the copy of a broker. ``Abandoned``
        if it is no longer ``wanted`` here: a client that has gone on must not lose its session to a connection that it
        has given up.
        """
        machine = SessionTaking(client, self._broker)
        asked = TakeAsked(
            owner=owner,
            clean=clean,
            expiry_s=expiry_s,
            tail=tail,
            uid=token_hex(8),
            copied=copied,
            cause=client,
        )
        effects = machine.handle(asked, wall_us())
        reads = self._reads  # what the first read shows is held against the cell by the write
        try:
            while True:
                *first, last = effects  # what is asked for, or how it ended
                for effect in first:
                    self._carry_out(effect)
                match last:
                    case SessionTaken(session=session, revision=revision, resumed=resumed):
                        self.quota.serves(client, owner, last.size, made=last.made)
                        return session, revision, resumed
                    case NoSession():
                        return None
                    case TakeFailed(error=error):
                        raise error
                event: Event = ClientGone(cause=client)
                if isinstance(last, GetKey):
                    event = await self._read(last, self._fresh_reads if last.fresh else reads)
                    reads = self._fresh_reads
                elif wanted() or not isinstance(last, AskHandOver | PutKey):
                    event = await self._outcome(last, came_us)
                effects = machine.handle(event, wall_us())
        except BaseException:
            if machine.state in (TakingState.HOLDING, TakingState.WRITING):
                # Nobody waits any more for what was under way.
                for effect in machine.handle(ClientGone(cause=client), wall_us()):
                    self._carry_out(effect)
            raise

    async def _read(self, asked: GetKey, reads: SessionReads) -> Event:
        """Read the cell together with others that are read just now."""
        try:
            cell = await reads.get(asked.key)
        except TocsinError as error:
            return StoreFailed(request=asked.request, error=error, cause=asked.cause)
        return Stored(request=asked.request, value=cell, cause=asked.cause)

    async def _outcome(self, asked: Effect, came_us: int) -> Event:
        """Do what a machine asks for; what came of it."""
        cause = asked.cause
        match asked:
            case PutKey():
                event = await outcome(asked, {}, {SESSIONS: self.table})
                self.quota.refused += isinstance(event, StoreFailed) and isinstance(event.error, StoreFull)
                return event
            case AskHandOver(session=session, patience_ms=patience_ms):
                if self._lost(session.broker):
                    patience_ms = min(patience_ms, LOST_PATIENCE_MS)
                silent = await self._ask_for(session, came_us, patience_ms / 1_000)
                return HandOverEnded(silent=silent, lost=silent and self._lost(session.broker), cause=cause)
            case CountRoom(owner=owner):
                return RoomCounted(problem=self.quota.no_room(owner, wall_us()), cause=cause)
            case HoldChannels(session=session):
                try:
                    if self._backend is not None:
                        await self._backend.prepare(session)
                except TocsinError as error:
                    return ChannelsHeld(error=error, cause=cause)
                return ChannelsHeld(cause=cause)
        raise AssertionError(f"no way to carry out {asked}")

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SessionReplaced(session=session):
                self._over(session)
            case KeepChannels(session=session) if self._backend is not None:
                self._backend.moved(session)
            case GiveUpChannels(session=session) if self._backend is not None:
                self._backend.abandon(session)
            case Say(text=text, level=level, facts=facts):
                getattr(self._log, level)(text, **facts)

    async def owner_of(self, client: str) -> str | None:
        """The owner of a client's stored session; None if there is none.

        A plain read: old news does no harm here. A broker that takes the session compares its owner again with the
        write, and a broker that deletes it uses a fresh read. A client that is let in by old news under another user's
        id gets nothing of that user's, and has to go when that user comes.
        """
        before = self._decoded(await self._reads.get(session_key(client)))
        return None if before is None else before.owner

    async def discard(self, owners: Mapping[str, str], doubtful: Collection[str] = ()) -> None:
        """Clients came that want no session, each of an owner: an old one, if it is its own, is forgotten. Of clients
        that are ``doubtful``, as they may have come before it was made, only if it was served last here.

        By a fresh read: after a stale answer that there is none, it would come back to a client that started clean.
        At most KEYS_MAX clients.
        """
        keys = {session_key(client): (client, owner) for client, owner in owners.items()}
        cells = await self.table.get_many(tuple(keys), fresh=True)
        await asyncio.gather(
            *(
                self._discard(*keys[key], cell, doubtful=keys[key][0] in doubtful)
                for key, cell in cells.items()
            )
        )

    async def _discard(self, client: str, owner: str, cell: Cell, *, doubtful: bool) -> None:
        try:
            before = self._decoded(cell)
            if before is None or before.broker not in ("", self._broker) or not may_take(before.owner, owner):
                return
            if doubtful and before.home != self._broker:
                return  # its client went there since, for all that is known
            await self.table.delete(session_key(client), revision=cell.revision)
        except Conflict:
            return  # somebody has just taken it
        except TocsinError as error:
            self._log.info("an old session may be left", subscriber=client, problem=str(error))
            return
        self._over(before)

    def _decoded(self, cell: Cell | None) -> StoredSession | None:
        if cell is None:
            return None
        try:
            return decode_session(cell.value)
        except UNREADABLE as error:
            self._log.error(
                "a stored session cannot be read, and stays as it is", key=cell.key, problem=str(error)
            )
            raise Unreadable(error) from None

    async def _ask_for(self, session: StoredSession, came_us: int, patience_s: float) -> bool:
        """Whether the broker that has the client says nothing."""
        try:
            answer = await self._bus.request(
                self.hand_over_subject(session.broker),
                HAND_OVER.seal(f"{came_us} {session.client}".encode()),
                deadline_s=patience_s,
            )
            HANDED.open(answer)
        except TocsinError as error:
            self._log.info(
                "the broker that has a session did not say that it let it go",
                subscriber=session.client,
                epoch=session.epoch,
                broker=session.broker,
                problem=str(error),
            )
            return isinstance(error, DeadlineExceeded)
        return False

    def hand_over_subject(self, broker: str) -> str:
        """Where a broker is asked to let a client go."""
        return f"{self._network}.session.{broker}"

    @staticmethod
    def wanted(request: BusMessage) -> tuple[str, int]:
        """The client that a hand-over request names, and when it came to the asking broker."""
        came, _, client = HAND_OVER.open(request.payload).decode(errors="replace").partition(" ")
        return client, int(came) if came.isdecimal() else 0

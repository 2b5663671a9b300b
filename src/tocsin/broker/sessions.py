"""Stored sessions: taking one over, writing it, letting it go. One cell of a table for each client that wants one."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from tocsin.broker.holding import Holding
from tocsin.core.delivery import Progress
from tocsin.core.ownership import may_take
from tocsin.core.session_quota import FRESH_BYTES, SessionQuota
from tocsin.core.stored_session import (
    StoredSession,
    decode_session,
    encode_session,
    kept_s,
    session_key,
)
from tocsin.errors import Conflict, StoreFull, TocsinError
from tocsin.model.versions import UNREADABLE, Format
from tocsin.ports import Bus, Cell, Delivery, Table
from tocsin.runtime.pump import wall_us

HAND_OVER: Final = Format("a request for a session", spoken=True)
HANDED: Final = Format("the answer to a request for a session", spoken=True)
HAND_OVER_DEADLINE_S: Final = 2.0  # for the broker that has the client to let it go; then it is taken
TAKE_ATTEMPTS: Final = 5  # against other brokers that want the same client at the same time


class NotYours(TocsinError):
    """The client id is another user's, who is connected with it or has a session."""

    fault = "peer"

    def __init__(self, client: str) -> None:
        self.client = client
        super().__init__(f"the client id {client!r} belongs to another user; choose another id")


class SessionsFull(TocsinError):
    """One session more cannot be stored."""

    fault = "peer"

    def __init__(self, client: str, problem: str) -> None:
        self.client = client
        super().__init__(f"no session is stored for {client!r}: {problem}; let sessions end, or ask for none")


class Lost(TocsinError):
    """Another broker has taken the client's session."""

    def __init__(self, client: str) -> None:
        self.client = client
        super().__init__(f"the session of {client!r} was taken by another broker")


class Unreadable(TocsinError):
    """The client has a session that cannot be read here. It is not replaced: it may have messages still to come."""

    def __init__(self, key: str, problem: str) -> None:
        self.key = key
        self.problem = problem
        super().__init__(f"the stored session of this client id (cell {key}) cannot be read here: {problem}")


class Abandoned(TocsinError):
    """The client has gone before its session was taken."""

    def __init__(self, client: str) -> None:
        self.client = client
        super().__init__(f"{client!r} has gone before it had its session")


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
        holding: Holding | None = None,
        quota: SessionQuota | None = None,
    ) -> None:
        self.table = table
        self._holding = holding  # of the channels in sessions
        self.quota = quota or SessionQuota(1_000_000, 1 << 40, 100)
        self._bus = bus
        self._network = network
        self._broker = broker
        self.over = over  # told of a session that is replaced or forgotten
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
        wanted: Callable[[], bool] = lambda: True,
    ) -> tuple[StoredSession, int, bool] | None:
        """Make a client's session ours, resumed or (``clean``, or there is none) new: with its cell's revision, and
        whether it was resumed. None if there is none, and none is to last (``expiry_s`` 0).

        Whoever has the client now is asked to let it go, so that nothing that it knows is lost, unless it came there
        after it came here (``came_us``). ``Abandoned`` if it is no longer ``wanted`` here: a client that has gone on
        must not lose its session to a connection that it has given up.
        """
        key = session_key(client)
        seen: Cell | None = None  # by a read that nobody answers with old news
        for _ in range(TAKE_ATTEMPTS):
            cell = seen or await self.table.get(key)
            seen, before = None, self._decoded(cell)
            if before is not None and not may_take(before.owner, owner):
                raise NotYours(client)
            if before is not None and before.broker not in ("", self._broker):
                await self._ask_for(before, came_us)
                cell = await self.table.get(key)
                before = self._decoded(cell)
                if before is not None and not may_take(before.owner, owner):
                    raise NotYours(client)
            if before is None and not expiry_s:
                seen = await self.table.get(key, fresh=True)
                if seen is None:
                    return None
                continue
            if before is None and (problem := self.quota.no_room(owner, wall_us())):
                raise SessionsFull(client, problem)
            epoch = 1 if before is None else before.epoch + 1
            fresh = clean or (before is not None and not before.confirmed)
            if before is None or fresh:
                session = StoredSession(
                    client=client,
                    uid=secrets.token_hex(8),
                    expiry_s=expiry_s,
                    epoch=epoch,
                    broker=self._broker,
                    owner=owner,
                    progress=Progress(tail + 1),
                    home=self._broker,
                    confirmed=clean,
                )
            else:
                session = msgspec.structs.replace(
                    before,
                    epoch=epoch,
                    broker=self._broker,
                    home=self._broker,
                    expiry_s=expiry_s,
                    owner=owner or before.owner,
                )
            try:
                revision = await self._claim(session, cell, None if fresh else before, wanted)
            except Conflict:
                continue
            if before is not None and fresh:
                self.over(before)
            size = FRESH_BYTES if cell is None or fresh else len(cell.value)
            self.quota.serves(client, owner, size, made=before is None)
            return session, revision, before is not None and not fresh
        raise Lost(client)

    async def _claim(
        self,
        session: StoredSession,
        cell: Cell | None,
        resumed: StoredSession | None,
        wanted: Callable[[], bool],
    ) -> int:
        """Write a session as ours. What one that goes on has of channels is held here before that."""
        revision = 0 if cell is None else cell.revision

        async def write() -> int:
            if not wanted():
                raise Abandoned(session.client)
            key, value, ttl_s = session_key(session.client), encode_session(session), kept_s(session)
            try:
                return await self.table.compare_and_set(key, value, revision=revision, ttl_s=ttl_s)
            except StoreFull:
                self.quota.refused += 1
                problem = "the store has no room (shares.sessions_bytes, or its disk)"
                raise SessionsFull(session.client, problem) from None

        if resumed is None or self._holding is None:
            return await write()
        try:
            await self._holding.prepare(resumed)
            revision = await write()
        except BaseException:
            self._holding.abandon(resumed)
            raise
        self._holding.moved(resumed)
        return revision

    async def owner_of(self, client: str) -> str | None:
        """Whose the stored session of a client is; None if there is none.

        A plain read: old news does no harm here. Whoever takes the session compares its owner again with the write, and
        whoever forgets it reads freshly. A client that is let in by old news under another user's id gets nothing
        of that user's, and has to go when that user comes.
        """
        before = self._decoded(await self.table.get(session_key(client)))
        return None if before is None else before.owner

    async def discard(self, client: str, owner: str) -> None:
        """A client came that wants no session: an old one, if it is its own, is forgotten.

        By a fresh read: with old news that there is none, it would come back to a client that began anew.
        """
        cell = await self.table.get(session_key(client), fresh=True)
        before = self._decoded(cell)
        if before is not None and not may_take(before.owner, owner):
            return
        if cell is not None and (before is None or before.broker in ("", self._broker)):
            try:
                await self.table.delete(session_key(client), revision=cell.revision)
            except Conflict:
                return  # somebody has just taken it
            if before is not None:
                self.over(before)

    def _decoded(self, cell: Cell | None) -> StoredSession | None:
        if cell is None:
            return None
        try:
            return decode_session(cell.value)
        except UNREADABLE as error:
            self._log.error(
                "a stored session cannot be read, and stays as it is", key=cell.key, problem=str(error)
            )
            raise Unreadable(cell.key, str(error)) from None

    async def _ask_for(self, session: StoredSession, came_us: int) -> None:
        try:
            answer = await self._bus.request(
                self.hand_over_subject(session.broker),
                HAND_OVER.seal(f"{came_us} {session.client}".encode()),
                deadline_s=HAND_OVER_DEADLINE_S,
            )
            HANDED.open(answer)
        except TocsinError as error:
            self._log.info(
                "session is taken from a broker that did not say that it let it go",
                subscriber=session.client,
                epoch=session.epoch,
                broker=session.broker,
                problem=str(error),
            )

    def hand_over_subject(self, broker: str) -> str:
        """Where a broker is asked to let a client go."""
        return f"{self._network}.session.{broker}"

    @staticmethod
    def wanted(request: Delivery) -> tuple[str, int]:
        """The client that a hand-over request names, and when it came to who asks."""
        came, _, client = HAND_OVER.open(request.payload).decode(errors="replace").partition(" ")
        return client, int(came) if came.isdecimal() else 0

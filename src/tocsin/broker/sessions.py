"""Stored sessions: taking one over, writing it, letting it go. One cell of a table for each client that wants one."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

import msgspec
import structlog

from tocsin.core.delivery import Progress
from tocsin.core.stored_session import StoredSession, decode_session, encode_session, session_key
from tocsin.errors import Conflict, Malformed, TocsinError
from tocsin.ports import Bus, Cell, Delivery, Table

HAND_OVER_DEADLINE_S: Final = 2.0  # for the broker that has the client to let it go; then it is taken
TAKE_ATTEMPTS: Final = 5  # against other brokers that want the same client at the same time
FOREVER_S: Final = 0xFFFFFFFF
TTL_MARGIN_S: Final = (
    30  # a cell outlives its session's expiry by as much as its broker may be late in saying so
)


class Lost(TocsinError):
    """Another broker has taken the client's session."""

    def __init__(self, client: str) -> None:
        self.client = client
        super().__init__(f"the session of {client!r} was taken by another broker")


class Hold:
    """A session that this broker holds: the only one that may write its cell."""

    def __init__(self, table: Table, session: StoredSession, revision: int) -> None:
        self.session = session
        self._table = table
        self._key = session_key(session.client)
        self._revision = revision
        self._writing = asyncio.Lock()

    async def write(self, session: StoredSession) -> None:
        """Store the session as it is now; ``Lost`` if it is ours no longer."""
        async with self._writing:
            try:
                self._revision = await self._table.compare_and_set(
                    self._key, encode_session(session), revision=self._revision, ttl_s=_ttl_s(session)
                )
            except Conflict:
                raise Lost(session.client) from None
            self.session = session

    async def forget(self) -> None:
        """The session is over."""
        async with self._writing:
            try:
                await self._table.delete(self._key, revision=self._revision)
            except Conflict:
                raise Lost(self.session.client) from None


class Sessions:
    """The sessions of the network, as one broker sees them."""

    def __init__(self, table: Table, bus: Bus, *, network: str, broker: str) -> None:
        self._table = table
        self._bus = bus
        self._network = network
        self._broker = broker
        self._log = structlog.get_logger()

    async def take(self, client: str, *, clean: bool, expiry_s: int, tail: int) -> tuple[Hold, bool]:
        """Hold a client's session, resumed or (``clean``, or there is none) new; whether it was resumed.

        Whoever has the client now is asked to let it go, so that nothing that it knows is lost.
        """
        key = session_key(client)
        for _ in range(TAKE_ATTEMPTS):
            cell = await self._table.get(key)
            before = self._decoded(cell)
            if before is not None and before.broker not in ("", self._broker):
                await self._ask_for(before)
                cell = await self._table.get(key)
                before = self._decoded(cell)
            epoch = 1 if before is None else before.epoch + 1
            if before is None or clean:
                session = StoredSession(
                    client=client,
                    uid=secrets.token_hex(8),
                    expiry_s=expiry_s,
                    epoch=epoch,
                    broker=self._broker,
                    progress=Progress(tail + 1),
                )
            else:
                session = msgspec.structs.replace(before, epoch=epoch, broker=self._broker, expiry_s=expiry_s)
            try:
                revision = await self._table.compare_and_set(
                    key,
                    encode_session(session),
                    revision=0 if cell is None else cell.revision,
                    ttl_s=_ttl_s(session),
                )
            except Conflict:
                continue
            return Hold(self._table, session, revision), before is not None and not clean
        raise Lost(client)

    async def discard(self, client: str) -> None:
        """A client came that wants no session: an old one is forgotten."""
        cell = await self._table.get(session_key(client))
        before = self._decoded(cell)
        if cell is not None and (before is None or before.broker in ("", self._broker)):
            try:
                await self._table.delete(session_key(client), revision=cell.revision)
            except Conflict:
                return  # somebody has just taken it

    def _decoded(self, cell: Cell | None) -> StoredSession | None:
        if cell is None:
            return None
        try:
            return decode_session(cell.value)
        except Malformed as error:
            self._log.error("a stored session is unreadable and is replaced", problem=str(error))
            return None

    async def _ask_for(self, session: StoredSession) -> None:
        try:
            await self._bus.request(
                self.hand_over_subject(session.broker),
                session.client.encode(),
                deadline_s=HAND_OVER_DEADLINE_S,
            )
        except TocsinError as error:
            self._log.info(
                "session is taken from a broker that does not answer",
                subscriber=session.client,
                epoch=session.epoch,
                broker=session.broker,
                problem=str(error),
            )

    def hand_over_subject(self, broker: str) -> str:
        """Where a broker is asked to let a client go."""
        return f"{self._network}.session.{broker}"

    @staticmethod
    def wanted(request: Delivery) -> str:
        """The client that a hand-over request names."""
        return request.payload.decode(errors="replace")


def _ttl_s(session: StoredSession) -> float | None:
    """How long a cell is kept. Expiry counts from the end of the connection; until then the cell is refreshed."""
    if session.expiry_s >= FOREVER_S:
        return None
    return float(session.expiry_s + TTL_MARGIN_S if session.broker else max(1, session.expiry_s))

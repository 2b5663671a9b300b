"""Clients that come: the other brokers are told, and of those that want no session an old one is forgotten.

A client id is one over the whole network: whoever else has it lets it go. A clean start ends the session that is
stored, whichever broker stored it. Both are messages to the store for which no client waits, and in a rush of thousands
the messages one by one are most of the work. So the others are told at once of who comes first, and of those who come
in the next TELL_S together; and old sessions are looked for together that are to go within FORGET_S.

A word says whose the client is (``core.ownership``), and is said of clients only that have proven to be entitled to
their ids: a client that is refused came nowhere.

Invariants: nobody is told of a client that has gone again; nobody is let go for a word from before it came
(``core.presence``); and what is to be forgotten of a client is forgotten before a session of it is taken (``settled``),
or the new one would go with the old.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final

import msgspec
import structlog

from tocsin.broker.sessions import Sessions
from tocsin.core.ownership import Claim
from tocsin.core.presence import Presence
from tocsin.errors import TocsinError
from tocsin.model.versions import UNREADABLE, Packed
from tocsin.ports import PAYLOAD_MAX_BYTES, Bus, Delivery

TELL_S: Final = 0.002  # shorter than most clients take to another broker
FORGET_S: Final = 0.01  # an old session that nobody takes does no harm
DISCARDS_MAX: Final = 64  # old sessions that are looked for at once
MARGIN_BYTES: Final = 320  # of an arrival, beside the client id and the user: a broker has a name, too

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """A client that has come to a broker; ``back``: for the session that it had, not for a new one."""

    claim: Claim
    back: bool


ARRIVALS: Final = Packed("who has come to a broker", msgspec.msgpack.Decoder(list[Arrival]), spoken=True)


class Arrivals:
    """The clients that come to one broker.

    ``ended`` returns when nothing of a client's earlier connection is left to store; ``spawn`` runs what is to be
    finished before the broker ends.
    """

    def __init__(
        self,
        bus: Bus,
        sessions: Sessions,
        *,
        network: str,
        broker: str,
        ended: Callable[[str], Awaitable[None]],
        spawn: Spawn,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self.subject = f"{network}.arrivals"  # where brokers say who has come to them
        self._bus = bus
        self._sessions = sessions
        self._broker = broker
        self._ended = ended
        self._spawn = spawn
        self._clock_us = clock_us  # on the wall
        self._presence = Presence()
        self._fresh: dict[str, Arrival] = {}  # of whom the others are to be told
        self._clean: dict[str, str] = {}  # client → owner, whose old sessions are to be forgotten
        self._forgetting: dict[str, asyncio.Task[None]] = {}  # the same, under way
        self._slots = asyncio.Semaphore(DISCARDS_MAX)
        self._told_at = 0.0  # when the others were last told, by the loop's clock
        self._timer: asyncio.TimerHandle | None = None  # for forgetting
        self._log = structlog.get_logger()

    def came(self, client: str) -> int:
        """A client has come, and may turn out to be another's. When that was."""
        came_us = self._clock_us()
        self._presence.came(client, came_us)
        return came_us

    def came_us(self, client: str) -> int:
        """When a client came that is here."""
        return self._presence.came_us(client)

    def tell(self, claim: Claim, *, back: bool) -> None:
        """Tell the others of a client that has come, and is entitled to its id."""
        if not self._fresh:
            asyncio.get_running_loop().call_at(self._told_at + TELL_S, self._tell)
        self._fresh[claim.client] = Arrival(claim, back)

    def begins_anew(self, client: str, owner: str) -> None:
        """A client has come that wants no session: an old one is to be forgotten."""
        self._clean[client] = owner
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FORGET_S, self.forget)

    def went(self, client: str) -> None:
        """A client has no connection here any more."""
        self._fresh.pop(client, None)
        self._presence.went(client)

    def since(self, client: str, came_us: int) -> bool:
        """Whether a client has come here after it came elsewhere, at that time."""
        return self._presence.since(client, came_us)

    async def settled(self, client: str) -> None:
        """Return when nothing is left to be forgotten of a client."""
        if client in self._clean:
            self.forget()
        task = self._forgetting.get(client)
        if task is not None:
            await asyncio.wait({task})

    def elsewhere(self, word: Delivery) -> list[Arrival]:
        """The clients that have come to another broker, and not here since."""
        try:
            arrivals = ARRIVALS.read(word.payload)
        except UNREADABLE as error:
            self._log.warning("a word of clients that came is unreadable", problem=str(error))
            return []
        return [
            each
            for each in arrivals
            if each.claim.broker != self._broker and not self.since(each.claim.client, each.claim.came_us)
        ]

    # ── together ────────────────────────────────────────────────────────────────────────────────────────────

    def _tell(self) -> None:
        fresh, self._fresh = self._fresh, {}
        self._told_at = asyncio.get_running_loop().time()
        if fresh:
            self._spawn(self._tell_others(list(fresh.values())))

    def forget(self) -> None:
        """Forget now what would be forgotten a moment later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._clean:
            clean, self._clean = self._clean, {}
            before = {self._forgetting[each] for each in clean if each in self._forgetting}
            task = self._spawn(self._forget(clean, before))
            self._forgetting.update(dict.fromkeys(clean, task))
            task.add_done_callback(lambda task: self._forgot(clean, task))

    async def _tell_others(self, arrivals: list[Arrival]) -> None:
        try:
            for payload in _payloads(arrivals):
                await self._bus.publish(self.subject, payload)
        except TocsinError as error:
            self._log.debug("the others do not know of a client", problem=str(error))

    async def _forget(self, clean: dict[str, str], before: set[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        await asyncio.gather(*(self._discard(client, owner) for client, owner in clean.items()))

    def _forgot(self, clean: dict[str, str], task: asyncio.Task[None]) -> None:
        for client in clean:
            if self._forgetting.get(client) is task:
                del self._forgetting[client]

    async def _discard(self, client: str, owner: str) -> None:
        async with self._slots:
            try:
                await self._ended(client)
                await self._sessions.discard(client, owner)
            except TocsinError as error:
                self._log.info("an old session may be left", subscriber=client, problem=str(error))


def _payloads(arrivals: list[Arrival]) -> Iterator[bytes]:
    """What is said of so many clients, in as few messages as their size allows."""
    named: list[Arrival] = []
    size = 0
    for each in arrivals:
        length = len(each.claim.client.encode()) + len(each.claim.owner.encode()) + MARGIN_BYTES
        if named and size + length > PAYLOAD_MAX_BYTES // 2:
            yield ARRIVALS.write(named)
            named, size = [], 0
        named.append(each)
        size += length
    yield ARRIVALS.write(named)

"""Clients that come: the other brokers are told, and of those that want no session an old one is forgotten.

A client id is one over the whole network: whoever else has it lets it go. A clean start ends the session that is
stored, whichever broker stored it. Both are messages to the store for which no client waits, and in a rush of thousands
the messages one by one are most of the work. So the others are told at once of who comes first, and of those who come
in the next TELL_S together; and old sessions are looked for together that are to go within FORGET_S.

Invariants: nobody is told of a client that has gone again; nobody is let go for a word from before it came
(``core.presence``); and what is to be forgotten of a client is forgotten before a session of it is taken (``settled``),
or the new one would go with the old.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import structlog

from tocsin.broker.sessions import Sessions
from tocsin.core.presence import Presence
from tocsin.errors import TocsinError
from tocsin.ports import PAYLOAD_MAX_BYTES, Bus, Delivery

TELL_S: Final = 0.002  # shorter than most clients take to another broker
FORGET_S: Final = 0.01  # an old session that nobody takes does no harm
DISCARDS_MAX: Final = 64  # old sessions that are looked for at once
SEPARATOR: Final = "\0"  # in no client id: MQTT allows it in no string
BACK, CLEAN = "+", "-"  # before the time and the client id: it came for its session, or for a new one

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


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
        # Of whom the others are to be told → when it came, and whether for its session.
        self._fresh: dict[str, tuple[int, bool]] = {}
        self._clean: dict[str, str] = {}  # client → owner, whose old sessions are to be forgotten
        self._forgetting: dict[str, asyncio.Task[None]] = {}  # the same, under way
        self._slots = asyncio.Semaphore(DISCARDS_MAX)
        self._told_at = 0.0  # when the others were last told, by the loop's clock
        self._timer: asyncio.TimerHandle | None = None  # for forgetting
        self._log = structlog.get_logger()

    def came(self, client: str, *, back: bool) -> int:
        """A client has come; ``back``: for the session that it had. When that was."""
        if not self._fresh:
            asyncio.get_running_loop().call_at(self._told_at + TELL_S, self._tell)
        came_us = self._clock_us()
        self._presence.came(client, came_us)
        self._fresh[client] = came_us, back
        return came_us

    def came_clean(self, client: str, owner: str) -> None:
        """A client has come that wants no session."""
        self.came(client, back=False)
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

    def elsewhere(self, arrival: Delivery) -> list[tuple[str, bool, str]]:
        """The clients that have come to another broker and not here since, whether for their sessions, and to which."""
        broker, *clients = arrival.payload.decode(errors="replace").split(SEPARATOR)
        if broker == self._broker:
            return []
        found = []
        for each in clients:
            came, _, client = each[1:].partition(" ")
            if came.isdecimal() and not self.since(client, int(came)):
                found.append((client, each.startswith(BACK), broker))
        return found

    # ── together ────────────────────────────────────────────────────────────────────────────────────────────

    def _tell(self) -> None:
        fresh, self._fresh = self._fresh, {}
        self._told_at = asyncio.get_running_loop().time()
        if fresh:
            marked = [
                f"{BACK if back else CLEAN}{came_us} {client}" for client, (came_us, back) in fresh.items()
            ]
            self._spawn(self._tell_others(marked))

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

    async def _tell_others(self, clients: list[str]) -> None:
        try:
            for payload in _payloads(self._broker, clients):
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


def _payloads(broker: str, clients: list[str]) -> list[bytes]:
    """What is said of so many clients, in as few messages as their size allows."""
    found: list[bytes] = []
    named, size = [broker.encode()], 0
    for client in clients:
        name = client.encode()
        if size + len(name) > PAYLOAD_MAX_BYTES // 2 and len(named) > 1:
            found.append(SEPARATOR.encode().join(named))
            named, size = named[:1], 0
        named.append(name)
        size += len(name) + 1
    return [*found, SEPARATOR.encode().join(named)]

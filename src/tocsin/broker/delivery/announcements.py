"""The shell of ``core.survival.announcements``: the other brokers are told of clients that come, over the bus; and of
clients that want no session an old one is removed from the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, Final

import msgspec
import structlog

from tocsin.broker.delivery.session_store import Sessions
from tocsin.broker.survival.client_state import ConnectedClients
from tocsin.core.access.ownership import Claim
from tocsin.core.machine import Effect
from tocsin.core.survival.announcements import (
    Announcements,
    Arrival,
    ArrivalClock,
    BeganAnew,
    ClientCame,
    ClientLetIn,
    ClientWent,
    ForgetLot,
    ForgetNow,
    LotForgotten,
    OthersTold,
    TellOthers,
)
from tocsin.errors import TocsinError
from tocsin.model.versions import UNREADABLE, Packed
from tocsin.ports import KEYS_MAX, PAYLOAD_MAX_BYTES, Bus, BusMessage
from tocsin.runtime.machines.clock import wall_us
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Failed

MARGIN_BYTES: Final = 320  # of an arrival, beside the client id and the user: a broker has a name, too

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

ARRIVALS: Final = Packed("who has come to a broker", msgspec.msgpack.Decoder(list[Arrival]), spoken=True)


class Arrivals:
    """The clients that come to one broker. ``clients`` are those who are in.

    ``ended`` returns when nothing of earlier connections of some clients is left to store; ``spawn`` runs what is to
    be finished before the broker ends.
    """

    def __init__(
        self,
        bus: Bus,
        sessions: Sessions,
        *,
        network: str,
        broker: str,
        clock: ArrivalClock,
        clients: ConnectedClients[Any],
        ended: Callable[[Iterable[str]], Awaitable[None]],
        spawn: Spawn,
        failed: Failed,
        clock_us: Callable[[], int] = lambda: wall_us(),
    ) -> None:
        self.subject = f"{network}.arrivals"  # the subject on which brokers announce arrivals
        self._bus = bus
        self._sessions = sessions
        self._broker = broker
        self._clients = clients
        self._ended = ended
        self._spawn = spawn
        self._clock_us = clock_us  # on the wall
        self._machine = Announcements(broker, clock)
        self._shell = Shell(self._machine, self._carry_out, failed)
        self._post = self._shell.post
        self._lots: dict[int, asyncio.Event] = {}  # that are being forgotten
        self._log = structlog.get_logger()

    def came(self, client: str) -> int:
        """A client has come, and may turn out to be another's. When that was."""
        self._post(ClientCame(client=client, at_us=self._clock_us(), cause=client))
        return self._machine.times.came_us(client)

    def holder(self, client: str) -> Claim | None:
        """The claim of the client that was admitted here under a client id."""
        connection = self._clients.present.get(client)
        if connection is None:
            return None
        delivery = connection.delivery
        owner = self._clients.who(connection).user
        stored = bool(owner and delivery.session) and not delivery.provisional
        return Claim(client, owner, self._broker, self._machine.times.came_us(client), stored, inside=True)

    def tell(self, claim: Claim, *, back: bool, new: bool = False) -> None:
        """Tell the others of a client that has come, and is entitled to its id. ``new``: its CONNECT was read just
        now."""
        self._post(ClientLetIn(arrival=Arrival(claim, back), new=new, cause=claim.client))

    def begins_anew(self, client: str, owner: str) -> None:
        """A client has come that wants no session: an old one is to be forgotten."""
        self._post(BeganAnew(client=client, owner=owner, cause=client))

    def went(self, client: str, *, unheard: bool = False) -> None:
        """A client has no connection here any more; ``unheard``: nothing was read of it after its CONNECT."""
        self._post(ClientWent(client=client, unheard=unheard, cause=client))

    def since(self, client: str, came_us: int) -> bool:
        """Whether a client has come here after it came elsewhere, at that time."""
        return self._machine.times.since(client, came_us)

    async def settled(self, client: str) -> None:
        """Return when nothing is left to be forgotten of a client."""
        if self._machine.is_waiting(client):
            self.forget()
        lot = self._machine.lot_of(client)
        if lot is not None:
            await self._lots[lot].wait()

    def forget(self) -> None:
        """Forget now what would be forgotten a moment later."""
        self._post(ForgetNow(cause=f"{self._broker}:forget"))

    def elsewhere(self, word: BusMessage) -> list[Arrival]:
        """The clients that have come to another broker, and not here since."""
        try:
            arrivals = ARRIVALS.read(word.payload)
        except UNREADABLE as error:
            self._log.warning("a word of clients that came is unreadable", problem=str(error))
            return []
        self._post(OthersTold(arrivals=tuple(arrivals), cause=f"{self._broker}:arrivals"))
        return self._machine.elsewhere(arrivals)

    # ── the machine's effects ───────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case TellOthers(arrivals=arrivals):
                self._spawn(self._tell_others(arrivals))
            case ForgetLot(number=number):
                self._lots[number] = asyncio.Event()
                self._spawn(self._forget(effect))
            case _:
                self._shell.carry_out(effect)

    async def _tell_others(self, arrivals: tuple[Arrival, ...]) -> None:
        try:
            for payload in _payloads(arrivals):
                await self._bus.publish(self.subject, payload)
        except TocsinError as error:
            self._log.debug("the others do not know of a client", problem=str(error))

    async def _forget(self, lot: ForgetLot) -> None:
        try:
            for earlier in lot.after:
                if earlier in self._lots:
                    await self._lots[earlier].wait()
            await self._ended(lot.owners)
            owners = list(lot.owners.items())
            for first in range(0, len(owners), KEYS_MAX):
                await self._sessions.discard(dict(owners[first : first + KEYS_MAX]), lot.doubtful)
        except TocsinError as error:
            self._log.info("old sessions may be left", clients=len(lot.owners), problem=str(error))
        finally:
            self._lots.pop(lot.number).set()
            self._post(LotForgotten(number=lot.number, cause=lot.cause))


def _payloads(arrivals: Iterable[Arrival]) -> Iterator[bytes]:
    """The announcements of these clients, in as few messages as their size allows."""
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

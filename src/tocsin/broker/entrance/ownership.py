"""Client ids are claimed from the other brokers before a client is let in (``core.access.ownership``).

The others are asked only where users can be proven at all, and only of ids that are not known to be the user's: a
client that has a stored session is its owner's, and need not ask. Claims of the same moment go together, one request
to each broker.

A broker that does not answer within ANSWER_S is **silent**: the client is let in without its word, because a broker
that hangs must not keep everybody out, and nobody waits for a silent one. It is asked again every AGAIN_S about clients
that came since, and when it objects, they go: the first client stays. The same holds for the store: while it cannot be
read, nobody knows the owners of stored sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Final, Protocol

import msgspec
import structlog

from tocsin.core.access.ownership import Claim, may_take, prevails
from tocsin.errors import TocsinError
from tocsin.model.versions import UNREADABLE, Packed
from tocsin.ports import Bus, BusMessage
from tocsin.runtime.machines.clock import wall_us
from tocsin.runtime.machines.tasks import Ending, Tasks

ANSWER_S: Final = 2.0  # for another broker, or the store; as for a session to be handed over
AGAIN_S: Final = 1.0  # between two questions to a broker that is silent
GATHER_S: Final = 0.002  # claims of this time go together; the first goes at once
CLAIMS_MAX: Final = 500  # in one request: some 250 kB, if every id and name is as long as it may be
DOUBTFUL_MAX: Final = 10_000  # clients of which a silent broker is asked again; the oldest go first
STORE: Final = ""  # among the names of brokers, which are not empty

CLAIMS: Final = Packed("claims to client ids", msgspec.msgpack.Decoder(list[Claim]), spoken=True)
REFUSED: Final = Packed("client ids that are others'", msgspec.msgpack.Decoder(list[str]), spoken=True)

Holder = Callable[[str], Claim | None]  # the claim of the connected client under a client id
Expel = Callable[[str], None]  # ends a client's connection: its id is another user's


class Isolated(Protocol):
    """Whether the store and the other brokers can be asked, and what is known if not."""

    @property
    def cut_off(self) -> bool: ...

    def owner_of(self, client: str) -> str | None:
        """The owner of a client id's session, by the copies; None: they know of none."""
        ...


class Ownership:
    """Finds out whose a client id is. ``holder`` has the claim of the connected client, ``expel`` ends a connection
    whose id is another user's; ``stored`` finds the owner of a client id's stored session, None if there is none;
    ``asks``: users can be proven in this network.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        network: str,
        broker: str,
        others: Iterable[str] = (),
        asks: bool = False,
        holder: Holder,
        expel: Expel,
        isolated: Isolated,
        stored: Callable[[str], Awaitable[str | None]],
        answer_s: float = ANSWER_S,
        again_s: float = AGAIN_S,
    ) -> None:
        self.asks = asks
        self._holder = holder
        self._expel = expel
        self._isolated = isolated
        self.objections = 0  # claims that this broker objected to
        self.silent: set[str] = set()  # those that did not answer, and have not since
        self._bus = bus
        self._network = network
        self._broker = broker
        self._others = tuple(each for each in others if each != broker)
        self._stored = stored
        self._answer_s = answer_s
        self._again_s = again_s
        self._pending: dict[str, list[Claim]] = {}  # those that knock here, by client id
        self._beaten: set[Claim] = set()  # of them: another broker was told that it wins
        self._gathered: list[tuple[Claim, asyncio.Future[bool]]] = []
        self._asked_at = 0.0  # when the others were asked last, by the loop's clock
        self._doubtful: dict[str, dict[str, Claim]] = {}  # by silent broker: the clients that came since
        self._doubts = asyncio.Event()
        self._ending = Ending()
        self._tasks = Tasks("ownership", self._ending.fail)
        self._log = structlog.get_logger()

    def subject(self, broker: str) -> str:
        """Where a broker is asked about client ids."""
        return f"{self._network}.owner.{broker}"

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    async def entitled(self, client: str, user: str) -> bool:
        """Whether a client id is this user's to have: nobody else has a session under it, or is connected with it.
        Asked before the client is let in, where users are told from each other."""
        claim = Claim(client, user, self._broker, wall_us())
        if self._isolated.cut_off:
            self.came_unasked(claim)
            known = self._isolated.owner_of(client)
            return known is None or may_take(known, user)
        owner, store_knows = await self.owner_of(client)
        if owner is not None and not may_take(owner, user):
            return False
        if owner:
            return True  # its own: nobody need be asked
        return await self.claim(claim, store_knows=store_knows)

    async def owner_of(self, client: str) -> tuple[str | None, bool]:
        """The owner of a client id's stored session, None if there is none; and whether the store could tell."""
        if STORE in self.silent:
            return None, False
        try:
            async with asyncio.timeout(self._answer_s):
                return await self._stored(client), True
        except (TocsinError, TimeoutError) as error:
            self._falls_silent(STORE, str(error))
            return None, False

    async def claim(self, claim: Claim, *, store_knows: bool = True) -> bool:
        """Whether no other broker objects to a client that knocks here."""
        if not self.asks:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending.setdefault(claim.client, []).append(claim)
        if not self._gathered:
            asyncio.get_running_loop().call_at(self._asked_at + GATHER_S, self._ask)
        self._gathered.append((claim, future))
        try:
            free = await future
            won = free and claim not in self._beaten
        finally:
            self._beaten.discard(claim)
            self._pending[claim.client].remove(claim)
            if not self._pending[claim.client]:
                del self._pending[claim.client]
        if won:
            self._doubt(claim, self.silent if store_knows else {*self.silent, STORE})
        return won

    def came_unasked(self, claim: Claim) -> None:
        """A client is let in while nobody can be asked: they are, later."""
        if self.asks:
            self._doubt(claim, {*self._others, STORE})

    def _doubt(self, claim: Claim, silent: Iterable[str]) -> None:
        for each in silent:
            doubtful = self._doubtful.setdefault(each, {})
            doubtful[claim.client] = msgspec.structs.replace(claim, inside=True)
            if len(doubtful) > DOUBTFUL_MAX:
                del doubtful[next(iter(doubtful))]
            self._doubts.set()

    def _ask(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._asked_at = asyncio.get_running_loop().time()
        for first in range(0, len(gathered), CLAIMS_MAX):
            self._tasks.spawn(self._ask_all(gathered[first : first + CLAIMS_MAX]))

    async def _ask_all(self, gathered: list[tuple[Claim, asyncio.Future[bool]]]) -> None:
        claims = [claim for claim, _ in gathered]
        asked = [each for each in self._others if each not in self.silent]
        answers = await asyncio.gather(*(self._ask_one(each, claims) for each in asked))
        refused = {client for answer in answers for client in answer or ()}
        for claim, future in gathered:
            if not future.done():
                future.set_result(claim.client not in refused)

    async def _ask_one(self, broker: str, claims: list[Claim]) -> list[str] | None:
        """The client ids that a broker has for others; None if it does not answer."""
        try:
            answer = await self._bus.request(
                self.subject(broker), CLAIMS.write(claims), deadline_s=self._answer_s
            )
            refused = REFUSED.read(answer)
        except TocsinError as error:
            self._falls_silent(broker, str(error))
            return None
        self.silent.discard(broker)
        return refused

    def _falls_silent(self, broker: str, problem: str) -> None:
        if broker not in self.silent:
            self.silent.add(broker)
            who = broker or "the store"
            self._log.info("does not say whose client ids are", broker=who, problem=problem)
        self._doubts.set()

    # ── being asked ─────────────────────────────────────────────────────────────────────────────────────────

    async def answer(self, request: BusMessage) -> bytes:
        """The client ids of a request that are another user's here."""
        try:
            claims = CLAIMS.read(request.payload)
        except UNREADABLE as error:
            self._log.warning("a question about client ids is unreadable", problem=str(error))
            return REFUSED.write([])
        return REFUSED.write([claim.client for claim in claims if self.objects(claim)])

    def objects(self, theirs: Claim) -> bool:
        """Whether a client id is another user's here. If not, a client that has it here for another user gives way."""
        inside, pending = self._holder(theirs.client), self._pending.get(theirs.client, ())
        if any(prevails(ours, theirs) for ours in (inside, *pending) if ours is not None):
            self.objections += 1
            return True
        self._beaten.update(ours for ours in pending if not may_take(ours.owner, theirs.owner))
        if inside is not None and not may_take(inside.owner, theirs.owner):
            self._expel(theirs.client)
        return False

    def object_to(self, theirs: Claim) -> None:
        """Tell a broker that let a client in that its id is another user's here."""
        self._tasks.spawn(self._object_to(theirs))

    async def _object_to(self, theirs: Claim) -> None:
        ours = self._holder(theirs.client)
        if ours is not None:
            await self._ask_one(theirs.broker, [ours])

    # ── asking again ────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Ask those again that were silent, for as long as the broker lives."""
        self._tasks.spawn(self._ask_silent_again())
        try:
            await self._ending.wait()
        finally:
            await self._tasks.wait_closed()

    async def _ask_silent_again(self) -> None:
        while True:
            await self._doubts.wait()
            await asyncio.sleep(self._again_s)
            if not self.silent and not any(self._doubtful.values()):
                self._doubts.clear()
                continue
            for each in {*self.silent, *self._doubtful}:
                await (self._ask_store_again() if each == STORE else self._ask_again(each))

    async def _ask_again(self, broker: str) -> None:
        doubtful = self._doubtful.get(broker, {})
        claims = [claim for claim in islice(doubtful.values(), CLAIMS_MAX) if self._is_inside(claim)]
        refused = await self._ask_one(broker, claims)
        if refused is None:
            return
        for claim in claims:
            if claim.client in refused and self._is_inside(claim):
                self._expel(claim.client)
        self._sure(broker, claims)

    async def _ask_store_again(self) -> None:
        self.silent.discard(STORE)
        for claim in tuple(islice(self._doubtful.get(STORE, {}).values(), CLAIMS_MAX)):
            if self._is_inside(claim):
                owner, known = await self.owner_of(claim.client)
                if not known:
                    return
                if owner is not None and not may_take(owner, claim.owner) and self._is_inside(claim):
                    self._expel(claim.client)
            self._sure(STORE, (claim,))

    def _sure(self, broker: str, claims: Iterable[Claim]) -> None:
        doubtful = self._doubtful.get(broker, {})
        for claim in claims:
            if doubtful.get(claim.client) is claim:
                del doubtful[claim.client]
        for client in [each for each, claim in doubtful.items() if not self._is_inside(claim)]:
            del doubtful[client]
        if not doubtful:
            self._doubtful.pop(broker, None)

    def _is_inside(self, claim: Claim) -> bool:
        """Whether a client of that user is still here."""
        holder = self._holder(claim.client)
        return holder is not None and holder.owner == claim.owner

"""One client's part in groups, from its connection's side: joining, being answered, leaving.

A client joins when its subscription is durable, and SUBACK waits until it is durable that it is a member. A group that
takes no more is refused there (0x97), and one that is another user's (0x80), unless a rule lets the client in. A client
that comes back is a member again before it is welcomed, so that the packet ids of what it has of each group are known
before any is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog
from mqtt5 import SubAckPacket, SubAckReasonCode

from tocsin.broker.group import NoMember, Taker
from tocsin.broker.groups import Groups
from tocsin.core.forwarding import Subscription
from tocsin.core.sharing import NO_ROOM
from tocsin.core.stored_group import Claim
from tocsin.core.stored_session import StoredSession
from tocsin.core.subscriptions import REFUSED
from tocsin.errors import StoreFull
from tocsin.wire.topics import SHARE_PREFIX

NOT_AUTHORIZED: Final = "not authorized: the rules do not let the client into this group"

# By index in the SUBACK: the subscription, why, and the code.
Refused = Mapping[int, tuple[str, str, SubAckReasonCode]]


class Partaking:
    """See the module's text. ``session`` is the stored one, if there is one, and ``expiry_s`` how long it is kept."""

    __slots__ = (
        "_answering",
        "_asked",
        "_cause",
        "_ended",
        "_epoch",
        "_expiry_s",
        "_groups",
        "_log",
        "_names",
        "_session",
        "_taker",
    )

    def __init__(
        self, groups: Groups, taker: Taker, cause: str, *, session: StoredSession | None, expiry_s: int
    ) -> None:
        self._groups = groups
        self._taker = taker
        self._cause = cause
        self._session = f"{groups.life} {cause}" if session is None else session.uid  # nobody else's
        self._epoch = 1 if session is None else session.epoch
        self._expiry_s = expiry_s
        self._names: dict[str, None] = {}  # the groups that it is, or is to be, a member of
        self._asked: dict[int, tuple[str, Subscription]] = {}  # of the SUBSCRIBE at hand, by index
        self._answering: set[asyncio.Task[None]] = set()
        self._ended = False
        self._log = structlog.get_logger()

    async def resume(self, stored: StoredSession) -> tuple[tuple[str, Claim], ...]:
        """Be a member again of all that is stored; what the client has of each group. ``StoreFull`` if the store has no
        room for that: a client must not be welcomed and get nothing."""
        names = [name for name in stored.subscriptions if name.startswith(SHARE_PREFIX)]
        if names:
            await self._groups.live()
        found = await asyncio.gather(*(self._join(name, stored.subscriptions[name]) for name in names))
        claims: list[tuple[str, Claim]] = []
        for name, outcome in zip(names, found, strict=True):
            if isinstance(outcome, NoMember) and outcome.full:
                raise StoreFull("come back to a group", NO_ROOM)
            if isinstance(outcome, NoMember):
                self._log.warning("a client came back to a group and is no member", problem=str(outcome))
            else:
                claims += [(name, claim) for claim in outcome]
        return tuple(claims)

    async def _join(self, name: str, subscription: Subscription) -> tuple[Claim, ...] | NoMember:
        """What the client has of a group, or why it is no member of it."""
        if self._ended:
            return NoMember(name, "the connection is over")
        self._names[name] = None
        may = self._taker.rights().may_join(name)
        if may is False:
            self._names.pop(name, None)
            return NoMember(name, NOT_AUTHORIZED, REFUSED)
        try:
            return await self._groups.join(
                name,
                self._taker,
                subscription,
                entitled=may is True,
                session=self._session,
                epoch=self._epoch,
                expiry_s=self._expiry_s,
                cause=self._cause,
            )
        except NoMember as error:
            self._names.pop(name, None)
            return error

    def subscribe(self, name: str, subscription: Subscription, index: int) -> None:
        """The client wants to be a member; ``acknowledge`` follows with the SUBACK that has its code at this index."""
        self._asked[index] = (name, subscription)

    @property
    def asked(self) -> bool:
        """Whether the client wants to be a member of a group, and has not been answered."""
        return bool(self._asked)

    def acknowledge(self, packet: SubAckPacket, send: Callable[[SubAckPacket, Refused], None]) -> None:
        """Have a SUBACK sent when everything in it is so, but for what is refused after all."""
        asked, self._asked = self._asked, {}

        def join() -> None:  # not before the subscription is stored: a member must know that it is one
            task = asyncio.get_running_loop().create_task(self._answer(packet, asked, send))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

        self._taker.attendant.when_durable(join if asked else lambda: send(packet, {}))

    async def _answer(
        self,
        packet: SubAckPacket,
        asked: dict[int, tuple[str, Subscription]],
        send: Callable[[SubAckPacket, Refused], None],
    ) -> None:
        there = self._taker.attendant.subscriptions
        found: Sequence[tuple[Claim, ...] | NoMember]
        try:
            await self._groups.live()
            # Those that were not unsubscribed meanwhile.
            still = {index: each for index, each in asked.items() if each[0] in there}
            found = await asyncio.gather(*(self._join(*each) for each in still.values()))
        except StoreFull:
            still = asked
            found = [NoMember(name, NO_ROOM, full=True) for name, _ in asked.values()]
        if not self._ended:
            outcomes = zip(still.items(), found, strict=True)
            send(
                packet,
                {
                    index: (name, str(why), why.code)
                    for (index, (name, _)), why in outcomes
                    if isinstance(why, NoMember)
                },
            )

    def unsubscribe(self, name: str) -> None:
        if name in self._names:
            del self._names[name]
            self._groups.quit(name, self._taker.client_id, self._session)

    def room_made(self) -> None:
        """The client may take more than before."""
        for name in self._names:
            self._groups.room_made(name)

    def end(self, expiry_s: int) -> None:
        """The connection is over; the session is kept for so long."""
        self._ended = True
        for name in self._names:
            self._groups.leave(name, self._taker, self._session, expiry_s)

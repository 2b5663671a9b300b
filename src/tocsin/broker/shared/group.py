"""One group at this broker: the shell around its machine (``core.shared.machine``), and its hands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

import structlog
from mqtt5 import SubAckReasonCode

from tocsin.broker.client import Client
from tocsin.broker.links.link import NO_MAXIMUM
from tocsin.broker.shared.group_sources import GroupSource
from tocsin.core.budgets.budget import Budget
from tocsin.core.channels.channel_filter import Bound
from tocsin.core.delivery.grant import Frames, Grant
from tocsin.core.delivery.window import WAIT, DeliveryWindow
from tocsin.core.forwarding.table import Subscription
from tocsin.core.forwarding.tallies import Count
from tocsin.core.machine import Effect, Event
from tocsin.core.session.subscribe import REFUSED
from tocsin.core.shared.machine import Sharing
from tocsin.core.shared.room import GroupRoom
from tocsin.core.shared.signals import (
    CANNOT,
    Bereft,
    EndFound,
    EndUnknown,
    FindEnd,
    Follow,
    Forget,
    Give,
    Held,
    Hold,
    Join,
    Joined,
    LetGo,
    LookAgain,
    Matched,
    NotHeld,
    PartFailed,
    ReadPart,
    Turned,
    Unwanted,
    Vanished,
)
from tocsin.core.shared.stored_group import GROUPS, Claim, ResultsSource
from tocsin.errors import StoreFull, TocsinError
from tocsin.model.publication import Publication
from tocsin.ports import Table
from tocsin.runtime.faults.kill_points import BEFORE_SEND, reach
from tocsin.runtime.machines.clock import wall_s, wall_us
from tocsin.runtime.machines.shell import Shell
from tocsin.wire.mqtt.topics import FilterInvalid


class NoMember(TocsinError):
    """A client cannot be a member of a group."""

    fault = "peer"

    def __init__(
        self,
        name: str,
        reason: str,
        code: SubAckReasonCode = SubAckReasonCode.QUOTA_EXCEEDED,
        *,
        full: bool = False,
    ) -> None:
        self.name = name
        self.code = code
        self.full = full  # the store has no room: later it may
        super().__init__(f"no subscription to {name!r}: {reason}")


class GroupPorts(Protocol):
    """The parts that all groups of a broker share."""

    table: Table
    incarnation: str
    members_max: int
    unwanted: Callable[[int], None]
    budget: Budget

    def failed(self, error: BaseException) -> None: ...

    def alive(self, incarnation: str) -> bool: ...

    def vanished(self, group: LocalGroup) -> None: ...

    def crowded(self) -> None: ...

    def follow(self, group: LocalGroup, source: ResultsSource | None) -> None: ...

    async def hold(self, name: str) -> Bound: ...

    def let_go(self, name: str) -> None: ...

    def look_again(self, name: str, broker: str) -> None: ...


class LocalGroup:
    """A group that has members at this broker. A failure of it ends the broker: it speaks for all its members."""

    def __init__(self, name: str, source: GroupSource, ports: GroupPorts, *, of_results: bool) -> None:
        self.name = name
        self.source = source
        self.of_results = of_results
        self._ports = ports
        self._room = GroupRoom(ports.budget.account(None))
        self._machine = Sharing(name, ports.incarnation, self, ports.members_max, of_results=of_results)
        self._holds = 0  # how often it was asked to hold its backend subscription, or to let it go
        self._holding = False
        self._shell = Shell(
            self._machine, self._carry_out, ports.failed, tables={GROUPS: ports.table}, clock=wall_us
        )
        self.post = self._shell.post
        self._takers: dict[str, tuple[Client, Subscription]] = {}  # by client id
        self.given_bytes = 0  # to members here, since they were counted
        self._joining: dict[tuple[str, str], asyncio.Future[tuple[Claim, ...]]] = {}  # by client and session
        self._log = structlog.get_logger()

    async def join(
        self,
        taker: Client,
        subscription: Subscription,
        *,
        entitled: bool,
        session: str,
        epoch: int,
        expiry_s: int,
        cause: str,
    ) -> tuple[Claim, ...]:
        """Make a client a member; what it has from earlier connections. ``NoMember`` if it cannot be one."""
        client = taker.client_id
        self._room.belong(taker.user)
        self._takers[client] = (taker, subscription)
        joined = self._joining.get((client, session))
        if joined is None or joined.done():
            joined = self._joining[client, session] = asyncio.get_running_loop().create_future()
        self.post(
            Join(
                client=client,
                user=taker.user,
                entitled=entitled,
                session=session,
                epoch=epoch,
                expiry_s=expiry_s,
                cause=cause,
            )
        )
        return await asyncio.shield(joined)

    def leave(self, taker: Client, session: str) -> None:
        """Nothing can be sent to a connection any more."""
        known, _ = self._takers.get(taker.client_id, (None, None))
        if known is taker:
            del self._takers[taker.client_id]
        joining = self._joining.pop((taker.client_id, session), None)
        if joining is not None:
            joining.set_exception(NoMember(self.name, "the connection is over"))

    @property
    def members(self) -> int:
        """How many members are here."""
        return len(self._takers)

    def count(self) -> Count:
        """The bytes since the last count, for each member here."""
        size, self.given_bytes = self.given_bytes, 0
        members = max(len(self._takers), 1)
        return Count(self.name, size / members, members)

    # ── ports ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def tail(self) -> int:
        return self.source.tail

    @property
    def horizon(self) -> int:
        return self.source.horizon

    @property
    def done(self) -> int:
        return self.source.done

    def alive(self, incarnation: str) -> bool:
        return self._ports.alive(incarnation)

    def room(self, client: str) -> bool:
        taker = self._taker(client)
        return taker is not None and not taker.full and taker.delivery.room

    def takes(self, client: str, matched: Matched) -> int:
        publication = matched.publication
        taker, subscription = self._takers.get(client, (None, None))
        if taker is None or subscription is None or not taker.may_receive(self.source.topic(publication)):
            return CANNOT
        granted = _grant(subscription, publication)
        if taker.send_max_bytes < NO_MAXIMUM:
            frame = Frames(publication, 0).of(taker.version, granted, 1 if granted.qos else 0)
            if len(frame) > taker.send_max_bytes:
                return CANNOT
        return granted.qos

    def reserve(self, client: str) -> int:
        claims = self._claims(client)
        return WAIT if claims is None else claims.reserve()

    def give_back(self, client: str, packet_id: int) -> None:
        claims = self._claims(client)
        if claims is not None:
            claims.give_back(packet_id)

    def send_again(self, client: str, packet_id: int, qos: int) -> bool:
        claims = self._claims(client)
        return claims is not None and self.room(client) and claims.send_again(packet_id, qos)

    def keep(self, size: int) -> bool:
        return self._room.keep(size)

    def let_go(self, size: int) -> None:
        self._room.let_go(size)

    def _taker(self, client: str) -> Client | None:
        return self._takers.get(client, (None, None))[0]

    def _claims(self, client: str) -> DeliveryWindow | None:
        taker = self._taker(client)
        return None if taker is None else taker.delivery.claims

    # ── the machine's effects ───────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Give():
                self._give(effect)
            case Forget(client=client, packet_ids=packet_ids):
                taker = self._taker(client)
                if taker is not None:
                    taker.delivery.forget_claims(packet_ids)
            case Joined(client=client, session=session, claims=claims):
                joining = self._joining.pop((client, session), None)
                if joining is not None:
                    joining.set_result(claims)
            case Turned(client=client, session=session, reason=reason, foreign=foreign, full=full):
                joining = self._joining.pop((client, session), None)
                if joining is not None:
                    code = REFUSED if foreign else SubAckReasonCode.QUOTA_EXCEEDED
                    joining.set_exception(NoMember(self.name, reason, code, full=full))
            case ReadPart():
                size = max(self.source.page_bytes, effect.least)
                begin = partial(self._begin_read, effect, size)
                self._room.before_read(size, begin, self._ports.crowded)
            case FindEnd():
                self._shell.spawn(self._find_end(effect))
            case Hold():
                self._holding = True
                self._hold(effect)
            case LetGo():
                self._holding = False
                self._holds += 1
                self._ports.let_go(self.name)
            case LookAgain(broker=broker):
                self._ports.look_again(self.name, broker)
            case Follow(source=source):
                self._ports.follow(self, source)
                self.source.followed = source
            case Bereft():
                self._bereft(effect)
            case Unwanted(messages=messages):
                self._ports.unwanted(messages)
            case Vanished():
                self._shell.close_timers()
                self._room.close()
                self._ports.vanished(self)
            case _:
                self._shell.carry_out(effect)

    def _bereft(self, bereft: Bereft) -> None:
        joining = self._joining.pop((bereft.client, bereft.session), None)
        if joining is not None:
            joining.set_exception(NoMember(self.name, "the group is over"))
        taker = self._taker(bereft.client)
        if taker is not None:
            words = "a group was over before its member was, which has to come back"
            self._log.warning(words, group=self.name, subscriber=bereft.client, cause=bereft.cause)
            taker.sever()

    def _give(self, give: Give) -> None:
        taker, subscription = self._takers.get(give.client, (None, None))
        if taker is None or subscription is None:
            return
        claims = taker.delivery.claims
        if give.qos and not give.repeat:
            position = give.matched.position
            if claims is None or not claims.claimed(give.packet_id, self.name, position, give.qos):
                return  # it is another connection by now, and will be told so
        publication = give.matched.publication
        granted = _grant(subscription, publication, give.qos)
        frames = Frames(publication, max(0.0, wall_s() - give.matched.entry.at_us / 1e6))
        reach(BEFORE_SEND)
        frame = frames.of(taker.version, granted, give.packet_id, give.repeat)
        self.given_bytes += len(frame)
        self.source.note_sent()
        taker.queue(frame)

    def _begin_read(self, asked: ReadPart, size: int) -> None:
        self._shell.spawn(self._read(asked, size))

    async def _read(self, asked: ReadPart, size: int) -> None:
        read: Event
        try:
            read = await self.source.read(asked)
        except TocsinError as error:
            read = PartFailed(error=error, cause=asked.cause)
        self._room.after_read(size, partial(self.post, read))

    async def _find_end(self, asked: FindEnd) -> None:
        try:
            position = await self.source.end()
        except TocsinError as error:
            self._log.warning("a group cannot begin yet", group=self.name, problem=str(error))
            self.post(EndUnknown(revision=asked.revision, cause=asked.cause))
            return
        self.post(EndFound(revision=asked.revision, position=position, cause=asked.cause))

    # ── the backend subscription of a group of results ──────────────────────────────────────────────────────

    def altered(self) -> None:
        """The group's channel is another: so may be what it holds."""
        if self._holding:
            self._hold(Hold(cause=f"{self.name} altered"))

    def _hold(self, asked: Hold) -> None:
        self._holds += 1
        self._shell.spawn(self._held(asked, self._holds))

    async def _held(self, asked: Hold, turn: int) -> None:
        """Hold it; what comes of an earlier turn counts for nothing."""
        said: Event
        try:
            said = Held(bound=await self._ports.hold(self.name), cause=asked.cause)
        except StoreFull as error:
            said = NotHeld(reason=str(error), full=True, cause=asked.cause)
        except FilterInvalid as error:
            said = NotHeld(reason=error.problem, cause=asked.cause)
        if turn == self._holds:
            self.post(said)

    def close(self) -> None:
        """The broker stops."""
        self._shell.close()


def _grant(subscription: Subscription, publication: Publication, qos: int | None = None) -> Grant:
    identifiers = () if subscription.identifier is None else (subscription.identifier,)
    retain = subscription.retain_as_published and publication.retain
    return Grant(min(subscription.qos, publication.qos) if qos is None else qos, identifiers, retain)

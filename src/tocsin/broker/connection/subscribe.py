"""One client's subscriptions, and their SUBACK, which is sent when its grants are in force.

| filter | SUBACK waits until | refused with |
| --- | --- | --- |
| any, of a session that is stored | it is stored | 0x97: no room for it |
| shared | the client is a durable member of the group | 0x97: the group is full; 0x80: it is another user's |
| query, listing, who wants | the coordinator has answered, or for a while | 0x97: the coordinator does not take it |
| channel | the backend subscription is stored | 0x8F: there is no such channel; 0x97: no room for it |
| shared channel | both of shared and of channel | as of both |
| any | the broker's backups know of it | |

``acknowledge`` gathers what there is to wait for in one task. If there is nothing, SUBACK goes out at once and no task
is made. Then come retained messages, listings and whether a filter is wanted.

If the store cannot be reached (``hurry``), SUBACK and UNSUBACK do not wait until something is stored: that is later. If
the store is back before they go out, because they waited for something else, they do wait. A client joins a group only
when its subscription is stored, so a SUBSCRIBE with a shared filter does wait.

A client that comes back is a member of its groups again before it is welcomed (``rejoin``). So the packet ids of what
it has of each group are known before any is used.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from mqtt5 import RetainHandling, SubAckPacket, SubAckReasonCode

from tocsin.broker.client import ClientConnection
from tocsin.broker.delivery.durable import Durable
from tocsin.broker.delivery.history import History, has_history
from tocsin.broker.forwarding.exchange import Exchange
from tocsin.broker.shared.group import NoMember
from tocsin.broker.streams.queries import Asked
from tocsin.core.budgets.budget import Kind, Refusal
from tocsin.core.channels.channel_filter import ChannelFilter
from tocsin.core.delivery.grant import Grant
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.filters import (
    ListingFilter,
    QueryFilter,
    RequestFilter,
    SharedFilter,
    StoredFilter,
    TopicFilter,
    UnreadableFilter,
    WantedFilter,
    filter_type,
    stored_filter,
)
from tocsin.core.forwarding.table import UNBEGUN, Subscription
from tocsin.core.quality.judging import Judge
from tocsin.core.quality.offers import query_for, scope_of
from tocsin.core.retained.kept import Kept, Stub
from tocsin.core.session.signals import Subscribe
from tocsin.core.session.subscribe import REFUSED
from tocsin.core.shared.machine import NO_ROOM
from tocsin.core.shared.stored_group import Claim
from tocsin.core.streams.query_topics import filters_of
from tocsin.errors import StoreFull
from tocsin.runtime.machines.clock import wall_s

SUBSCRIPTION_BYTES: Final = 1_400  # of a subscription in all that knows of it, beside its name: measured
NOT_AUTHORIZED: Final = "not authorized: the rules do not let the client into this group"
QUOTA_EXCEEDED: Final = SubAckReasonCode.QUOTA_EXCEEDED
SEND_ALWAYS: Final = RetainHandling.SEND_ALWAYS
SEND_IF_NEW: Final = RetainHandling.SEND_IF_SUBSCRIPTION_NOT_EXISTS

Act = Callable[[], None]
Problem = tuple[str, SubAckReasonCode]  # why a subscription is refused
Ready = Callable[[], Coroutine[Any, Any, Problem | None]]


# A filter, and its subscription if that is a new one: it begins when the log is read for it. Another began long ago.
_Early = tuple[StoredFilter, Subscription | None]


class _Asked:
    """A filter of a SUBSCRIBE that is not answered, if there is more to it than to answer."""

    __slots__ = ("begin", "filter", "index", "problem", "ready")

    def __init__(
        self,
        asked: Subscribe,
        *,
        problem: Problem | None = None,
        ready: Ready | None = None,
        begin: Act | None = None,
    ) -> None:
        self.index, self.filter = asked.index, asked.filter
        self.problem = problem  # it is refused
        self.ready = ready  # SUBACK waits for this, which says why it is refused after all
        self.begin = begin  # to be done after SUBACK


class _Saving:
    """A client's changes, on their way into the store. ``hurries``: its answer goes out if that is cut off."""

    __slots__ = ("_waiter", "done", "hurries")

    def __init__(self, hurries: bool) -> None:
        self.hurries = hurries
        self.done = False  # it is stored
        self._waiter: asyncio.Future[None] | None = None

    def settle(self) -> None:
        self.done = True
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None:
            _settle(self._waiter)

    async def wait(self) -> None:
        """Return when it is stored, or may not be for long."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


class ClientSubscriber:
    """Carries out what one client subscribes to, and sends its SUBACKs when they are true."""

    __slots__ = (
        "__weakref__",
        "_asked",
        "_cause",
        "_client",
        "_counted",
        "_durable",
        "_early",
        "_ended",
        "_epoch",
        "_exchange",
        "_groups",
        "_histories",
        "_holds",
        "_session",
        "_turn",
        "_unsure",
    )

    def __init__(self, client: ClientConnection, exchange: Exchange, durable: Durable, cause: str) -> None:
        self._client = client
        self._exchange = exchange
        self._durable = durable
        self._cause = cause
        self._session = ""  # the uid of the stored one
        self._epoch = 1  # of the stored one
        self._counted: set[str] = set()  # subscriptions that the budget knows of
        self._groups: dict[str, None] = {}  # those that it is, or is to be, a member of
        self._holds = False  # it has, or had, a channel
        self._asked: list[_Asked] = []  # of the SUBSCRIBE at hand
        self._early: list[_Early] = []  # … those for which the log is not read yet
        self._turn: asyncio.Future[None] | None = None  # done when no answer waits for that any more
        # Answers wait for these, in order. Made when needed: most clients need none.
        self._unsure: dict[_Saving, None] | None = None
        self._ended = False
        self._histories: dict[str, asyncio.Task[None]] = {}  # of subscriptions that get theirs

    @property
    def _holder(self) -> str:
        """The session, as groups and backend subscriptions know it: nobody else's has this name."""
        return self._session or f"{self._durable.groups.incarnation} {self._cause}"

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────

    async def rejoin(self, session: StoredSession) -> tuple[tuple[str, Claim], ...]:
        """Be a member again of the groups in a stored session; what the client has of each. ``StoreFull`` if the store
        has no room for that: a client must not be welcomed and get nothing."""
        self._session, self._epoch = session.uid, session.epoch
        names = session.named(SharedFilter)
        if names:
            await self._durable.groups.write_incarnation()
        found = await asyncio.gather(*(self._join(name, session.subscriptions[name]) for name in names))
        claims: list[tuple[str, Claim]] = []
        for name, outcome in zip(names, found, strict=True):
            if isinstance(outcome, NoMember) and outcome.full:
                raise StoreFull("come back to a group", NO_ROOM)
            if isinstance(outcome, NoMember):
                problem = "a client came back to a group and is no member"
                structlog.get_logger().warning(problem, problem=str(outcome))
            else:
                claims += [(name, claim) for claim in outcome]
        return tuple(claims)

    def restore(self, *, channels: bool = True) -> None:
        """Have what a stored session is subscribed to."""
        known = self._durable.channels.backend.machine.meaning
        for name, subscription in self._client.delivery.subscriptions.items():
            channel = filter_type(name) is ChannelFilter
            if channel and not channels:
                continue
            if name not in self._counted:
                refusal = self._client.account.charge(Kind.SESSIONS, SUBSCRIPTION_BYTES + len(name))
                if refusal is not None:
                    self._client.exhausted(refusal)
                    return
                self._counted.add(name)
            if channel and known(name) is not None:  # so it was read already
                self._durable.channels.subscribe(self._client, name, subscription)
            else:
                self._exchange.subscribe(self._client, stored_filter(name), subscription, bound=False)
            self._holds = self._holds or channel

    def begin(self) -> None:
        """The client of a stored session is welcomed."""
        for name in self._client.delivery.subscriptions:
            if filter_type(name) in (ListingFilter, WantedFilter):
                asked = stored_filter(name)
                if isinstance(asked, ListingFilter | WantedFilter):
                    self._exchange.queries.begin(self._client, asked)
        for name, subscription in tuple(self._client.delivery.subscriptions.items()):
            if subscription.since == UNBEGUN:
                self._tell_history(stored_filter(name))
        self.room_made()

    def _tell_history(self, wanted: StoredFilter) -> None:
        """Have the client get what the log and other brokers have for a new subscription; of the log it begins then."""
        subscription = self._client.delivery.subscriptions.get(wanted.name)
        if subscription is None or subscription.since != UNBEGUN:
            return
        self._exchange.requests.recalling.begin(self._client, wanted.name)
        running = self._histories.get(wanted.name)
        if running is not None and not running.done():
            return

        def begin(begun: Subscription) -> None:
            before = self._client.delivery.subscriptions[wanted.name]
            self._exchange.subscribe(self._client, wanted, begun, bound=False)
            self._client.delivery.begins(wanted.name, before, begun)

        history = History(self._client, self._durable.message_log, self._durable.retained, wanted.name, begin)
        self._histories[wanted.name] = self._client.spawn(history.run())

    def room_made(self) -> None:
        """The client may take more of its groups' messages than before."""
        for name in self._groups:
            self._durable.groups.room_made(name)

    def end(self, expiry_s: int) -> None:
        """The connection is over; its session is kept for so long."""
        self._ended = True
        for name in self._groups:
            self._durable.groups.leave(name, self._client, self._holder, expiry_s)
        if self._holds:
            self._durable.channels.backend.leave(self._holder, expiry_s)

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, asked: Subscribe) -> None:
        """One subscription of a SUBSCRIBE; ``acknowledge`` follows."""
        wanted = asked.filter
        refusal = self._count(asked.filter.name)
        if refusal is not None:
            self._refuse(asked, str(refusal))
            return
        if isinstance(wanted, ChannelFilter):
            self._subscribe_channel(asked)
            return
        subscription = self._add(asked)
        if subscription is None:
            return
        retained = asked.retain_handling == SEND_ALWAYS or (
            asked.retain_handling == SEND_IF_NEW and not asked.existed
        )
        match wanted:
            case SharedFilter():  # a group gets no retained messages (MQTT 5, section 3.3.1.3)
                self._asked.append(_Asked(asked, ready=lambda: self._joined(wanted, subscription)))
            case WantedFilter():
                self._asked.append(
                    _Asked(
                        asked,
                        ready=None
                        if self._exchange.queries.is_known(wanted)
                        else lambda: self._answered(wanted, ""),
                        begin=lambda: self._exchange.queries.begin(self._client, wanted),
                    )
                )
            case TopicFilter() | RequestFilter() | QueryFilter() if has_history(asked.request):
                self._asked.append(
                    _Asked(
                        asked,
                        ready=lambda: self._known(wanted, asked.request),
                        begin=lambda: self._tell_history(wanted),
                    )
                )
            case QueryFilter() | ListingFilter():
                known = self._exchange.queries.is_known(wanted) and not asked.request
                self._asked.append(
                    _Asked(
                        asked,
                        ready=None if known else lambda: self._answered(wanted, asked.request),
                        begin=lambda: self._begin_query(wanted, subscription if retained else None),
                    )
                )
            case TopicFilter() | RequestFilter() if retained or asked.request:
                self._asked.append(
                    _Asked(
                        asked,
                        ready=(lambda: self._offers_known(wanted, asked.request)) if asked.request else None,
                        begin=(lambda: self._replay(wanted, subscription)) if retained else None,
                    )
                )

    def _add(self, asked: Subscribe) -> Subscription | None:
        """Have a subscription that is to no channel; None if it is refused."""
        delivery, name = self._client.delivery, asked.filter.name
        message_log = self._durable.message_log
        since = UNBEGUN if has_history(asked.request) else message_log.tail
        before = delivery.subscriptions.get(name)
        if before is not None:  # its options change; it is not a new one
            since = before.since
        elif delivery.session and not self._durable.quota.may_grow(self._client.user):
            self._refuse(asked, "stored sessions take too much room already (shares.sessions_bytes)")
            return None
        subscription = Subscription(
            asked.no_local,
            asked.subscription_id,
            int(asked.qos),
            asked.retain_as_published,
            since,
            asked.request,
        )
        if not self._exchange.subscribe(self._client, asked.filter, subscription):
            most = self._exchange.interests.most
            self._refuse(asked, f"this broker's clients have {most} different filters already")
            return None
        delivery.subscribed(name, subscription)
        if (read := _read_for(asked.filter)) and not message_log.is_covered(read):
            self._early.append((asked.filter, subscription if before is None else None))
        return subscription

    def _refuse(self, asked: Subscribe, problem: str) -> None:
        self._asked.append(_Asked(asked, problem=(problem, QUOTA_EXCEEDED)))

    def _count(self, name: str) -> Refusal | None:
        """Have the budget know of a subscription, unless there is no room for it."""
        if name in self._counted:
            return None
        refusal = self._client.account.take(Kind.SESSIONS, SUBSCRIPTION_BYTES + len(name))
        if refusal is None:
            self._counted.add(name)
        return refusal

    def _uncount(self, name: str) -> None:
        if name in self._counted:
            self._counted.remove(name)
            self._client.account.give(Kind.SESSIONS, SUBSCRIPTION_BYTES + len(name))

    def unsubscribe(self, wanted: StoredFilter) -> None:
        self._remove(wanted)
        if wanted.name in self._groups:
            del self._groups[wanted.name]
            self._durable.groups.quit(wanted.name, self._client.client_id, self._holder)

    def _remove(self, wanted: StoredFilter) -> None:
        self._uncount(wanted.name)
        if (history := self._histories.pop(wanted.name, None)) is not None:
            history.cancel()
        self._exchange.unsubscribe(self._client, wanted)
        self._client.delivery.unsubscribed(wanted.name)
        if self._holds and isinstance(wanted, ChannelFilter | UnreadableFilter):
            self._durable.channels.backend.release(self._holder, (wanted.name,))

    # ── SUBACK and UNSUBACK ─────────────────────────────────────────────────────────────────────────────────

    def acknowledge(self, packet: SubAckPacket) -> None:
        """Have a SUBACK sent when what it says is so."""
        asked: list[_Asked] = []
        if self._asked:
            asked, self._asked = self._asked, asked
        joins = any(isinstance(each.filter, SharedFilter) and each.ready is not None for each in asked)
        if self._early or self._turn is not None:
            early, self._early = self._early, []
            self._client.spawn(self._acknowledge_exactly(packet, asked, early, hurries=not joins))
            return
        stored = self._stored(hurries=not joins)
        waits = stored is not None or self._durable.replication.active
        if waits or any(each.ready is not None for each in asked):
            self._client.spawn(self._acknowledge(packet, asked, stored))
        else:
            self._answer(packet, asked)

    async def _acknowledge_exactly(
        self,
        packet: SubAckPacket,
        asked: list[_Asked],
        early: list[_Early],
        *,
        hurries: bool,
    ) -> None:
        """The same, once the log is read for these: they begin where it ended then."""
        async with self._in_turn():
            if early:
                await self._begin_exactly(early)
        await self._acknowledge(packet, asked, self._stored(hurries=hurries))

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        """What waits for the log to be read is answered in the order in which it was asked."""
        before = self._turn
        mine = self._turn = asyncio.get_running_loop().create_future()
        try:
            yield
            if before is not None:
                await asyncio.wait((before,))
        finally:
            _settle(mine)
            if self._turn is mine:
                self._turn = None

    async def _begin_exactly(self, early: list[_Early]) -> None:
        since = await self._covered([name for wanted, _ in early for name in _read_for(wanted)])
        delivery = self._client.delivery
        for wanted, before in early:
            if before is None or delivery.subscriptions.get(wanted.name) is not before:
                continue
            if since > before.since:
                begun = msgspec.structs.replace(before, since=since)
                self._exchange.subscribe(self._client, wanted, begun, bound=False)
                delivery.begins(wanted.name, before, begun)

    async def _covered(self, filters: list[str]) -> int:
        """Return when the log is read for these filters, or when the store cannot be reached: then it will be from
        where it was read to, which is returned."""
        message_log, saving = self._durable.message_log, _Saving(hurries=True)
        covering = asyncio.ensure_future(message_log.cover(filters))
        covering.add_done_callback(lambda _: saving.settle())
        try:
            await self._until(saving)
            return covering.result() if covering.done() else message_log.promise(filters)
        finally:
            covering.cancel()

    async def _acknowledge(self, packet: SubAckPacket, asked: list[_Asked], stored: _Saving | None) -> None:
        await self._until(stored)
        waiting = [(each, each.ready()) for each in asked if each.ready is not None]
        problems = await asyncio.gather(*(ready for _, ready in waiting))
        for (each, _), problem in zip(waiting, problems, strict=True):
            each.problem = problem
        await self._synced()
        await self._until(stored)
        self._answer(packet, asked)

    def _answer(self, packet: SubAckPacket, asked: list[_Asked]) -> None:
        refused = {each.index: (each.filter, *each.problem) for each in asked if each.problem is not None}
        for wanted, _, _ in refused.values():
            self._remove(wanted)
        self._client.acknowledge(packet, refused)
        for each in asked:
            if each.problem is None and each.begin is not None:
                each.begin()

    def confirm(self, send: Act) -> None:
        """Have an UNSUBACK sent when what it says is stored, and the backups know."""
        if self._turn is not None:
            self._client.spawn(self._confirm_in_turn(send))
            return
        stored = self._stored()
        if stored is not None or self._durable.replication.active:
            self._client.spawn(self._confirm(send, stored))
        else:
            send()

    async def _confirm_in_turn(self, send: Act) -> None:
        async with self._in_turn():
            pass
        await self._confirm(send, self._stored())

    async def _confirm(self, send: Act, stored: _Saving | None) -> None:
        await self._until(stored)
        await self._synced()
        await self._until(stored)
        send()

    def _stored(self, *, hurries: bool = True) -> _Saving | None:
        """The wait until the changes are stored; None: they are."""
        saving = _Saving(hurries)
        self._client.delivery.when_durable(saving.settle)
        return None if saving.done else saving

    async def _until(self, saving: _Saving | None) -> None:
        """Return when it is stored; or, if it hurries, when the store cannot be reached: then it is later."""
        if saving is None:
            return
        while not saving.done and not (saving.hurries and self._durable.provisional.cut_off):
            if self._unsure is None:
                self._unsure = {}
            self._unsure[saving] = None
            try:
                await saving.wait()
            finally:
                del self._unsure[saving]

    def release_waits(self) -> None:
        """The store cannot be reached."""
        for saving in self._unsure or ():
            saving.wake()

    async def _synced(self) -> None:
        """Return when the backups know of the client what is so now."""
        replication = self._durable.replication
        if replication.active:
            synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            replication.when_synced(self._client.client_id, lambda: _settle(synced))
            await synced

    # ── groups ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _joined(self, wanted: SharedFilter, subscription: Subscription) -> Problem | None:
        """Return when the client is a member of a group; or why it is none. A client whose session is not taken becomes
        one later: under another session it would lose what it has in the group."""
        if self._client.delivery.provisional:
            return None
        try:
            await self._durable.groups.write_incarnation()
        except StoreFull:
            full = NoMember(wanted.name, NO_ROOM, full=True)
            return str(full), full.code
        if wanted.name not in self._client.delivery.subscriptions:
            return None  # it has unsubscribed since
        problem = await self._channel_problem(wanted) if wanted.of_results else None
        if problem is not None:
            return problem, SubAckReasonCode.TOPIC_FILTER_INVALID
        outcome = await self._join(wanted.name, subscription)
        return (str(outcome), outcome.code) if isinstance(outcome, NoMember) else None

    async def _join(self, name: str, subscription: Subscription) -> tuple[Claim, ...] | NoMember:
        """The client's membership of a group, or why it is no member."""
        if self._ended:
            return NoMember(name, "the connection is over")
        self._groups[name] = None
        may = self._client.rights().may_join(name)
        if may is False:
            self._groups.pop(name, None)
            return NoMember(name, NOT_AUTHORIZED, REFUSED)
        try:
            return await self._durable.groups.join(
                name,
                self._client,
                subscription,
                entitled=may is True,
                session=self._holder,
                epoch=self._epoch,
                expiry_s=self._client.expiry_s,
                cause=self._cause,
            )
        except NoMember as error:
            self._groups.pop(name, None)
            return error

    async def _channel_problem(self, wanted: SharedFilter) -> str | None:
        """Why the client may not have the results that a group shares; as of a channel of its own (``_held``)."""
        channels = self._durable.channels
        if channels.refused(self._client, wanted.pattern) is not None:
            await channels.backend.refresh(wanted.pattern)
        return channels.refused(self._client, wanted.pattern)

    # ── queries ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _answered(self, wanted: Asked, request: str) -> Problem | None:
        """Return when the coordinator has answered, or after a while; or why it refused."""
        problems = await self._exchange.queries.answered((wanted,))
        if problems:
            return problems[wanted.name], QUOTA_EXCEEDED
        return (
            await self._offers_known(wanted, request) if isinstance(wanted, QueryFilter) and request else None
        )

    async def _known(self, wanted: TopicFilter | RequestFilter | QueryFilter, request: str) -> Problem | None:
        """Return when it is known what a request is about, or after a while; or why it is refused."""
        if isinstance(wanted, QueryFilter):
            return await self._answered(wanted, request)
        return await self._offers_known(wanted, request)

    async def _offers_known(
        self, wanted: TopicFilter | RequestFilter | QueryFilter, request: str
    ) -> Problem | None:
        """Return when it is known what the streams offer that a request is about, or after a while; or why not."""
        requests, scope = self._exchange.requests, scope_of(wanted)
        if not requests.is_known(scope, request):
            listing = ListingFilter(wanted.name, query_for(scope))
            problems = await self._exchange.queries.answered((listing,))
            if problems:
                return problems[wanted.name], QUOTA_EXCEEDED
        problem = await requests.problem(self._client, scope, request)
        return None if problem is None else (problem, SubAckReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)

    def _begin_query(self, wanted: QueryFilter | ListingFilter, subscription: Subscription | None) -> None:
        """Tell the client the set of a listing, and, with a subscription, what is retained."""
        self._exchange.queries.begin(self._client, wanted)
        if subscription is not None:
            self._replay(wanted, subscription)

    # ── channels ────────────────────────────────────────────────────────────────────────────────────────────

    def _subscribe_channel(self, asked: Subscribe) -> None:
        self._holds = True
        problem = self._durable.channels.problem(self._client, asked.filter.name)
        held = self._hold(asked) if problem is None else None
        self._asked.append(_Asked(asked, ready=lambda: self._held(asked, held)))

    def _hold(self, asked: Subscribe) -> asyncio.Future[None]:
        """Have a channel; done when its backend subscription is stored."""
        name, delivery, channels = asked.filter.name, self._client.delivery, self._durable.channels
        before = delivery.subscriptions.get(name)
        since = before.since if before is not None and before.qos else channels.results.tail
        qos = min(1, int(asked.qos))
        subscription = Subscription(identifier=asked.subscription_id, qos=qos, since=since)
        self._exchange.subscribe(self._client, asked.filter, subscription)
        delivery.subscribed(name, subscription)
        return channels.backend.hold(self._holder, self._client.client_id, (name,))

    async def _held(self, asked: Subscribe, held: asyncio.Future[None] | None) -> Problem | None:
        """Return when the backend subscription is stored; or why there is none. A channel that is not known here may
        have been defined a moment ago: it is looked for before it is refused."""
        if held is None:
            channels = self._durable.channels
            await channels.backend.refresh(asked.filter.name)
            problem = channels.problem(self._client, asked.filter.name)
            if problem is not None:  # it does not exist, or has other parameters
                return problem, SubAckReasonCode.TOPIC_FILTER_INVALID
            held = self._hold(asked)
            await self._until(self._stored(hurries=False))
        await asyncio.wait((held,))
        full = held.exception()
        return None if full is None else (str(full), QUOTA_EXCEEDED)

    # ── retained messages ───────────────────────────────────────────────────────────────────────────────────

    def _replay(
        self, wanted: TopicFilter | RequestFilter | QueryFilter | ListingFilter, subscription: Subscription
    ) -> None:
        """Have the client get what is retained for a filter, or for the streams of a query."""
        client, retained, name = self._client, self._durable.retained, wanted.name
        if name not in client.delivery.subscriptions:
            return  # it has unsubscribed since
        identifiers = () if subscription.identifier is None else (subscription.identifier,)
        grants = [Grant(qos, identifiers, True) for qos in range(subscription.qos + 1)]
        streams: list[str] | None = None  # of a query, once it has its turn
        request = subscription.request
        fits = Judge().fits if request else None

        def pages(after: str | None) -> Iterator[tuple[Kept, Grant | None]]:
            nonlocal streams
            rights = client.rights()
            if isinstance(wanted, QueryFilter | ListingFilter) and streams is None:
                streams = sorted(self._exchange.queries.topics(wanted))
            pattern = wanted.pattern if isinstance(wanted, RequestFilter) else name
            now_s, most, unlimited = wall_s(), subscription.qos, rights.open
            for kept in retained.all(pattern, after) if streams is None else retained.of(streams, after):
                publication = kept.publication
                may = unlimited or rights.may_receive(publication.topic)
                if publication.expiry_s is not None and kept.over(now_s):
                    may = False
                if fits is not None and kept.__class__ is not Stub and not fits(request, publication):
                    may = False  # of a stub it is known when the message is here
                qos = publication.qos
                yield kept, grants[qos if qos < most else most] if may else None

        if isinstance(wanted, TopicFilter | RequestFilter):
            since = client.delivery.subscriptions[name].since
            pattern = name if isinstance(wanted, TopicFilter) else wanted.pattern
            retained.await_late(pattern, since, partial(_send_late, weakref.ref(self), name))
        client.delivery.replay(name, pages, retained)

    def replay_late(self, name: str, late: Kept) -> None:
        """Have the client get a message that is retained only now, and was published before its subscription began."""
        client, retained = self._client, self._durable.retained
        delivery, topic = client.delivery, late.publication.topic
        subscription = delivery.subscriptions.get(name)
        if self._ended or subscription is None or delivery.awaits_retained(name):
            return
        if subscription.request and not Judge().fits(subscription.request, late.publication):
            return
        identifiers = () if subscription.identifier is None else (subscription.identifier,)
        most = subscription.qos

        def page(after: str | None) -> Iterator[tuple[Kept, Grant | None]]:
            may = name in delivery.subscriptions and client.rights().may_receive(topic)
            for kept in retained.of([topic], after):
                granted = Grant(min(kept.publication.qos, most), identifiers, True)
                yield kept, granted if may and not kept.over(wall_s()) else None

        delivery.replay(f"{name} {topic}", page, retained)


def _send_late(subscriber: weakref.ref[ClientSubscriber], name: str, late: Kept) -> None:
    """The closure of a subscription that is remembered must not keep its client."""
    if (found := subscriber()) is not None:
        found.replay_late(name, late)


def _read_for(wanted: StoredFilter) -> tuple[str, ...]:
    """The filters for which the log is read for a subscription."""
    match wanted:
        case SharedFilter(of_results=True):
            return ()
        case TopicFilter(name=pattern) | SharedFilter(pattern=pattern) | RequestFilter(pattern=pattern):
            return (pattern,)
        case QueryFilter(query=query):
            return filters_of(query)
    return ()


def _settle(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)

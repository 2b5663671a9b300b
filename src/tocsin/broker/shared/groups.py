"""The shell of ``core.shared.machine``: the groups of which this broker has members, on asyncio and the store.

One table has the cells of all groups, and one of each broker's *incarnation*: written when the process begins and
before anybody here is in a group, and refreshed for as long as somebody is. One watch of it tells how both change.
Every broker has that watch, so that an incarnation which nobody needs would be told to all of them for nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import structlog

from tocsin.broker.channels.channels import Channels
from tocsin.broker.client import Client
from tocsin.broker.delivery.message_log import MessageLog
from tocsin.broker.shared.group import LocalGroup, NoMember
from tocsin.broker.shared.group_sources import LogEntries, ResultEntries
from tocsin.core.budgets.budget import Budget, Kind
from tocsin.core.channels.channel_filter import Bound
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.filters import SharedFilter, interest_of
from tocsin.core.forwarding.table import ForwardingTable, Subscription
from tocsin.core.forwarding.tallies import Count
from tocsin.core.machine import Watched
from tocsin.core.shared.machine import NO_ROOM
from tocsin.core.shared.signals import (
    Arrived,
    Crowded,
    Leave,
    Matched,
    OutOfSight,
    Quit,
    RoomMade,
    SessionOver,
    Settle,
)
from tocsin.core.shared.stored_group import (
    GROUPS,
    INCARNATION_KEYS,
    UNKNOWN_INCARNATION,
    Claim,
    ResultsSource,
    decode_incarnation,
    encode_incarnation,
    group_key,
    incarnation_key,
)
from tocsin.errors import StoreFull, TocsinError
from tocsin.model.publication import Publication
from tocsin.model.results import Notice
from tocsin.ports import Change, Entry, Table
from tocsin.results.reader import Result
from tocsin.runtime.machines.tasks import Ending

REFRESH_S: Final = 2.0
CROWD_S: Final = 0.05  # before groups are asked for room, and between two times
INCARNATION_TTL_S: Final = 6.0  # two refreshes may fail
_ANY: Final = Subscription()


class Groups:
    """The groups of which this broker has members.

    ``incarnation`` is the broker's id, a dot, and what differs at every start.
    """

    def __init__(
        self,
        table: Table,
        message_log: MessageLog,
        channels: Channels,
        *,
        incarnation: str,
        groups_max: int,
        members_max: int,
        unwanted: Callable[[int], None],
        budget: Budget,
    ) -> None:
        self.table = table
        self._message_log = message_log
        self._channels = channels
        self.incarnation = incarnation
        self.members_max = members_max
        self.unwanted = unwanted  # told how many messages no member of their group could take
        self.budget = budget
        self._crowd: asyncio.TimerHandle | None = None  # while groups are to be asked for room
        self._groups_max = groups_max
        self.local: dict[str, LocalGroup] = {}  # the groups with members here, by name
        self._by_key: dict[str, LocalGroup] = {}
        self._matching: ForwardingTable[LocalGroup] = ForwardingTable()
        self._of_k: dict[str, dict[LocalGroup, ResultEntries]] = {}  # k → the groups that have its results
        self._alive: dict[str, str] = {}  # key → the incarnation that is there
        self._written_s = -math.inf  # when the own incarnation was written last
        self._watching = False  # the watch has told all that there is
        self._ending = Ending()
        self.failed = self._ending.fail  # a group failed
        self._idle = asyncio.Event()  # there is no group
        self._idle.set()
        self._log = structlog.get_logger()

    def __len__(self) -> int:
        return len(self.local)

    async def open(self) -> None:
        """Begin this broker's incarnation; members at its last one are away from now on, or when that has expired."""
        try:
            await self._write_incarnation()
        except StoreFull as error:  # nobody can join; everything else can be done
            self._log.error("the store has no room for groups", problem=str(error))

    async def _write_incarnation(self) -> None:
        await self.table.put(
            incarnation_key(self.incarnation), encode_incarnation(self.incarnation), ttl_s=INCARNATION_TTL_S
        )
        self._written_s = asyncio.get_running_loop().time()

    async def write_incarnation(self) -> None:
        """Write this broker's incarnation: for others, members at a broker without an incarnation are away.
        ``StoreFull`` if the store has no room for it."""
        if asyncio.get_running_loop().time() - self._written_s > REFRESH_S:
            try:
                await self._refresh()
            except StoreFull:
                raise StoreFull("join", NO_ROOM) from None

    async def run(self) -> None:
        """Refresh and watch, for as long as the broker lives."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._refresh_for_ever())
                tasks.create_task(self._watch())
                tasks.create_task(self._ending.wait())
        finally:
            if self._crowd is not None:
                self._crowd.cancel()
            for group in self.local.values():
                group.close()

    async def _refresh_for_ever(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            if self.local:
                with suppress(StoreFull):
                    await self._refresh()

    async def _refresh(self) -> None:
        try:
            await self._write_incarnation()
        except TocsinError as error:
            self._log.warning("this broker's incarnation is not refreshed", problem=str(error))
            if isinstance(error, StoreFull):
                raise

    async def drain(self, deadline_s: float) -> None:
        """Let everything that ended be stored."""
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._idle.wait()

    # ── what changes in the table ───────────────────────────────────────────────────────────────────────────

    async def _watch(self) -> None:
        async for change in self.table.watch():
            self._apply(change)

    def _apply(self, change: Change) -> None:
        match change.kind:
            case "reset":
                self._watching = False
                self._alive.clear()
            case "ready":
                self._watching = True
                for group in tuple(self.local.values()):
                    group.post(OutOfSight(cause="groups are watched"))
            case "put" if change.key.startswith(INCARNATION_KEYS):
                self._alive[change.key] = decode_incarnation(change.value)
            case "delete" if change.key.startswith(INCARNATION_KEYS):
                self._alive.pop(change.key, None)
            case _ if change.key in self._by_key:
                cause = f"group at {change.revision}"
                self._by_key[change.key].post(Watched(table=GROUPS, change=change, cause=cause))

    def alive(self, incarnation: str) -> bool:
        return not self._watching or self._alive.get(incarnation_key(incarnation)) in (
            incarnation,
            UNKNOWN_INCARNATION,
        )

    # ── members ─────────────────────────────────────────────────────────────────────────────────────────────

    async def join(
        self,
        name: str,
        taker: Client,
        subscription: Subscription,
        *,
        entitled: bool,
        session: str,
        epoch: int,
        expiry_s: int,
        cause: str,
    ) -> tuple[Claim, ...]:
        """Make a client a member, after ``write_incarnation``; what it has from earlier connections. ``entitled``: a
        rule lets it into the group, whosever that is.

        ``NoMember`` if it cannot be one.
        """
        if name not in self.local and len(self.local) >= self._groups_max:
            raise NoMember(name, f"a broker may have members of at most {self._groups_max} groups")
        group = self._group(name)
        return await group.join(
            taker,
            subscription,
            entitled=entitled,
            session=session,
            epoch=epoch,
            expiry_s=expiry_s,
            cause=cause,
        )

    def _group(self, name: str) -> LocalGroup:
        group = self.local.get(name)
        if group is None:
            group = self.local[name] = self._by_key[group_key(name)] = self._make(name)
            self._idle.clear()
        return group

    def _make(self, name: str) -> LocalGroup:
        wanted = interest_of(name)
        assert isinstance(wanted, SharedFilter)
        if wanted.of_results:
            self._channels.results.expected()
            return LocalGroup(name, ResultEntries(self._channels, wanted.pattern), self, of_results=True)
        group = LocalGroup(name, LogEntries(self._message_log, wanted.pattern), self, of_results=False)
        self._matching.subscribe(group, wanted.pattern, _ANY)
        self._message_log.want(wanted.pattern)
        return group

    def leave(self, name: str, taker: Client, session: str, expiry_s: int) -> None:
        """A member's connection is over; its session is kept for so long."""
        group = self.local.get(name)
        if group is not None:
            group.leave(taker, session)
            client = taker.client_id
            group.post(Leave(client=client, session=session, expiry_s=expiry_s, cause=f"{client} left"))

    def quit(self, name: str, client: str, session: str) -> None:
        """A member unsubscribed."""
        if name in self.local:
            self.local[name].post(Quit(client=client, session=session, cause=f"{client} unsubscribed"))

    def session_over(self, stored: StoredSession) -> None:
        """A stored session was discarded, wherever it was."""
        for name in stored.named(SharedFilter):
            over = SessionOver(client=stored.client, session=stored.uid, cause=f"{stored.client} anew")
            self._group(name).post(over)

    def vanished(self, group: LocalGroup) -> None:
        del self.local[group.name], self._by_key[group_key(group.name)]
        self._matching.drop(group)
        wanted = interest_of(group.name)
        if not (isinstance(wanted, SharedFilter) and wanted.of_results):
            self._message_log.unwant(wanted.pattern)
        self.follow(group, None)
        if not self.local:
            self._idle.set()

    def crowded(self) -> None:
        """A group has no room for messages that its members could take."""
        if self._crowd is None:
            self._crowd = asyncio.get_running_loop().call_later(CROWD_S, self._make_room)

    def _make_room(self) -> None:
        self._crowd = None
        for group in tuple(self.local.values()):
            group.post(Crowded(cause="a group has no room"))
        if self.budget.figures()[Kind.GROUPS].waiting:
            self.crowded()

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def arrived(self, entry: Entry, publication: Publication) -> bool:
        """An entry that the message log has just brought; to be told while there are groups (``local``). Whether it is
        for any of them."""
        wanted = self._matching.wanted(publication.topic)
        for group, _ in wanted:
            group.post(Arrived(matched=Matched(entry, publication), cause=entry.id))
        return bool(wanted)

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, group: LocalGroup, source: ResultsSource | None) -> None:
        """The results that a group has from now on."""
        followed = group.source.followed
        if followed is not None:
            of_k = self._of_k.get(followed.bound.k, {})
            of_k.pop(group, None)
            if not of_k:
                self._of_k.pop(followed.bound.k, None)
        if source is not None and isinstance(group.source, ResultEntries):
            self._of_k.setdefault(source.bound.k, {})[group] = group.source

    def unseen(self, notice: Notice) -> set[str]:
        """The ks of groups whose results in a notice are in other brokers' files: this one does not hold them."""
        if not self._of_k:
            return set()
        holds, executed = (
            self._channels.backend.machine.holds,
            {each.channel.lower() for each in notice.executions},
        )
        return {
            k
            for k, groups in self._of_k.items()
            if not holds(k) and any(source.is_of(executed) for source in groups.values())
        }

    def result(self, place: int, notice: Notice, result: Result) -> None:
        """A result that a notice has brought."""
        for group, source in tuple(self._of_k.get(result.k, {}).items()):
            matched = source.matched(place, notice, result)
            group.post(Arrived(matched=matched, cause=f"{notice.tick}-{result.ordinal}"))

    async def hold(self, name: str) -> Bound:
        """Hold the backend subscription of a group under this broker's name. ``StoreFull``; ``FilterInvalid`` if there
        is no such channel."""
        pattern, backend = interest_of(name).pattern, self._channels.backend
        await backend.hold(name, name, (pattern,))
        return backend.machine.check(pattern)

    def let_go(self, name: str) -> None:
        """This broker need not hold it, unless the group's cell says so."""
        self._channels.backend.doubt(name)

    def look_again(self, name: str, broker: str) -> None:
        """A broker may be the holder of a group no longer."""
        self._channels.backend.tell_holder(broker, name)

    def altered(self, channel: str) -> None:
        """A channel, named in small letters, is defined, or is another."""
        for group in tuple(self.local.values()):
            if isinstance(group.source, ResultEntries) and group.source.channel == channel:
                group.altered()

    def held(self) -> Iterator[tuple[str, int]]:
        """The groups of results with members here, and how many these are; other groups are filters, too."""
        return ((name, group.members) for name, group in self.local.items() if group.of_results)

    # ── figures ─────────────────────────────────────────────────────────────────────────────────────────────

    def counts(self) -> list[Count]:
        """The bytes that members here were given since the last time."""
        return [group.count() for group in self.local.values() if group.given_bytes]

    def settle(self, name: str, client: str, position: int) -> None:
        """A member is done with a message."""
        if name in self.local:
            self.local[name].post(Settle(client=client, position=position, cause=f"{client} settled"))

    def room_made(self, name: str) -> None:
        """A member may have room again."""
        if name in self.local:
            self.local[name].post(RoomMade(cause="room"))

"""The shell of ``core.channels.machine``: the channels that are defined, and the backend subscriptions that this broker
holds.

Channels are read when the broker opens and watched from then on. A broker that takes a session tells its last broker
over the bus, by the session's uid and client; it is a hint, and the other looks for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from typing import Final, Literal

import structlog

from tocsin.core.channels.channel_filter import ChannelFilter, read_channel_filter
from tocsin.core.channels.machine import ChannelHoldings
from tocsin.core.channels.signals import (
    CellFound,
    Counted,
    Defined,
    Doubted,
    Held,
    Left,
    LookAt,
    Looked,
    Prepared,
    Scan,
    Scanned,
    SessionFound,
    Undefined,
    Unheld,
    Unprepared,
    Unwanted,
    Wanted,
)
from tocsin.core.delivery.stored_session import StoredSession, decode_session, session_key
from tocsin.core.filters import SharedFilter, filter_type, interest_of
from tocsin.core.machine import Effect, Started
from tocsin.core.shared.stored_group import GROUP_KEYS, StoredGroup, decode_group, group_key
from tocsin.errors import Malformed, StoreFull, TocsinError
from tocsin.model.catalogue import Channel, decode_definition
from tocsin.model.results import STANDBY, SUBSCRIPTIONS, BackendSubscription
from tocsin.model.versions import UNREADABLE, Format
from tocsin.ports import Bus, BusMessage, Cell, Change, Table
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Ending
from tocsin.wire.mqtt.topics import FilterInvalid

OVER: Final = Format("word of a session that is over", spoken=True)
PREFIX: Final = "channel."  # of the keys of channels in the catalogue
NO_ROOM: Final = (
    "subscriptions to channels take all that they may: shares.channel_subscriptions_bytes, or its disk"
)
LOOK_S: Final = 60  # after which a group is looked at that was made, or found, and has no member here
LOOKS: Final = 16  # cells that a scan asks for at once: it is in no hurry


class BackendSubscriptions:
    """The backend subscriptions of this broker, and the channels that they may be to. ``saw`` is told of every stored
    session that a scan finds; ``altered`` of each channel that is defined or altered, in small letters; ``borrowed``:
    this process has another broker's name."""

    def __init__(
        self,
        catalogue: Table,
        subscriptions: Table,
        sessions: Table,
        groups: Table,
        bus: Bus,
        *,
        network: str,
        broker: str,
        saw: Callable[[Cell, StoredSession], None] = lambda cell, session: None,
        altered: Callable[[str], None] = lambda channel: None,
        borrowed: bool = False,
    ) -> None:
        self.machine = ChannelHoldings(broker)
        if borrowed:
            self.machine.borrow()
        self.definition_changes = 0  # grows whenever a channel is defined, or is no more
        self._saw = saw
        self._altered = altered
        self._catalogue = catalogue
        self._tables = {SUBSCRIPTIONS: subscriptions}
        self._sessions = sessions
        self._groups = groups
        self._bus = bus
        self._network = network
        self._broker = broker
        self._defined: set[str] = set()  # keys
        self._ending = Ending()
        self._shell = Shell(self.machine, self._carry_out, self._ending.fail, tables=self._tables)
        self._post = self._shell.post
        self._tickets = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._log = structlog.get_logger()

    def count(self, counted: bool) -> None:
        """A leader counts on this process under its name, or does not."""
        self._post(Counted(counted=counted, cause=f"{self._broker}:counted"))

    async def open(self) -> None:
        """Read the channels that there are."""
        for key in await self._catalogue.keys(PREFIX):
            await self._read(key)

    async def run(self) -> None:
        """Watch, scan and hear what other brokers say, for as long as the broker lives."""
        try:
            async with (
                self._bus.subscribe(self._subject(self._broker)) as words,
                asyncio.TaskGroup() as group,
            ):
                group.create_task(self._hear(words))
                group.create_task(self._watch())
                group.create_task(self._ending.wait())
                self._post(Started(incarnation=0, cause=f"{self._broker}:start"))
        finally:
            self._shell.close()

    # ── definitions ─────────────────────────────────────────────────────────────────────────────────────────

    async def refresh(self, name: str) -> None:
        """Look for the channel of a subscription: it may be so new that the watch did not report it yet."""
        try:
            await self._read(f"{PREFIX}{read_channel_filter(name).channel.lower()}")
        except TocsinError as error:
            self._log.info("a channel could not be looked for", subscription=name, problem=str(error))

    async def _read(self, key: str) -> None:
        cell = await self._catalogue.get(key)
        if cell is not None:
            self._define(key, cell.value)

    async def _watch(self) -> None:
        stale: set[str] = set()
        async for change in self._catalogue.watch(PREFIX):
            match change.kind:
                case "reset":
                    stale = set(self._defined)
                case "ready":
                    for key in stale:
                        self._undefine(key)
                    stale = set()
                case _:
                    stale.discard(change.key)
                    self._on_change(change)

    def _on_change(self, change: Change) -> None:
        if change.kind == "put":
            self._define(change.key, change.value)
        else:
            self._undefine(change.key)

    def _define(self, key: str, value: bytes) -> None:
        try:
            channel = decode_definition(value)
        except UNREADABLE as error:
            self._log.error("a channel's definition is unreadable", key=key, problem=str(error))
            return
        known = self.machine.channels.get(channel.name.lower())
        if isinstance(channel, Channel) and (known is None or known.version <= channel.version):
            self._defined.add(key)
            self._post(Defined(channel=channel, cause=f"{self._broker}:{key}"))
            self.definition_changes += 1
            self._altered(channel.name.lower())

    def _undefine(self, key: str) -> None:
        self._defined.discard(key)
        self._post(Undefined(name=key.removeprefix(PREFIX), cause=f"{self._broker}:{key}"))
        self.definition_changes += 1

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────

    def hold(
        self, session: str, client: str, names: Collection[str], *, every: bool = False
    ) -> asyncio.Future[None]:
        """Hold what these subscriptions mean (``every``: and nothing else of the session's); done when it is stored, or
        with ``StoreFull``: then give up what you do not want tried again."""
        ticket, held = self._ticket()
        named = tuple(names)
        self._post(
            Wanted(session=session, client=client, names=named, all=every, ticket=ticket, cause=session)
        )
        return held

    def _ticket(self) -> tuple[int, asyncio.Future[None]]:
        self._tickets += 1
        held = self._waiting[self._tickets] = asyncio.get_running_loop().create_future()
        return self._tickets, held

    def stand_by(self, primary: str, names: tuple[str, ...]) -> asyncio.Future[None]:
        """Clients of a broker that this broker backs have these subscriptions; done when standby cells are stored."""
        ticket, held = self._ticket()
        self._post(Prepared(primary=primary, names=names, ticket=ticket, cause=f"standby {primary}"))
        return held

    def stand_down(self, primary: str, names: tuple[str, ...]) -> None:
        """They have these no longer."""
        self._post(Unprepared(primary=primary, names=names, cause=f"standby {primary}"))

    def release(self, session: str, names: Iterable[str]) -> None:
        self._post(Unwanted(session=session, names=tuple(names), cause=session))

    def leave(self, session: str, expiry_s: int) -> None:
        """The connection is over; the session is kept for so long."""
        self._post(Left(session=session, expiry_s=expiry_s, cause=session))

    async def prepare(self, session: StoredSession) -> None:
        """A session is about to be taken: hold what it is subscribed to first. Then ``moved`` or ``abandon``."""
        names = session.named(ChannelFilter)
        if names or session.uid in self.machine.sessions:
            await self.hold(session.uid, session.client, names, every=True)

    def moved(self, session: StoredSession) -> None:
        """It was taken; ``session`` is as it was before."""
        if session.named(ChannelFilter):
            self._tell(session)

    def abandon(self, session: StoredSession) -> None:
        """It was not taken."""
        self.leave(session.uid, max(1, session.expiry_s))
        self._post(Doubted(session=session.uid, client=session.client, cause=session.uid))

    def doubt(self, group: str) -> None:
        """This broker need not hold what a group shares, unless the group's cell names it."""
        self.leave(group, LOOK_S)
        self._post(Doubted(session=group, client=group, cause=group))

    def tell_holder(self, broker: str, group: str) -> None:
        """Another broker may be the holder of a group no longer."""
        self._shell.spawn(self._say(self._subject(broker), group))

    def over(self, session: StoredSession) -> None:
        """A stored session is no more."""
        if session.named(ChannelFilter):
            self.leave(session.uid, 0)
            self._tell(session)

    def _tell(self, session: StoredSession) -> None:
        if session.home not in ("", self._broker):
            self._shell.spawn(self._say(self._subject(session.home), f"{session.uid} {session.client}"))

    async def _say(self, subject: str, words: str) -> None:
        try:
            await self._bus.publish(subject, OVER.seal(words.encode()))
        except TocsinError as error:  # the hourly scan there finds it
            self._log.info("a broker was not told of a session", subject=subject, problem=str(error))

    async def _hear(self, words: AsyncIterator[BusMessage]) -> None:
        async for word in words:
            try:
                said = OVER.open(word.payload)
            except UNREADABLE as error:  # the hourly scan finds it
                self._log.warning("a session is over elsewhere", problem=str(error))
                continue
            text = said.decode(errors="replace")
            uid, _, client = text.partition(" ")
            if filter_type(text) is SharedFilter:
                uid = client = text
            self._post(Doubted(session=uid, client=client, cause=f"{self._broker}:told {uid}"))

    def _subject(self, broker: str) -> str:
        return f"{self._network}.holders.{broker}"

    # ── the machine's effects ───────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Held(tickets=tickets):
                for ticket in tickets:
                    waiting = self._waiting.pop(ticket)
                    if not waiting.done():
                        waiting.set_result(None)
            case Unheld(tickets=tickets):
                for ticket in tickets:
                    waiting = self._waiting.pop(ticket)
                    if not waiting.done():
                        waiting.set_exception(StoreFull("hold a channel", NO_ROOM))
                        waiting.exception()  # nobody need look at it
            case LookAt():
                self._shell.spawn(self._look(effect))
            case Scan():
                self._shell.spawn(self._scan(effect))
            case _:
                self._shell.carry_out(effect)

    async def _look(self, asked: LookAt) -> None:
        try:
            looked = await self._looked(asked)
        except TocsinError as error:  # the hourly scan looks again
            self._log.info("a session could not be looked at", subscriber=asked.client, problem=str(error))
            return
        self._post(looked)

    async def _looked(self, asked: LookAt) -> Looked:
        if filter_type(asked.session) is SharedFilter:
            return await self._looked_at_group(asked)
        session = _decoded(await self._sessions.get(session_key(asked.client), fresh=True))
        home: Literal["here", "elsewhere", "nowhere"] = "nowhere"
        names: tuple[str, ...] = ()
        ready, expiry_s = True, 0
        if session is not None and session.uid == asked.session:
            home = "here" if session.home == self._broker else "elsewhere"
            names, expiry_s = session.named(ChannelFilter), session.expiry_s
            if home == "elsewhere" and not await self._holds(session.home, names):
                ready = False
                self._tell(session)
        return Looked(
            session=asked.session,
            client=asked.client,
            visits=asked.visits,
            home=home,
            ready=ready,
            names=names,
            expiry_s=expiry_s,
            cause=asked.cause,
        )

    async def _looked_at_group(self, asked: LookAt) -> Looked:
        """The same of a group: its home is its holder."""
        name, pattern = asked.session, interest_of(asked.session).pattern
        group = _decoded_group(await self._groups.get(group_key(name), fresh=True))
        source = None if group is None else group.source
        home: Literal["here", "elsewhere", "nowhere"] = "nowhere"
        ready = True
        if source is not None:
            home = "here" if source.holder == self._broker else "elsewhere"
            if home == "elsewhere" and self._means_something(pattern):
                key = BackendSubscription(source.channel, source.values, source.holder).key
                ready = await self._tables[SUBSCRIPTIONS].get(key, fresh=True) is not None
            if not ready:
                self.tell_holder(source.holder, name)
        return Looked(
            session=name,
            client=name,
            visits=asked.visits,
            home=home,
            ready=ready,
            names=(pattern,),
            expiry_s=LOOK_S,
            cause=asked.cause,
        )

    def _means_something(self, name: str) -> bool:
        try:
            self.machine.check(name)
        except FilterInvalid:
            return False
        return True

    async def _holds(self, broker: str, names: Iterable[str]) -> bool:
        """Whether a broker has the cells of these subscriptions, as far as they mean something."""
        keys: list[str] = []
        for name in names:
            with contextlib.suppress(FilterInvalid):
                bound = self.machine.check(name)
                keys.append(BackendSubscription(bound.channel, bound.values, broker).key)
        cells = [cell async for cell in _cells(self._tables[SUBSCRIPTIONS], keys)]
        return len(cells) == len(keys)

    async def _scan(self, asked: Scan) -> None:
        cells, suffixes = self._tables[SUBSCRIPTIONS], (f".{self._broker}", f".{self._broker}.{STANDBY}")
        try:
            own = [key for key in await cells.keys(fresh=True) if key.endswith(suffixes)]
            async for cell in _cells(cells, own):
                self._post(CellFound(key=cell.key, revision=cell.revision, cause=asked.cause))
            async for cell in _cells(self._sessions, await self._sessions.keys(fresh=True)):
                session = _decoded(cell)
                self._found(session, asked.cause)
                if session is not None:
                    self._saw(cell, session)
            async for cell in _cells(self._groups, await self._groups.keys(GROUP_KEYS, fresh=True)):
                self._found_group(_decoded_group(cell), asked.cause)
        except TocsinError as error:
            self._log.warning("the sessions could not be looked through", problem=str(error))
            self._post(Scanned(whole=False, cause=asked.cause))
        else:
            self._post(Scanned(whole=True, cause=asked.cause))

    def _found(self, session: StoredSession | None, cause: str) -> None:
        if session is None or session.home != self._broker or not (names := session.named(ChannelFilter)):
            return
        self._post(
            SessionFound(
                session=session.uid,
                client=session.client,
                names=names,
                expiry_s=session.expiry_s,
                cause=cause,
            )
        )

    def _found_group(self, group: StoredGroup | None, cause: str) -> None:
        if group is None or group.source is None or group.source.holder != self._broker:
            return
        names = (interest_of(group.name).pattern,)
        self._post(
            SessionFound(session=group.name, client=group.name, names=names, expiry_s=LOOK_S, cause=cause)
        )


def _decoded(cell: Cell | None) -> StoredSession | None:
    try:
        return None if cell is None else decode_session(cell.value)
    except Malformed:
        return None  # the broker that takes it announces that


def _decoded_group(cell: Cell | None) -> StoredGroup | None:
    try:
        return None if cell is None else decode_group(cell.value)
    except Malformed:
        return None  # brokers with members announce that


async def _cells(table: Table, keys: Collection[str]) -> AsyncIterator[Cell]:
    """The cells of these keys that are still there."""
    left = list(keys)
    while left:
        some, left = left[:LOOKS], left[LOOKS:]
        for key, cell in zip(some, await asyncio.gather(*map(table.get, some)), strict=True):
            found = cell if cell is not None else await table.get(key, fresh=True)
            if found is not None:
                yield found

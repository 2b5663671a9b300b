"""A broker with groups: it plays the asyncio shells around ``core.sharing`` and around the members' attendances."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec

from tocsin.core.budget import OVERHEAD_BYTES, Bounds, Budget, Kind
from tocsin.core.delivery import WAIT, Delivery
from tocsin.core.group_room import GroupRoom
from tocsin.core.machine import (
    DeleteKey,
    Effect,
    Event,
    GetKey,
    PutKey,
    ReadLog,
    Say,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    Watched,
    WatchTable,
)
from tocsin.core.sharing import Sharing
from tocsin.core.sharing_signals import (
    CANNOT,
    Arrived,
    Bereft,
    Crowded,
    EndFound,
    EndUnknown,
    FindEnd,
    Forget,
    Give,
    Joined,
    Matched,
    OutOfSight,
    PartFailed,
    PartRead,
    ReadPart,
    RoomMade,
    Turned,
    Unwanted,
    Vanished,
)
from tocsin.core.stored_group import GROUPS as TABLE
from tocsin.core.stored_group import LIVES, group_key, life_key
from tocsin.model.message import Address
from tocsin.model.publication import decode_publication
from tocsin.model.subjects import patterns_of
from tocsin.ports import Entry, TableSpec
from tocsin.sim.scenarios.durable.broker import Broker
from tocsin.sim.scenarios.durable.wire import LOG, NETWORK
from tocsin.sim.scenarios.groups.service import GroupService
from tocsin.wire.topics import matches

GROUPS: Final = TableSpec(TABLE)
LIFE_TTL_US: Final = 3_000_000
READ_MAX: Final = 4  # entries of one read: small, so that catching up takes several
READ_COST_BYTES: Final = 2 * READ_MAX * OVERHEAD_BYTES
GROUPS_BYTES: Final = 2 * READ_COST_BYTES
MEMBERS_MAX: Final = 10


class GroupShell:
    """One group at a broker, with its hands."""

    def __init__(self, broker: GroupBroker, name: str, number: int) -> None:
        self.name = f"group {number}"  # of its timers
        self.group = name
        self._filter = name.split("/", 2)[2]
        self._broker = broker
        self._takers: dict[str, GroupService] = {}
        self._room = GroupRoom(broker.budget.account("somebody"))
        self._handling = False
        self._events: list[Event] = []
        self.machine = broker.sharing(name, broker.life, self, MEMBERS_MAX)

    def tell(self, event: Event) -> None:
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        while self._events:
            for effect in self.machine.handle(self._events.pop(0), self._broker.now_us):
                self._carry_out(effect)
        self._handling = False

    def arrived(self, entry: Entry) -> None:
        publication = decode_publication(entry.payload)
        if matches(self._filter, publication.topic):
            self.tell(Arrived(matched=Matched(entry, publication)))

    def add(self, taker: GroupService) -> None:
        self._takers[taker.client] = taker

    def remove(self, taker: GroupService) -> None:
        if self._takers.get(taker.client) is taker:
            del self._takers[taker.client]

    # ── hands ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def tail(self) -> int:
        return self._broker.tail

    def alive(self, life: str) -> bool:
        return self._broker.alive(life)

    def room(self, client: str) -> bool:
        taker = self._takers.get(client)
        return taker is not None and taker.open and taker.machine.room

    def takes(self, client: str, matched: Matched) -> int:
        taker = self._takers.get(client)
        if taker is None or self.group not in taker.qos_of:
            return CANNOT
        return min(taker.qos_of[self.group], matched.publication.qos)

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

    def _claims(self, client: str) -> Delivery | None:
        taker = self._takers.get(client)
        return None if taker is None else taker.machine.claims

    # ── effects ─────────────────────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Give(client=client) if client in self._takers:
                self._takers[client].give(self.group, effect)
            case Forget(client=client, packet_ids=packet_ids) if client in self._takers:
                self._takers[client].forget(packet_ids)
            case Joined(client=client, session=session, claims=claims) if client in self._takers:
                self._takers[client].joined(self.group, session, claims)
            case Give() | Forget() | Joined():
                pass  # the connection is gone
            case Turned(client=client):
                assert "later connection" in effect.reason, effect
                if client in self._takers:
                    self._takers[client].close()
            case PutKey() | GetKey() | DeleteKey():
                then = partial(self._on_answer, effect.request)
                self._broker.ask(msgspec.structs.replace(effect, request=f"group {effect.request}"), then)
            case ReadPart():
                begin = partial(self._begin_read, effect)
                self._room.before_read(READ_COST_BYTES, begin, self._broker.crowded)
            case FindEnd(revision=revision):
                fresh = self._broker.ends_fresh
                look = ReadLog(request="end", log=LOG.name, subject=">", start=0, limit=1, fresh=fresh)
                self._broker.ask(look, partial(self._on_end, revision))
            case Bereft(client=client):
                if client in self._takers:
                    self._takers[client].close()
            case SetTimer(name=name, delay_us=delay_us):
                self._broker.set_timer(self, name, delay_us)
            case Say():
                self._broker.say(effect)
            case Vanished():
                self._room.close()
                self._broker.vanished(self)
            case Unwanted():
                raise AssertionError("every member takes everything")
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    def _on_answer(self, request: str, event: Stored | StoreFailed) -> None:
        self.tell(msgspec.structs.replace(event, request=request))

    def _on_end(self, revision: int, event: Stored | StoreFailed) -> None:
        if isinstance(event, StoreFailed):
            self.tell(EndUnknown(revision=revision))
        else:
            self.tell(EndFound(revision=revision, position=event.value.last))

    def _begin_read(self, asked: ReadPart) -> None:
        *_, subject = patterns_of(self._filter, NETWORK)
        limit = min(asked.limit, READ_MAX)
        read = ReadLog(request="part", log=LOG.name, subject=subject, start=asked.start, limit=limit)
        self._broker.ask(read, self._on_read)

    def _on_read(self, event: Stored | StoreFailed) -> None:
        read: PartRead | PartFailed
        if isinstance(event, StoreFailed):
            read = PartFailed(error=event.error)
        else:
            matched = [Matched(entry, decode_publication(entry.payload)) for entry in event.value.entries]
            read = PartRead(matched=matched, next=event.value.next, tail=self._broker.tail)
        self._room.after_read(READ_COST_BYTES, partial(self.tell, read))


class GroupBroker(Broker):
    """The machine."""

    service = GroupService
    sharing: type[Sharing] = Sharing  # so that a variant can be tried
    ends_fresh = True  # where the log ends, when a group begins; same

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.life = ""
        self._born = False  # the life is in the table
        self._refreshing = False
        self._groups: dict[str, GroupShell] = {}
        self._alive: dict[str, str] = {}
        self._watching = False
        self._shells = 0
        # Of all groups together: room for two parts of the log, so that groups wait for each other.
        self.budget = Budget([Bounds(GROUPS_BYTES, GROUPS_BYTES, GROUPS_BYTES)] * len(Kind))
        self._crowded = False

    @property
    def ready(self) -> bool:
        return super().ready and self._born

    def on(self, event: Event) -> None:
        if isinstance(event, Watched):
            self._on_change(event)
            return
        if isinstance(event, Started):
            self.life = f"{self.address}.{event.incarnation:x}"
            self._out.append(WatchTable(table=TABLE, cause=self.address))
            self._live()
        super().on(event)

    def _tick(self) -> None:
        super()._tick()
        self._live()
        if self._crowded:
            self._crowded = self.budget.figures()[Kind.GROUPS].waiting > 0
            for group in tuple(self._groups.values()):
                group.tell(Crowded())

    def crowded(self) -> None:
        """A group has no room for messages that its members could take."""
        self._crowded = True

    def _live(self) -> None:
        if self._refreshing:
            return
        self._refreshing = True
        put = PutKey(
            request="life",
            table=TABLE,
            key=life_key(self.life),
            value=self.life.encode(),
            ttl_us=LIFE_TTL_US,
        )
        self.ask(put, self._on_life)

    def _on_life(self, event: Stored | StoreFailed) -> None:
        self._refreshing = False
        self._born = self._born or isinstance(event, Stored)

    def _on_change(self, event: Watched) -> None:
        change = event.change
        if change.kind == "reset":
            self._watching = False
            self._alive.clear()
        elif change.kind == "ready":
            self._watching = True
            for shell in list(self._groups.values()):
                shell.tell(OutOfSight())
        elif change.key.startswith(LIVES):
            if change.kind == "put":
                self._alive[change.key] = change.value.decode()
            else:
                self._alive.pop(change.key, None)
        else:
            for shell in list(self._groups.values()):
                if group_key(shell.group) == change.key:
                    shell.tell(event)

    def alive(self, life: str) -> bool:
        return not self._watching or self._alive.get(life_key(life)) == life

    def group(self, name: str) -> GroupShell:
        shell = self._groups.get(name)
        if shell is None:
            self._shells += 1
            shell = self._groups[name] = GroupShell(self, name, self._shells)
        return shell

    def known_group(self, name: str) -> GroupShell | None:
        return self._groups.get(name)

    def vanished(self, shell: GroupShell) -> None:
        if self._groups.get(shell.group) is shell:
            del self._groups[shell.group]

    def _dispatch(self, entry: Entry) -> None:
        super()._dispatch(entry)
        for shell in list(self._groups.values()):
            shell.arrived(entry)

    def room_made(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._groups:
                self._groups[name].tell(RoomMade())

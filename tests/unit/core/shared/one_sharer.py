"""A group's machine at one broker, for tests: its hands, and the cell as the store has it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.core.delivery.attended import of
from tocsin.core.machine import (
    DeleteKey,
    Effect,
    Event,
    GetKey,
    PutKey,
    Stored,
    Watched,
)
from tocsin.core.shared.cell import GET, PUT
from tocsin.core.shared.machine import (
    Sharing,
)
from tocsin.core.shared.signals import (
    Arrived,
    EndFound,
    FindEnd,
    Join,
    Joined,
    Matched,
)
from tocsin.core.shared.stored_group import GROUPS, Member, StoredGroup, decode_group, encode_group, group_key
from tocsin.model.publication import Publication
from tocsin.ports import Cell, Change, Entry

NAME = "$share/g/a"
OWN, OTHER = "b.1", "o.1"
NOW_US = 1_000_000_000_000


def matched(position: int, qos: int = 1, expiry_s: int | None = None) -> Matched:
    entry = Entry(position, "t.m.a", b"", str(position), NOW_US)
    return Matched(entry, Publication("a", b"", qos, "p", expiry_s=expiry_s))


class Broker:
    """A machine, its hands, and the cell as the store has it."""

    def __init__(self, group: StoredGroup | None = None, *, tail: int = 0, members_max: int = 10) -> None:
        self.tail = tail
        self.end: int | None = None  # of the log, if it is not the tail
        self.qos: dict[str, int] = {}  # by client; CANNOT: it takes nothing
        self.rooms: dict[str, int] = {}
        self.ids = 0
        self.returned: list[int] = []
        self.dead: set[str] = set()
        self.cell = None if group is None else Cell("k", encode_group(group), 7)
        self.revision = 7
        self.kept = 0  # bytes of entries
        self.machine = Sharing(NAME, OWN, self, members_max)
        self.now_us = NOW_US

    # ── hands ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def horizon(self) -> int:
        return self.tail

    @property
    def done(self) -> int:
        return self.tail

    def keep(self, size: int) -> bool:
        self.kept += size
        return True

    def let_go(self, size: int) -> None:
        self.kept -= size

    def alive(self, incarnation: str) -> bool:
        return incarnation not in self.dead

    def room(self, client: str) -> bool:
        return self.rooms.get(client, 100) > 0

    def takes(self, client: str, each: Matched) -> int:
        return min(self.qos.get(client, 2), each.publication.qos)

    def reserve(self, client: str) -> int:
        self.rooms[client] = self.rooms.get(client, 100) - 1
        self.ids += 1
        return self.ids

    def give_back(self, client: str, packet_id: int) -> None:
        self.returned.append(packet_id)

    def send_again(self, client: str, packet_id: int, qos: int) -> bool:
        return self.room(client)

    # ── the shell ───────────────────────────────────────────────────────────────────────────────────────────

    def tell(self, event: Event) -> list[Effect]:
        return self.machine.handle(event, self.now_us)

    def join(
        self,
        client: str = "c",
        *,
        epoch: int = 1,
        expiry_s: int = 60,
        session: str = "s",
        user: str = "",
        entitled: bool = False,
    ) -> list[Effect]:
        return self.tell(
            Join(
                client=client,
                user=user,
                entitled=entitled,
                session=session,
                epoch=epoch,
                expiry_s=expiry_s,
            )
        )

    def answer(self, effects: Sequence[Effect]) -> list[Effect]:
        """Let the store do what was asked of the cell and of the end of the log; everything else that happened."""
        said: list[Effect] = []
        todo = list(effects)
        while todo:
            effect = todo.pop(0)
            match effect:
                case GetKey(request="get"):
                    todo += self.tell(Stored(request=GET, value=self.cell))
                case PutKey(value=value):
                    self.revision += 1
                    self.cell = Cell("k", value, self.revision)
                    todo += self.tell(Stored(request=PUT, value=self.revision))
                case DeleteKey():
                    self.cell = None
                    todo += self.tell(Stored(request=PUT))
                case FindEnd(revision=revision):
                    end = self.tail if self.end is None else self.end
                    todo += self.tell(EndFound(revision=revision, position=end))
                case _:
                    said.append(effect)
        return said

    @property
    def group(self) -> StoredGroup:
        assert self.cell is not None
        return decode_group(self.cell.value)

    def others_write(self, group: StoredGroup) -> list[Effect]:
        self.revision += 1
        self.cell = Cell("k", encode_group(group), self.revision)
        change = Change("put", group_key(NAME), self.cell.value, self.revision)
        return self.tell(Watched(table=GROUPS, change=change))


def joined(*clients: str, group: StoredGroup | None = None, tail: int = 0) -> Broker:
    broker = Broker(group, tail=tail)
    for client in clients or ("c",):
        assert of(broker.answer(broker.join(client)), Joined)
    return broker


def arrive(broker: Broker, *each: Matched) -> list[Effect]:
    effects: list[Effect] = []
    for entry in each:
        broker.tail = max(broker.tail, entry.position)
        effects += broker.tell(Arrived(matched=entry))
    return effects


def with_other(next_: int = 1, **more: object) -> StoredGroup:
    """A group with a member at another broker."""
    return StoredGroup(NAME, next_, {"far": Member("t", 1, OTHER, 60)}, **more)  # type: ignore[arg-type]

"""Several brokers' machines of one group over one cell, and clients that connect to them: as small as can be."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.core.shared.group_table import NAME, Asked, Table
from tocsin.core.delivery.window import WAIT
from tocsin.core.machine import (
    DeleteKey,
    Effect,
    Event,
    GetKey,
    PutKey,
    Say,
    SetTimer,
    StoreFailed,
    TimerFired,
    Watched,
)
from tocsin.core.shared.machine import Sharing
from tocsin.core.shared.signals import (
    Arrived,
    Bereft,
    EndFound,
    EndUnknown,
    FindEnd,
    Forget,
    Give,
    Join,
    Joined,
    Leave,
    Matched,
    PartRead,
    Quit,
    ReadPart,
    RoomMade,
    SessionOver,
    Settle,
    Turned,
    Vanished,
)
from tocsin.core.shared.stored_group import GROUPS, Claim, incarnation_key
from tocsin.errors import OutcomeUnknown, StoreUnavailable
from tocsin.model.publication import Publication
from tocsin.ports import Entry

EXPIRY_S = 1_000_000_000
WINDOW = 3


class Client:
    """A client. Packet ids are never used twice, so that one stands for one message."""

    def __init__(self, name: str, lasting: bool, qos: int) -> None:
        self.name = name
        self.lasting = lasting
        self.qos = qos
        self.session = f"{name}:0"
        self.epoch = 0
        self.mortal = not lasting  # a session of it, or its membership, may have ended
        self.at: Sharer | None = None
        self.welcome = False  # it is a member, and takes messages
        self.window: dict[int, tuple[int, int]] = {}  # packet id → (position, QoS): sent, not acknowledged
        self.reserved: set[int] = set()
        self.inbox: list[tuple[int, int, int]] = []  # (packet id, position, QoS) on their way
        self.stored: set[int] = set()  # packet ids at QoS 2 that the session knows to be received
        self.held: set[int] = set()  # … and that the client itself has taken
        self.taken: list[tuple[int, int]] = []  # (position, QoS), in order
        self.ids = 0

    def lose_connection(self) -> None:
        self.at, self.welcome, self.inbox, self.window = None, False, [], {}
        self.reserved.clear()


class Sharer:
    """One broker's shell: its machine, and its hands."""

    def __init__(self, story: Story, number: int) -> None:
        self.number = number
        self.incarnations = 0
        self.tail = 0
        self._story = story
        self.start()

    def start(self) -> None:
        """Begin an incarnation; whatever was before is gone."""
        self.incarnations += 1
        self.incarnation = f"b{self.number}.{self.incarnations}"
        self.tail = self._story.end
        self.seen = len(self._story.table.history)  # what the watch has told
        self.begin()
        self._story.table.live(self.incarnation)

    def begin(self) -> None:
        self.kept = 0  # bytes of entries
        self.machine = Sharing(NAME, self.incarnation, self, 10)
        self.asked: dict[str, Asked] = {}
        self.late: list[Asked] = []
        self.reading: ReadPart | None = None
        self.finding: list[FindEnd] = []
        self.timers: dict[str, None] = {}

    # ── hands ───────────────────────────────────────────────────────────────────────────────────────────────

    def _here(self, client: str) -> Client | None:
        found = self._story.clients[client]
        return found if found.at is self and found.welcome else None

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
        cell = self._story.table.cells.get(incarnation_key(incarnation))
        return cell is not None and cell.value == incarnation.encode()

    def room(self, client: str) -> bool:
        found = self._here(client)
        return found is not None and len(found.window) + len(found.reserved) < WINDOW

    def takes(self, client: str, matched: Matched) -> int:
        return min(self._story.clients[client].qos, matched.publication.qos)

    def reserve(self, client: str) -> int:
        found = self._here(client)
        if found is None or not self.room(client):
            return WAIT
        found.ids += 1
        found.reserved.add(found.ids)
        return found.ids

    def give_back(self, client: str, packet_id: int) -> None:
        self._story.clients[client].reserved.discard(packet_id)

    def send_again(self, client: str, packet_id: int, qos: int) -> bool:
        found = self._here(client)
        if found is None or not self.room(client) or packet_id in found.stored:
            return False
        found.window[packet_id] = (0, qos)
        return True

    # ── the shell ───────────────────────────────────────────────────────────────────────────────────────────

    def tell(self, event: Event) -> None:
        for effect in self.machine.handle(event, self._story.now_us):
            self.carry_out(effect)

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case PutKey() | GetKey() | DeleteKey():
                assert effect.request not in self.asked, "one request of a name at a time"
                self.asked[effect.request] = effect
            case SetTimer(name=name):
                self.timers[name] = None
            case ReadPart():
                assert self.reading is None, "one read at a time"
                self.reading = effect
            case FindEnd():
                self.finding.append(effect)
            case Bereft(client=client, session=session):
                self._bereft(self._story.clients[client], session)
            case Give():
                self._give(effect)
            case Joined(client=client, session=session, claims=claims):
                self._joined(self._story.clients[client], session, claims)
            case Vanished():
                self.begin()
            case Turned(reason=reason):
                assert "later connection" in reason
            case Forget() | Say():
                pass
            case _:
                raise AssertionError(effect)

    def _give(self, give: Give) -> None:
        client = self._here(give.client)
        group, position = self._story.table.group(), give.matched.position
        if client is None:
            return
        if give.qos and not give.repeat:
            if give.packet_id not in client.reserved:
                return
            client.reserved.discard(give.packet_id)
        has = [] if group is None else group.claims.get(give.client, ())
        assert Claim(position, give.packet_id, give.qos) in has, "sent before it was claimed"
        if give.qos:
            client.window[give.packet_id] = (position, give.qos)
        client.inbox.append((give.packet_id, position, give.qos))

    def _joined(self, client: Client, session: str, claims: tuple[Claim, ...]) -> None:
        if client.at is not self or client.session != session:
            return
        client.welcome = True
        for claim in claims:
            if claim.packet_id in client.stored:
                self._story.later.append((self, Settle(client=client.name, position=claim.position)))
        self._story.later.append((self, RoomMade()))

    def _bereft(self, client: Client, session: str) -> None:
        """Its connection is over, and its session if that does not last."""
        client.mortal = True
        if client.at is self and client.session == session:
            client.lose_connection()

    def answer(self, request: str, how: str) -> None:
        asked = self.asked.pop(request)
        unknown = StoreFailed(request=request, error=OutcomeUnknown("put", 5.0))
        match how:
            case "done":
                self.tell(self._story.table.execute(asked))
            case "refused":
                self.tell(StoreFailed(request=request, error=StoreUnavailable("put", "no leader")))
            case "mute":
                self._story.table.execute(asked)
                self.tell(unknown)
            case "late":
                self.late.append(asked)
                self.tell(unknown)
            case _:
                self.tell(unknown)

    def watch(self) -> None:
        """The next change that the watch tells."""
        if self.seen < len(self._story.table.history):
            change = self._story.table.history[self.seen]
            self.seen += 1
            if self.machine.state != "new":
                self.tell(Watched(table=GROUPS, change=change))

    def dispatch(self) -> None:
        """The next entry of the log."""
        if self.tail < self._story.end:
            self.tail += 1
            if self.machine.state != "new":
                self.tell(Arrived(matched=self._story.log[self.tail - 1]))

    def read(self) -> None:
        reading, self.reading = self.reading, None
        if reading is not None:
            end = min(reading.start + min(2, reading.limit), self._story.end + 1)
            matched = self._story.log[max(0, reading.start - 1) : end - 1]
            self.tell(PartRead(matched=matched, next=max(end, reading.start), tail=self.tail))

    def find_end(self, how: str) -> None:
        if self.finding:
            revision = self.finding.pop(0).revision
            found = EndFound(revision=revision, position=self._story.end)
            self.tell(found if how == "done" else EndUnknown(revision=revision))

    def fire(self, name: str) -> None:
        del self.timers[name]
        self.tell(TimerFired(name=name))


class Story:
    """What happens, step by step."""

    def __init__(self) -> None:
        self.now_us = 1_000_000_000_000
        self.table = Table()
        self.log: list[Matched] = []
        self.later: list[tuple[Sharer, Event]] = []
        self.brokers = [Sharer(self, number) for number in range(3)]
        self.clients = {
            each.name: each
            for each in (
                Client("x", True, 2),
                Client("y", True, 1),
                Client("z", False, 2),
                Client("w", True, 2),
            )
        }

    @property
    def end(self) -> int:
        return len(self.log)

    def publish(self, qos: int) -> None:
        entry = Entry(self.end + 1, "t.m.a", b"", str(self.end + 1), 0)
        self.log.append(Matched(entry, Publication("a", b"", qos, "p")))

    def settle_later(self) -> None:
        """What shells hand over after their machine is done."""
        while self.later:
            broker, event = self.later.pop(0)
            if broker.machine.state == "here":
                broker.tell(event)

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, client: Client, broker: Sharer) -> None:
        if client.at is not None:
            self.disconnect(client)
        if not client.lasting:
            self._forget(client)
        client.at = broker
        client.epoch += 1
        expiry_s = EXPIRY_S if client.lasting else 0
        broker.tell(Join(client=client.name, session=client.session, epoch=client.epoch, expiry_s=expiry_s))

    def disconnect(self, client: Client) -> None:
        broker = client.at
        if broker is None:
            return
        client.lose_connection()
        if broker.machine.state == "here":
            expiry_s = EXPIRY_S if client.lasting else 0
            broker.tell(Leave(client=client.name, session=client.session, expiry_s=expiry_s))

    def start_anew(self, client: Client, broker: Sharer) -> None:
        """A clean start: the session is over, wherever it was."""
        before = client.session
        client.mortal = True
        self.disconnect(client)
        self._forget(client)
        broker.tell(SessionOver(client=client.name, session=before))
        self.connect(client, broker)

    def _forget(self, client: Client) -> None:
        name, _, number = client.session.rpartition(":")
        client.session = f"{name}:{int(number) + 1}"
        client.stored.clear()
        client.held.clear()

    def quit(self, client: Client) -> None:
        if client.at is not None and client.welcome and client.at.machine.state == "here":
            client.mortal = True
            client.at.tell(Quit(client=client.name, session=client.session))

    def die(self, broker: Sharer) -> None:
        for client in self.clients.values():
            if client.at is broker:
                client.lose_connection()
                if not client.lasting:
                    self._forget(client)
        broker.start()

    def take(self, client: Client) -> None:
        """A client takes the next message, and its broker hears the acknowledgement."""
        if not client.inbox:
            return
        identifier, position, qos = client.inbox.pop(0)
        if qos < 2 or identifier not in client.held:
            client.taken.append((position, qos))
        if qos == 2:
            client.held.add(identifier)
            client.stored.add(identifier)
        client.window.pop(identifier, None)
        assert client.at is not None
        if qos and client.at.machine.state == "here":
            client.at.tell(Settle(client=client.name, position=position))
            client.at.tell(RoomMade())

    # ── checking ────────────────────────────────────────────────────────────────────────────────────────────

    def may_be_lost(self) -> set[int]:
        """The positions that were, at QoS 2, somebody's whose session or membership ended."""
        mortals = [client.name for client in self.clients.values() if client.mortal]
        return set().union(*(self.table.exact.get(name, set()) for name in mortals))

    def is_settled(self) -> bool:
        """Whether there is nothing left to do."""
        group = self.table.group()
        return (
            group is not None
            and not group.claims
            and not group.free
            and (group.next > self.end or not self.log)
            and not any(client.inbox for client in self.clients.values())
        )

    def look(self) -> None:
        """What the cell must never say."""
        group = self.table.group()
        if group is None:
            return
        claimed = [claim.position for claims in group.claims.values() for claim in claims]
        assert len({*claimed, *group.free}) == len(claimed) + len(group.free), "a position in two places"
        assert all(position < group.next for position in (*claimed, *group.free))
        assert set(group.claims) <= set(group.members)

    def go_well(self, done: Callable[[], bool]) -> None:
        """From here on everything is answered."""
        for _ in range(400):
            self.now_us += 2_000_000
            for broker in self.brokers:
                for request in list(broker.asked):
                    if request in broker.asked:
                        broker.answer(request, "done")
                for _ in range(10):
                    broker.watch()
                    broker.dispatch()
                broker.read()
                broker.find_end("done")
                for name in list(broker.timers):
                    if name in broker.timers:
                        broker.fire(name)
                self.settle_later()
            for client in self.clients.values():
                while client.inbox:
                    self.take(client)
            if done():
                return

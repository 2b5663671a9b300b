"""An attendance beside a store that fails in every way, and a rival that may take the client: what it never does."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt5 import PubAckPacket, PubCompPacket, PubRecPacket

from tocsin.core.delivery.machine import LAST_TRIES, ClientDelivery
from tocsin.core.delivery.signals import (
    Answered,
    AwaitSave,
    BatchRead,
    Began,
    Deliver,
    Durable,
    Ended,
    Gone,
    Kept,
    MatchedEntry,
    ReadBatch,
    ReadFailed,
    ReleaseAsked,
    Reply,
    Subscribed,
    Usurped,
)
from tocsin.core.delivery.stored_session import StoredSession, decode_session, encode_session
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import (
    DeleteKey,
    Effect,
    Event,
    GetKey,
    PutKey,
    SetTimer,
    Stored,
    StoreFailed,
    TimerFired,
)
from tocsin.errors import Conflict, OutcomeUnknown, StoreUnavailable
from tocsin.ports import Cell, Entry

EXPIRY_S = 60
FIRST_REVISION = 7
UNAVAILABLE = StoreUnavailable("put", "no leader")
UNKNOWN = OutcomeUnknown("put", 5.0)

Asked = PutKey | GetKey | DeleteKey
Holds = Callable[[StoredSession], bool]


class History:
    """The shell and the store, as small as can be, with every promise checked when it is made."""

    def __init__(self) -> None:
        session = StoredSession("me", uid="u", expiry_s=EXPIRY_S, broker="b")
        self.machine = ClientDelivery()
        self.cell: Cell | None = Cell("k", encode_session(session), FIRST_REVISION)
        self.ours = session  # what was last written of ours
        self.rival = False  # somebody else has written
        self.asked: Asked | None = None
        self.late: list[Asked] = []  # requests whose asker was told that nothing is known, on their way still
        self.reading: ReadBatch | None = None
        self.timers: dict[str, None] = {}
        self.tail = 0
        self.unanswered: list[tuple[int, int]] = []  # (packet id, QoS) that the client has
        self.to_complete: list[int] = []  # PUBREL that the client has
        self.tickets: dict[int, Holds] = {}  # what must be stored when it is durable
        self.freed: set[tuple[int, str]] = set()  # packet ids that the client released, with their record ids
        self.count = 0
        self.usurped = self.gone = 0
        self.ended = False
        self.last_failures = 0  # after the end
        self.tell(Began(receive_max=3, prefix="p", session=session, revision=FIRST_REVISION, tail=0))
        self.happen("subscribe", 0)

    # ── the shell ───────────────────────────────────────────────────────────────────────────────────────────

    def tell(self, event: Event) -> None:
        for effect in self.machine.handle(event, 0):
            self.carry_out(effect)

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case PutKey() | GetKey() | DeleteKey():
                assert self.asked is None, "one request at a time"
                self.asked = effect
            case SetTimer(name=name):
                self.timers[name] = None
            case ReadBatch():
                assert self.reading is None, "one batch at a time"
                self.reading = effect
            case Deliver(packet_id=identifier, qos=qos):
                self.unanswered.append((identifier, qos))
            case Reply(packet=packet):
                assert not self.ended and not self.usurped
                assert packet.packet_id in self.ours.progress.releasing, "PUBREL before PUBREC was stored"
                self.to_complete.append(packet.packet_id)
            case Durable(tickets=tickets):
                assert not self.ended and not self.usurped
                for ticket in tickets:
                    assert self.tickets.pop(ticket)(self.ours), "told durable, and is not stored"
            case Usurped():
                self.usurped += 1
                assert self.rival, "nobody has taken the client"
                assert not self.ended
            case Gone():
                self.gone += 1
                assert self.ended

    def ticket(self, holds: Holds) -> int:
        self.count += 1
        self.tickets[self.count] = holds
        return self.count

    # ── the store ───────────────────────────────────────────────────────────────────────────────────────────

    def execute(self, asked: Asked) -> Event:
        """Carry out a request, whoever still waits for it."""
        if isinstance(asked, GetKey):
            return Stored(request=asked.request, value=self.cell)
        revision = 0 if self.cell is None else self.cell.revision
        if asked.revision != revision:
            conflict = Conflict("put", asked.revision or 0, revision)
            return StoreFailed(request=asked.request, error=conflict)
        if isinstance(asked, DeleteKey):
            self.cell = None
            return Stored(request=asked.request)
        self.cell = Cell("k", asked.value, revision + 1)
        self.ours = decode_session(asked.value)
        return Stored(request=asked.request, value=revision + 1)

    def answer(self, how: str) -> None:
        asked, self.asked = self.asked, None
        if asked is None:
            return
        self.last_failures += self.ended and how != "done"
        unknown = StoreFailed(request=asked.request, error=UNKNOWN)
        if how == "done":
            self.tell(self.execute(asked))
        elif how == "refused":
            self.tell(StoreFailed(request=asked.request, error=UNAVAILABLE))
        elif how == "mute":
            self.execute(asked)
            self.tell(unknown)
        else:
            if how == "late":
                self.late.append(asked)
            self.tell(unknown)

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    def happen(self, what: str, detail: int) -> None:
        match what:
            case "store":
                self.answer(("done", "done", "refused", "mute", "lost", "late")[detail % 6])
            case "late" if self.late:
                self.execute(self.late.pop(detail % len(self.late)))
            case "rival" if self.cell is not None and not self.rival:
                self.rival = True
                self.cell = Cell("k", b"a rival's", self.cell.revision + 1)
            case "timer" if self.timers:
                name = list(self.timers)[detail % len(self.timers)]
                del self.timers[name]
                self.tell(TimerFired(name=name))
            case "read" if self.reading is not None:
                self.read(failing=detail % 4 == 0)
            case _ if self.ended or self.usurped:
                return
            case "subscribe":
                name = f"f{detail % 4}"
                since = Subscription(qos=2, since=self.tail)
                self.tell(Subscribed(topic_filter=name, subscription=since))
                self.tell(AwaitSave(ticket=self.ticket(lambda stored: name in stored.subscriptions)))
            case "publish":
                self.publish(detail % 4 + 1)
            case "release":
                self.release(detail % 4 + 1)
            case "entry":
                self.tail += 1
                qos = 1 + detail % 2
                identifier, _ = (
                    self.machine.hand_in(self.tail, qos) if self.machine.subscriptions else (0, False)
                )
                if identifier:
                    self.unanswered.append((identifier, qos))
            case "acknowledge" if self.unanswered:
                identifier, qos = self.unanswered.pop(detail % len(self.unanswered))
                self.tell(Answered(packet=PubAckPacket(identifier) if qos == 1 else PubRecPacket(identifier)))
            case "complete" if self.to_complete:
                self.tell(
                    Answered(packet=PubCompPacket(self.to_complete.pop(detail % len(self.to_complete))))
                )

    def publish(self, packet_id: int) -> None:
        """A message at QoS 2, whose id has to be stored before it is appended; or a repeat of one."""
        record_id = self.machine.record_ids.give(packet_id, 2, "t", 7)
        known = self.ours.inbound.get(packet_id)
        assert known is None or known == record_id or (packet_id, known) in self.freed
        # Meanwhile the client may have released it; then nobody waits for it.
        self.tell(
            AwaitSave(
                ticket=self.ticket(
                    lambda stored: (
                        stored.inbound.get(packet_id) == record_id or (packet_id, record_id) in self.freed
                    )
                )
            )
        )
        self.tell(Kept(packet_id=packet_id))

    def release(self, packet_id: int) -> None:
        record_id = self.machine.record_ids.give(packet_id, 2, "t", 7)
        self.freed.add((packet_id, record_id))
        self.tell(
            ReleaseAsked(
                packet_id=packet_id,
                ticket=self.ticket(lambda stored: stored.inbound.get(packet_id) != record_id),
            )
        )

    def read(self, *, failing: bool) -> None:
        reading, self.reading = self.reading, None
        assert reading is not None
        if failing:
            self.tell(ReadFailed(error=UNAVAILABLE))
            return
        end = min(self.tail + 1, reading.start + 2)
        entries = [
            MatchedEntry(Entry(each, "t.m.a", b"", str(each), 0), 1 + each % 2)
            for each in range(reading.start, end)
        ]
        self.tell(BatchRead(entries=entries, next=max(end, reading.start), tail=self.tail))

    def end(self, expiry_s: int) -> None:
        self.ended = True
        self.tell(Ended(expiry_s=expiry_s))

    def go_well(self) -> None:
        """From here on everything is answered."""
        for _ in range(100):
            self.answer("done")
            for name in list(self.timers):
                if name != "refresh":
                    del self.timers[name]
                    self.tell(TimerFired(name=name))
            if self.reading is not None:
                self.read(failing=False)
            while self.unanswered and not self.ended and not self.usurped:
                self.happen("acknowledge", 0)
            while self.to_complete and not self.ended and not self.usurped:
                self.happen("complete", 0)


OFTEN = ("store", "store", "timer", "read", "entry", "acknowledge")
SOMETIMES = (
    "store",
    "late",
    "timer",
    "read",
    "subscribe",
    "publish",
    "release",
    "entry",
    "acknowledge",
    "complete",
)
happenings = st.tuples(st.sampled_from((*OFTEN, *SOMETIMES)), st.integers(0, 11))
stories = st.lists(happenings, min_size=30, max_size=90)
moments = st.none() | st.integers(0, 89)  # when something happens that happens once


def lived(story: list[tuple[str, int]], rival_at: int | None, end_at: int | None, expiry_s: int) -> History:
    history = History()
    for number, (what, detail) in enumerate(story):
        if number == rival_at:
            history.happen("rival", 0)
        if number == end_at:
            history.end(expiry_s)
        history.happen(what, detail)
    history.go_well()
    return history


@settings(max_examples=400, deadline=None)
@given(stories, moments, moments, st.sampled_from([0, EXPIRY_S]))
def test_nothing_is_promised_before_its_time(
    story: list[tuple[str, int]], rival_at: int | None, end_at: int | None, expiry_s: int
) -> None:
    history = lived(story, rival_at, end_at, expiry_s)
    if history.ended:
        assert history.gone == 1
        history.tell(Ended(expiry_s=0))
        assert history.gone == 1
        if not history.rival and history.last_failures < LAST_TRIES:
            assert history.ours.broker == "" if expiry_s else history.cell is None
        return
    # Whether the client is another's shows with the next write, and not otherwise.
    assert history.usurped <= history.rival
    if not history.usurped:
        history.tell(AwaitSave(ticket=history.ticket(lambda stored: True)))
        history.go_well()
    assert history.usurped == history.rival
    if not history.rival:
        assert history.tickets == {}, "everybody who waited was told"
        assert history.ours.progress.unsettled == ()
        assert history.ours.progress.releasing == ()
    history.end(EXPIRY_S)
    history.go_well()
    assert history.gone == 1
    if not history.rival:
        assert history.ours.broker == ""

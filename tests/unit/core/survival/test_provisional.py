"""Who is served without its session, and what is written when the store is back."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import Effect, Event, SetTimer, TimerFired
from tocsin.core.replication.gamma import ClientSnapshot
from tocsin.core.survival.provisional import (
    AT_ONCE,
    TRIES,
    AskAnew,
    AskedAnew,
    AwaitEnd,
    ClientCame,
    ClientWent,
    ConnectionsOver,
    HurryClients,
    LeaderHeard,
    LeaderLost,
    LookAtStore,
    Outcome,
    ProvisionalService,
    ProvisionalState,
    ProvisionalTimer,
    Record,
    SessionServed,
    SessionSettled,
    SettleSession,
    SettlingOver,
    StoreLooked,
    admit,
    recorded,
    settle,
)
from tocsin.wire.internal.replication import Head, Positions

OLD, NEW = {"old": Subscription(qos=1)}, {"new": Subscription(qos=1)}
KNOWN = recorded(
    ClientSnapshot("c", Head(True, session="uid", epoch=4, expiry_s=60), OLD, Positions()), tail=9
)
STORED = StoredSession(
    client="c", uid="uid", expiry_s=60, epoch=4, broker="gone", subscriptions=OLD, progress=Progress(7)
)


def came(
    known: Record | None, *, clean: bool = False, expiry_s: int = 60, owner: str = ""
) -> Record | str | None:
    return admit("c", known, owner=owner, clean=clean, expiry_s=expiry_s, tail=9)


def settled(record: Record, stored: StoredSession | None, *, here: bool = True) -> StoredSession | str:
    return settle(record, stored, here=here, broker="own", uid="fresh")


def test_a_client_that_is_known_is_served_with_its_subscriptions() -> None:
    found = came(KNOWN, expiry_s=90)
    assert isinstance(found, Record)
    assert (found.subscriptions, found.uid, found.epoch, found.expiry_s) == (OLD, "uid", 4, 90)


def test_a_client_with_a_possibly_unknown_session_is_refused() -> None:
    assert came(None) == "unknown"


def test_one_that_wants_none_to_last_is_served_without() -> None:
    assert came(None, expiry_s=0) is None


@pytest.mark.parametrize("known", [None, KNOWN])
def test_one_that_begins_anew_has_nothing(known: Record | None) -> None:
    found = came(known, clean=True)
    assert isinstance(found, Record) and found.fresh and found.subscriptions == {}


def test_another_user_does_not_get_the_session() -> None:
    theirs = msgspec.structs.replace(KNOWN, owner="alice")
    assert came(theirs, owner="bob") == "not yours" == came(theirs, owner="bob", clean=True)
    assert isinstance(came(theirs, owner="alice"), Record)
    assert settled(KNOWN, msgspec.structs.replace(STORED, owner="alice")) == "let go"


def test_provisional_changes_are_written_with_a_new_epoch_and_nothing_else() -> None:
    found = settled(msgspec.structs.replace(KNOWN, subscriptions=NEW), STORED)
    assert found == msgspec.structs.replace(STORED, epoch=5, broker="", subscriptions=NEW)


def test_what_did_not_change_is_not_written() -> None:
    assert settled(KNOWN, STORED) == "as it is"


@pytest.mark.parametrize(
    "stored",
    [
        None,
        msgspec.structs.replace(STORED, epoch=5),
        msgspec.structs.replace(STORED, epoch=5, broker=""),
        msgspec.structs.replace(STORED, uid="another"),
    ],
)
def test_a_session_that_somebody_has_taken_since_is_let_go(stored: StoredSession | None) -> None:
    assert settled(msgspec.structs.replace(KNOWN, subscriptions=NEW), stored) == "let go"


def test_a_session_that_its_client_ended_is_forgotten() -> None:
    over = msgspec.structs.replace(KNOWN, expiry_s=0)
    assert settled(over, STORED) == "forget" and settled(over, None) == "let go"


def test_a_new_session_begins_where_the_log_was_known_to_end() -> None:
    began = came(None, clean=True)
    assert isinstance(began, Record)
    found = settled(msgspec.structs.replace(began, subscriptions=NEW), None)
    assert isinstance(found, StoredSession)
    assert (found.uid, found.epoch, found.broker, found.subscriptions) == ("fresh", 1, "", NEW)
    assert found.progress == Progress(10) and found.home == "own"


def test_a_new_session_replaces_an_unowned_old_one_of_a_local_client() -> None:
    began = came(None, clean=True)
    assert isinstance(began, Record)
    nobodys = msgspec.structs.replace(STORED, broker="")
    found = settled(began, nobodys)
    assert isinstance(found, StoredSession) and (found.uid, found.epoch) == ("fresh", 5)
    assert settled(began, nobodys, here=False) == "let go" == settled(began, STORED)


EPOCHS = st.integers(1, 3)
CELLS = st.none() | st.builds(
    lambda uid, epoch, broker, names: StoredSession(
        client="c", uid=uid, expiry_s=60, epoch=epoch, broker=broker, subscriptions=names
    ),
    st.sampled_from(["u", "v"]),
    EPOCHS,
    st.sampled_from(["", "own", "else"]),
    st.sampled_from([OLD, NEW]),
)


@given(CELLS, st.sampled_from(["", "u"]), EPOCHS, st.booleans(), st.booleans(), st.sampled_from([0, 60]))
def test_nothing_is_written_over_a_cell_that_was_taken_since(
    cell: StoredSession | None, uid: str, epoch: int, fresh: bool, here: bool, expiry_s: int
) -> None:
    record = Record("c", "", uid, epoch, expiry_s, fresh or not uid, 0, NEW)
    found = settled(record, cell, here=here)
    if isinstance(found, StoredSession) or found == "forget":
        known = cell is not None and (cell.uid, cell.epoch) == (uid, epoch)
        nobodys = cell is not None and not uid and cell.broker == ""
        assert known or (nobodys and here) or (cell is None and record.fresh)
    if isinstance(found, StoredSession):
        assert found.epoch == (1 if cell is None else cell.epoch + 1)
        assert found.broker == "" and found.subscriptions == NEW


# ── when it begins and ends ──────────────────────────────────────────────────────────────────────────────────


class Service:
    """One broker's provisional service, and what it asks for."""

    def __init__(self) -> None:
        self.machine = ProvisionalService()
        self.timers: set[str] = set()

    def tell(self, *events: Event) -> list[Effect]:
        effects: list[Effect] = []
        for event in events:
            effects += self.machine.handle(event, 0)
        self.timers.update(each.name for each in effects if isinstance(each, SetTimer))
        return effects

    def fire(self, name: str) -> list[Effect]:
        self.timers.remove(name)
        return self.tell(TimerFired(name=name))

    def cut(self) -> list[Effect]:
        return self.tell(LeaderLost(), StoreLooked(reached=False))

    def heal(self) -> list[Effect]:
        self.fire(ProvisionalTimer.LOOK)
        return self.tell(StoreLooked(reached=True))

    def serve(self, client: str, *, here: bool = False) -> Record:
        record = msgspec.structs.replace(KNOWN, client=client)
        self.tell(SessionServed(record=record))
        if here:
            self.tell(ClientCame(client=client, delivery=client))
        return record

    def leave(self, record: Record) -> Record:
        """The client of a record goes, and leaves another subscription."""
        left = msgspec.structs.replace(record, subscriptions=NEW)
        self.tell(ClientWent(delivery=record.client, record=left, provisional=True))
        return left

    @property
    def again(self) -> list[str]:
        """The timers of records that are to be tried again."""
        return [each for each in self.timers if each != ProvisionalTimer.LOOK]

    def answer(self, effects: list[Effect]) -> list[Effect]:
        """Clients that are to come anew are asked, and stay. Nothing of earlier connections is left."""
        asked = [AskedAnew(client=each.client) for each in effects if isinstance(each, AskAnew)]
        effects = [*effects, *self.tell(*asked)]
        over = [ConnectionsOver(client=each.client) for each in effects if isinstance(each, AwaitEnd)]
        return [*effects, *self.tell(*over)]

    def settled(self, client: str, outcome: Outcome = "written") -> list[Effect]:
        return self.tell(SessionSettled(client=client, outcome=outcome))


Kind = TypeVar("Kind", bound=Effect)


def of(effects: list[Effect], kind: type[Kind]) -> list[Kind]:
    return [each for each in effects if isinstance(each, kind)]


def test_without_a_leader_the_store_is_probed_and_waiting_clients_released() -> None:
    service = Service()
    assert of(service.tell(LeaderLost()), LookAtStore)
    assert not of(service.tell(StoreLooked(reached=True)), HurryClients)
    assert of(service.fire(ProvisionalTimer.LOOK), LookAtStore)
    assert of(service.tell(StoreLooked(reached=False)), HurryClients)
    service.tell(LeaderHeard())
    assert service.machine.cut_off, "the store has not answered"
    assert of(service.heal(), SetTimer)
    assert service.machine.state == ProvisionalState.JOINED
    assert service.fire(ProvisionalTimer.LOOK) == [], "it is looked at no longer"


def test_a_connected_client_reconnects_before_its_record_is_settled() -> None:
    for leader_first in (True, False):
        service = Service()
        service.cut()
        record = service.serve("c", here=True)
        if leader_first:
            service.tell(LeaderHeard())
        effects = service.heal()
        assert of(effects, AskAnew) == [AskAnew(client="c")] and not of(effects, SettleSession)
        left = service.leave(record)
        assert service.tell(AskedAnew(client="c")) == [AwaitEnd(client="c")]
        assert service.tell(ConnectionsOver(client="c")) == [SettleSession(record=left, here=True)]
        assert service.machine.settles("c") and not service.machine.here
        assert of(service.settled("c"), SettlingOver) and not service.machine.busy


def test_records_are_settled_a_few_at_a_time_and_may_change() -> None:
    service = Service()
    service.cut()
    records = [service.serve(f"c{number}", here=number == AT_ONCE) for number in range(AT_ONCE + 1)]
    assert len(of(service.heal(), AwaitEnd)) == AT_ONCE
    left = service.leave(records[-1])
    assert of(service.settled("c0"), AwaitEnd) == [AwaitEnd(client=f"c{AT_ONCE}")]
    (settles,) = service.tell(ConnectionsOver(client=f"c{AT_ONCE}"))
    assert settles == SettleSession(record=left, here=False)


def test_a_record_waits_for_what_earlier_connections_still_store() -> None:
    service = Service()
    service.cut()
    record = service.serve("c")
    effects = service.heal()
    assert of(effects, AwaitEnd) == [AwaitEnd(client="c")] and not of(effects, SettleSession)
    assert service.machine.settles("c"), "whoever comes waits, too"
    assert service.tell(ConnectionsOver(client="c")) == [SettleSession(record=record, here=False)]


def test_a_record_that_the_store_refuses_waits_for_its_next_return() -> None:
    service = Service()
    service.cut()
    record = service.serve("c")
    service.heal()
    for _ in range(TRIES - 1):
        service.settled("c", "failed")
        assert of(service.fire(ProvisionalTimer.AGAIN.of("c")), SettleSession)
    assert of(service.settled("c", "failed"), SettlingOver)
    assert service.machine.records == {"c": record} and not service.machine.busy
    assert (service.machine.settled, service.machine.let_go) == (0, 0)


def test_records_not_begun_at_a_second_cut_wait_for_the_store() -> None:
    service = Service()
    service.cut()
    for number in range(AT_ONCE + 1):
        service.serve(f"c{number}")
    service.heal()
    service.fire(ProvisionalTimer.LOOK)
    effects = service.tell(StoreLooked(reached=False))
    assert of(effects, SettlingOver) == [SettlingOver(client=f"c{AT_ONCE}")]
    assert set(service.machine.records) == {f"c{AT_ONCE}"}


def test_a_leaving_clients_session_is_recorded_only_without_a_leader() -> None:
    service = Service()
    went = ClientWent(delivery="c", record=KNOWN, provisional=False)
    service.tell(went)
    assert not service.machine.records
    service.tell(LeaderLost(), went)
    assert service.machine.records == {"c": KNOWN}
    service.tell(LeaderHeard(), StoreLooked(reached=True))
    service.fire(ProvisionalTimer.LOOK)
    assert not service.machine.records, "the store was there all the time"


happenings = st.lists(
    st.sampled_from(
        ["lost", "heard", "reached", "missed", "fire", "serve", "come", "go", "settled", "failed"]
    ),
    max_size=60,
)


@given(happenings)
def test_two_flags_say_the_same_and_nobody_waits_for_ever(script: list[str]) -> None:
    service, severed, cut_off, asked = Service(), False, False, list[SettleSession]()
    looking = False
    for number, what in enumerate(script):
        client = f"c{number % 3}"
        record, effects = msgspec.structs.replace(KNOWN, client=client), list[Effect]()
        match what:
            case "lost":
                severed, effects = True, service.tell(LeaderLost())
            case "heard":
                severed, effects = False, service.tell(LeaderHeard())
            case "reached" | "missed" if looking:
                looking = False
                cut_off = what == "missed" and (severed or cut_off)
                effects = service.tell(StoreLooked(reached=what == "reached"))
            case "fire" if service.timers:
                effects = service.fire(min(service.timers))
            case "serve" if cut_off:
                effects = service.tell(SessionServed(record=record))
            case "come" if cut_off:
                effects = service.tell(ClientCame(client=client, delivery=client))
            case "go":
                effects = service.tell(ClientWent(delivery=client, record=record, provisional=True))
            case "settled" | "failed" if asked:
                outcome: Outcome = "written" if what == "settled" else "failed"
                effects = service.settled(asked.pop(0).record.client, outcome)
        effects = service.answer(effects)
        looking = looking or bool(of(effects, LookAtStore))
        asked += of(effects, SettleSession)
        assert service.machine.cut_off == cut_off
        assert severed == (service.machine.state in (ProvisionalState.SEVERED, ProvisionalState.CUT_OFF))
    while asked or service.again:
        for name in service.again:
            asked += of(service.fire(name), SettleSession)
        for each in asked:
            effects = service.settled(each.record.client)
            asked = [*asked[1:], *of(service.answer(effects), SettleSession)]
    assert not service.machine.busy

"""Which backend subscriptions a broker holds, and what it does when sessions come, go and move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

from tocsin.core.channels.cells import AGAIN_US
from tocsin.core.channels.channel_filter import UnknownChannel
from tocsin.core.channels.machine import (
    EXPIRY_MARGIN_US,
    LOOK_AGAIN_US,
    OURS_US,
    SCAN_AGAIN_US,
    SCAN_EVERY_US,
    ChannelHoldings,
)
from tocsin.core.channels.signals import (
    CellFound,
    Counted,
    Defined,
    Doubted,
    Held,
    HoldingsTimer,
    Left,
    LookAt,
    Looked,
    Prepared,
    Scan,
    Scanned,
    SessionFound,
    Undefined,
    Unheld,
    Unwanted,
    Wanted,
)
from tocsin.core.machine import (
    DeleteKey,
    Effect,
    Event,
    PutKey,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    TimerFired,
)
from tocsin.errors import OutcomeUnknown, StoreFull, StoreUnavailable
from tocsin.model.catalogue import Channel, Parameter
from tocsin.model.results import STANDBY, decode_subscription, k_of

NEAR = Channel("Near", (Parameter("radius", "DOUBLE"),), (), "")
AS_TEXT = Channel("Near", (Parameter("radius", "STRING"),), (), "", version=2)
FIVE, FIVE_TOO, SIX = "$channel/Near/5", "$channel/near?radius=5.0", "$channel/Near/6"
K5, K6 = k_of("Near", (5.0,)), k_of("Near", (6.0,))
KEY5 = f"near.{K5}.b"
LATER = TimerFired(name=HoldingsTimer.LATER)
UNAVAILABLE = StoreUnavailable("put", "no leader")
UNKNOWN = OutcomeUnknown("put", 5.0)

Kind = TypeVar("Kind", bound=Effect)


def of(effects: Sequence[Effect], kind: type[Kind]) -> list[Kind]:
    return [each for each in effects if isinstance(each, kind)]


class Held5:
    """Holdings with a channel, after a scan that found nothing."""

    def __init__(self, *, scanned: bool = True) -> None:
        self.machine = ChannelHoldings("b")
        self.tell(Defined(channel=NEAR))
        self.first = self.tell(Started(incarnation=1))
        if scanned:
            self.tell(Scanned(whole=True))

    def tell(self, event: Event, now_us: int = 0) -> list[Effect]:
        return self.machine.handle(event, now_us)

    def want(self, name: str = FIVE, session: str = "s", ticket: int = 1) -> list[Effect]:
        return self.tell(Wanted(session=session, client=f"c-{session}", names=(name,), ticket=ticket))

    def unwant(self, name: str = FIVE, session: str = "s") -> list[Effect]:
        return self.tell(Unwanted(session=session, names=(name,)))

    def stored(self, revision: int | None = 7, key: str = KEY5) -> list[Effect]:
        return self.tell(Stored(request=key, value=revision))


def test_the_first_subscriber_has_the_cell_written_and_hears_of_it() -> None:
    held = Held5()
    (put,) = held.want()
    assert isinstance(put, PutKey) and put.key == KEY5
    subscription = decode_subscription(put.value)
    assert (subscription.channel, subscription.values, subscription.broker) == ("Near", (5.0,), "b")
    assert held.stored() == [Held(tickets=(1,))]


def test_whoever_comes_later_is_told_at_once_or_with_the_first() -> None:
    held = Held5()
    held.want()
    assert held.want(FIVE_TOO, "t", ticket=2) == []
    (told,) = of(held.stored(), Held)
    assert set(told.tickets) == {1, 2}
    assert held.want(FIVE, "u", ticket=3) == [Held(tickets=(3,))]
    assert set(held.machine.names(K5)) == {FIVE, FIVE_TOO}


def test_the_last_that_goes_has_the_cell_deleted_as_it_is_known() -> None:
    held = Held5()
    held.want()
    held.want(FIVE_TOO, "t")
    held.stored(7)
    assert held.unwant() == []
    assert held.tell(Left(session="t", expiry_s=0)) == [
        DeleteKey(request=KEY5, table="channel-subscriptions", key=KEY5, revision=7)
    ]
    assert held.stored(None) == []
    assert held.machine.statistics() == {
        "channels": 1,
        "channel_subscriptions": 0,
        "channel_sessions": 0,
        "channel_standbys": 0,
    }


def test_a_session_that_is_away_still_holds_it() -> None:
    held = Held5()
    held.want()
    held.stored()
    assert of(held.tell(Left(session="s", expiry_s=60)), DeleteKey) == []
    (look,) = of(held.tell(TimerFired(name=HoldingsTimer.EXPIRY), 60_000_000 + EXPIRY_MARGIN_US), LookAt)
    assert (look.session, look.client) == ("s", "c-s")
    assert held.tell(Looked(session="s", client="c-s", visits=look.visits, home="here", names=(FIVE,))) == []
    (gone,) = held.tell(Looked(session="s", client="c-s", visits=look.visits, home="nowhere"))
    assert isinstance(gone, DeleteKey)


def test_an_expiry_that_was_moved_is_waited_for() -> None:
    held = Held5()
    held.want()
    held.stored()
    held.tell(Left(session="s", expiry_s=60))
    held.want()
    assert of(held.tell(Left(session="s", expiry_s=100), 1_000_000), SetTimer) == []
    (again,) = held.tell(TimerFired(name=HoldingsTimer.EXPIRY), 60_000_000 + EXPIRY_MARGIN_US)
    assert again == SetTimer(name=HoldingsTimer.EXPIRY, delay_us=41_000_000)


def test_a_lookup_from_before_the_session_returned_is_discarded() -> None:
    held = Held5()
    held.want()
    held.stored()
    held.tell(Left(session="s", expiry_s=60))
    (look,) = of(held.tell(Doubted(session="s", client="c-s")), LookAt)
    held.want()
    assert held.tell(Looked(session="s", client="c-s", visits=look.visits, home="nowhere")) == []
    held.tell(Left(session="s", expiry_s=60))
    assert held.tell(Looked(session="s", client="c-s", visits=look.visits, home="nowhere")) == []


def test_a_doubt_about_a_connected_session_is_looked_into_when_it_leaves() -> None:
    held = Held5()
    held.want()
    held.stored()
    assert held.tell(Doubted(session="s", client="c-s")) == []
    assert len(of(held.tell(Left(session="s", expiry_s=60)), LookAt)) == 1


def test_a_home_lets_go_only_when_the_new_one_holds_everything() -> None:
    held = Held5()
    held.want()
    held.stored()
    held.tell(Left(session="s", expiry_s=60))
    (look,) = of(held.tell(Doubted(session="s", client="c-s")), LookAt)
    elsewhere = Looked(
        session="s", client="c-s", visits=look.visits, home="elsewhere", ready=False, names=(FIVE,)
    )
    (later,) = held.tell(elsewhere)
    assert later == SetTimer(name=HoldingsTimer.EXPIRY, delay_us=LOOK_AGAIN_US)
    (again,) = of(held.tell(TimerFired(name=HoldingsTimer.EXPIRY), LOOK_AGAIN_US), LookAt)
    ready = Looked(session="s", client="c-s", visits=again.visits, home="elsewhere", names=(FIVE,))
    assert len(of(held.tell(ready), DeleteKey)) == 1


def test_a_home_told_of_an_unknown_session_looks_it_up_and_holds() -> None:
    held = Held5()
    (look,) = of(held.tell(Doubted(session="s", client="c-s")), LookAt)
    found = Looked(session="s", client="c-s", visits=look.visits, home="here", names=(FIVE,), expiry_s=60)
    assert of(held.tell(found), SetTimer)[0] == SetTimer(name=HoldingsTimer.LATER, delay_us=0)
    assert len(of(held.tell(LATER), PutKey)) == 1


def test_nothing_is_deleted_before_a_whole_scan() -> None:
    held = Held5(scanned=False)
    assert of(held.first, Scan)
    held.tell(CellFound(key=f"near.{K6}.b", revision=3))
    held.want()
    held.stored(7)
    assert held.unwant() == []
    assert held.tell(Scanned(whole=False)) == [SetTimer(name=HoldingsTimer.SCAN, delay_us=SCAN_AGAIN_US)]
    assert of(held.tell(TimerFired(name=HoldingsTimer.SCAN)), Scan)
    held.tell(CellFound(key=KEY5, revision=7))
    held.tell(CellFound(key=f"near.{K6}.b", revision=3))
    effects = held.tell(Scanned(whole=True))
    assert {(each.key, each.revision) for each in of(effects, DeleteKey)} == {(KEY5, 7), (f"near.{K6}.b", 3)}
    assert SetTimer(name=HoldingsTimer.SCAN, delay_us=SCAN_EVERY_US) in effects


def test_under_a_borrowed_name_nothing_is_deleted_and_found_cells_are_rewritten() -> None:
    """The broker whose name it is may not be dead, and believes that its cells are there."""
    held = Held5(scanned=False)
    held.machine.borrow()
    for k in (K5, K6):
        held.tell(CellFound(key=f"near.{k}.b", revision=3))
    (put,) = held.want()
    assert isinstance(put, PutKey), "the other may delete what it has put itself"
    assert held.tell(Scanned(whole=True))[:-1] == []
    assert held.stored(9) == [Held(tickets=(1,))]
    assert of(held.unwant(), DeleteKey) == []
    assert held.want(ticket=2) == [Held(tickets=(2,))]


def test_a_process_no_leader_counts_on_deletes_no_cells() -> None:
    held = Held5(scanned=False)
    held.tell(Counted(counted=False))
    held.tell(CellFound(key=f"near.{K6}.b", revision=3))
    held.want()
    held.stored(9)
    assert of(held.tell(Scanned(whole=True)), DeleteKey) == []
    assert of(held.unwant(), DeleteKey) == []
    assert held.tell(Counted(counted=True)) == [SetTimer(name=HoldingsTimer.SCAN, delay_us=OURS_US)]
    assert of(held.tell(TimerFired(name=HoldingsTimer.SCAN)), Scan)
    held.tell(CellFound(key=f"near.{K6}.b", revision=3))
    held.tell(CellFound(key=KEY5, revision=9))
    found = of(held.tell(Scanned(whole=True)), DeleteKey)
    assert {(each.key, each.revision) for each in found} == {(KEY5, 9), (f"near.{K6}.b", 3)}


def test_what_a_scan_finds_in_earnest_needs_no_standby_any_more() -> None:
    held = Held5(scanned=False)
    held.tell(Prepared(primary="p", names=(FIVE,)))
    held.tell(Stored(request=f"{KEY5}.{STANDBY}", value=8))
    held.tell(CellFound(key=KEY5, revision=3))
    held.tell(SessionFound(session="s", client="c", names=(FIVE,), expiry_s=60))
    assert of(held.tell(Scanned(whole=True)), DeleteKey) == []
    held.tell(LATER)
    (delete,) = of(held.stored(9), DeleteKey)
    assert (delete.key, delete.revision) == (f"{KEY5}.{STANDBY}", 8)


def test_a_scan_by_a_process_not_counted_on_is_repeated() -> None:
    held = Held5(scanned=False)
    held.tell(CellFound(key=f"near.{K6}.b", revision=3))
    held.tell(Counted(counted=False))
    held.tell(Counted(counted=True))
    effects = held.tell(Scanned(whole=True))
    assert of(effects, DeleteKey) == []
    assert SetTimer(name=HoldingsTimer.SCAN, delay_us=OURS_US) in effects


def test_who_is_counted_on_again_deletes_what_was_given_up_meanwhile() -> None:
    held = Held5()
    held.want()
    held.stored(9)
    held.tell(Counted(counted=False))
    assert of(held.unwant(), DeleteKey) == []
    (delete,) = held.tell(Counted(counted=True))
    assert isinstance(delete, DeleteKey) and delete.revision == 9


def test_cells_found_by_a_scan_are_rewritten_for_absent_sessions() -> None:
    held = Held5(scanned=False)
    held.tell(CellFound(key=KEY5, revision=3))
    for session, name in (("s", FIVE), ("t", SIX)):
        found = SessionFound(session=session, client=session, names=(name,), expiry_s=60)
        held.tell(found)
    assert len(of(held.tell(LATER), PutKey)) == 2
    assert of(held.tell(Scanned(whole=True)), DeleteKey) == []
    held.want(ticket=9)
    assert held.stored(4) == [Held(tickets=(9,))], "and nobody takes it for stored before"


def test_a_session_that_a_later_scan_does_not_find_is_looked_at() -> None:
    held = Held5()
    held.want()
    held.want(SIX, "t")
    held.tell(Left(session="s", expiry_s=60))
    held.tell(Left(session="t", expiry_s=60))
    held.tell(TimerFired(name=HoldingsTimer.SCAN))
    held.tell(SessionFound(session="t", client="c-t", names=(SIX,), expiry_s=60))
    assert [each.session for each in of(held.tell(Scanned(whole=True)), LookAt)] == ["s"]


def test_a_cell_that_a_scan_saw_before_its_deletion_is_not_believed() -> None:
    held = Held5()
    held.want()
    held.stored(7)
    held.tell(TimerFired(name=HoldingsTimer.SCAN))
    held.unwant()
    held.stored(None)
    held.tell(CellFound(key=KEY5, revision=7))
    assert len(of(held.want(), PutKey)) == 1


def test_a_subscription_to_an_unknown_channel_waits_for_its_definition() -> None:
    held = Held5()
    held.tell(Undefined(name="NEAR"))
    with pytest.raises(UnknownChannel) as refused:
        held.machine.check(FIVE)
    assert "no channel 'Near'" in refused.value.problem
    assert held.want() == [Held(tickets=(1,))]
    assert len(of(held.tell(Defined(channel=NEAR)), PutKey)) == 1
    assert held.machine.meaning(FIVE) is not None


def test_a_changed_definition_moves_subscriptions_to_what_they_mean_now() -> None:
    held = Held5()
    held.want()
    held.stored(7)
    put, delete = held.tell(Defined(channel=AS_TEXT))
    assert isinstance(put, PutKey) and decode_subscription(put.value).values == ("5",)
    assert isinstance(delete, DeleteKey) and delete.revision == 7


def test_ticks_that_did_not_know_a_cell_are_told_by_its_revision() -> None:
    held = Held5()
    held.want()
    assert held.machine.unseen(100) == {K5}
    held.stored(7)
    assert held.machine.unseen(6) == {K5}
    assert held.machine.unseen(0) == {K5}
    assert held.machine.unseen(7) == set()


def test_an_unanswered_put_is_repeated_before_the_cell_is_deleted() -> None:
    held = Held5()
    held.want()
    assert of(held.tell(StoreFailed(request=KEY5, error=UNKNOWN)), SetTimer) == [
        SetTimer(name=HoldingsTimer.AGAIN, delay_us=AGAIN_US)
    ]
    held.unwant()
    assert len(of(held.tell(TimerFired(name=HoldingsTimer.AGAIN)), PutKey)) == 1
    assert [each.revision for each in of(held.stored(9), DeleteKey)] == [9]


def test_a_stored_cell_that_is_gone_is_rewritten_after_a_scan() -> None:
    held = Held5()
    held.want()
    held.stored(7)
    held.want(SIX, "t")
    held.stored(8, f"near.{K6}.b")
    held.tell(TimerFired(name=HoldingsTimer.SCAN))
    held.tell(CellFound(key=KEY5, revision=7))
    (put,) = of(held.tell(Scanned(whole=True)), PutKey)
    assert put.key == f"near.{K6}.b"


def test_a_subscriber_to_a_cell_under_deletion_hears_when_it_is_stored() -> None:
    held = Held5()
    held.want()
    held.stored(7)
    held.machine.unseen(7)
    assert len(of(held.unwant(), DeleteKey)) == 1
    assert held.want(ticket=2) == []
    assert held.machine.unseen(7) == {K5}, "a tick that knew the old cell need not know the new one"
    assert len(of(held.stored(None), PutKey)) == 1
    assert held.stored(9) == [Held(tickets=(2,))]


def test_a_subscriber_hears_once_that_the_store_has_no_room() -> None:
    some, key6 = Held5(), f"near.{K6}.b"
    some.tell(Wanted(session="s", client="c", names=(FIVE, SIX), ticket=1))
    some.want(FIVE, "t", 2)
    full = some.tell(StoreFailed(request=KEY5, error=StoreFull("put", "full")))
    assert [each.tickets for each in of(full, Unheld)] == [(1, 2)]
    assert [each.name for each in of(full, SetTimer)] == [HoldingsTimer.AGAIN], (
        "it is tried for as long as it is wanted"
    )
    assert of(some.stored(8, key6), Held) == [], "the ticket for both was told already"
    assert of(some.tell(StoreFailed(request=KEY5, error=StoreFull("put", "full"))), Unheld) == []
    for session in ("s", "t"):
        some.unwant(FIVE, session)
    assert of(some.tell(TimerFired(name=HoldingsTimer.AGAIN)), PutKey) == [], "nobody wants it any more"

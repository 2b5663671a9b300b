"""One group at one broker, step by step: members that come and go, incarnations that end, and time."""

from __future__ import annotations

import pytest

from tests.unit.core.delivery.attended import of, one
from tests.unit.core.shared.one_sharer import (
    NAME,
    NOW_US,
    OTHER,
    OWN,
    Broker,
    arrive,
    joined,
    matched,
    with_other,
)
from tocsin.core.delivery.stored_session import FOREVER_S
from tocsin.core.machine import (
    Effect,
    GetKey,
    IllegalEvent,
    PutKey,
    SetTimer,
    Stored,
    StoreFailed,
    TimerFired,
)
from tocsin.core.shared.cell import GET
from tocsin.core.shared.incarnations import ASK
from tocsin.core.shared.signals import (
    Arrived,
    Forget,
    Give,
    Joined,
    Leave,
    OutOfSight,
    PartRead,
    Quit,
    RoomMade,
    SessionOver,
    Settle,
    SharingTimer,
    Turned,
    Vanished,
)
from tocsin.core.shared.stored_group import KEEP_US, Claim, Member, StoredGroup
from tocsin.errors import OutcomeUnknown, StoreFull
from tocsin.ports import Cell

# ── members ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_member_makes_the_group_where_the_log_ends() -> None:
    broker = Broker(tail=5)
    said = broker.answer(broker.join())
    assert one(said, Joined).claims == ()
    assert (broker.group.next, broker.group.members) == (6, {"c": Member("s", 1, OWN, 60)})


def test_a_member_is_told_of_it_only_when_it_is_durable() -> None:
    broker = Broker()
    (asked,) = of(broker.join(), GetKey)
    effects = broker.tell(Stored(request=asked.request, value=None))
    assert not of(effects, Joined)
    assert of(broker.answer(effects), Joined)


def test_a_member_joins_those_that_are_there() -> None:
    broker = joined(group=with_other(next_=4), tail=3)
    assert sorted(broker.group.members) == ["c", "far"]
    assert broker.group.next == 4


def test_more_members_than_there_may_be_are_told_so() -> None:
    broker = Broker(with_other(), members_max=1)
    said = broker.answer(broker.join())
    assert "at most 1" in one(said, Turned).reason
    assert of(said, Vanished)
    assert sorted(broker.group.members) == ["far"]


def test_another_users_client_is_refused_unless_a_rule_admits_it() -> None:
    group = StoredGroup(NAME, 1, {"far": Member("s", 5, OTHER, 60)}, owner="alice")
    broker = Broker(group)
    turned = one(broker.answer(broker.join(user="mallory")), Turned)
    assert turned.foreign and "belongs to another user" in turned.reason
    assert sorted(broker.group.members) == ["far"]
    broker = Broker(group)
    broker.answer(broker.join(user="mallory", entitled=True))
    assert sorted(broker.group.members) == ["c", "far"] and broker.group.owner == "alice"


def test_whoever_has_come_back_elsewhere_is_turned_away_here() -> None:
    group = StoredGroup(NAME, 1, {"c": Member("s", 5, OTHER, 60)})
    broker = Broker(group)
    assert "later connection" in one(broker.answer(broker.join(epoch=4)), Turned).reason
    assert broker.group == group


def test_the_last_member_that_ends_ends_the_group() -> None:
    broker = joined()
    said = broker.answer(broker.tell(Leave(client="c", session="s", expiry_s=0)))
    assert of(said, Vanished)
    assert broker.cell is None


def test_a_persistent_member_keeps_its_place_and_the_cell_lives_on() -> None:
    broker = joined()
    effects = broker.tell(Leave(client="c", session="s", expiry_s=60))
    assert one(effects, PutKey).ttl_us == 90_000_000 + KEEP_US
    assert of(broker.answer(effects), Vanished)
    away = broker.group.members["c"]
    assert (away.incarnation, away.until_s) == ("", NOW_US // 1_000_000 + 60)


def test_a_cell_with_a_session_that_never_ends_never_expires() -> None:
    broker = Broker()
    asked = broker.tell(Stored(request=GET, value=None)) if broker.join(expiry_s=FOREVER_S) else []
    assert one(asked, PutKey).ttl_us is None


def test_somebody_elses_connection_does_not_make_a_member_leave() -> None:
    broker = joined()
    assert broker.tell(Leave(client="c", session="another", expiry_s=0)) == []
    assert broker.tell(Quit(client="nobody", session="s")) == []


def test_who_comes_and_goes_before_it_was_known_leaves_no_trace() -> None:
    broker = Broker(with_other())
    effects = broker.join()
    effects += broker.tell(Leave(client="c", session="s", expiry_s=0))
    assert of(broker.answer(effects), Vanished)
    assert broker.group == with_other()


def test_who_unsubscribes_before_it_is_a_member_is_answered_all_the_same() -> None:
    broker = Broker(with_other())
    effects = broker.join()
    effects += broker.tell(Quit(client="c", session="s"))
    said = broker.answer(effects)
    assert one(said, Joined).claims == ()
    assert of(said, Vanished)
    assert broker.group == with_other()


def test_an_ended_session_leaves_its_group_even_without_local_members() -> None:
    broker = Broker(StoredGroup(NAME, 1, {"c": Member("s", 1, "", 60, 1 << 40)}))
    said = broker.answer(broker.tell(SessionOver(client="c", session="s")))
    assert of(said, Vanished)
    assert broker.cell is None


def test_a_session_outside_the_group_causes_no_write() -> None:
    broker = Broker(with_other())
    said = broker.answer(broker.tell(SessionOver(client="c", session="s")))
    assert of(said, Vanished)
    assert broker.revision == 7


def test_who_subscribes_again_is_told_again() -> None:
    broker = joined()
    assert one(broker.answer(broker.join()), Joined).client == "c"
    assert list(broker.group.members) == ["c"]


def test_who_unsubscribes_and_subscribes_again_stays_a_member() -> None:
    broker = joined()
    arriving = broker.answer(arrive(broker, matched(1)))
    assert of(arriving, Give)
    broker.answer(broker.tell(Quit(client="c", session="s")))
    assert [member.leaving for member in broker.group.members.values()] == [True]
    broker.answer(broker.join())
    assert [member.leaving for member in broker.group.members.values()] == [False]
    assert broker.group.claims["c"] == (Claim(1, 1, 1),)


# ── incarnations ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_members_of_a_lost_broker_are_absent_when_the_store_confirms() -> None:
    group = with_other(claims={"far": (Claim(1, 9, 1), Claim(2, 8, 2))}, next_=3)
    broker = joined(group=group, tail=2)
    assert not of(broker.tell(TimerFired(name=SharingTimer.LOOK)), GetKey)
    broker.dead.add(OTHER)
    asked = one(broker.tell(TimerFired(name=SharingTimer.LOOK)), GetKey)
    assert asked.key == "life.o"
    assert not of(broker.tell(TimerFired(name=SharingTimer.LOOK)), GetKey), "it is being asked"
    alive = Cell("life.o", OTHER.encode(), 3)
    assert broker.tell(Stored(request=ASK + OTHER, value=alive)) == []
    broker.tell(TimerFired(name=SharingTimer.LOOK))
    broker.answer(broker.tell(Stored(request=ASK + OTHER, value=None)))
    assert not broker.group.members["far"].incarnation
    assert (broker.group.free, broker.group.claims) == ({1: ()}, {"far": (Claim(2, 8, 2),)})


def test_a_broker_that_began_a_new_life_has_ended_the_last() -> None:
    broker = joined(group=with_other())
    broker.dead.add(OTHER)
    broker.tell(TimerFired(name=SharingTimer.LOOK))
    broker.answer(broker.tell(Stored(request=ASK + OTHER, value=Cell("life.o", b"o.2", 3))))
    assert not broker.group.members["far"].incarnation


def test_a_member_taken_for_dead_rejoins_and_keeps_its_qos_2_messages() -> None:
    broker = joined(group=with_other(), tail=0)
    broker.answer(
        [*arrive(broker, matched(1), matched(2, 2)), *broker.tell(TimerFired(name=SharingTimer.GRACE))]
    )
    broker.answer(broker.tell(TimerFired(name=SharingTimer.GRACE)))
    assert len(broker.group.claims["c"]) == 2
    away = Member("s", 1, "", 60, 1 << 40)
    held = tuple(claim for claim in broker.group.claims["c"] if claim.qos == 2)
    freed = next(claim for claim in broker.group.claims["c"] if claim.qos == 1)
    buried = StoredGroup(NAME, 3, {**broker.group.members, "c": away}, {"c": held}, {freed.position: ()})
    said = broker.answer(broker.others_write(buried))
    assert broker.group.members["c"] == Member("s", 1, OWN, 60)
    assert not of(said, Joined), "the client knows that it is a member"
    assert one(said, Forget).packet_ids == (freed.packet_id,)
    broker.tell(Settle(client="c", position=held[0].position))
    broker.answer(broker.tell(TimerFired(name=SharingTimer.SETTLE_SOON)))
    assert all(claim.qos == 1 for claim in broker.group.claims.get("c", ()))


# ── time and the end ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_cell_is_refreshed_before_it_expires() -> None:
    broker = joined()
    assert not of(broker.tell(TimerFired(name=SharingTimer.LOOK)), PutKey)
    broker.now_us += (90_000_000 + KEEP_US) // 3 + 1
    assert of(broker.tell(TimerFired(name=SharingTimer.LOOK)), PutKey)


def test_after_a_gap_in_the_watch_the_cell_is_read() -> None:
    broker = joined()
    assert of(broker.tell(OutOfSight()), GetKey)
    assert broker.tell(OutOfSight()) == [], "it is being read"


def test_nothing_is_asked_for_when_it_has_vanished() -> None:
    broker = joined()
    broker.answer(broker.tell(Leave(client="c", session="s", expiry_s=0)))
    for event in (
        Leave(client="c", session="s", expiry_s=0),
        RoomMade(),
        Arrived(matched=matched(1)),
        OutOfSight(),
        TimerFired(name=SharingTimer.LOOK),
        Stored(request=GET),
        PartRead(matched=[], next=1, tail=1),
    ):
        assert broker.tell(event) == []
    with pytest.raises(IllegalEvent):
        broker.join()


# ── a full store ────────────────────────────────────────────────────────────────────────────────────────────


def full(effects: list[Effect]) -> StoreFailed:
    return StoreFailed(request=one(effects, PutKey).request, error=StoreFull("put", "full"))


def test_who_waits_is_turned_away_when_the_store_has_no_room() -> None:
    broker = Broker()
    (asked,) = of(broker.join(), GetKey)
    put = broker.tell(Stored(request=asked.request, value=None))
    said = broker.tell(full(put))
    assert one(said, Turned).full and "shares.groups_bytes" in one(said, Turned).reason
    assert of(said, Vanished)


def test_existing_members_stay_when_the_store_has_no_room() -> None:
    broker = joined("c")
    put = broker.join("d")
    said = broker.tell(full(put))
    assert one(said, Turned).client == "d"
    assert not of(said, Vanished) and sorted(broker.group.members) == ["c"]
    claimed = arrive(broker, matched(1))
    again = broker.tell(full(claimed))
    assert not of(again, Turned) and one(again, SetTimer).name == SharingTimer.CELL_AGAIN  # the message waits
    assert of(broker.answer(broker.tell(TimerFired(name=SharingTimer.CELL_AGAIN))), Give)


def test_a_refused_member_is_removed_even_if_its_write_took_effect() -> None:
    broker = joined("c")
    put = one(broker.join("d"), PutKey)
    broker.tell(StoreFailed(request=put.request, error=OutcomeUnknown("put", 1.0)))
    looked = broker.tell(TimerFired(name=SharingTimer.CELL_AGAIN))
    tried = broker.tell(Stored(request=one(looked, GetKey).request, value=broker.cell))
    assert one(broker.tell(full(tried)), Turned).client == "d"
    broker.answer([put])  # the first try takes effect after all
    assert sorted(broker.group.members) == ["c"]

"""One group at one broker, step by step: messages that are claimed, sent, settled and sent again."""

from __future__ import annotations

import pytest

from tests.unit.core.delivery.attended import of, one
from tests.unit.core.shared.one_sharer import (
    NAME,
    OTHER,
    OWN,
    Broker,
    arrive,
    joined,
    matched,
    with_other,
)
from tocsin.core.machine import (
    PutKey,
    Say,
    SetTimer,
    StoreFailed,
    TimerFired,
)
from tocsin.core.shared.cell import PUT
from tocsin.core.shared.signals import (
    CANNOT,
    Crowded,
    Forget,
    Give,
    Joined,
    PartFailed,
    PartRead,
    ReadPart,
    RoomMade,
    Settle,
    SharingTimer,
    Unwanted,
)
from tocsin.core.shared.stored_group import Claim, Member, StoredGroup, decode_group, encode_group
from tocsin.errors import Conflict, OutcomeUnknown, StoreUnavailable, Trimmed
from tocsin.ports import Cell

# ── claiming ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_is_claimed_before_it_is_sent(qos: int) -> None:
    broker = joined()
    effects = arrive(broker, matched(1, qos))
    assert not of(effects, Give)
    assert decode_group(one(effects, PutKey).value).claims == {"c": (Claim(1, 1, qos),)}
    give = one(broker.answer(effects), Give)
    assert (give.client, give.packet_id, give.qos, give.repeat) == ("c", 1, qos, False)
    assert broker.group.next == 2


def test_what_arrives_during_a_write_is_claimed_together_by_the_next() -> None:
    broker = joined("c", "d")
    effects = arrive(broker, matched(1), matched(2), matched(3))
    assert len(of(effects, PutKey)) == 1
    gives = of(broker.answer(effects), Give)
    assert [give.matched.position for give in gives] == [1, 2, 3]
    assert len({give.client for give in gives}) == 2
    assert broker.revision == 7 + 3 + 2, "the beginning, two members, and two writes for three messages"


def test_a_conflicting_claim_is_not_sent_and_frees_its_packet_id() -> None:
    broker = joined("c", group=with_other(), tail=0)
    effects = arrive(broker, matched(2))
    theirs = StoredGroup(NAME, 3, broker.group.members, {"far": (Claim(2, 9, 1),)})
    broker.revision += 1
    broker.cell = Cell("k", encode_group(theirs), broker.revision)
    conflict = StoreFailed(request=PUT, error=Conflict("put", 8, broker.revision))
    if not of(effects, PutKey):  # it was the other's turn
        effects = broker.tell(TimerFired(name=SharingTimer.GRACE))
    assert of(effects, PutKey)
    said = broker.answer(broker.tell(conflict))
    assert not of(said, Give)
    assert broker.returned == [1]
    assert broker.group == theirs


def test_a_claim_whose_answer_was_lost_is_sent_if_stored() -> None:
    broker = joined()
    (put,) = of(arrive(broker, matched(1)), PutKey)
    broker.revision += 1
    broker.cell = Cell("k", put.value, broker.revision)
    failed = broker.tell(StoreFailed(request=PUT, error=OutcomeUnknown("put", 5.0)))
    timer = one(failed, SetTimer)
    assert of(broker.answer(broker.tell(TimerFired(name=timer.name))), Give)
    assert broker.returned == []


def test_the_broker_in_turn_claims_at_once_and_others_later() -> None:
    broker = joined(group=with_other())
    mine = next(position for position in (1, 2) if sorted((OWN, OTHER))[position % 2] == OWN)
    effects = arrive(broker, *(matched(each) for each in range(1, mine + 1)))
    if mine == 2:  # the other has claimed the first
        assert one(effects, SetTimer).name == SharingTimer.GRACE
        taken = StoredGroup(NAME, 2, broker.group.members, {"far": (Claim(1, 9, 1),)})
        effects = broker.others_write(taken)
    assert of(broker.answer(effects), Give)[0].matched.position == mine
    effects = arrive(broker, matched(mine + 1))
    assert not of(effects, PutKey)
    assert one(effects, SetTimer).name == SharingTimer.GRACE
    assert of(broker.answer(broker.tell(TimerFired(name=SharingTimer.GRACE))), Give)


def test_a_broker_claims_its_members_part_of_what_there_is() -> None:
    broker = Broker(with_other(next_=1), tail=0)
    broker.rooms["c"] = 0
    broker.answer(broker.join())
    arrive(broker, *(matched(each) for each in range(1, 11)))
    broker.rooms["c"] = 100
    effects = broker.tell(RoomMade())
    if not of(effects, PutKey):
        effects = broker.tell(TimerFired(name=SharingTimer.GRACE))
    assert len(decode_group(one(effects, PutKey).value).claims["c"]) == 5


def test_nobody_with_room_means_nothing_is_written() -> None:
    broker = joined()
    broker.rooms["c"] = 0
    assert not of(arrive(broker, matched(1)), PutKey)
    broker.rooms["c"] = 1
    assert of(broker.answer(broker.tell(RoomMade())), Give)


def test_messages_without_local_room_go_to_others_and_are_reread() -> None:
    broker = joined()
    broker.rooms["c"] = 0
    arrive(broker, matched(1))
    assert broker.kept
    broker.tell(Crowded())
    assert not broker.kept
    assert not of(arrive(broker, matched(2)), ReadPart), "not before somebody can take it"
    broker.rooms["c"] = 1
    assert one(broker.tell(RoomMade()), ReadPart).start == 1


def test_what_somebody_here_can_take_is_kept_however_crowded_it_is() -> None:
    broker = joined()
    broker.rooms["c"] = 0
    arrive(broker, matched(1))
    broker.rooms["c"] = 1
    broker.tell(Crowded())
    assert broker.kept


def test_at_qos_0_nothing_waits_for_an_acknowledgement() -> None:
    broker = joined()
    broker.qos["c"] = 0
    said = broker.answer(arrive(broker, matched(1)))
    assert (one(said, Give).packet_id, one(said, Give).qos) == (0, 0)
    broker.answer(broker.tell(TimerFired(name=SharingTimer.SETTLE_SOON)))
    assert broker.group.claims == {}


def test_what_nobody_here_can_take_is_left_to_others() -> None:
    broker = joined(group=with_other())
    broker.qos["c"] = CANNOT
    effects = arrive(broker, matched(1))
    if not of(effects, PutKey):
        effects = broker.tell(TimerFired(name=SharingTimer.GRACE))
    said = broker.answer(effects)
    assert (broker.group.free, broker.group.next) == ({1: (OWN,)}, 2)
    assert not of(said, Unwanted)
    assert not of(said, ReadPart), "it is not asked for again"


def test_what_nobody_at_all_can_take_is_settled_and_counted() -> None:
    broker = joined()
    broker.qos["c"] = CANNOT
    said = broker.answer(arrive(broker, matched(1)))
    assert one(said, Unwanted).messages == 1
    assert (broker.group.free, broker.group.next) == ({}, 2)


def test_an_expired_message_is_settled_by_who_looks_at_it() -> None:
    broker = joined()
    broker.now_us += 10_000_000
    said = broker.answer(arrive(broker, matched(1, expiry_s=5), matched(2, expiry_s=50)))
    assert [give.matched.position for give in of(said, Give)] == [2]
    assert broker.group.claims == {"c": (Claim(2, 1, 1),)}


# ── settling ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_settled_message_is_written_with_the_next_claim() -> None:
    broker = joined()
    broker.answer(arrive(broker, matched(1)))
    assert one(broker.tell(Settle(client="c", position=1)), SetTimer).name == SharingTimer.SETTLE_SOON
    said = broker.answer(arrive(broker, matched(2)))
    assert broker.group.claims == {"c": (Claim(2, 2, 1),)}
    assert one(said, Forget).packet_ids == (1,)


def test_or_a_second_later() -> None:
    broker = joined()
    broker.answer(arrive(broker, matched(1)))
    broker.tell(Settle(client="c", position=1))
    assert broker.group.claims
    said = broker.answer(broker.tell(TimerFired(name=SharingTimer.SETTLE_SOON)))
    assert broker.group.claims == {}
    assert one(said, Forget).packet_ids == (1,)


def test_and_not_once_more_if_it_was_written_meanwhile() -> None:
    broker = joined()
    broker.answer(arrive(broker, matched(1)))
    broker.tell(Settle(client="c", position=1))
    broker.answer(arrive(broker, matched(2)))
    assert not of(broker.tell(TimerFired(name=SharingTimer.SETTLE_SOON)), PutKey)


def test_what_somebody_settles_that_it_has_not_means_nothing() -> None:
    broker = joined()
    assert broker.tell(Settle(client="c", position=9)) == []
    assert broker.tell(Settle(client="nobody", position=9)) == []


# ── coming back ──────────────────────────────────────────────────────────────────────────────────────────────


def came_back(tail: int = 6) -> Broker:
    """A member that comes back with two messages that it was sent."""
    away = Member("s", 1, "", 60, 1 << 40)
    return Broker(StoredGroup(NAME, 5, {"c": away}, {"c": (Claim(2, 50, 2), Claim(3, 51, 1))}), tail=tail)


def test_a_returning_member_gets_its_claims_again_before_anything_new() -> None:
    broker = came_back()
    said = broker.answer(broker.join(epoch=2))
    assert one(said, Joined).claims == (Claim(2, 50, 2), Claim(3, 51, 1))
    assert not of(said, Give), "they have to be read"
    asked = of(said, ReadPart)[0]
    assert asked.start == 2
    broker.tail = 6
    effects = broker.tell(PartRead(matched=[matched(2, 2), matched(3)], next=4, tail=6))
    gives = of(broker.answer(effects), Give)
    assert [(give.packet_id, give.qos, give.repeat) for give in gives] == [(50, 2, True), (51, 1, True)]


def test_nothing_new_is_claimed_for_it_before_that() -> None:
    broker = came_back(tail=4)
    broker.answer(broker.join(epoch=2))
    assert not of(arrive(broker, matched(5)), PutKey)
    effects = broker.tell(PartRead(matched=[matched(2, 2), matched(3)], next=5, tail=5))
    assert [give.matched.position for give in of(broker.answer(effects), Give)] == [2, 3, 5]


def test_a_claim_that_its_session_received_is_settled_and_not_resent() -> None:
    broker = came_back()
    broker.answer(broker.join(epoch=2))
    broker.tell(Settle(client="c", position=2))
    effects = broker.tell(PartRead(matched=[matched(2, 2), matched(3)], next=4, tail=6))
    assert [give.packet_id for give in of(effects, Give)] == [51]


def test_what_the_log_has_no_more_is_settled() -> None:
    broker = came_back()
    broker.answer(broker.join(epoch=2))
    effects = broker.tell(PartFailed(error=Trimmed("messages", 2, 4)))
    assert of(effects, Say)[0].level == "warning"
    broker.answer(effects)
    broker.answer(broker.tell(TimerFired(name=SharingTimer.SETTLE_SOON)))
    assert broker.group.claims == {}


def test_a_read_that_failed_is_tried_again() -> None:
    broker = came_back()
    broker.answer(broker.join(epoch=2))
    effects = broker.tell(PartFailed(error=StoreUnavailable("read", "no leader")))
    assert one(effects, SetTimer).name == SharingTimer.READ_AGAIN
    assert of(broker.tell(TimerFired(name=SharingTimer.READ_AGAIN)), ReadPart)[0].start == 2
    broker.tell(PartRead(matched=[matched(2, 2), matched(3)], next=4, tail=6))
    broker.tell(PartRead(matched=[matched(5)], next=7, tail=6))
    assert broker.tell(PartFailed(error=StoreUnavailable("read", "late"))) == []

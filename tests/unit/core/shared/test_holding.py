"""Which broker holds the backend subscription of a group of results, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.core.delivery.attended import of, one
from tests.unit.core.shared.one_sharer import NAME, OTHER, OWN, Broker, arrive, matched
from tocsin.core.channels.channel_filter import Bound
from tocsin.core.delivery.tracks import CHECKPOINT_US
from tocsin.core.machine import Effect, PutKey, TimerFired
from tocsin.core.shared.machine import Sharing
from tocsin.core.shared.signals import (
    Follow,
    Give,
    Held,
    Hold,
    Joined,
    Leave,
    LetGo,
    LookAgain,
    NotHeld,
    Quit,
    ReadPart,
    SharingTimer,
    Turned,
    Vanished,
)
from tocsin.core.shared.stored_group import Member, ResultsSource, StoredGroup

NEAR = Bound("Near", ("alice",))
OURS, THEIRS = ResultsSource("Near", ("alice",), "b"), ResultsSource("Near", ("alice",), "o")
FAR = {"far": Member("t", 1, OTHER, 60)}
AWAY = StoredGroup(NAME, 1, {"far": Member("t", 1, "", 60, 1 << 40)}, first=1, source=THEIRS)


def results(group: StoredGroup | None = None, *, tail: int = 0) -> Broker:
    """A broker with a group that shares results."""
    broker = Broker(group, tail=tail)
    broker.machine = Sharing(NAME, OWN, broker, 10, of_results=True)
    return broker


def made(*clients: str, tail: int = 0) -> tuple[Broker, list[Effect]]:
    """A group that was made here, and what was said."""
    broker = results(tail=tail)
    said: list[Effect] = []
    for client in clients or ("c",):
        said += broker.answer(broker.join(client))
    said += broker.answer(broker.tell(Held(bound=NEAR)))
    return broker, said


def beside(source: ResultsSource = THEIRS, next_: int = 1) -> StoredGroup:
    """A group with a member at another broker."""
    return StoredGroup(NAME, next_, FAR, first=1, source=source)


def kinds(effects: Sequence[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def test_a_group_of_messages_holds_nothing() -> None:
    broker = Broker()
    said = broker.answer(broker.join())
    assert not of(said, Hold) and broker.group.source is None


def test_a_group_is_made_when_its_backend_subscription_is_stored() -> None:
    broker = results(tail=5)
    said = broker.answer(broker.join())
    assert of(said, Hold) and not of(said, Joined) and broker.cell is None
    said = broker.answer(broker.tell(Held(bound=NEAR)))
    assert one(said, Joined).claims == () and one(said, Follow).source == OURS
    assert (broker.group.source, broker.group.next) == (OURS, 6)


def test_a_member_elsewhere_needs_no_second_holder() -> None:
    broker = results(beside(next_=4), tail=3)
    said = broker.answer(broker.join())
    assert one(said, Joined) and not of(said, Hold)
    assert broker.group.source == THEIRS and one(said, Follow).source == THEIRS


def test_a_lost_race_to_make_the_group_lets_go() -> None:
    broker = results()
    broker.answer(broker.join())
    said = broker.answer(broker.others_write(beside()))
    assert one(said, LetGo) and broker.group.source == THEIRS
    assert not broker.answer(broker.tell(Held(bound=NEAR))), "it comes too late"


def test_a_channel_that_cannot_be_held_turns_its_members_away() -> None:
    broker = results()
    broker.answer(broker.join())
    said = broker.answer(broker.tell(NotHeld(reason="there is no such channel")))
    turned = one(said, Turned)
    assert (turned.reason, turned.full) == ("there is no such channel", False)
    assert kinds(said) == ["LetGo", "Turned", "Vanished"] and broker.cell is None


def test_a_store_without_room_is_said_so() -> None:
    broker = results()
    broker.answer(broker.join())
    said = broker.answer(broker.tell(NotHeld(reason="no room", full=True)))
    assert one(said, Turned).full


def test_the_first_broker_with_members_takes_the_holders_place() -> None:
    broker = results(AWAY)
    said = broker.answer(broker.join())
    assert one(said, Hold) and broker.group.source == THEIRS, "not before it holds"
    said = broker.answer(broker.tell(Held(bound=NEAR)))
    assert broker.group.source == OURS
    assert one(said, LookAgain).broker == "o"


def test_another_broker_with_members_leaves_the_place_to_the_first() -> None:
    early = {"far": Member("t", 1, "a.1", 60)}
    broker = results(StoredGroup(NAME, 1, early, first=1, source=THEIRS))
    assert not of(broker.answer(broker.join()), Hold)
    assert broker.group.source == THEIRS


def test_a_move_that_fails_is_tried_again() -> None:
    broker = results(AWAY)
    broker.answer(broker.join())
    said = broker.answer(broker.tell(NotHeld(reason="no room", full=True)))
    assert one(said, LetGo) and not of(said, Turned), "the group is there, and its holder is who it was"
    look = broker.tell(TimerFired(name=SharingTimer.LOOK))
    assert one(look, Hold)


def test_whoever_is_replaced_as_holder_lets_go() -> None:
    broker, _ = made()
    group = broker.group
    taken = StoredGroup(NAME, group.next, {**group.members, **FAR}, first=group.first, source=THEIRS)
    said = broker.others_write(taken)
    assert one(said, LetGo) and one(said, Follow).source == THEIRS


def test_the_last_member_here_lets_go() -> None:
    for last in (Quit(client="c", session="s"), Leave(client="c", session="s", expiry_s=60)):
        broker, _ = made()
        said = broker.answer(broker.tell(last))
        assert one(said, LetGo) and one(said, Vanished)


def test_whoever_ends_the_group_tells_the_holder() -> None:
    broker = results(beside())
    broker.answer(broker.join())
    alone = {"c": broker.group.members["c"]}
    broker.others_write(StoredGroup(NAME, 1, alone, first=1, source=THEIRS))
    said = broker.answer(broker.tell(Quit(client="c", session="s")))
    assert broker.cell is None
    assert one(said, LookAgain).broker == "o" and of(said, Vanished)


def test_an_altered_channel_changes_the_source_at_the_holder_only() -> None:
    broker, _ = made()
    altered = Bound("Near", (5.0,))
    said = broker.answer(broker.tell(Held(bound=altered)))
    assert broker.group.source == ResultsSource("Near", (5.0,), "b")
    assert one(said, Follow).source == broker.group.source
    elsewhere = results(beside(next_=4), tail=3)
    elsewhere.answer(elsewhere.join())
    assert not of(elsewhere.answer(elsewhere.tell(Held(bound=altered))), PutKey)


def test_what_was_read_of_the_old_channel_is_dropped() -> None:
    broker, _ = made(tail=3)
    broker.rooms["c"] = 0
    arrive(broker, matched(4), matched(5))
    said = broker.answer(broker.tell(Held(bound=Bound("Near", (5.0,)))))
    assert one(said, ReadPart).start == 4 and not of(said, Give)


def test_results_are_claimed_like_messages() -> None:
    broker, _ = made("c", "d", tail=3)
    said = broker.answer(arrive(broker, matched(4)))
    assert one(said, Give).matched.position == 4
    assert [claim.position for claim in broker.group.claims["c"]] == [4]


def test_a_quiet_group_stores_how_far_it_is() -> None:
    broker, _ = made(tail=3)
    broker.tail = 9
    broker.now_us += CHECKPOINT_US // 2
    assert not broker.tell(TimerFired(name=SharingTimer.LOOK))[1:]
    broker.now_us += CHECKPOINT_US
    broker.answer(broker.tell(TimerFired(name=SharingTimer.LOOK)))
    assert broker.group.next == 10

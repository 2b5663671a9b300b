"""Where a new group begins: asked of the log for one revision of the cell, and good for that one only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.delivery.attended import of, one
from tests.unit.core.shared.one_sharer import NAME, OTHER, OWN, Broker, arrive, joined, matched
from tocsin.core.machine import DeleteKey, GetKey, PutKey, SetTimer, Stored, TimerFired, Watched
from tocsin.core.shared.cell import PUT
from tocsin.core.shared.signals import (
    Bereft,
    EndFound,
    EndUnknown,
    FindEnd,
    Give,
    Joined,
    Leave,
    Quit,
    SharingTimer,
    Vanished,
)
from tocsin.core.shared.start import Beginning
from tocsin.core.shared.stored_group import GROUPS, Claim, Member, StoredGroup, decode_group, group_key
from tocsin.ports import Cell, Change

# ── the log's answers ────────────────────────────────────────────────────────────────────────────────────────


def test_the_log_is_asked_once_for_a_revision() -> None:
    beginning = Beginning()
    assert beginning.ask(7) == [FindEnd(revision=7)]
    assert beginning.ask(7) == []
    assert beginning.position(7) == 0
    beginning.found(EndFound(revision=7, position=41))
    assert beginning.position(7) == 42
    assert beginning.ask(7) == []


def test_an_empty_log_ends_before_its_first_position() -> None:
    beginning = Beginning()
    beginning.ask(7)
    beginning.found(EndFound(revision=7, position=0))
    assert beginning.position(7) == 1


answers = st.lists(
    st.tuples(st.sampled_from(("ask", "found", "unknown")), st.integers(1, 3), st.integers(0, 9)), max_size=20
)


@given(answers)
def test_an_answer_counts_only_for_the_revision_last_asked_for(
    steps: list[tuple[str, int, int]],
) -> None:
    beginning, asked, end = Beginning(), 0, -1
    for what, revision, position in steps:
        if what == "ask":
            assert bool(beginning.ask(revision)) == (revision != asked)
            asked, end = revision, end if revision == asked else -1
        elif what == "found":
            beginning.found(EndFound(revision=revision, position=position))
            end = position if revision == asked else end
        else:
            assert beginning.failed(EndUnknown(revision=revision)) == (revision == asked)
            asked, end = (0, -1) if revision == asked else (asked, end)
        assert [beginning.position(each) for each in (1, 2, 3)] == [
            end + 1 if each == asked else 0 for each in (1, 2, 3)
        ]


# ── a group that is made ─────────────────────────────────────────────────────────────────────────────────────


def made(tail: int = 5) -> tuple[Broker, FindEnd]:
    """A broker that has made a group, and asks the log for its end."""
    broker = Broker(tail=tail)
    asked = one(broker.join(), GetKey)
    put = one(broker.tell(Stored(request=asked.request, value=None)), PutKey)
    assert (put.revision, decode_group(put.value).begun) == (0, False)
    broker.revision += 1
    broker.cell = Cell("k", put.value, broker.revision)
    effects = broker.tell(Stored(request=PUT, value=broker.revision))
    assert not of(effects, Joined)
    return broker, one(effects, FindEnd)


def test_a_group_begins_at_the_logs_end_not_its_brokers_position() -> None:
    broker, asked = made(tail=5)
    effects = broker.tell(EndFound(revision=asked.revision, position=9))
    assert not of(effects, Joined), "that it has begun is not durable yet"
    assert of(broker.answer(effects), Joined)
    assert (broker.group.first, broker.group.next) == (10, 10)
    arriving = arrive(broker, *(matched(each) for each in range(6, 12)))
    assert [give.matched.position for give in of(broker.answer(arriving), Give)] == [10, 11]


def test_what_was_asked_for_an_earlier_cell_does_not_count() -> None:
    broker, asked = made()
    both = StoredGroup(NAME, 0, {**broker.group.members, "far": Member("t", 1, OTHER, 60)})
    again = one(broker.others_write(both), FindEnd)
    assert again.revision == broker.revision
    assert broker.tell(EndFound(revision=asked.revision, position=9)) == []
    said = broker.answer(broker.tell(EndFound(revision=again.revision, position=12)))
    assert of(said, Joined)
    assert broker.group.first == 13


def test_a_log_that_does_not_say_where_it_ends_is_asked_again() -> None:
    broker, asked = made()
    effects = broker.tell(EndUnknown(revision=asked.revision))
    assert one(effects, SetTimer).name == SharingTimer.READ_AGAIN
    assert broker.tell(EndUnknown(revision=asked.revision)) == [], "of a question that was given up"
    effects = broker.tell(TimerFired(name=SharingTimer.READ_AGAIN))
    assert of(broker.answer(effects), Joined)


def test_another_broker_may_begin_it() -> None:
    broker, _ = made()
    begun = StoredGroup(NAME, 8, broker.group.members, first=8)
    assert of(broker.others_write(begun), Joined)


def test_who_leaves_before_it_has_begun_ends_it() -> None:
    broker, asked = made()
    effects = broker.tell(Leave(client="c", session="s", expiry_s=0))
    assert of(effects, DeleteKey)
    assert of(broker.answer(effects), Vanished)
    assert broker.tell(EndFound(revision=asked.revision, position=9)) == []


# ── a group that is over ─────────────────────────────────────────────────────────────────────────────────────


def over(broker: Broker) -> Watched:
    broker.revision += 1
    broker.cell = None
    return Watched(table=GROUPS, change=Change("delete", group_key(NAME), b"", broker.revision))


def test_a_member_whose_group_is_over_is_sent_away() -> None:
    broker = joined()
    said = broker.answer(broker.tell(over(broker)))
    assert one(said, Bereft).client == "c"
    assert of(said, Vanished)
    assert broker.cell is None


def test_also_if_there_is_another_of_its_name_by_then() -> None:
    broker = joined()
    said = broker.others_write(StoredGroup(NAME, 9, {"far": Member("t", 1, OTHER, 60)}, first=9))
    assert one(said, Bereft).client == "c"
    assert list(broker.group.members) == ["far"]


def test_who_was_taken_for_dead_while_its_group_went_on_is_not() -> None:
    broker = joined()
    first = broker.group.first
    far = {"far": Member("t", 1, OTHER, 60)}
    said = broker.answer(broker.others_write(StoredGroup(NAME, first + 3, far, first=first)))
    assert not of(said, Bereft)
    assert broker.group.members["c"] == Member("s", 1, OWN, 60)


def test_a_client_that_joins_as_a_group_ends_enters_the_next() -> None:
    broker = Broker(tail=3)
    asked = one(broker.join(), GetKey)
    broker.tell(over(broker))
    assert of(broker.answer([asked]), Joined)
    assert broker.group.first == 4


def test_who_unsubscribes_does_not_mind_that_its_group_is_over() -> None:
    broker = joined()
    broker.answer(arrive(broker, matched(1)))
    broker.answer(broker.tell(Quit(client="c", session="s")))
    assert broker.group.claims == {"c": (Claim(1, 1, 1),)}
    said = broker.answer(broker.tell(over(broker)))
    assert not of(said, Bereft)
    assert of(said, Vanished)

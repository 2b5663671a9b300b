"""A broker's copy of the retained messages: which version stays, and when the copy is complete."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.machine import Effect, Event, Say, Watched
from tocsin.core.retained.kept import KEPT, Kept, Stub, size_of
from tocsin.core.retained.machine import (
    CopyComplete,
    CopyState,
    MessageFetched,
    MessageRemoved,
    MessageSeen,
    MessageWritten,
    OwnSaid,
    RetainedCopy,
)
from tocsin.model.publication import Publication
from tocsin.model.subjects import tokens_of
from tocsin.ports import Change

LARGE = 1 << 40


def message(topic: str, payload: bytes, position: int) -> Kept:
    return Kept(Publication(topic, payload, 1, "me"), 0.0, position, "user")


def copy(topics_max: int = 100, bytes_max: int = LARGE, held_max: int = LARGE) -> RetainedCopy:
    return RetainedCopy(topics_max, bytes_max, LARGE, held_max)


def tell(machine: RetainedCopy, *events: Event) -> list[Effect]:
    return [effect for event in events for effect in machine.handle(event, 0)]


def watched(kind: str, kept: Kept | None = None, revision: int = 0) -> Watched:
    if kept is None:
        return Watched(table="retained", change=Change(kind))  # type: ignore[arg-type]
    key, value = tokens_of(kept.publication.topic), KEPT.write(kept) if kind == "put" else b""
    return Watched(table="retained", change=Change(kind, key, value, revision))  # type: ignore[arg-type]


def payloads(machine: RetainedCopy) -> dict[str, bytes]:
    return {kept.publication.topic: kept.publication.payload for kept in machine.matching("#")}


def test_the_log_is_believed_before_the_watch_that_lags_behind_it() -> None:
    machine = copy()
    tell(machine, MessageSeen(kept=message("a", b"new", 7)), watched("put", message("a", b"old", 3), 10))
    assert payloads(machine) == {"a": b"new"}
    assert machine.stored("a") == (10, 3) and machine.position("a") == 7
    tell(machine, watched("put", message("a", b"new", 7), 11))
    assert machine.stored("a") == (11, 7)


def test_a_watch_that_is_behind_a_write_of_ours_changes_nothing() -> None:
    machine = copy()
    tell(machine, MessageWritten(kept=message("a", b"ours", 0), revision=5))
    tell(machine, watched("put", message("a", b"before", 0), 4))
    assert payloads(machine) == {"a": b"ours"} and machine.stored("a") == (5, 0)


def test_what_is_removed_is_gone_whoever_says_so() -> None:
    for gone in (
        MessageRemoved(topic="a"),
        MessageSeen(kept=message("a", b"", 9)),
        watched("delete", message("a", b"", 0)),
    ):
        machine = copy()
        tell(machine, MessageWritten(kept=message("a", b"x", 1), revision=5), gone)
        assert payloads(machine) == {} and machine.room.kept == 0 and machine.stored("a") == (0, 0)


def test_the_copy_is_complete_for_good_when_the_watch_has_told_everything() -> None:
    machine = copy()
    before = machine.state
    tell(machine, watched("reset"), watched("put", message("a", b"x", 1), 1))
    assert machine.state is before is CopyState.ARRIVING
    assert any(isinstance(each, CopyComplete) for each in tell(machine, watched("ready")))
    tell(machine, watched("reset"))
    assert str(machine.state) == CopyState.COMPLETE and payloads(machine) == {"a": b"x"}


def test_keys_that_a_restarted_watch_does_not_name_are_gone() -> None:
    machine = copy()
    for number, topic in enumerate(("stays", "written", "seen", "gone"), 1):
        tell(machine, watched("put", message(topic, b"x", number), number))
    tell(machine, watched("reset"), watched("put", message("stays", b"x", 1), 1))
    tell(machine, MessageWritten(kept=message("written", b"y", 8), revision=8))
    tell(machine, MessageSeen(kept=message("seen", b"y", 9)), watched("ready"))
    assert set(payloads(machine)) == {"stays", "written", "seen"}


def test_a_message_without_room_is_missing_with_its_predecessor() -> None:
    size = size_of(message("a", b"x", 1).publication)
    machine = copy(bytes_max=size)
    tell(machine, watched("put", message("a", b"x", 1), 1))
    large = message("a", bytes(2 * size), 2)
    (said,) = tell(machine, watched("put", large, 2))
    assert isinstance(said, Say) and said.level == "error"
    assert payloads(machine) == {} and machine.room.kept == 0 and machine.missing == 1
    assert tell(machine, watched("put", large, 3)) == [], "it is said once"
    tell(machine, watched("reset"))
    assert machine.missing == 0


def test_messages_of_the_broker_itself_are_in_no_table_and_cost_nothing() -> None:
    machine = copy()
    tell(machine, OwnSaid(kept=message("$SYS/a", b"x", 0)), watched("reset"), watched("ready"))
    assert [each.publication.payload for each in machine.matching("$SYS/a")] == [b"x"]
    assert len(machine) == 0 and machine.count == 1 and machine.room.kept == 0


def test_what_cannot_be_read_is_said_and_left_alone() -> None:
    change = Change("put", tokens_of("a"), b"\xff nonsense", 1)
    (said,) = tell(copy(), Watched(table="retained", change=change))
    assert isinstance(said, Say) and said.level == "error"


steps = st.lists(
    st.tuples(st.sampled_from(["seen", "written", "watch"]), st.sampled_from("ab"), st.booleans()),
    max_size=40,
)


def stubs(machine: RetainedCopy) -> list[str]:
    return [kept.publication.topic for kept in machine.matching("#") if isinstance(kept, Stub)]


def test_a_copy_lets_go_of_what_came_first_and_knows_it() -> None:
    machine = copy(held_max=2_000)
    for position, topic in enumerate("abcd", 1):
        tell(machine, watched("put", message(topic, b"x" * 900, position), position))
    assert stubs(machine) == ["a", "b"] and machine.held <= 2_000
    assert machine.room.kept == 4 * size_of(message("a", b"x" * 900, 1).publication)
    assert machine.position("a") == 1 and machine.stored("a") == (1, 1)


def test_what_is_in_no_table_yet_is_not_let_go_of() -> None:
    machine = copy(held_max=1)
    tell(machine, *(MessageSeen(kept=message(each, b"x", i)) for i, each in enumerate("abc", 1)))
    assert stubs(machine) == [] and machine.held == 0
    tell(machine, *(watched("put", message(each, b"x", i), i) for i, each in enumerate("abc", 1)))
    assert stubs(machine) == ["a", "b"]


def test_a_message_that_is_fetched_is_there_until_others_come() -> None:
    machine = copy(held_max=1)
    tell(machine, *(watched("put", message(each, b"x", i), i) for i, each in enumerate("ab", 1)))
    assert tell(machine, MessageFetched(kept=message("a", b"x", 1), revision=1)) == []
    assert stubs(machine) == ["b"] and payloads(machine)["a"] == b"x"


def test_what_is_fetched_undoes_neither_a_newer_message_nor_a_removal() -> None:
    machine = copy(held_max=1)
    tell(machine, watched("put", message("a", b"old", 1), 1), watched("put", message("b", b"x", 2), 2))
    tell(machine, MessageSeen(kept=message("a", b"new", 3)), watched("delete", message("b", b"", 0)))
    tell(machine, MessageFetched(kept=message("a", b"old", 1), revision=1))
    tell(machine, MessageFetched(kept=message("b", b"x", 2), revision=2))
    assert payloads(machine) == {"a": b"new"}


def test_what_is_fetched_while_the_watch_restarts_is_named_by_it() -> None:
    machine = copy(held_max=1)
    tell(machine, *(watched("put", message(each, b"x", i), i) for i, each in enumerate("ab", 1)))
    tell(machine, watched("reset"), MessageFetched(kept=message("a", b"x", 1), revision=1))
    tell(machine, watched("put", message("b", b"x", 2), 2), watched("ready"))
    assert list(payloads(machine)) == ["b"]


@given(steps, st.sampled_from((1, 300, LARGE)))
def test_a_copy_that_has_heard_everything_has_the_latest_of_each_topic(
    script: list[tuple[str, str, bool]], held_max: int
) -> None:
    """The log and the table get the same messages; the watch comes later, and at the end tells all."""
    machine, table, late = copy(held_max=held_max), dict[str, tuple[Kept, int]](), list[Watched]()
    for position, (how, topic, removes) in enumerate(script, 1):
        kept = message(topic, b"" if removes else b"%d" % position, position)
        if how == "watch":
            tell(machine, *late)
            late.clear()
            continue
        if how == "seen":
            tell(machine, MessageSeen(kept=kept))
        if removes:
            table.pop(topic, None)
            late.append(watched("delete", kept))
        else:
            table[topic] = kept, position
            late.append(watched("put", kept, position))
        if how == "written":
            own = MessageRemoved(topic=topic) if removes else MessageWritten(kept=kept, revision=position)
            tell(machine, own)
    tell(machine, *late, watched("reset"))
    tell(machine, *(watched("put", kept, revision) for kept, revision in table.values()), watched("ready"))
    for topic in stubs(machine):
        kept, revision = table[topic]
        tell(machine, MessageFetched(kept=kept, revision=revision))
        assert machine.get(topic) == kept
    if held_max == LARGE:
        assert payloads(machine) == {topic: kept.publication.payload for topic, (kept, _) in table.items()}
    assert {kept.publication.topic for kept in machine.matching("#")} == set(table)
    assert machine.room.kept == sum(kept.size for kept, _ in table.values())

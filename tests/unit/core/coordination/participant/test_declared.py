"""What a broker says of itself: what changed, or everything."""

from __future__ import annotations

from tocsin.core.coordination.participant import declared as module
from tocsin.core.coordination.participant.declared import DeclaredState
from tocsin.wire.commands import ClientAway, ClientBack, ClientGone, Interests, Queries, Streams


def test_only_what_changed_is_said() -> None:
    roll = DeclaredState()
    roll.change_filters(("a", "b"), ())
    roll.change_filters(("a",), ("b",))
    assert roll.changes() == [Interests(("a",), ())]
    roll.change_filters(("c",), ("a", "b"))
    assert roll.changes() == [Interests(("c",), ("a",))]
    assert roll.changes() == []


def test_a_query_that_was_dropped_and_asked_again_is_said_again() -> None:
    roll = DeclaredState()
    roll.change_queries((("q", "x = 1"),), ())
    roll.changes()
    roll.change_queries((), ("q",))
    roll.change_queries((("q", "x = 1"),), ())
    assert roll.changes() == [Queries((("q", "x = 1"),), (), ("",))]
    roll.change_queries((), ("q", "unknown"))
    assert roll.changes() == [Queries((), ("q",))]


def test_everything_is_filters_queries_and_the_clients_that_are_connected() -> None:
    roll = DeclaredState()
    roll.change_filters(("a",), ())
    roll.change_queries((("q", "x = 1"),), ())
    for command in (
        Streams("anna", 60, (("t", {"kind": "lamp"}),), 5, 9),
        Streams("", 0, (("u", {}),)),
        ClientBack("ben", 30, 4),
        Streams("cleo", 0, (("v", {}),)),
        ClientGone("cleo"),
        Streams("dora", 0, (("w", {}),)),
        ClientAway("dora", 5),
    ):
        roll.note(command)
    assert roll.all() == [
        Interests(("a",), ()),
        Queries((("q", "x = 1"),), ()),
        ClientBack("anna", 60, 9),
        Streams("anna", 60, (("t", {}),), 0, 9),
        ClientBack("ben", 30, 4),
    ]
    assert roll.changes() == [], "it was all said"


def test_what_is_too_large_for_one_command_is_cut() -> None:
    roll = DeclaredState()
    roll.change_filters([f"{number}/{'x' * 60_000}" for number in range(10)], ())
    said = roll.changes()
    assert len(said) == 10
    roll.note(Streams("anna", 0, tuple((f"t/{number}", {}) for number in range(2 * module.TOPICS_MAX))))
    topics = [len(each.changes) for each in roll.all() if isinstance(each, Streams)]
    assert topics == [module.TOPICS_MAX, module.TOPICS_MAX]


def test_a_new_query_names_its_user_and_a_redeclaration_does_not() -> None:
    roll = DeclaredState()
    roll.change_queries((("q", "x = 1"),), ())
    roll.changes()
    roll.change_queries((("p", "x = 2"),), ("q",), "anna")
    (said,) = roll.changes()
    assert said == Queries((("p", "x = 2"),), ("q",), ("anna",))
    assert roll.all() == [Queries((("p", "x = 2"),))], "for that nobody is charged"

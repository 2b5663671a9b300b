"""What a broker says is said soon, in few messages, and again until it is in the log."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.coordination.one_broker import CHANGE, Broker, of, sent
from tocsin.core.coordination.participant import submission as module
from tocsin.core.coordination.participant.signals import (
    ChangesSettled,
    InterestsChanged,
    Leaving,
    QueriesChanged,
)
from tocsin.core.coordination.participant.submission import (
    CLEAR_US,
    GO_BACK_US,
    DeclaredState,
    Outgoing,
    PendingClears,
)
from tocsin.core.machine import (
    CancelTimer,
    ReadLog,
    SetTimer,
)
from tocsin.wire.internal.commands import (
    ClientAway,
    ClientBack,
    ClientGone,
    Interests,
    Left,
    Queries,
    Streams,
)
from tocsin.wire.internal.control import Expected, Pulse, Submit


def test_a_change_is_said_at_once_and_a_burst_behind_it_together() -> None:
    broker = Broker().joined()
    (first,) = sent(Submit, broker.handle(InterestsChanged(added=("a",))))
    assert (first.first, first.commands) == (2, (Interests(("a",)),))
    assert sent(Submit, broker.handle(InterestsChanged(added=("b",)))) == []
    assert sent(Submit, broker.handle(QueriesChanged(added=(("q", "x = 1"),)))) == []
    (burst,) = sent(Submit, broker.fire("tell"))
    assert (burst.first, burst.commands) == (3, (Interests(("b",)), Queries((("q", "x = 1"),), (), ("",))))
    assert broker.fire("tell") == []


def test_what_is_not_acknowledged_is_said_again_less_and_less_often() -> None:
    broker = Broker()
    effects = broker.start()
    delays = []
    for _ in range(6):
        (timer,) = [each for each in of(SetTimer, effects) if each.name == "resend"]
        delays.append(timer.delay_us)
        effects = broker.fire("resend")
        assert len(sent(Submit, effects)) == 1
    assert delays == sorted(delays) and delays[0] < delays[-1] <= 3_000_000


def test_an_acknowledgement_settles_and_stops_the_repeats() -> None:
    broker = Broker().joined()
    broker.say(CHANGE, 1)
    effects = broker.notice(applied=2)
    assert of(ChangesSettled, effects) == [ChangesSettled(ticket=1)]
    assert CancelTimer(name="resend") in [CancelTimer(name=each.name) for each in of(CancelTimer, effects)]
    assert sent(Submit, broker.fire("resend")) == []


def test_a_new_leader_gets_commands_that_the_old_one_may_have_lost() -> None:
    broker = Broker().led()
    broker.say(CHANGE, 1)
    incarnation = broker.machine.incarnation
    assert sent(Submit, broker.hear(Pulse(1, incarnation, 1))) == []
    (again,) = sent(Submit, broker.hear(Pulse(2, incarnation, 1)))
    assert again.commands == (CHANGE,)


def test_a_leader_that_misses_something_is_sent_it() -> None:
    broker = Broker().led()
    broker.say(CHANGE, 1)
    (again,) = sent(Submit, broker.hear(Expected(1, broker.machine.incarnation, 2)))
    assert (again.first, again.commands) == (2, (CHANGE,))


def test_a_leader_that_misses_several_is_sent_them_once() -> None:
    broker = Broker().led()
    broker.say(CHANGE, 1)
    expected = Expected(1, broker.machine.incarnation, 2)
    assert [len(sent(Submit, broker.hear(expected))) for _ in range(3)] == [1, 0, 0]
    broker.now_us += GO_BACK_US
    assert len(sent(Submit, broker.hear(expected))) == 1


def test_a_leader_that_lacks_what_was_acknowledged_makes_it_join_anew() -> None:
    broker = Broker().led()
    effects = broker.hear(Expected(1, broker.machine.incarnation, 1))
    assert of(ReadLog, effects) and not sent(Submit, effects)


def test_it_leaves_with_all_that_it_has_said() -> None:
    broker = Broker().joined()
    broker.say(CHANGE, 1)
    (submit,) = sent(Submit, broker.handle(Leaving()))
    assert submit.commands == (CHANGE, Left())
    assert broker.fire("beat") == [] and broker.machine.state == "left"


def said(messages: list[Submit]) -> list[tuple[int, object]]:
    return [(message.first + i, each) for message in messages for i, each in enumerate(message.commands)]


def test_commands_are_numbered_from_one_and_sent_once() -> None:
    tested = Outgoing("north")
    tested.begin(7, [Interests(("a",))])
    assert tested.add(ClientGone("anna"), ticket=5) == 2
    (message,) = tested.send()
    assert message == Submit("north", 7, 1, (Interests(("a",)), ClientGone("anna")))
    assert tested.send() == []
    tested.repeat()
    assert tested.send() == [message]


def test_an_acknowledgement_names_the_newest_ticket_that_is_settled() -> None:
    tested = Outgoing("north")
    tested.begin(7, [Interests(("a",))])
    tested.add(ClientGone("anna"), ticket=5)
    tested.add(Interests(("b",)))
    tested.add(ClientGone("ben"), ticket=6)
    assert tested.acknowledge(1) == 0
    assert tested.acknowledge(3) == 5
    tested.repeat()
    assert said(tested.send()) == [(4, ClientGone("ben"))]
    assert tested.acknowledge(99) == 6 and len(tested) == 0


def test_a_new_incarnation_says_everything_then_what_the_shell_still_waits_for() -> None:
    tested = Outgoing("north")
    tested.begin(7, [Interests(("a",))])
    change = Streams("anna", 0, (("a", {}),))
    tested.add(change, ticket=5)
    tested.add(Interests(("b",)))
    tested.send()
    tested.begin(8, [Interests(("a", "b"))])
    assert said(tested.send()) == [(1, Interests(("a", "b"))), (2, change)]


def test_messages_and_the_window_are_bounded() -> None:
    tested = Outgoing("north")
    tested.begin(7, [])
    command = Interests(("x" * 60_000,))
    for _ in range(100):
        tested.add(command)
    messages = tested.send()
    assert all(len(message.commands) <= 5 for message in messages)
    sent = len(said(messages))
    assert sent * 60_000 <= module.WINDOW_MAX_BYTES + module.MESSAGE_MAX_BYTES
    tested.acknowledge(10)
    assert said(tested.send())[0][0] == sent + 1


@settings(deadline=None)
@given(st.lists(st.sampled_from(("add", "send", "repeat", "acknowledge")), max_size=60), st.data())
def test_whatever_is_not_acknowledged_is_sent_again_under_its_number(
    acts: list[str], data: st.DataObject
) -> None:
    tested, numbers, applied = Outgoing("north"), 0, 0
    tested.begin(7, [])
    known: dict[int, object] = {}
    for act in acts:
        match act:
            case "add":
                numbers += 1
                known[numbers] = ClientGone(str(numbers))
                assert tested.add(ClientGone(str(numbers))) == numbers
            case "send":
                for number, command in said(tested.send()):
                    assert command == known[number] and number > applied
            case "repeat":
                tested.repeat()
                assert [number for number, _ in said(tested.send())] == list(range(applied + 1, numbers + 1))
            case "acknowledge":
                applied = data.draw(st.integers(applied, numbers))
                tested.acknowledge(applied)
    assert tested.last == numbers


def test_a_leave_comes_last() -> None:
    tested = Outgoing("north")
    tested.begin(7, [])
    tested.add(Left())
    assert said(tested.send()) == [(1, Left())]


def test_tickets_become_clear_with_the_numbers_of_their_commands() -> None:
    tested = PendingClears()
    for number, ticket in ((4, 1), (5, 2), (9, 3)):
        tested.wait(number, ticket, 0)
    assert [tested.up_to(3), tested.up_to(5), tested.up_to(5), tested.up_to(9)] == [0, 2, 0, 3]
    assert len(tested) == 0


def test_what_waits_for_too_long_goes_on_without() -> None:
    tested = PendingClears()
    tested.wait(1, 1, 0)
    tested.wait(2, 2, 300)
    assert tested.late(CLEAR_US - 1) == 0
    assert tested.late(CLEAR_US) == 1
    assert tested.patience_us(CLEAR_US) == 300


def test_nobody_is_waited_for_when_nobody_leads() -> None:
    tested = PendingClears()
    tested.wait(1, 1, 0)
    assert tested.all(2) == 2
    assert (tested.all(), tested.up_to(9), len(tested)) == (0, 0, 0)


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

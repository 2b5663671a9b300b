"""Commands on their way: numbered without gaps, bounded, and sent again until they are acknowledged."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.coordination.participant import outgoing as module
from tocsin.core.coordination.participant.outgoing import Outgoing
from tocsin.wire.commands import ClientGone, Interests, Left, Streams
from tocsin.wire.control import Submit


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

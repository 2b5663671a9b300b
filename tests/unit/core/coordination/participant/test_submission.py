"""What a broker says is said soon, in few messages, and again until it is in the log."""

from __future__ import annotations

from tests.unit.core.coordination.one_broker import CHANGE, Broker, of, sent
from tocsin.core.coordination.participant.signals import (
    InterestsChanged,
    Leaving,
    QueriesChanged,
    Settled,
)
from tocsin.core.coordination.participant.submission import GO_BACK_US
from tocsin.core.machine import (
    CancelTimer,
    ReadLog,
    SetTimer,
)
from tocsin.wire.commands import Interests, Left, Queries
from tocsin.wire.control import Expected, Pulse, Submit


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
    assert of(Settled, effects) == [Settled(ticket=1)]
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

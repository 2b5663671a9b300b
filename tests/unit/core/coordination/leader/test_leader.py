"""A leader: what it takes from brokers, appends, and tells them."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.core.coordination.desk import (
    OPTIONS,
    UNKNOWN,
    Desk,
    failed,
    of,
    sent,
)
from tests.unit.core.coordination.histories import NORTH, SOUTH
from tocsin.core.coordination.leader import leader as module
from tocsin.core.coordination.leader.broker_watch import PULSE_US, REFRESH_US
from tocsin.core.coordination.leader.leader import PENDING_MAX, SLOW_US, TICK_US
from tocsin.core.coordination.leader.timers import CoordinatorTimer
from tocsin.core.coordination.names import Options
from tocsin.core.machine import (
    Append,
    Say,
    Send,
    SetTimer,
)
from tocsin.core.survival.refuges import checksum
from tocsin.errors import StoreFull
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.wire.internal.commands import (
    Batch,
    ClientAway,
    Elected,
    Interests,
    Joined,
    Left,
    Limits,
    Lost,
    Queries,
    Refreshed,
    Said,
    Streams,
    decode_batch,
)
from tocsin.wire.internal.control import Beat, Expected, KnownUpTo, Pulse, Refresh, Seen, Unknown
from tocsin.wire.internal.notices import decode_notice

# ── leading ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_commands_that_come_during_an_append_are_the_next_batch() -> None:
    desk = Desk()
    desk.lead()
    first = desk.submit(Joined(NORTH))
    assert of(Append, desk.submit(Interests(("a",)), first=2)) == []
    assert of(Append, desk.submit(Joined(SOUTH), broker="south")) == []
    desk.take(desk.take(first))
    said = [command for batch in desk.batches[1:] for command in batch.commands]
    assert said == [
        Said("north", 7, 1, (Joined(NORTH),)),
        Said("north", 7, 2, (Interests(("a",)),)),
        Said("south", 7, 1, (Joined(SOUTH),)),
    ]
    assert [batch.previous for batch in desk.batches] == [0, 1, 2]


def test_repeats_are_dropped_and_gaps_asked_about() -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.submit(Joined(NORTH), Interests(("a",))))
    assert desk.submit(Joined(NORTH), Interests(("a",))) == []
    overlapping = desk.submit(Interests(("a",)), Interests(("b",)), first=2)
    desk.take(overlapping)
    assert desk.batches[-1].commands == (Said("north", 7, 3, (Interests(("b",)),)),)
    assert sent(Expected, desk.submit(Interests(("d",)), first=9)) == [Expected(1, 7, 4)]


def test_a_life_that_is_over_is_told_so() -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    assert sent(Unknown, desk.submit(Joined(NORTH), incarnation=6)) == [Unknown(1, 6)]
    assert sent(Unknown, desk.hear(Beat("north", 6, 0))) == [Unknown(1, 6)]
    assert desk.hear(Beat("north", 8, 0)) == [], "that one is still to join"
    desk.take(desk.submit(Left(), first=2))
    assert sent(Unknown, desk.submit(Interests(("a",)), first=3)) == [Unknown(1, 7)]


def test_what_cannot_be_a_broker_is_ignored() -> None:
    desk = Desk()
    desk.lead()
    for broker in ("", "a.b", "a b", "x" * 64, "ä"):
        assert desk.submit(Joined(NORTH), broker=broker) == []
    assert desk.submit(Interests(("a",))) == [], "a first command that is no joining"


def test_more_commands_of_a_broker_than_the_bound_wait_with_it() -> None:
    desk = Desk()
    desk.lead()
    late = Interests(("late",))
    under_way = desk.submit(Joined(NORTH))
    desk.submit(*[Interests(())] * PENDING_MAX, first=2)
    assert desk.submit(late, first=PENDING_MAX + 2) == []
    desk.take(desk.take(under_way))
    assert len(desk.batches[-1].commands) == 1, "it was not taken"
    desk.take(desk.submit(late, first=PENDING_MAX + 2))
    assert desk.batches[-1].commands == (Said("north", 7, PENDING_MAX + 2, (late,)),)


def test_an_append_whose_outcome_is_not_known_is_repeated_as_it_was() -> None:
    desk = Desk()
    desk.lead()
    effects = desk.submit(Joined(NORTH))
    for error in (UNKNOWN, StoreFull("append", "disk")):
        waits = desk.handle(failed(effects, error))
        assert CoordinatorTimer.APPEND in [each.name for each in of(SetTimer, waits)]
        again = desk.fire(CoordinatorTimer.APPEND)
        assert of(Append, again)[0].records == of(Append, effects)[0].records
        effects = again
    desk.take(effects)
    assert len(desk.batches) == 2


def test_a_beat_is_answered_with_who_leads_and_where_clients_can_go() -> None:
    desk = Desk()
    desk.lead()
    entrance = (Entrance(Scheme.MQTT, "two:1883"),)
    two = BrokerInfo("two", "n", Role.EDGE, "127.0.0.1", 1, entrance)
    desk.take(desk.take(desk.submit(Joined(NORTH))) or desk.submit(Joined(two), broker="two"))
    assert sent(Pulse, desk.hear(Beat("north", 7, 1, number=1))) == [Pulse(1, 7, 1, (two,), None, 1, 1)]
    desk.hear(Beat("two", 7, 1, load=1_000))
    desk.now_us += REFRESH_US
    desk.fire(CoordinatorTimer.CHECK)
    known = checksum((two,))
    told = sent(Pulse, desk.hear(Beat("north", 7, 1, refuges=known, number=2)))
    assert told == [Pulse(1, 7, 1, (), None, 2, 1)], "a full one is no refuge"


def test_a_broker_whose_beat_is_late_is_asked_before_it_is_lost() -> None:
    desk = Desk(Options(suspect_after_us=5_000_000, lease_us=60_000_000, snapshot_every=10))
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    attention = desk.machine.leader.attention  # type: ignore[union-attr]
    question, asked = Send(to="broker/north", message=Pulse(1, 7, 1, level=1)), 0
    for _ in range(50):
        desk.now_us += attention.delay_us(desk.now_us)
        effects = desk.fire(CoordinatorTimer.CHECK)
        asked += question in effects
        if of(Append, effects):
            break
    assert asked >= 3 and attention.detector.is_suspect("north")


def test_the_leader_repeats_no_notice_and_seldom_sends_an_empty_pulse() -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    assert sent(Pulse, desk.hear(Beat("north", 7, 1, number=1))) == [Pulse(1, 7, 1, heard=1, level=1)]
    assert desk.hear(Beat("north", 7, 1, number=2)) == []
    asked = sent(Pulse, desk.hear(Beat("north", 7, 1, homes=("south",), number=3)))
    assert asked == [Pulse(1, 7, 1, None, (), 3, 1)], "a question is answered"
    desk.now_us += PULSE_US
    assert sent(Pulse, desk.hear(Beat("north", 7, 1, number=4))) == [Pulse(1, 7, 1, heard=4, level=1)]
    desk.take(desk.hear(Refresh("north", 7)))
    assert sent(Pulse, desk.hear(Beat("north", 7, 1, number=5))) == [Pulse(1, 7, 2, heard=5, level=1)], (
        "a new notice"
    )


def test_a_broker_that_would_soon_be_suspected_is_answered_more_often() -> None:
    options = msgspec.structs.replace(OPTIONS, phi=4.0, suspect_least_us=500_000)
    desk = Desk(options)
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    pulses = []
    for number in range(1, 5):
        desk.now_us += 250_000
        pulses += sent(Pulse, desk.hear(Beat("north", 7, 1, number=number, interval_ms=250)))
    assert [each.heard for each in pulses] == [1, 2, 3, 4]


def test_a_silent_broker_is_lost_and_one_that_beats_is_not() -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    desk.take(desk.submit(Joined(SOUTH), broker="south"))
    assert of(Append, desk.listen(5_000_000, "north", "south")) == []
    effects = desk.listen(2_000_000, "south")
    assert [each.facts["broker"] for each in of(Say, effects)] == ["north"]
    desk.take(effects)
    assert desk.batches[-1].commands == (Lost("north", 7),)
    assert set(desk.machine.replica.members) == {"south"}


def test_many_that_fall_silent_together_are_one_batch() -> None:
    desk = Desk()
    desk.lead()
    names = [f"b{number}" for number in range(8)]
    for name in names:
        desk.take(desk.submit(Joined(BrokerInfo(name, "n", Role.EDGE, "127.0.0.1", 1)), broker=name))
    desk.listen(5_000_000, *names)
    desk.take(desk.listen(2_000_000, *names[3:]))
    assert desk.batches[-1].commands == tuple(Lost(name, 7) for name in names[:3])


def test_a_broker_heard_before_its_loss_is_logged_is_not_lost() -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    desk.take(desk.submit(Joined(SOUTH), broker="south"))
    desk.listen(5_000_000, "north", "south")
    under_way = desk.submit(Interests(("a",)), first=2, broker="south")
    desk.listen(6_000_000, "south")
    desk.hear(Beat("north", 7, 1, number=99, interval_ms=500))
    assert of(Append, desk.take(under_way)) == []
    assert set(desk.machine.replica.members) == {"north", "south"}


def test_a_leader_whose_store_is_slow_is_patient() -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    desk.take(desk.submit(Joined(SOUTH), broker="south"))
    desk.listen(5_000_000, "north", "south")
    detector = desk.machine.leader.attention.detector  # type: ignore[union-attr]
    assert detector.doubt == 0
    under_way = desk.submit(Interests(("a",)), first=2, broker="south")
    desk.listen(SLOW_US + 200_000, "north", "south")
    assert detector.doubt > 0
    desk.take(under_way)


def test_a_suspicion_that_proves_wrong_makes_the_next_one_slower() -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    desk.take(desk.submit(Joined(SOUTH), broker="south"))
    desk.listen(5_000_000, "north", "south")
    detector = desk.machine.leader.attention.detector  # type: ignore[union-attr]
    before_us = detector.patience_us("north")
    desk.take(desk.listen(3_000_000, "south"))
    late = Beat("north", 7, 1, number=desk.beats)
    assert sent(Unknown, desk.hear(late)) == [Unknown(1, 7)] == sent(Unknown, desk.hear(late))
    assert detector.mistakes == 1 and detector.patience_us("north") > before_us


def test_a_leader_that_was_away_itself_accuses_nobody() -> None:
    desk = Desk(Options(suspect_after_us=1_000_000, lease_us=60_000_000, snapshot_every=10))
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    desk.now_us += 10_000_000
    assert of(Append, desk.fire(CoordinatorTimer.CHECK)) == []
    desk.now_us += 50_000
    assert of(Append, desk.fire(CoordinatorTimer.CHECK)) == []
    detector = desk.machine.leader.attention.detector  # type: ignore[union-attr]
    assert detector.doubt == 2 and detector.next_us > desk.now_us


def test_a_change_is_clear_when_all_whom_it_concerns_have_seen_it() -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    desk.take(desk.submit(Joined(SOUTH), Queries((("q", "kind = 'lamp'"),)), broker="south"))
    change = Streams("anna", 0, (("a", {"kind": "lamp"}),))
    effects = desk.submit(change, first=2)
    told = {
        record.subject: decode_notice(record.payload)
        for record in of(Append, effects)[0].records
        if record.subject != "net.c"
    }
    number = told["net.n.south"].number
    assert told["net.n.south"].ask and told["net.n.north"].clear == 0
    desk.take(effects)
    assert sent(KnownUpTo, desk.hear(Seen("south", 7, number - 1))) == []
    assert sent(KnownUpTo, desk.hear(Beat("south", 7, number))) == [KnownUpTo(1, 7, 2)], "a beat says it too"


def test_a_broker_that_has_seen_a_change_early_is_not_waited_for() -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    desk.take(desk.submit(Joined(SOUTH), Queries((("q", "kind = 'lamp'"),)), broker="south"))
    effects = desk.submit(Streams("anna", 0, (("a", {"kind": "lamp"}),)), first=2)
    assert desk.hear(Seen("south", 7, 2)) == [], "not before it is in the log"
    assert sent(KnownUpTo, desk.take(effects)) == [KnownUpTo(1, 7, 2)]


def test_who_missed_something_is_told_everything() -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    effects = desk.hear(Refresh("north", 7))
    batch, notice = of(Append, effects)[0].records
    assert decode_batch(batch.payload).commands == (Refreshed("north", 7),)
    assert decode_notice(notice.payload).fresh
    assert desk.hear(Refresh("north", 6)) == []


def test_time_is_written_down_when_something_is_due() -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.submit(Joined(NORTH), Streams("anna", 20, (("a", {}),)), ClientAway("anna", 20)))
    desk.wait(TICK_US)
    desk.hear(Beat("north", 7, 1))
    desk.take(desk.fire(CoordinatorTimer.CHECK))
    assert (desk.batches[-1].commands, desk.batches[-1].at_us) == ((), TICK_US)
    desk.wait(TICK_US)
    desk.hear(Beat("north", 7, 1))
    desk.take(desk.fire(CoordinatorTimer.CHECK))
    assert not desk.machine.replica.presence.clients, "its time has come"


def test_a_new_leader_goes_on_with_the_time_of_the_last() -> None:
    desk = Desk()
    desk.start()
    desk.follow(Batch(1, 50_000_000, 0, (Elected("c2", Limits()),)))
    desk.now_us = 7
    desk.take(desk.read(desk.claim()))
    desk.now_us += 1_000
    desk.take(desk.submit(Joined(NORTH)))
    assert desk.batches[-1].at_us == 50_001_000


def test_a_pause_follows_news_for_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.take(desk.submit(Joined(NORTH))) or desk.submit(Joined(SOUTH), broker="south"))
    monkeypatch.setattr(module, "PACE_LEAST", 1)
    asked = desk.submit(Interests(("x",), ()), first=2)
    assert of(Append, asked), "the pause was over"
    desk.take(asked)
    later = desk.submit(Interests(("y",), ()), first=3)
    assert not of(Append, later)
    (pace,) = [each for each in of(SetTimer, later) if each.name == CoordinatorTimer.PACE]
    desk.now_us += pace.delay_us
    assert of(Append, desk.fire(CoordinatorTimer.PACE))

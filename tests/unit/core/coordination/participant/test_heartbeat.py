"""A broker's beats: what they say, what their answers mean, and when the broker knows that it is given up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.coordination.histories import NORTH
from tests.unit.core.coordination.one_broker import Broker, of, sent
from tocsin.core.coordination.participant.heartbeat import ANSWERS_US, BEATS, Heartbeat
from tocsin.core.coordination.participant.signals import (
    Adopted,
    DestinationsChanged,
    GuestCame,
    Orphaned,
    SendHome,
)
from tocsin.core.machine import Effect, ReadLog, Stored
from tocsin.core.survival.homes import STEADY
from tocsin.core.survival.refuges import checksum
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.ports import Page
from tocsin.wire.internal.control import Beat, Pulse, Unknown

BEAT_US = 500_000
MOST_US = 5_000_000
LEAST_US = 1_500_000
INCARNATION = 7
TWO = BrokerInfo("two", "n", Role.EDGE, "127.0.0.1", 1, (Entrance(Scheme.MQTT, "two:1883"),))


class Heart:
    """A heartbeat with a clock."""

    def __init__(self) -> None:
        self.heartbeat = Heartbeat(NORTH, BEAT_US, MOST_US, LEAST_US)
        self.now_us = 0

    def beat(self) -> Beat:
        self.now_us += BEAT_US
        self.looked = self.heartbeat.look(self.now_us)
        return self.heartbeat.beat(INCARNATION, 3, self.now_us)

    def answer(
        self,
        beat: Beat,
        refuges: tuple[BrokerInfo, ...] | None = None,
        homes: tuple[tuple[str, BrokerInfo], ...] | None = None,
    ) -> list[Effect]:
        self.heartbeat.heard(self.now_us)
        pulse = Pulse(1, INCARNATION, 3, refuges, homes, beat.number)
        return self.heartbeat.answered(pulse, self.now_us)


def test_beats_are_numbered_and_say_how_often_they_come() -> None:
    heart = Heart()
    beats = [heart.beat() for _ in range(3)]
    assert [each.number for each in beats] == [1, 2, 3]
    assert {(each.broker, each.incarnation, each.seen, each.interval_ms) for each in beats} == {
        ("north", INCARNATION, 3, 500)
    }


def test_refuges_are_known_until_others_are_told() -> None:
    heart = Heart()
    assert of(DestinationsChanged, heart.answer(heart.beat(), (TWO,))) == [DestinationsChanged()]
    beat = heart.beat()
    assert beat.refuges == checksum((TWO,))
    assert heart.answer(beat) == []
    assert heart.heartbeat.refuges(heart.now_us) == (TWO,)
    later_us = heart.now_us + BEATS * ANSWERS_US + 1
    assert heart.heartbeat.refuges(later_us) == ()
    assert of(DestinationsChanged, heart.answer(heart.beat(), ())) == [DestinationsChanged()]
    assert heart.beat().refuges == 0


def test_absent_homes_are_asked_about_sometimes_and_returned_ones_each_time() -> None:
    heart = Heart()
    assert heart.answer(heart.beat()) == [Adopted()], "the first time that it is heard"
    heart.heartbeat.guests.came("c", "two", Scheme.MQTT)
    asked = [bool(heart.beat().homes) for _ in range(8)]
    assert sum(asked) == 2
    while not (beat := heart.beat()).homes:
        assert heart.answer(beat) == []
    for _ in range(STEADY - 1):
        assert heart.answer(beat, None, (("two", TWO),)) == []
        beat = heart.beat()
        assert beat.homes == ("two",)
    sent_home = heart.answer(beat, None, (("two", TWO),))
    assert sent_home == [SendHome(client="c", server_reference="two:1883")]


# ── given up ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_broker_that_nobody_ever_heard_is_no_orphan() -> None:
    heart = Heart()
    for _ in range(100):
        heart.beat()
        assert heart.looked == [] and not heart.heartbeat.orphaned


def test_a_broker_without_answers_to_its_heartbeats_is_an_orphan() -> None:
    heart = Heart()
    heard = heart.beat()
    heart.answer(heard)
    told: list[Effect] = []
    while not told:
        late = heart.beat()
        told = heart.looked
    assert told == [Orphaned(told=False)] and heart.heartbeat.orphaned
    assert MOST_US < heart.now_us - BEAT_US <= MOST_US + BEAT_US, "since the beat that was heard last"
    assert heart.answer(heard) == [], "it was answered before"
    heart.beat()
    assert heart.looked == [], "once is enough"
    assert heart.answer(late) == [Adopted()] and not heart.heartbeat.orphaned


def test_an_answer_counts_from_the_time_its_heartbeat_was_sent() -> None:
    heart = Heart()
    heart.answer(heart.beat())
    old = heart.beat()
    for _ in range(9):
        heart.beat()
    assert heart.answer(old) == [] and not heart.heartbeat.orphaned
    heart.beat()
    heart.beat()
    assert heart.looked == [Orphaned(told=False)], "the answer was on its way for long"


def test_an_answer_to_a_beat_of_long_ago_adopts_nobody() -> None:
    heart = Heart()
    heart.answer(heart.beat())
    old = heart.beat()
    for _ in range(20):
        heart.beat()
    assert heart.heartbeat.orphaned and heart.answer(old) == []


def test_a_broker_doubts_once_a_leader_may_have_given_up() -> None:
    heart = Heart()
    heart.beat()
    assert not heart.heartbeat.is_doubtful(100 * MOST_US), "nobody has anything of it"
    heard = heart.beat()
    sent_us = heart.now_us
    newer = heart.beat()
    heart.answer(heard)
    assert not heart.heartbeat.is_doubtful(sent_us + LEAST_US)
    assert heart.heartbeat.is_doubtful(sent_us + LEAST_US + 1)
    heart.answer(newer)
    assert not heart.heartbeat.is_doubtful(sent_us + LEAST_US + 1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=60))
def test_it_is_an_orphan_exactly_while_nobody_has_heard_it_lately(story: list[tuple[bool, int]]) -> None:
    heart = Heart()
    beats: list[tuple[int, Beat]] = []
    newest_us: int | None = None  # when the newest beat that was answered had been sent
    newest = 0
    orphaned = False
    for answers, back in story:
        if newest_us is not None and heart.now_us + BEAT_US - newest_us > MOST_US:
            orphaned = True
        beats.append((heart.now_us + BEAT_US, heart.beat()))
        assert heart.heartbeat.orphaned == orphaned
        if answers:
            sent_us, beat = beats[max(0, len(beats) - 1 - back)]
            heart.answer(beat)
            if beat.number > newest:
                newest, newest_us = beat.number, sent_us
                orphaned = orphaned and heart.now_us - sent_us > MOST_US
        assert heart.heartbeat.orphaned == orphaned


# ── in its participant ──────────────────────────────────────────────────────────────────────────────────────


def test_a_broker_told_that_it_is_lost_is_orphaned_until_heard() -> None:
    broker = Broker().led()
    (beat,) = sent(Beat, broker.fire("beat"))
    old = broker.machine.incarnation
    effects = broker.hear(Unknown(1, old))
    assert of(Orphaned, effects) == [Orphaned(told=True)] and broker.machine.orphaned
    (read,) = of(ReadLog, effects)
    broker.handle(Stored(request=read.request, value=Page((), 1, 99)))
    broker.number = 0
    effects = broker.notice(applied=1, fresh=True)
    (beat,) = sent(Beat, effects)
    assert beat.incarnation > old, "it shows at once that it is there"
    assert of(Adopted, broker.hear(Pulse(1, old, 1, heard=beat.number))) == []
    assert of(Adopted, broker.hear(Pulse(1, beat.incarnation, 1, heard=beat.number))) == [Adopted()]
    assert not broker.machine.orphaned


def test_a_new_leader_is_shown_at_once_who_is_there() -> None:
    broker = Broker().led()
    assert sent(Beat, broker.hear(Pulse(1, broker.machine.incarnation, 1, heard=1))) == []
    assert len(sent(Beat, broker.hear(Pulse(2, broker.machine.incarnation, 1)))) == 1


def test_guests_of_a_broker_are_asked_about_with_its_beats() -> None:
    broker = Broker().led()
    broker.handle(GuestCame(client="c", home="two", scheme=Scheme.MQTT))
    asked = [beat.homes for _ in range(4) for beat in sent(Beat, broker.fire("beat"))]
    assert asked.count(("two",)) == 2


def test_a_broker_is_alone_when_the_leader_that_dropped_it_falls_silent() -> None:
    heart = Heart()
    heart.answer(heart.beat())
    heart.heartbeat.heard(heart.now_us)
    assert heart.heartbeat.given_up() == [Orphaned(told=True)]
    told: list[Effect] = []
    while heart.now_us <= 3 * MOST_US:
        heart.beat()
        told += heart.looked
    assert told == [Orphaned(told=False)] and heart.heartbeat.orphaned
    assert of(Adopted, heart.answer(heart.beat())) == [Adopted()]


def test_a_pulse_that_answers_no_beat_asks_for_one() -> None:
    broker = Broker().led()
    (beat,) = sent(Beat, broker.hear(Pulse(1, broker.machine.incarnation, 1)))
    assert beat.number > 1


def test_clients_hear_of_a_refuge_that_is_reached_elsewhere() -> None:
    heart = Heart()
    heart.answer(heart.beat(), (TWO,))
    moved = BrokerInfo(TWO.id, TWO.cluster, TWO.role, "127.0.0.9", TWO.port, TWO.entrances)
    assert of(DestinationsChanged, heart.answer(heart.beat(), (moved,)))

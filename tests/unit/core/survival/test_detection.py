"""Who is suspected and when, against a model that remembers every beat and works everything out anew."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.survival import detection
from tocsin.core.survival.detection import (
    CALM_US,
    DOUBT_MAX,
    FLOOR,
    FORGET_US,
    LATE_US,
    LOOK_MAX_US,
    LOOK_MIN_US,
    LOSS_LEAST,
    MEMORY,
    MISSES_LEAST,
    Detector,
    Tuning,
    least_patience_us,
)

SECOND = 1_000_000
BEAT = 500_000
TUNING = Tuning(phi=6.0, least_us=SECOND, most_us=5 * SECOND, heartbeat_us=BEAT, doubt_us=2 * SECOND)
AGGRESSIVE = Tuning(phi=4.0, least_us=BEAT, most_us=5 * SECOND, heartbeat_us=BEAT // 2, doubt_us=2 * SECOND)


class Watch:
    """A detector with a clock, which is looked at when it wants to be."""

    def __init__(self, *brokers: str, tuning: Tuning = TUNING) -> None:
        self.detector = Detector(tuning, 0)
        self.brokers = list(brokers)
        self.now_us = 0
        self.interval_us = tuning.heartbeat_us
        self.numbers = dict.fromkeys(brokers, 0)
        self.suspected: list[tuple[int, str]] = []

    def beat(self, broker: str, *, lost: bool = False) -> None:
        self.numbers[broker] += 1
        if not lost:
            number, interval_us = self.numbers[broker], self.interval_us
            self.detector.beat(broker, 7, number, interval_us, self.now_us)

    def until(self, at_us: int) -> None:
        """Look whenever it is time, and let time pass until then."""
        while self.detector.next_us <= at_us:
            self.now_us = max(self.now_us, self.detector.next_us)
            found = self.detector.look(self.brokers, self.now_us)
            self.suspected += [(self.now_us, each.broker) for each in found]
        self.now_us = at_us

    def live(self, us: int, *alive: str) -> None:
        """These beat on time for so long; the others don't."""
        end_us = self.now_us + us
        while self.now_us + self.interval_us <= end_us:
            self.until(self.now_us + self.interval_us)
            for broker in alive:
                self.beat(broker)
        self.until(end_us)


# ── one broker ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("tuning", "within_us"), [(TUNING, 1_700_000), (AGGRESSIVE, 600_000)])
def test_a_broker_that_falls_silent_is_suspected_soon_and_once(tuning: Tuning, within_us: int) -> None:
    watch = Watch("a", "b", tuning=tuning)
    watch.live(20 * SECOND, "a", "b")
    assert watch.suspected == []
    watch.live(10 * SECOND, "b")
    ((at_us, broker),) = watch.suspected
    assert broker == "a" and tuning.least_us < at_us - 20 * SECOND < within_us
    assert watch.detector.is_suspect("a") and not watch.detector.is_suspect("b")
    watch.beat("a")
    assert not watch.detector.is_suspect("a")
    watch.live(10 * SECOND, "b")
    assert [broker for _, broker in watch.suspected] == ["a", "a"]


@pytest.mark.parametrize("tuning", [TUNING, AGGRESSIVE])
def test_a_broker_without_faults_gets_the_least_patience_in_the_end(tuning: Tuning) -> None:
    watch = Watch("a", tuning=tuning)
    watch.live(20 * SECOND, "a")
    assert watch.detector.patience_us("a") == least_patience_us(tuning, tuning.heartbeat_us)
    assert watch.detector.least_patience_us("a") == watch.detector.patience_us("a")
    strict = msgspec.structs.replace(tuning, most_us=tuning.heartbeat_us)
    assert least_patience_us(strict, tuning.heartbeat_us) == tuning.heartbeat_us


def test_one_lost_beat_is_no_alarm_whatever_the_tuning() -> None:
    hasty = Tuning(phi=1.0, least_us=1, most_us=5 * SECOND, heartbeat_us=BEAT)
    watch = Watch("a", tuning=hasty)
    watch.live(20 * SECOND, "a")
    watch.until(watch.now_us + BEAT)
    watch.beat("a", lost=True)
    watch.live(2 * SECOND, "a")
    assert watch.suspected == []


def test_lossy_and_late_brokers_get_more_time_and_then_less_again() -> None:
    watch = Watch("lossy", "late", "good")
    random_ = random.Random(1)
    for _ in range(200):
        watch.until(watch.now_us + BEAT - 200_000)
        watch.beat("good")
        watch.beat("lossy", lost=random_.random() < 0.1)
        watch.until(watch.now_us + random_.randrange(200_000))
        watch.beat("late")
        watch.until(watch.now_us // BEAT * BEAT + BEAT)
    good, lossy, late = map(watch.detector.patience_us, ("good", "lossy", "late"))
    assert good < late < lossy < TUNING.most_us
    watch.live(400 * BEAT, "lossy", "late", "good")
    assert watch.detector.patience_us("lossy") == watch.detector.patience_us("late") == good


@pytest.mark.parametrize("loss", [0.05, 0.1, 0.2])
def test_a_path_that_loses_beats_for_hours_is_no_alarm(loss: float) -> None:
    watch, random_ = Watch("a"), random.Random(7)
    for _ in range(20_000):
        watch.until(watch.now_us + BEAT)
        watch.beat("a", lost=watch.now_us > 60 * SECOND and random_.random() < loss)
    assert len(watch.suspected) <= 2, "while it was not known yet that beats are lost"


def test_a_suspicion_that_was_wrong_is_learned_from_once() -> None:
    watch = Watch("a")
    watch.live(20 * SECOND, "a")
    before_us = watch.detector.patience_us("a")
    watch.until(watch.now_us + 3 * SECOND)
    assert len(watch.suspected) == 1
    watch.detector.refute("a", 6, watch.now_us)
    assert watch.detector.mistakes == 0, "an older life"
    for _ in range(2):
        watch.detector.refute("a", 7, watch.now_us)
    assert watch.detector.mistakes == 1
    assert watch.detector.patience_us("a") > before_us + SECOND


def test_a_beat_that_was_overtaken_tells_nothing() -> None:
    watch = Watch("a")
    watch.live(20 * SECOND, "a")
    heard_us = watch.now_us
    watch.until(heard_us + SECOND)
    for number in (3, watch.numbers["a"]):
        watch.detector.beat("a", 7, number, BEAT, watch.now_us)
    watch.live(5 * SECOND)
    assert watch.suspected[0][0] - heard_us < 2 * SECOND


def test_a_new_life_begins_its_numbers_anew_and_keeps_its_reputation() -> None:
    watch, random_ = Watch("a"), random.Random(3)
    for _ in range(200):
        watch.until(watch.now_us + BEAT)
        watch.beat("a", lost=random_.random() < 0.2)
    before_us = watch.detector.patience_us("a")
    watch.detector.beat("a", 8, 1, BEAT, watch.now_us)
    assert watch.detector.patience_us("a") == before_us


def test_a_broker_says_itself_how_often_it_beats_within_reason() -> None:
    detector = Detector(TUNING, 0)
    detector.beat("a", 7, 1, SECOND, 0)
    detector.beat("b", 7, 1, 0, 0)
    detector.beat("c", 7, 1, 10**12, 0)
    detector.beat("d", 7, 1, 1, 0)
    patience = [detector.patience_us(each) for each in "abcd"]
    assert patience[2] == TUNING.most_us and patience[3] == 2 * TUNING.least_us
    assert patience[0] > patience[1]


def test_a_broker_that_is_gone_is_forgotten_in_the_end() -> None:
    watch = Watch("a", "b")
    watch.live(SECOND, "a", "b")
    watch.brokers = ["b"]
    watch.live(FORGET_US, "b")
    assert list(watch.detector._habits) == ["a", "b"]
    watch.live(5 * SECOND, "b")
    assert list(watch.detector._habits) == ["b"]


# ── the observer ────────────────────────────────────────────────────────────────────────────────────────────


def test_time_in_which_the_observer_was_away_is_nobodys_silence() -> None:
    watch = Watch("a", "b", "c")
    watch.live(20 * SECOND, "a", "b", "c")
    watch.now_us += 30 * SECOND
    assert watch.detector.look(watch.brokers, watch.now_us) == []
    assert watch.detector.doubt == 1
    for broker in watch.brokers:
        watch.numbers[broker] += 59
        watch.beat(broker)
    before_us = watch.detector.patience_us("a")
    watch.live(20 * SECOND, "a", "b", "c")
    assert watch.suspected == [] and watch.detector.doubt == 0
    assert watch.detector.patience_us("a") < before_us


def test_what_came_while_the_observer_was_away_says_nothing_of_its_senders() -> None:
    watch = Watch("a")
    watch.live(20 * SECOND, "a")
    before_us = watch.detector.patience_us("a")
    watch.now_us += 4 * SECOND
    for _ in range(8):
        watch.beat("a")  # all at once, before the observer looks
    assert watch.detector.doubt == 1
    watch.live(CALM_US + SECOND, "a")
    assert watch.detector.patience_us("a") == before_us


def test_an_observer_with_a_slow_store_is_patient_for_a_while() -> None:
    watch = Watch("a", "b", "c")
    watch.live(20 * SECOND, "a", "b", "c")
    before_us = watch.detector.patience_us("a")
    watch.detector.slow(watch.now_us)
    assert watch.detector.patience_us("a") == 2 * before_us
    for _ in range(20):
        watch.detector.slow(watch.now_us)
    assert watch.detector.doubt == DOUBT_MAX and watch.detector.patience_us("a") == TUNING.most_us
    watch.live(DOUBT_MAX * CALM_US + SECOND, "a", "b", "c")
    assert watch.detector.patience_us("a") == before_us


def test_an_observer_that_hears_hardly_anybody_first_doubts_itself() -> None:
    watch = Watch("a", "b", "c", "d", tuning=AGGRESSIVE)
    watch.live(20 * SECOND, "a", "b", "c", "d")
    watch.live(10 * SECOND, "d")
    times_us = [at_us - 20 * SECOND for at_us, _ in watch.suspected]
    assert len(times_us) == 3 and min(times_us) >= AGGRESSIVE.doubt_us
    assert max(times_us) <= AGGRESSIVE.most_us + LOOK_MIN_US


def test_half_of_the_brokers_are_no_crowd() -> None:
    watch = Watch("a", "b", "c", "d", tuning=AGGRESSIVE)
    watch.live(20 * SECOND, "a", "b", "c", "d")
    watch.live(SECOND, "c", "d")
    assert [broker for _, broker in watch.suspected] == ["a", "b"]


def test_a_beginner_is_patient() -> None:
    watch = Watch("a", "b")
    watch.live(10 * SECOND, "b")
    ((at_us, _),) = watch.suspected
    assert at_us >= CALM_US


# ── everything, against a model ─────────────────────────────────────────────────────────────────────────────


class Model:
    """Remembers all that happened, and works it out from the beginning whenever it is asked."""

    def __init__(self, tuning: Tuning) -> None:
        self.tuning = tuning
        self.story: list[tuple[str, str, int, int]] = []  # what, who, number, when

    def patience_us(self, broker: str, doubt: int) -> float:
        """Of a broker whose beats all come while somebody listens."""
        last, last_us, loss, late2 = 0, 0, 0.0, 0.0
        for what, who, number, at_us in self.story:
            if (what, who) != ("beat", broker) or number <= last:
                continue
            if last:
                missing = min(number - last - 1, MEMORY)
                for came in [0.0] * missing + [1.0]:
                    loss = loss * (1 - 1 / MEMORY) + (1.0 - came) / MEMORY
                late = max(0.0, at_us - last_us - (number - last) * self.tuning.heartbeat_us)
                late2 = late2 * (1 - 1 / MEMORY) + late**2 / MEMORY
            last, last_us = number, at_us
        likely = max(LOSS_LEAST, loss + math.sqrt(loss * (1 - loss) / (2 * MEMORY)))
        misses = max(MISSES_LEAST, math.ceil(self.tuning.phi / -math.log10(likely) - 1e-9))
        z = math.sqrt(2 * math.log(10) * self.tuning.phi)
        deviation = max(self.tuning.heartbeat_us / FLOOR, math.sqrt(late2))
        plain = max(self.tuning.least_us, misses * self.tuning.heartbeat_us + z * deviation)
        return min(self.tuning.most_us, plain * (1 + doubt))


happening = st.tuples(
    st.integers(0, 900_000),  # time that passes
    st.sampled_from(["a", "b"]),
    st.integers(-2, 12),  # by how much its number grows
)


@given(st.lists(happening, max_size=60), st.sampled_from([TUNING, AGGRESSIVE]))
def test_whatever_happens_patience_is_what_the_model_says(
    story: list[tuple[int, str, int]], tuning: Tuning
) -> None:
    detector, model, numbers, now_us = Detector(tuning, 0), Model(tuning), {"a": 1, "b": 1}, 0
    heard = dict.fromkeys(numbers, 0)
    for each in numbers:
        detector.sign(each, 0)
    suspected: set[str] = set()
    for passes_us, broker, step in story:
        end_us = now_us + passes_us
        while detector.next_us <= end_us:
            now_us = detector.next_us
            found = {each.broker for each in detector.look(numbers, now_us)}
            for each in numbers:
                patience_us = model.patience_us(each, detector.doubt)
                over_us = now_us - heard[each] - patience_us
                if abs(over_us) > 2:
                    assert (each in found | suspected) == (each in suspected or over_us > 0)
                if each not in found | suspected:
                    assert detector.next_us <= heard[each] + patience_us + LOOK_MIN_US + 2
            suspected |= found
            assert now_us < detector.next_us <= now_us + LOOK_MAX_US
        now_us = end_us
        number = numbers[broker] + step
        if number > 0:
            detector.beat(broker, 7, number, tuning.heartbeat_us, now_us)
            model.story.append(("beat", broker, number, now_us))
            first = not any(entry[:2] == ("beat", broker) for entry in model.story[:-1])
            if step > 0 or first:
                numbers[broker] = max(number, numbers[broker])
                heard[broker] = now_us
                suspected.discard(broker)
        for each in {entry[1] for entry in model.story}:
            assert abs(detector.patience_us(each) - model.patience_us(each, detector.doubt)) <= 2
            assert detector.patience_us(each) >= least_patience_us(tuning, tuning.heartbeat_us)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["look", "beat", "sign", "refute", "slow"]),
            st.integers(0, 20 * SECOND),
            st.sampled_from("abcd"),
            st.integers(0, 5),
            st.integers(0, 2**63),
        ),
        max_size=60,
    )
)
def test_nothing_that_is_heard_takes_it_out_of_its_bounds(
    story: list[tuple[str, int, str, int, int]],
) -> None:
    detector, now_us = Detector(TUNING, 0), 0
    for what, passes_us, broker, life, number in story:
        now_us += passes_us
        match what:
            case "look":
                for found in detector.look("abc", now_us):
                    assert TUNING.least_us <= found.patience_us < found.silent_us
            case "beat":
                detector.beat(broker, life, number, number % SECOND, now_us)
            case "sign":
                detector.sign(broker, now_us)
            case "refute":
                detector.refute(broker, life, now_us)
            case "slow":
                detector.slow(now_us)
        assert 0 <= detector.doubt <= DOUBT_MAX
        for each in detector._habits:
            assert TUNING.least_us <= detector.patience_us(each) <= TUNING.most_us
        assert detector.next_us - now_us >= -LATE_US


def test_two_beats_that_are_missing_are_the_least_that_counts() -> None:
    assert detection.MISSES_LEAST == 2 and LOSS_LEAST**3 <= 1e-6 < LOSS_LEAST**2


# ── an observer that asks ───────────────────────────────────────────────────────────────────────────────────

ASKING = Tuning(
    phi=6.0, least_us=SECOND, most_us=5 * SECOND, heartbeat_us=SECOND, doubt_us=2 * SECOND, asks=True
)


class Asking(Watch):
    """A watch over brokers that answer questions at once, but for the silent ones."""

    def __init__(self, *brokers: str) -> None:
        super().__init__(*brokers, tuning=ASKING)
        self.silent: set[str] = set()
        self.asked: list[str] = []

    def until(self, at_us: int) -> None:
        while self.detector.next_us <= at_us:
            self.now_us = max(self.now_us, self.detector.next_us)
            found = self.detector.look(self.brokers, self.now_us)
            self.suspected += [(self.now_us, each.broker) for each in found]
            self.asked += self.detector.questions
            for broker in set(self.detector.questions) - self.silent:
                self.beat(broker)
        self.now_us = at_us


def test_a_broker_that_beats_on_time_is_not_asked() -> None:
    watch = Asking("a", "b", "c")
    watch.live(60 * SECOND, "a", "b", "c")
    assert watch.asked == [] and watch.suspected == []


def test_a_broker_whose_beats_are_lost_is_asked_and_not_suspected() -> None:
    watch = Asking("a", "b", "c", "d")
    watch.live(20 * SECOND, "a", "b", "c", "d")
    watch.live(60 * SECOND, "b", "c", "d")
    assert set(watch.asked) == {"a"} and watch.suspected == []


def test_a_silent_broker_is_asked_several_times_and_suspected_as_soon() -> None:
    watch = Asking("a", "b", "c", "d")
    watch.live(20 * SECOND, "a", "b", "c", "d")
    watch.silent = {"a"}
    watch.live(10 * SECOND, "b", "c", "d")
    ((at_us, broker),) = watch.suspected
    assert broker == "a" and at_us - 20 * SECOND < 1_700_000
    assert watch.asked == ["a"] * 4


def test_an_observer_that_hears_hardly_anybody_soon_stops_asking() -> None:
    watch = Asking("a", "b", "c")
    watch.live(20 * SECOND, "a", "b", "c")
    watch.silent = {"a", "b", "c"}
    watch.live(1_300_000)
    early = list(watch.asked)
    watch.live(SECOND)
    assert watch.asked == early and len(early) <= 6

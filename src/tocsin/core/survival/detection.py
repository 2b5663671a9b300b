"""Failure detection: an adaptive detector for silent brokers, hints that need no silence, and an observer that doubts
itself first.

A broker beats, numbers its beats, and says how often it beats. It is suspected when it has been silent for longer than
its **patience**, a length that a broker which is alive exceeds once in 10**phi beats or more seldom:

    patience = interval + (misses - 1) · step + z · deviation          within ``least_us`` and ``most_us``

- ``misses``: the fewest signs of life whose loss in a row is as rare as that, at the rate at which beats of this broker
  were lost. Numbers tell what was lost from what was late. Never fewer than two.
- ``step``: the time from one sign to the next. An observer that only listens waits for the next beat: an interval. One
  that ``asks`` asks a broker whose beat is late, and again after each step (``questions``): a sixth of an interval, or
  STEP_LEAST_US. Question and answer can both be lost. So a broker that is well beats more seldom and is missed no
  later.
- ``deviation``: by how much its beats come late, as a root mean square, with a floor; ``z`` is where a normal
  distribution's tail is certainly that small (Chernoff: exp(-z²/2)).

That is the phi-accrual idea with two causes of silence instead of one: a lossy path makes silences of whole intervals,
which a deviation alone takes for jitter, and underestimates. Both figures are averages that forget (the last 64 beats
weigh two thirds), two numbers for a broker. A suspicion that proves wrong (the broker beats again) counts as a beat
that came so late.

The **observer** itself may be ill (Lifeguard's insight), and then it multiplies everybody's patience:

- it was late itself: it asked to look at a time and came later. Time in which it did not listen is nobody's silence,
  and heartbeats that came in it say nothing about their senders;
- its store is slow (``slow``), which is the way by which beats come;
- more than half of the brokers, of three or more, are late at once: then it waits for ``doubt_us`` at least, in which
  an observer that is cut off learns that it leads no longer;
- it has only begun.

A broker need not be silent to be missed. A process that is killed leaves at once: its kernel closes every connection.
A process that hangs, or whose packets are lost, keeps them. So a link that its peer has **closed** without a word is a
**hint**, and a listener that **refuses** a new connection is a better one. Neither condemns anybody by itself:
connections are reset by others too, and a broker that restarts has closed its links as well.

    a link to X was closed by X ──► X is asked over the bus, at once
        X, or its subscription, is there ──► the hints are forgotten
        the bus finds nobody             ──► asked again after AGAIN_US, ASKS_MAX times at most
    X is **gone** if the bus has found nobody twice, AGAIN_US apart, and hints of ENOUGH weight are younger than HINT_US

A closed link weighs 1 for each peer that tells of it, a refused one 2. So two peers have to see their links close, or
one peer that the broker's machine refuses. The bus is a witness of its own: its server has ended the broker's session,
over another connection. No silence is among these reasons: an answer that does not come in time says nothing, and
neither does a link over which nothing comes. What is heard of a broker itself, a beat above all, ends all hints about
it. Hints are others' observations, so that the observer's doubts do not matter to them.

Suspicion is a hint. Its consequences are fenced elsewhere, so that a wrong suspicion costs time and nothing else.

Only sums, products, quotients and roots are taken of floating-point numbers, which are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Collection
from math import sqrt
from typing import Final, NamedTuple

import msgspec

MEMORY: Final = 64  # beats: how slowly averages forget
MISTAKE: Final = 8  # as many beats does a suspicion that was wrong weigh
LOSS_LEAST: Final = 1 / 128  # a path that never lost a beat may lose one; three in a row then have phi 6
MISSES_LEAST: Final = 2  # a single missing heartbeat is no alarm
MISSES_MAX: Final = 64
FLOOR: Final = 16  # the deviation is at least this part of an interval: what busy timers are off by
ASKED_FLOOR: Final = 32  # … of the longer interval of brokers that are asked
STEPS: Final = 6  # of questions, in an interval …
STEP_LEAST_US: Final = 140_000  # … that is long: a process that stands still for a moment answers none
ASKED_LATE: Final = 2  # deviations by which a beat is late when its broker is asked
LATE_US: Final = 100_000  # by which the observer may come later than it wanted and think nothing of it
DOUBT_MAX: Final = 4
CALM_US: Final = 2_000_000  # without a reason for doubt, after which there is one doubt less
CROWD_LEAST: Final = 3  # fewer brokers are no crowd
LOOK_MAX_US: Final = 500_000  # the observer looks so often at least, so that it notices when it is late
LOOK_MIN_US: Final = 5_000
GATHER_US: Final = (
    40_000  # … unless a patience ends: beats that are due, and questions, are looked at together
)
INTERVAL_MIN_US: Final = 10_000
FORGET_US: Final = 600_000_000  # what is known of a broker that is gone, for when it comes back
LN_10: Final = 2.302585092994046
CLOSED: Final = 1  # the weight of a link that the broker has closed, for each peer
REFUSED: Final = 2  # … and whose listener refuses a new one
ENOUGH: Final = 2
HINT_US: Final = (
    1_500_000  # a hint counts: as long as redials take that are refused, and a silence that is suspicious
)
AGAIN_US: Final = 40_000  # between two questions: some ten round trips
ASKS_MAX: Final = 12  # in a row: half a second, in which a redial is refused twice
WITNESSES_MAX: Final = 32  # peers whose hints are kept for one broker; two suffice


class _Case:
    """The hints about one broker."""

    __slots__ = ("absent_us", "asked", "asking", "next_us", "witnesses")

    def __init__(self) -> None:
        self.witnesses: dict[str, tuple[int, int]] = {}  # peer → weight, and when it told
        self.absent_us: int | None = None  # when the bus found nobody for the first time …
        self.asked = 0  # … of so many questions since the last new hint
        self.asking = False  # a question is under way
        self.next_us: int | None = None  # when to ask again


class Hints:
    """Weighs for one observer what closed links say of brokers."""

    def __init__(self) -> None:
        self._cases: dict[str, _Case] = {}

    def __len__(self) -> int:
        return len(self._cases)

    @property
    def next_us(self) -> int | None:
        """When to ask somebody again."""
        return min((each.next_us for each in self._cases.values() if each.next_us is not None), default=None)

    def told(self, broker: str, witness: str, *, refused: bool, now_us: int) -> bool:
        """A peer tells that its link was closed by the broker, or is refused; whether to ask the broker now."""
        case = self._cases.setdefault(broker, _Case())
        weight = REFUSED if refused else CLOSED
        if witness in case.witnesses or len(case.witnesses) < WITNESSES_MAX:
            case.witnesses[witness] = (weight, now_us)
        case.asked = 0
        if case.asking or case.next_us is not None:
            return False
        case.asking = True
        return True

    def due(self, now_us: int) -> list[str]:
        """The brokers that are to be asked again now."""
        found = []
        for broker, case in self._cases.items():
            if case.next_us is not None and case.next_us <= now_us:
                case.next_us, case.asking = None, True
                found.append(broker)
        return found

    def answered(self, broker: str, *, absent: bool, now_us: int) -> tuple[str, ...]:
        """What the bus said to a question: the witnesses, if that makes the broker gone, and otherwise nobody."""
        case = self._cases.get(broker)
        if case is None or not case.asking:
            return ()
        case.asking = False
        if not absent:
            del self._cases[broker]
            return ()
        if case.absent_us is None:
            case.absent_us = now_us
        fresh = {
            each: weight for each, (weight, at_us) in case.witnesses.items() if now_us - at_us <= HINT_US
        }
        if now_us - case.absent_us >= AGAIN_US and self._enough(fresh):
            del self._cases[broker]
            return tuple(sorted(fresh))
        case.asked += 1
        if case.asked >= ASKS_MAX or not fresh:
            del self._cases[broker]
        else:
            case.next_us = now_us + AGAIN_US
        return ()

    def _enough(self, fresh: dict[str, int]) -> bool:
        return sum(fresh.values()) >= ENOUGH

    def heard(self, broker: str) -> None:
        """The broker itself was heard, or is no longer watched."""
        self._cases.pop(broker, None)


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """How a detector judges."""

    phi: float  # a broker that is alive is suspected once in 10**phi beats at most
    least_us: int  # no shorter silence is suspicious …
    most_us: int  # … and every longer one is, whatever is known
    heartbeat_us: int  # of brokers that have not said how often they beat
    doubt_us: int = 0  # in which an observer that hears hardly anybody would learn that it is cut off
    asks: bool = False  # the observer asks brokers whose beats are late


class Suspicion(NamedTuple):
    """A broker that is probably gone."""

    broker: str
    silent_us: int
    patience_us: int
    witnesses: tuple[str, ...] = ()  # peers whose links it closed; none: it was silent for too long


class _Habit:
    """The beats of one broker so far."""

    __slots__ = (
        "asked",
        "beat_us",
        "heard_us",
        "incarnation",
        "interval_us",
        "late2",
        "loss",
        "number",
        "suspected",
    )

    def __init__(self, interval_us: int, now_us: int) -> None:
        self.incarnation = 0
        self.number = 0  # of the last beat
        self.beat_us = now_us  # when that came
        self.heard_us = now_us  # when it last showed life; time in which nobody listened does not count
        self.interval_us = interval_us
        self.loss = 0.0  # of its beats, the part that did not come
        self.late2 = 0.0  # mean square of how late they came
        self.suspected = False  # since it was heard last
        self.asked = 0  # questions since then


class Detector:
    """Decides for one observer which brokers are suspect."""

    weighing: type[Hints] = Hints  # so that a variant can be tried

    def __init__(self, tuning: Tuning, now_us: int) -> None:
        self.tuning = tuning
        self.next_us = now_us + LOOK_MAX_US  # when it wants to look again
        self.doubt = 1  # how often everybody's patience is added to itself; a beginner has heard nothing yet
        self.mistakes = 0  # suspicions that proved wrong
        self.questions: list[str] = []  # the brokers to ask now, as the last look found
        self._habits: dict[str, _Habit] = {}
        self.hints = self.weighing()
        self._present_us = now_us  # it has listened without a break since then
        self._calm_us = now_us  # since when there was no reason for doubt

    # ── what is heard ───────────────────────────────────────────────────────────────────────────────────────

    def beat(self, broker: str, incarnation: int, number: int, interval_us: int, now_us: int) -> None:
        """A beat came. Numbers grow in an incarnation; 0 is none. An interval of 0 is not known."""
        self._wake(now_us)
        habit = self._habit(broker, now_us)
        if interval_us:
            habit.interval_us = max(INTERVAL_MIN_US, min(interval_us, self.tuning.most_us))
        if habit.incarnation != incarnation:
            habit.incarnation, habit.number = incarnation, 0
        if 0 < number <= habit.number:
            return  # overtaken by a later one: older news than we have
        if number and habit.number:
            self._learn(habit, number - habit.number, now_us)
        habit.number, habit.beat_us = number, now_us
        self._alive(broker, habit, now_us)

    def sign(self, broker: str, now_us: int) -> None:
        """Something else shows that a broker is alive."""
        self._wake(now_us)
        self._alive(broker, self._habit(broker, now_us), now_us)

    def refute(self, broker: str, incarnation: int, now_us: int) -> None:
        """An incarnation that was counted as lost beats: it was only late, by so much."""
        self._wake(now_us)
        habit = self._habits.get(broker)
        if habit is None or habit.incarnation != incarnation:
            return
        self.mistakes += 1
        late_us = max(0, now_us - habit.beat_us - habit.interval_us)
        habit.late2 += (late_us * late_us - habit.late2) * MISTAKE / MEMORY
        habit.incarnation, habit.number = 0, 0  # once is enough
        self._alive(broker, habit, now_us)

    def slow(self, now_us: int) -> None:
        """The observer's own store is slow, so that heartbeats may be."""
        self._wake(now_us)
        self._doubt(now_us)

    def _alive(self, broker: str, habit: _Habit, now_us: int) -> None:
        habit.heard_us, habit.suspected, habit.asked = now_us, False, 0
        self.hints.heard(broker)

    def closed(self, broker: str, witness: str, *, refused: bool, now_us: int) -> bool:
        """A peer's link was closed by a broker, or is refused; whether to ask the broker now."""
        self._wake(now_us)
        if self._habit(broker, now_us).suspected:
            return False
        return self.hints.told(broker, witness, refused=refused, now_us=now_us)

    def answered(self, broker: str, *, absent: bool, now_us: int) -> Suspicion | None:
        """Whether the bus has found a broker that was asked; the suspicion, if that is the last hint that it took."""
        self._wake(now_us)
        witnesses = self.hints.answered(broker, absent=absent, now_us=now_us)
        habit = self._habits.get(broker)
        if not witnesses or habit is None or habit.suspected:
            return None
        habit.suspected = True
        return Suspicion(broker, now_us - habit.heard_us, self.patience_us(broker), witnesses)

    def _learn(self, habit: _Habit, steps: int, now_us: int) -> None:
        """A beat came, so many after the one before; what came during a break says nothing of its sender."""
        if habit.beat_us < self._present_us:
            return
        for _ in range(min(steps - 1, MEMORY)):
            habit.loss += (1.0 - habit.loss) / MEMORY
        habit.loss -= habit.loss / MEMORY
        late_us = max(0, now_us - habit.beat_us - steps * habit.interval_us)
        habit.late2 += (late_us * late_us - habit.late2) / MEMORY

    def _habit(self, broker: str, now_us: int) -> _Habit:
        habit = self._habits.get(broker)
        if habit is None:
            habit = self._habits[broker] = _Habit(self.tuning.heartbeat_us, now_us)
        return habit

    # ── what follows ────────────────────────────────────────────────────────────────────────────────────────

    def patience_us(self, broker: str, *, crowd: bool = False) -> int:
        """How long this broker may be silent now; ``crowd`` if many are late together."""
        habit, tuning = self._habits[broker], self.tuning
        patience_us = _patience_us(tuning, habit.interval_us, habit.loss, habit.late2)
        patience_us *= 1 + self.doubt + crowd
        if crowd:
            patience_us = max(patience_us, tuning.doubt_us)
        return min(patience_us, tuning.most_us)

    def least_patience_us(self, broker: str) -> int:
        """The shortest silence of this broker that is ever suspicious."""
        return least_patience_us(self.tuning, self._habits[broker].interval_us)

    def silent_until_us(self, broker: str, now_us: int) -> int:
        """When this broker's silence ends its patience, if it is not heard."""
        return self._habit(broker, now_us).heard_us + self.patience_us(broker)

    def is_suspect(self, broker: str) -> bool:
        """Whether a broker was suspected, and has not been heard since."""
        habit = self._habits.get(broker)
        return habit is not None and habit.suspected

    def look(self, brokers: Collection[str], now_us: int) -> list[Suspicion]:
        """The newly suspected brokers; ``next_us`` says when to look again."""
        self._wake(now_us)
        self._calm(now_us)
        habits = {broker: self._habit(broker, now_us) for broker in brokers}
        next_us, most_us = now_us + LOOK_MAX_US, self.tuning.most_us
        overdue: list[tuple[str, _Habit]] = []  # the few whose beats are later than timers are
        for broker, habit in habits.items():
            interval_us = habit.interval_us
            due_us = habit.heard_us + min(interval_us + interval_us // FLOOR, most_us)
            if now_us > due_us:
                overdue.append((broker, habit))
            elif due_us < next_us:
                next_us = max(due_us + 1, now_us + GATHER_US)
        late = sum(
            now_us - each.heard_us > each.interval_us + each.interval_us // 4 + int(sqrt(each.late2))
            for _, each in overdue
        )
        crowd = len(habits) >= CROWD_LEAST and 2 * late > len(habits)
        found: list[Suspicion] = []
        self.questions = []
        for broker, habit in overdue:
            if habit.suspected:
                continue
            silent_us = now_us - habit.heard_us
            patience_us = self.patience_us(broker, crowd=crowd)
            if silent_us > patience_us:
                habit.suspected = True
                found.append(Suspicion(broker, silent_us, patience_us))
            else:
                next_us = min(next_us, habit.heard_us + patience_us + 1)
                if self.tuning.asks and not crowd:  # nobody would answer an observer that is cut off
                    question_us = self._question(broker, habit, now_us)
                    next_us = min(next_us, max(question_us, now_us + GATHER_US))
        self.next_us = max(next_us, now_us + LOOK_MIN_US)
        self._forget(habits, now_us)
        return found

    def _question(self, broker: str, habit: _Habit, now_us: int) -> int:
        """Ask a broker whose beat is late, if it is time; when to ask next."""
        deviation_us = max(habit.interval_us // ASKED_FLOOR, int(sqrt(habit.late2)))
        step_us = _step_us(habit.interval_us)
        first_us = habit.heard_us + habit.interval_us + ASKED_LATE * deviation_us
        if now_us >= first_us + habit.asked * step_us:
            habit.asked = (now_us - first_us) // step_us + 1
            self.questions.append(broker)
        return first_us + habit.asked * step_us

    def _forget(self, habits: Collection[str], now_us: int) -> None:
        if len(self._habits) > len(habits):
            for broker in [each for each in self._habits if each not in habits]:
                self.hints.heard(broker)
                if now_us - self._habits[broker].heard_us > FORGET_US:
                    del self._habits[broker]

    # ── the observer ────────────────────────────────────────────────────────────────────────────────────────

    def _wake(self, now_us: int) -> None:
        """The first event after a break finds that the time to look is long past."""
        late_us = now_us - self.next_us
        if late_us <= LATE_US:
            return
        for habit in self._habits.values():
            habit.heard_us = min(now_us, habit.heard_us + late_us)
        self.next_us = self._present_us = now_us
        self._doubt(now_us)

    def _doubt(self, now_us: int) -> None:
        self.doubt = min(DOUBT_MAX, self.doubt + 1)
        self._calm_us = now_us

    def _calm(self, now_us: int) -> None:
        while self.doubt and now_us - self._calm_us >= CALM_US:
            self.doubt -= 1
            self._calm_us += CALM_US
        if not self.doubt:
            self._calm_us = now_us


def least_patience_us(tuning: Tuning, interval_us: int) -> int:
    """The shortest silence after which any observer may suspect a broker that beats so often."""
    return min(_patience_us(tuning, interval_us, 0.0, 0.0), tuning.most_us)


def _step_us(interval_us: int) -> int:
    """The time between two questions."""
    return min(interval_us, max(STEP_LEAST_US, interval_us // STEPS))


def _patience_us(tuning: Tuning, interval_us: int, loss: float, late2: float) -> int:
    """Of an observer without doubts, with a broker of such habits."""
    loss = max(LOSS_LEAST, loss + sqrt(loss * (1.0 - loss) / (2 * MEMORY)))
    again = loss * (2.0 - loss) if tuning.asks else loss  # … is lost: a question or its answer, or a beat
    step_us = _step_us(interval_us) if tuning.asks else interval_us
    floor_us = interval_us / (ASKED_FLOOR if tuning.asks else FLOOR)
    rare, z = 10.0**-tuning.phi, sqrt(2 * LN_10 * tuning.phi)
    misses, chance = 1, loss
    while chance > rare and misses < MISSES_MAX:
        misses, chance = misses + 1, chance * again
    misses = max(MISSES_LEAST, misses)
    deviation_us = max(floor_us, sqrt(late2))
    return max(tuning.least_us, interval_us + (misses - 1) * step_us + int(z * deviation_us))

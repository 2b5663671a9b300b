"""Which channels run next: intervals, overruns, holds, asking, fairness; and the whole against a simple model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tocsin.core.channels.schedule import ERROR_MAX, RETRY_MAX_US, RETRY_US, Limits, Plan, Schedule, Turn

SECOND = 1_000_000
TEN = Plan(every_us=10 * SECOND)
NOW = 1_000 * SECOND


def names(turns: list[Turn]) -> list[str]:
    return [turn.channel for turn in turns]


@pytest.fixture
def schedule() -> Schedule:
    return Schedule()


# ── periods ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_channel_runs_at_once_and_then_once_a_slot(schedule: Schedule) -> None:
    schedule.define("a", TEN, NOW + 3 * SECOND)
    ran = []
    for second in range(3, 40):
        now = NOW + second * SECOND
        for turn in schedule.take(now):
            ran.append((second, turn.skipped))
            schedule.done("a", now)
    assert ran == [(3, 0), (10, 0), (20, 0), (30, 0)]


def test_channels_of_one_period_are_due_together_whenever_they_were_created(schedule: Schedule) -> None:
    schedule.define("a", TEN, NOW + 1 * SECOND)
    schedule.define("b", TEN, NOW + 7 * SECOND)
    for name in names(schedule.take(NOW + 8 * SECOND)):
        schedule.done(name, NOW + 8 * SECOND)
    assert schedule.next_us(NOW + 8 * SECOND) == NOW + 10 * SECOND
    assert names(schedule.take(NOW + 10 * SECOND)) == ["a", "b"]


def test_slots_that_pass_while_a_channel_runs_are_skipped_and_counted(schedule: Schedule) -> None:
    schedule.define("a", TEN, NOW)
    assert schedule.take(NOW) == [Turn("a")]
    assert schedule.take(NOW + 10 * SECOND) == [], "it is still running"
    schedule.done("a", NOW + 35 * SECOND)
    assert schedule.take(NOW + 35 * SECOND) == [Turn("a", skipped=2)]
    schedule.done("a", NOW + 36 * SECOND)
    figures = schedule.figures("a", NOW + 36 * SECOND)
    assert figures is not None and (figures.overruns, figures.executions) == (2, 2)
    assert figures.next_us == NOW + 40 * SECOND


def test_slots_missed_without_a_pipeline_are_one_late_run_and_no_overrun(schedule: Schedule) -> None:
    schedule.define("a", TEN, NOW, last_us=NOW - 3_600 * SECOND)
    assert schedule.take(NOW) == [Turn("a")]
    schedule.done("a", NOW)
    assert schedule.next_us(NOW) == NOW + 10 * SECOND


def test_a_restart_within_a_slot_does_not_run_it_again(schedule: Schedule) -> None:
    schedule.define("a", TEN, NOW + 5 * SECOND, last_us=NOW + 1 * SECOND)
    assert schedule.take(NOW + 5 * SECOND) == []
    assert names(schedule.take(NOW + 10 * SECOND)) == ["a"]


def test_a_clock_that_goes_back_makes_nothing_due_twice(schedule: Schedule) -> None:
    schedule.define("a", TEN, NOW)
    schedule.take(NOW)
    schedule.done("a", NOW)
    assert schedule.take(NOW - 600 * SECOND) == []
    assert schedule.take(NOW + 9 * SECOND) == []


def test_another_period_counts_from_the_change(schedule: Schedule) -> None:
    schedule.define("a", TEN, NOW)
    schedule.take(NOW)
    schedule.done("a", NOW)
    schedule.define("a", Plan(every_us=60 * SECOND), NOW + 1)
    assert schedule.next_us(NOW + 1) == (NOW // (60 * SECOND) + 1) * 60 * SECOND


# ── pause, ask, drop ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_paused_channel_is_not_due_and_its_slots_are_no_overruns(schedule: Schedule) -> None:
    schedule.define("a", TEN, NOW)
    schedule.take(NOW)
    schedule.done("a", NOW)
    schedule.define("a", Plan(every_us=10 * SECOND, paused=True), NOW)
    assert schedule.take(NOW + 100 * SECOND) == []
    assert schedule.next_us(NOW + 100 * SECOND) is None
    schedule.define("a", TEN, NOW + 101 * SECOND)
    assert schedule.take(NOW + 105 * SECOND) == []
    assert schedule.take(NOW + 110 * SECOND) == [Turn("a")]


def test_a_requested_channel_runs_at_once_even_if_it_is_paused(schedule: Schedule) -> None:
    schedule.define("a", Plan(every_us=10 * SECOND, paused=True), NOW)
    schedule.ask("a")
    assert schedule.next_us(NOW) == NOW
    assert schedule.take(NOW) == [Turn("a", asked=True)]
    schedule.done("a", NOW)
    assert schedule.take(NOW) == []


def test_a_channel_that_is_dropped_while_it_runs_is_forgotten(schedule: Schedule) -> None:
    schedule.define("a", TEN, NOW)
    schedule.take(NOW)
    schedule.drop("a")
    schedule.done("a", NOW)
    assert schedule.failed("a", NOW, "x") == 0
    assert "a" not in schedule and schedule.figures("a", NOW) is None and schedule.next_us(NOW) is None


# ── continuous ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_continuous_channel_is_due_when_its_dataset_has_news(schedule: Schedule) -> None:
    schedule.advance("reports", 7, NOW)
    schedule.define("a", Plan(every_us=None, waits_for=("reports",)), NOW)
    assert schedule.take(NOW) == [], "what was there before it is not new to it"
    schedule.advance("other", 1, NOW)
    assert schedule.take(NOW) == []
    schedule.advance("reports", 8, NOW)
    assert names(schedule.take(NOW)) == ["a"]
    schedule.done("a", NOW, read={"reports": 8})
    assert schedule.next_us(NOW) is None


def test_new_data_during_a_run_makes_the_channel_due_after_the_gap(schedule: Schedule) -> None:
    schedule.define("a", Plan(every_us=None, waits_for=("reports",)), NOW)
    schedule.advance("reports", 1, NOW)
    schedule.take(NOW)
    schedule.advance("reports", 2, NOW + 5)
    schedule.done("a", NOW + 10, read={"reports": 1})
    gap = schedule.limits.gap_us
    assert schedule.next_us(NOW + 10) == NOW + 10 + gap
    assert schedule.take(NOW + 9 + gap) == []
    assert names(schedule.take(NOW + 10 + gap)) == ["a"]


def test_a_continuous_channel_that_was_behind_is_due_at_the_start(
    schedule: Schedule,
) -> None:
    schedule.advance("reports", 9, NOW)
    schedule.define(
        "a", Plan(every_us=None, waits_for=("reports",)), NOW, last_us=NOW - 5, read={"reports": 4}
    )
    assert names(schedule.take(NOW)) == ["a"]


def test_the_versions_of_a_dataset_that_is_gone_begin_anew(schedule: Schedule) -> None:
    schedule.advance("reports", 50, NOW)
    schedule.define("a", Plan(every_us=None, waits_for=("reports",)), NOW)
    schedule.forget("reports")
    assert schedule.take(NOW) == []
    schedule.advance("reports", 0, NOW)
    assert schedule.take(NOW) == [], "it is empty"
    schedule.advance("reports", 1, NOW)
    assert schedule.take(NOW) == [Turn("a")]


# ── results of others ───────────────────────────────────────────────────────────────────────────────────────────

READER = Plan(every_us=10 * SECOND, after=("a",))


def run_all(schedule: Schedule, now: int, took_us: int = 10) -> tuple[list[str], int]:
    """One tick: who ran, and when it was over."""
    ran = names(schedule.take(now))
    for name in ran:
        schedule.done(name, now + took_us)
    return sorted(ran), now + took_us


def test_a_reader_runs_in_a_tick_after_what_it_reads(schedule: Schedule) -> None:
    for name, after in (("c", ("b",)), ("b", ("a",)), ("a", ())):
        schedule.define(name, Plan(every_us=10 * SECOND, after=after), NOW)
    for interval in range(3):
        now, order = NOW + interval * 10 * SECOND, []
        for _ in range(3):
            ran, now = run_all(schedule, now)
            order += ran
        assert order == ["a", "b", "c"]
        assert schedule.next_us(now) == NOW + (interval + 1) * 10 * SECOND


def test_a_reader_waits_for_one_run_however_often_the_other_is_due(schedule: Schedule) -> None:
    schedule.define("a", Plan(every_us=None, waits_for=("reports",)), NOW)
    schedule.define("b", READER, NOW)
    order = []
    now = NOW
    for version in range(1, 4):
        schedule.advance("reports", version, now)
        ran, now = run_all(schedule, now)
        order.append(ran)
        now += schedule.limits.gap_us
    assert order == [["a"], ["a", "b"], ["a"]]


@pytest.mark.parametrize("state", ["paused", "failing", "gone", "not due"])
def test_a_reader_does_not_wait_for_what_does_not_run(schedule: Schedule, state: str) -> None:
    schedule.define("a", Plan(every_us=3_600 * SECOND, paused=state == "paused"), NOW)
    schedule.define("b", READER, NOW)
    if state == "failing":
        assert names(schedule.take(NOW)) == ["a"]
        schedule.failed("a", NOW, "x")
    elif state == "not due":
        assert run_all(schedule, NOW)[0] == ["a"]
    elif state == "gone":
        schedule.drop("a")
    assert run_all(schedule, NOW + 20)[0] == ["b"]


def test_a_reader_that_is_asked_for_runs_at_once(schedule: Schedule) -> None:
    schedule.define("a", TEN, NOW)
    schedule.define("b", READER, NOW)
    schedule.ask("b")
    assert run_all(schedule, NOW)[0] == ["a", "b"]


def test_a_continuous_reader_does_not_wait_for_news_it_has(schedule: Schedule) -> None:
    schedule.define("a", Plan(every_us=None, waits_for=("reports",)), NOW)
    schedule.define("b", Plan(every_us=None, waits_for=("results of a",), after=("a",)), NOW)
    schedule.advance("reports", 1, NOW)
    assert names(schedule.take(NOW)) == ["a"]
    schedule.advance("reports", 2, NOW + 1)
    schedule.done("a", NOW + 5, read={"reports": 1})
    schedule.advance("results of a", 7, NOW + 5)
    assert names(schedule.take(NOW + 5 + schedule.limits.gap_us)) == ["b", "a"]


# ── failures ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_failing_channel_backs_off_and_keeps_its_error(schedule: Schedule) -> None:
    schedule.define("a", Plan(every_us=SECOND), NOW)
    schedule.define("b", Plan(every_us=SECOND // 4), NOW)
    holds, now = [], NOW
    for _ in range(12):
        schedule.ask("a")
        assert "a" in names(schedule.take(now))
        schedule.done("b", now)
        holds.append(schedule.failed("a", now, "x" * (ERROR_MAX + 1)))
        now += SECOND // 2
        assert names(schedule.take(now)) == ["b"], "others do not notice"
        schedule.done("b", now)
    assert holds[:4] == [RETRY_US, 2 * RETRY_US, 4 * RETRY_US, 8 * RETRY_US]
    assert holds[-1] == RETRY_MAX_US
    figures = schedule.figures("a", now)
    assert figures is not None and figures.failures == 12 and figures.error == "x" * ERROR_MAX
    now += RETRY_MAX_US
    assert Turn("a") in schedule.take(now), "intervals that passed in a hold are no overruns"
    schedule.done("a", now)
    figures = schedule.figures("a", now)
    assert figures is not None and (figures.failures, figures.error) == (0, "")


def test_a_retry_does_not_wait_for_the_next_slot(schedule: Schedule) -> None:
    schedule.define("a", Plan(every_us=3_600 * SECOND), NOW)
    schedule.take(NOW)
    schedule.failed("a", NOW, "x")
    assert schedule.next_us(NOW) == NOW + RETRY_US
    assert names(schedule.take(NOW + RETRY_US)) == ["a"]


# ── fairness ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_more_channels_than_fit_a_tick_all_run_in_turn() -> None:
    schedule = Schedule(Limits(per_tick=3))
    for number in range(10):
        schedule.define(f"c{number}", Plan(every_us=SECOND), NOW)
    ran: dict[str, int] = {}
    for step in range(40):
        now = NOW + step * SECOND // 2
        turns = schedule.take(now)
        assert len(turns) <= 3
        for name in names(turns):
            ran[name] = ran.get(name, 0) + 1
            schedule.done(name, now)
    assert len(ran) == 10 and 3 * min(ran.values()) >= 2 * max(ran.values())


def test_a_slow_channel_gets_its_own_tick_and_does_not_starve() -> None:
    schedule = Schedule(Limits(budget_us=SECOND))
    for name, cost in (("slow", 5 * SECOND), ("quick", 1_000), ("brisk", 2_000)):
        schedule.define(name, Plan(every_us=SECOND, shape=name), NOW)
        schedule.ask(name)
        schedule.take(NOW)
        schedule.done(name, NOW, cost_us=cost)
    now, taken = NOW, []
    for _ in range(8):
        now += SECOND
        turns = names(schedule.take(now))
        taken.append(tuple(turns))
        now += 5 * SECOND if "slow" in turns else 3_000
        for name in turns:
            schedule.done(name, now, cost_us=5 * SECOND if name == "slow" else 1_000)
    assert ("slow",) in taken and not any("slow" in turns and len(turns) > 1 for turns in taken)
    assert sum("slow" in turns for turns in taken) >= 2
    assert sum("quick" in turns for turns in taken) >= 4


def test_channels_of_one_shape_cost_as_much_as_one() -> None:
    schedule = Schedule(Limits(budget_us=SECOND))
    for number in range(100):
        schedule.define(f"c{number}", Plan(every_us=SECOND, shape="same"), NOW)
    for name in names(schedule.take(NOW)):
        schedule.done(name, NOW, cost_us=900_000)
    assert len(schedule.take(NOW + SECOND)) == 100


# ── against a simple model ──────────────────────────────────────────────────────────────────────────────────────

PERIODS = [1, 2, 3, 7]


class Simple:
    """A channel as one would write it down: the intervals in which it ran, and those it should have."""

    def __init__(self, every_us: int, now_us: int) -> None:
        self.every_us = every_us
        self.first = now_us // every_us
        self.ran: list[int] = []
        self.skipped = 0


class Histories(RuleBasedStateMachine):
    """Repetitive channels that never fail: executions and overruns add up, none waits for ever."""

    @initialize(per_tick=st.integers(1, 4), budget=st.integers(1, 3))
    def begin(self, per_tick: int, budget: int) -> None:
        self.schedule = Schedule(Limits(per_tick=per_tick, budget_us=budget))
        self.now = NOW
        self.model: dict[str, Simple] = {}
        self.running: list[str] = []
        self.waited: dict[str, int] = {}

    @rule(number=st.integers(0, 5), period=st.sampled_from(PERIODS))
    def define(self, number: int, period: int) -> None:
        name = f"c{number}"
        if name not in self.model:
            self.schedule.define(name, Plan(every_us=period), self.now)
            self.model[name] = Simple(period, self.now)

    @rule(us=st.integers(0, 12))
    def pass_time(self, us: int) -> None:
        self.now += us

    @rule()
    def take(self) -> None:
        due = {
            name
            for name, each in self.model.items()
            if name not in self.running and self.now // each.every_us not in each.ran
        }
        turns = self.schedule.take(self.now)
        assert {turn.channel for turn in turns} <= due
        assert bool(turns) == bool(due)
        for turn in turns:
            each = self.model[turn.channel]
            interval = self.now // each.every_us
            last = each.ran[-1] if each.ran else interval - 1
            assert turn.skipped == interval - last - 1
            each.skipped += turn.skipped
            each.ran.append(interval)
            self.running.append(turn.channel)
        for name in due:
            self.waited[name] = self.waited.get(name, 0) + 1
        for turn in turns:
            self.waited[turn.channel] = 0
        assert all(count <= 2 * len(self.model) + 2 for count in self.waited.values()), "somebody starves"

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cost=st.integers(0, 5))
    def finish(self, data: st.DataObject, cost: int) -> None:
        name = data.draw(st.sampled_from(self.running))
        self.running.remove(name)
        self.schedule.done(name, self.now, cost_us=cost)

    @invariant()
    def adds_up(self) -> None:
        for name, each in self.model.items():
            figures = self.schedule.figures(name, self.now)
            assert figures is not None
            assert figures.overruns == each.skipped
            assert figures.executions == len(each.ran) - (name in self.running)
            if each.ran:
                assert len(each.ran) + each.skipped == each.ran[-1] - each.ran[0] + 1
                assert len(set(each.ran)) == len(each.ran)

    @invariant()
    def next_is_right(self) -> None:
        when = self.schedule.next_us(self.now)
        idle = [each for name, each in self.model.items() if name not in self.running]
        if not idle:
            assert when is None
            return
        expected = min(self.now if not each.ran else (each.ran[-1] + 1) * each.every_us for each in idle)
        assert when == expected


TestHistories = Histories.TestCase


@given(
    versions=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5)), max_size=20),
    read=st.dictionaries(st.sampled_from("ab"), st.integers(0, 5)),
)
def test_a_continuous_channel_is_due_exactly_while_it_is_behind(
    versions: list[tuple[str, int]], read: dict[str, int]
) -> None:
    schedule = Schedule(Limits(gap_us=0))
    schedule.define("c", Plan(every_us=None, waits_for=("a", "b")), NOW, read=read)
    newest: dict[str, int] = {}
    for dataset, version in versions:
        newest[dataset] = max(version, newest.get(dataset, 0))
        schedule.advance(dataset, version, NOW)
    behind = any(newest.get(each, 0) > read.get(each, 0) for each in "ab")
    assert bool(schedule.take(NOW)) == behind

"""The event heap against a sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.sim import schedule as module
from tocsin.sim.schedule import Schedule, ScheduleOverflow


@given(st.lists(st.integers(0, 50)), st.integers(0, 60))
def test_entries_run_in_order_of_time_and_then_of_scheduling(times: list[int], end_us: int) -> None:
    schedule = Schedule()
    ran: list[tuple[int, int]] = []
    for place, at_us in enumerate(times):
        schedule.at(at_us, lambda at, n: ran.append((at, n)), at_us, place)
    schedule.run_until(end_us)
    wanted = sorted((at_us, place) for place, at_us in enumerate(times))
    assert ran == [each for each in wanted if each[0] <= end_us]
    assert schedule.now_us == end_us
    assert len(schedule) == len(times) - len(ran)
    assert schedule.events == len(ran)


def test_what_is_scheduled_for_the_past_runs_now() -> None:
    schedule = Schedule()
    schedule.run_until(100)
    seen: list[int] = []
    schedule.at(5, lambda s, _: seen.append(s.now_us), schedule, None)
    schedule.run_until(100)
    assert seen == [100]


def test_an_entry_can_schedule_more_for_the_same_time() -> None:
    schedule = Schedule()
    seen: list[str] = []
    schedule.at(3, lambda s, _: s.at(3, lambda a, b: seen.append("second"), None, None), schedule, None)
    schedule.run_until(3)
    assert seen == ["second"]


def test_somebody_can_look_after_each_entry() -> None:
    schedule = Schedule()
    looks: list[int] = []
    for at_us in (1, 2):
        schedule.at(at_us, lambda a, b: None, None, None)
    schedule.run_until(9, lambda: looks.append(schedule.now_us))
    assert looks == [1, 2]


def test_a_run_that_schedules_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_MAX", 100)
    monkeypatch.setattr(module, "LOOK_EVERY", 64)
    schedule = Schedule()

    def twice(a: object, b: object) -> None:
        for _ in range(2):
            schedule.at(schedule.now_us, twice, None, None)

    twice(None, None)
    with pytest.raises(ScheduleOverflow, match="faster than time passes"):
        schedule.run_until(1)


def test_a_run_in_which_time_stands_still_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY", 64)
    schedule = Schedule()

    def again(a: object, b: object) -> None:
        schedule.at(schedule.now_us, again, None, None)

    schedule.at(7, again, None, None)
    with pytest.raises(ScheduleOverflow, match="time stands still at 7 µs"):
        schedule.run_until(100)

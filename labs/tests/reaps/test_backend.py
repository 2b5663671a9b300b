"""Executions in virtual time, against counting by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from labs.tests.reaps.small import SMALL
from tocsin.sim.schedule import Schedule
from tocsin_labs.reaps.backend import Backend, due
from tocsin_labs.reaps.workload import SECOND_US, Workload

WORKLOAD = Workload(SMALL)
MOMENTS = st.integers(0, 200 * SECOND_US)


def test_every_channel_is_executed_at_its_phase_and_every_period_after_it() -> None:
    schedule = Schedule()
    backend = Backend(WORKLOAD, schedule)
    heard: list[tuple[int, int, int]] = []
    backend.listeners.append(lambda channel, number: heard.append((schedule.now_us, channel, number)))
    schedule.run_until(200 * SECOND_US)
    expected = sorted(
        (at_us, channel)
        for channel, period_us in enumerate(WORKLOAD.periods_us)
        for at_us in range(WORKLOAD.phases_us[channel], 200 * SECOND_US + 1, period_us)
    )
    assert sorted((at_us, channel) for at_us, channel, _ in heard) == expected
    assert [number for *_, number in heard] == list(range(1, len(expected) + 1))


@given(st.integers(0, SMALL.channels - 1), MOMENTS, MOMENTS)
def test_what_is_due_is_what_happens(channel: int, one_us: int, other_us: int) -> None:
    after_us, until_us = sorted((one_us, other_us))
    period_us, phase_us = WORKLOAD.periods_us[channel], WORKLOAD.phases_us[channel]
    happens = [at for at in range(phase_us, 200 * SECOND_US + 1, period_us) if after_us < at <= until_us]
    assert due(WORKLOAD, channel, after_us, until_us) == len(happens)


@given(st.integers(0, 60), st.integers(0, 60))
def test_notices_between_two_are_counted_by_channel(one: int, other: int) -> None:
    schedule = Schedule()
    backend = Backend(WORKLOAD, schedule)
    heard: list[tuple[int, int]] = []
    backend.listeners.append(lambda channel, number: heard.append((channel, number)))
    schedule.run_until(100 * SECOND_US)
    after, until = sorted((one, other))
    for channel in range(SMALL.channels):
        counted = sum(each == channel and after < number <= until for each, number in heard)
        assert backend.between(channel, after, until) == counted

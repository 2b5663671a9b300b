"""The backend in virtual time: every channel is executed at its period, and each execution has results for all of its
subscriptions.

An execution is one **notice**, numbered from 1 over all channels, as in the product's log of notices. Listeners hear of
it at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from tocsin.sim.schedule import Schedule
from tocsin_labs.reaps.workload import Workload

Heard = Callable[[int, int], None]  # the channel, and the notice's number


class Backend:
    """The executions of all channels, as events."""

    def __init__(self, workload: Workload, schedule: Schedule) -> None:
        self._workload = workload
        self._schedule = schedule
        self.listeners: list[Heard] = []
        self.notices = 0
        self._numbers: list[list[int]] = [
            [] for _ in workload.periods_us
        ]  # by channel: its notices, in order
        for channel, phase_us in enumerate(workload.phases_us):
            schedule.at(phase_us, self._execute, channel, None)

    def _execute(self, channel: int, _: None) -> None:
        self.notices += 1
        self._numbers[channel].append(self.notices)
        for listener in self.listeners:
            listener(channel, self.notices)
        period_us = self._workload.periods_us[channel]
        self._schedule.at(self._schedule.now_us + period_us, self._execute, channel, None)

    def between(self, channel: int, after: int, until: int) -> int:
        """How many notices of a channel are in (after, until]."""
        numbers = self._numbers[channel]
        return bisect_right(numbers, until) - bisect_right(numbers, after)


def due(workload: Workload, channel: int, after_us: int, until_us: int) -> int:
    """How often a channel is executed in (after, until], whether that time has come or not."""
    period_us, phase_us = workload.periods_us[channel], workload.phases_us[channel]
    return _executions(period_us, phase_us, until_us) - _executions(period_us, phase_us, after_us)


def _executions(period_us: int, phase_us: int, until_us: int) -> int:
    return (until_us - phase_us) // period_us + 1 if until_us >= phase_us else 0

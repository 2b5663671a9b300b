"""Whose turn it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tocsin.broker.connection.turns import TICK_S, Turns
from tocsin.runtime.machines.clock import REAL, Ambient, use


class Clock:
    """Goes on by what is done."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ticks: list[Callable[[], None]] = []

    def __call__(self) -> float:
        return self.now

    def next_tick(self, act: Callable[[], None]) -> None:
        self.ticks.append(act)

    def tick(self) -> None:
        acts, self.ticks = self.ticks, []
        for act in acts:
            act()


class Work:
    """So many slices, which take so long each."""

    def __init__(self, clock: Clock, name: str, slices: int, part: float, done: list[str]) -> None:
        self._clock, self._name, self._part, self._done = clock, name, part, done
        self.left = slices

    def work(self) -> bool:
        self._clock.now += self._part * TICK_S
        self._done.append(self._name)
        self.left -= 1
        return self.left > 0


def test_those_who_wait_go_in_a_circle_a_slice_each() -> None:
    clock, done = Clock(), list[str]()
    turns = Turns(clock.next_tick, clock)
    for name in "abc":
        turns.add(Work(clock, name, 2, 0.1, done))
    clock.tick()
    assert done == list("abcabc") and len(turns) == 0 and not clock.ticks


def test_a_tick_ends_for_them_when_its_time_is_over() -> None:
    clock, done = Clock(), list[str]()
    turns = Turns(clock.next_tick, clock)
    for name in "ab":
        turns.add(Work(clock, name, 2, 0.6, done))
    clock.tick()
    assert done == list("ab") and len(turns) == 2
    clock.tick()
    assert done == list("abab") and not clock.ticks


def test_one_slice_goes_in_every_tick_however_long_it_takes() -> None:
    clock, done = Clock(), list[str]()
    turns = Turns(clock.next_tick, clock)
    turns.add(Work(clock, "a", 3, 50, done))
    for _ in range(3):
        clock.tick()
    assert done == list("aaa") and not clock.ticks


def test_who_has_gone_is_not_called() -> None:
    clock, done = Clock(), list[str]()
    turns = Turns(clock.next_tick, clock)
    work = Work(clock, "a", 3, 1, done)
    turns.add(work)
    turns.add(work)
    turns.remove(work)
    clock.tick()
    assert done == []


@pytest.mark.parametrize(("passes_ns", "ticks"), [(0, 1), (2_000_000, 3)])
def test_turns_go_by_the_clock_of_the_process_and_no_other(passes_ns: int, ticks: int) -> None:
    now_ns = 0

    def monotonic_ns() -> int:
        nonlocal now_ns
        now_ns += passes_ns
        return now_ns

    class Idle:
        def work(self) -> bool:
            return False

    waiting: list[Callable[[], None]] = []
    use(Ambient(monotonic_ns, REAL.time_ns, REAL.token_bytes))
    try:
        turns = Turns(waiting.append)
        for _ in range(3):
            turns.add(Idle())
        for number in range(ticks):
            waiting[number]()
    finally:
        use(REAL)
    assert not len(turns) and len(waiting) == ticks

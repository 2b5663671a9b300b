"""Whose turn it is."""

from __future__ import annotations

from collections.abc import Callable

from tocsin.broker.connection.turns import TICK_S, Turns


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

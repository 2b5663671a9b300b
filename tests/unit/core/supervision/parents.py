"""A parent that tests look after: the machine of supervision, with a clock and timers."""

from __future__ import annotations

from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    Say,
    SetTimer,
    Started,
    TimerFired,
)
from tocsin.core.supervision.machine import (
    Child,
    Row,
    Supervision,
)
from tocsin.core.supervision.signals import (
    ChildEnded,
    ChildReported,
    ChildStarted,
    Reported,
    StartChild,
)

CHILDREN = (
    Child("nats", 0, reports=False),
    Child("coordinator", 1),
    Child("north", 2),
    Child("south", 2),
)


class Parent:
    """The machine with a clock, its timers, and what it has started."""

    def __init__(self, children: tuple[Child, ...] = CHILDREN) -> None:
        self.machine = Supervision(children)
        self.now_us = 0
        self.timers: dict[str, int] = {}
        self.runs: dict[str, int] = {}

    def do(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(event, self.now_us)
        for effect in effects:
            match effect:
                case SetTimer(name=name, delay_us=delay_us):
                    self.timers[name] = self.now_us + delay_us
                case CancelTimer(name=name):
                    self.timers.pop(name, None)
                case StartChild(child=child, run=run):
                    self.runs[child] = run
        return [effect for effect in effects if not isinstance(effect, SetTimer | CancelTimer | Say)]

    def start(self) -> list[Effect]:
        return self.do(Started(incarnation=1))

    def report(self, child: str, state: Reported = "ready", problem: str = "") -> list[Effect]:
        return self.do(ChildReported(child=child, run=self.runs[child], state=state, problem=problem))

    def exist(self, child: str, pid: int = 7) -> list[Effect]:
        return self.do(ChildStarted(child=child, run=self.runs[child], pid=pid))

    def end(self, child: str, code: int = 1, words: str = "") -> list[Effect]:
        return self.do(ChildEnded(child=child, run=self.runs[child], code=code, words=words))

    def fire(self, name: str) -> list[Effect]:
        self.now_us = max(self.now_us, self.timers.pop(name))
        return self.do(TimerFired(name=name))

    def row(self, child: str) -> Row:
        return next(row for row in self.machine.rows() if row.name == child)

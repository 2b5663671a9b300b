"""Whatever happens to children, and in any order: each has one process, and stages keep theirs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.supervision.parents import CHILDREN, Parent
from tocsin.core.machine import (
    Effect,
    Event,
    Stop,
)
from tocsin.core.supervision.signals import (
    ChildEnded,
    ChildReported,
    SignalChild,
    StartChild,
    StopAsked,
)

steps = st.lists(
    st.tuples(
        st.sampled_from(["exist", "ready", "degraded", "end", "timer", "stale", "stop"]),
        st.integers(0, 10),
    ),
    max_size=80,
)


class World(Parent):
    """A dumb model: which processes there are. Every effect is checked against it."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: dict[str, int] = {}  # child → run
        self.ever_ready: set[str] = set()
        self.stops = 0
        self.stages = {child.name: child.stage for child in CHILDREN}

    def do(self, event: Event) -> list[Effect]:
        if isinstance(event, ChildEnded) and self.processes.get(event.child) == event.run:
            del self.processes[event.child]
        if isinstance(event, ChildReported) and event.state == "ready":
            self.ever_ready.add(event.child)
        effects = super().do(event)
        for effect in effects:
            self.check(effect)
        return effects

    def check(self, effect: Effect) -> None:
        match effect:
            case StartChild(child=child, run=run):
                assert child not in self.processes, "two processes of one child"
                assert self.machine.state in ("starting", "running"), "a start while stopping"
                below = {name for name, stage in self.stages.items() if stage < self.stages[child]}
                assert below <= self.ever_ready, "a stage before its time"
                self.processes[child] = run
            case SignalChild(child=child, run=run, signal="terminate"):
                assert self.processes.get(child) == run, "a signal for nobody"
                above = [name for name in self.processes if self.stages[name] > self.stages[child]]
                assert not above, "a stage ended before those above it"
            case Stop():
                assert not self.processes, "somebody is left"
                self.stops += 1

    def step(self, kind: str, number: int) -> None:
        children = sorted(self.processes)
        if kind == "stop" and number < 3:
            self.do(StopAsked())
        elif kind == "timer" and self.timers:
            self.fire(sorted(self.timers)[number % len(self.timers)])
        elif kind == "stale":
            child = CHILDREN[number % len(CHILDREN)].name
            self.do(ChildEnded(child=child, run=self.runs.get(child, 0) - 1, code=1))
        elif children:
            child = children[number % len(children)]
            match kind:
                case "exist":
                    self.exist(child, number)
                case "ready" | "degraded":
                    self.report(child, "ready" if kind == "ready" else "degraded")
                case "end":
                    self.end(child, number % 3)


@given(steps)
@settings(max_examples=300)
def test_in_any_sequence_each_child_has_one_process_and_order_is_kept(
    sequence: list[tuple[str, int]],
) -> None:
    world = World()
    world.start()
    for kind, number in sequence:
        world.step(kind, number)
        alive = {row.name for row in world.machine.rows() if row.health in ("starting", "ready", "degraded")}
        assert alive <= set(world.processes)
        waiting = {row.name for row in world.machine.rows() if row.health == "backing off"}
        assert all(f"restart/{name}" in world.timers for name in waiting), "a restart was forgotten"
    if world.machine.state != "stopped":
        world.do(StopAsked())
    while world.processes:
        world.end(sorted(world.processes)[0], 0)
    assert world.machine.state == "stopped"
    assert world.stops == 1

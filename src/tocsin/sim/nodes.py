"""Nodes: how they start, crash, sleep, pause and go on. The part of the world that faults act on."""

from __future__ import annotations

from collections.abc import Callable

from tocsin.core.machine import CancelTimer, Effect, Event, SetTimer, Started, TimerFired
from tocsin.model.network import Address
from tocsin.sim.chance import Chances
from tocsin.sim.node import LocalClock, Node, Status, Timer
from tocsin.sim.observation import Observers
from tocsin.sim.runs.transcript import Transcript
from tocsin.sim.schedule import Schedule

INCARNATION_BITS = 53  # as a shell draws it: fits every JSON number


class Halted(Exception):
    """Ends the carrying out of an effect list: the machine stopped, or crashed in the midst of it."""


class CrashHere(Effect, frozen=True, kw_only=True):
    """The placeholder of a torn crash for effects that are not carried out."""


class Nodes:
    """The nodes of a world, and what becomes of them."""

    deliver: Callable[[Node, Event], None]  # hand an event to a node that runs, and carry out what it says

    def __init__(self, seed: int, transcript: Transcript | None = None) -> None:
        self.chances = Chances(seed)
        self.schedule = Schedule()
        self.observers = Observers()
        self.transcript = transcript
        self._nodes: dict[Address, Node] = {}
        self._incarnations = self.chances.of("incarnations")
        self._timer_causes = 0  # how many timers without a cause were given one
        # Moments by their names → the waiters for them, and what they do when one is reached.
        self._moments: dict[str, dict[object, Callable[[Address], None]]] = {}

    @property
    def now_us(self) -> int:
        return self.schedule.now_us

    def tell(self, who: str, text: str, cause: str = "") -> None:
        """A line of the transcript that no machine wrote."""
        if self.transcript is not None:
            self.transcript.add(self.schedule.now_us, who, text, cause)

    def _start(self, node: Node, _: None) -> None:
        if node.status not in (Status.DOWN, Status.STOPPED):
            return
        node.starts += 1
        node.status = Status.RUNNING
        node.machine = node.make(node.disk)
        node.handle = node.machine.handle
        self._happened(node, "started")
        incarnation = self._incarnations.bits(INCARNATION_BITS)
        self.deliver(node, Started(incarnation=incarnation, cause=f"{node.address}*{node.starts}"))

    def crash(self, address: Address, after_effects: int | None = None) -> None:
        """End a node's process: now, or in the midst of its next event, after so many of its effects."""
        node = self._nodes[address]
        if node.machine is None:
            return
        if after_effects is None:
            self._crash(node)
            return
        handle = node.machine.handle
        node.handle = lambda event, now_us: [*handle(event, now_us)[:after_effects], CrashHere()]

    def _crash_here(self, node: Node, effect: CrashHere) -> None:
        self._crash(node)
        raise Halted

    def _crash(self, node: Node) -> None:
        node.forget()
        node.status = Status.DOWN
        self._happened(node, "crashed")

    def restart(self, address: Address) -> None:
        """Start a node that crashed; a node that was to crash at its next event is spared."""
        node = self._nodes[address]
        if node.machine is not None:
            node.handle = node.machine.handle
        elif node.status is Status.DOWN and node.starts > 0:
            self._start(node, None)

    def sleep(self, address: Address) -> None:
        """Keep the memory, lose what arrives; timers that run out fire on waking."""
        node = self._nodes[address]
        if node.status is Status.RUNNING:
            node.status = Status.ASLEEP
            self._happened(node, "asleep")

    def wake(self, address: Address) -> None:
        node = self._nodes[address]
        if node.status is Status.ASLEEP:
            self._go_on(node)

    def pause(self, address: Address) -> None:
        node = self._nodes[address]
        if node.status is Status.RUNNING:
            node.status = Status.PAUSED
            self._happened(node, "paused")

    def resume(self, address: Address) -> None:
        node = self._nodes[address]
        if node.status is Status.PAUSED:
            self._go_on(node)

    def disconnect(self, address: Address) -> None:
        """Break all connections to a running node; the scenario defines connections (``on_happening``)."""
        node = self._nodes[address]
        if node.machine is not None:
            self._happened(node, "disconnected")

    def reach(self, moment: str, address: Address) -> None:
        """A node reaches a named moment: its waiters are told, once."""
        for act in self._moments.pop(moment, {}).values():
            act(address)

    def await_moment(self, moment: str, who: object, act: Callable[[Address], None] | None) -> None:
        """Have ``act(address)`` run when a moment is reached next; None: never mind."""
        waiting = self._moments.setdefault(moment, {})
        if act is None:
            waiting.pop(who, None)
        else:
            waiting[who] = act

    def set_clock(self, address: Address, ahead_us: int = 0, drift_ppm: int = 0) -> None:
        """Let a node's clock jump ahead and drift; timers that run already keep their time."""
        node = self._nodes[address]
        if node.clock is None:
            node.clock = LocalClock(self.now_us, ahead_us, drift_ppm)
        else:
            node.clock.change(self.now_us, ahead_us, drift_ppm)

    def _go_on(self, node: Node) -> None:
        """All that waited comes at once: as it came, or with the timers first or last, as event loops differ."""
        node.status = Status.RUNNING
        self._happened(node, "resumed")
        backlog, node.backlog = node.backlog, []
        order = self._incarnations.below(3)
        if order:
            backlog.sort(key=lambda item: (item[0] == self._fire) == (order == 1))
        starts = node.starts
        for act, detail in backlog:
            if node.starts != starts:
                return
            act(node, detail)

    def _happened(self, node: Node, happening: str) -> None:
        if happening != "started":  # the machine's own first event says so
            self.tell(node.address, happening)
        for hook in self.observers.happenings:
            hook(node.address, happening)

    # ── timers ─────────────────────────────────────────────────────────────────────────────────────────────

    def _set_timer(self, node: Node, effect: SetTimer) -> None:
        delay_us = effect.delay_us
        if node.clock is not None:
            delay_us = node.clock.real_span(delay_us)
        timer = (
            effect.name,
            effect.cause,
        )  # a new object each time: its identity says which setting is valid
        node.timers[effect.name] = timer
        schedule = self.schedule
        schedule.at(schedule.now_us + delay_us, self._fire, node, timer)

    def _cancel_timer(self, node: Node, effect: CancelTimer) -> None:
        node.timers.pop(effect.name, None)

    def _fire(self, node: Node, timer: Timer) -> None:
        name, cause = timer
        if node.timers.get(name) is not timer:
            return
        if node.status is not Status.RUNNING:
            node.backlog.append((self._fire, timer))
            return
        del node.timers[name]
        if not cause:
            self._timer_causes += 1
            cause = f"t{self._timer_causes}"
        self.deliver(node, TimerFired(name=name, cause=cause))

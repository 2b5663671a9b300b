"""The world: nodes, their network and their store, under one virtual clock. A shell of ``core.machine``.

The world hands events to machines and carries out their effects. All chance comes from the seed, all time from the
schedule, and nothing here iterates over a set; so a seed and a scenario determine every event to the byte, on any
machine.

A machine that raises, or returns an effect that nobody carries out, ends the run (``MachineRaised``): that is a
bug, and the transcript of the seed tells its story.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tocsin.core import machine as kernel
from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    Machine,
    Received,
    Say,
    Send,
    SetTimer,
    Stop,
)
from tocsin.model.network import Address
from tocsin.ports import LogSpec, TableSpec
from tocsin.sim.latency import QUANTILE_BITS
from tocsin.sim.network import STORE, Network
from tocsin.sim.node import BACKLOG_MAX, Make, Node, Status
from tocsin.sim.nodes import CrashHere, Halted, Nodes
from tocsin.sim.runs.invariants import InvariantBroken
from tocsin.sim.runs.transcript import Transcript
from tocsin.sim.store import StoreServer

if TYPE_CHECKING:
    from tocsin.sim.faults.kinds import Fault
    from tocsin.sim.runs.invariants import Invariant

Own = TypeVar("Own", bound=Effect)


class MachineRaised(Exception):
    """A machine raised, or asked for something that does not exist: a bug of the machine."""

    def __init__(self, node: Address, event: Event, error: BaseException) -> None:
        self.node = node
        self.cause = event.cause
        super().__init__(f"{node} raised on {type(event).__name__}: {type(error).__name__}: {error}")


class World(Nodes):
    """One run's world. A scenario fills it; a runner runs it."""

    def __init__(self, seed: int, transcript: Transcript | None = None) -> None:
        super().__init__(seed, transcript)
        self.network = Network(self.chances.of("network"))
        self.store = StoreServer(self)
        self.invariants: list[Invariant] = []
        self.plan: list[Fault] = []  # what the nemesis will do, in the order drawn
        self.healed = False  # from here on no fault begins
        self._groups: dict[Address, tuple[Address, ...]] = {}
        self._network_bits = self.chances.of("network").bits
        self._carry: dict[type[Effect], Callable[[Node, Any], None]] = {
            Send: self._send,
            kernel.Listen: self._listen,
            kernel.StopListening: self._stop_listening,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Say: self._say,
            Stop: self._stop,
            CrashHere: self._crash_here,
            kernel.Append: self.store.ask,
            kernel.ReadLog: self.store.ask,
            kernel.TrimLog: self.store.ask,
            kernel.GetKey: self.store.ask,
            kernel.PutKey: self.store.ask,
            kernel.DeleteKey: self.store.ask,
            kernel.FollowLog: self.store.follow,
            kernel.WatchTable: self.store.watch,
        }
        self.deliver = self._handle if transcript is None else self._handle_told

    # ── what a scenario says ─────────────────────────────────────────────────────────────────────────────────

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Every node, in the order added."""
        return tuple(self._nodes)

    def add(
        self, address: Address, make: Make, *, start_us: int = 0, restart_after_us: int | None = None
    ) -> None:
        """A node that starts at ``start_us``. ``make(disk)`` builds its machine at every start."""
        if address in self._nodes or address in self._groups or address == STORE:
            raise ValueError(f"the address {address!r} is taken")
        self._nodes[address] = Node(address, make, self.network.paths_from(address), restart_after_us)
        self.schedule.at(start_us, self._start, self._nodes[address], None)

    def group(self, address: Address, members: Sequence[Address]) -> None:
        """An address whose messages go to every member that listens to it then, as those of a bus subject do."""
        if address in self._nodes:
            raise ValueError(f"the address {address!r} is a node's")
        self._groups[address] = tuple(members)

    def log(self, spec: LogSpec) -> None:
        self.store.open_log(spec)

    def table(self, spec: TableSpec) -> None:
        self.store.open_table(spec)

    def check(self, *invariants: Invariant) -> None:
        """Hold the run to these, from now to its end."""
        for invariant in invariants:
            invariant.attach(self)
            self.invariants.append(invariant)

    def own(self, kind: type[Own], act: Callable[[Address, Own], None]) -> None:
        """Carry out an effect that is not of the kernel, as a process does with its driver's ``own``."""
        self._carry[kind] = lambda node, effect: act(node.address, effect)

    def at(self, at_us: int, act: Callable[[], None]) -> None:
        """Have the scenario's own code run at a time."""
        self.schedule.at(at_us, _call, act, None)

    def post(self, address: Address, event: Event) -> bool:
        """Hand a node an event from outside, next of all; False (and lost) if it is down or asleep."""
        node = self._nodes[address]
        if node.status is not Status.RUNNING and node.status is not Status.PAUSED:
            return False
        self.schedule.at(self.schedule.now_us, self.answer, node, (node.starts, event))
        return True

    def members(self, address: Address) -> tuple[Address, ...]:
        """The nodes that hear what is sent to an address just now: the node itself, or those of a group that listen."""
        if address in self._nodes:
            return (address,)
        return tuple(each for each in self._groups.get(address, ()) if address in self._nodes[each].listens)

    def close(self) -> None:
        """End all nodes, whatever they are doing."""
        for node in self._nodes.values():
            node.forget()

    def node(self, address: Address) -> Node:
        return self._nodes[address]

    def machine(self, address: Address) -> Machine | None:
        """The machine that runs at an address now; None if it is down. For looking, never for touching."""
        return self._nodes[address].machine

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────

    def run_until(self, end_us: int) -> None:
        hooks = self.observers.every_event

        def look() -> None:
            for hook in hooks:
                hook()

        self.schedule.run_until(end_us, look if hooks else None)

    def _handle(self, node: Node, event: Event) -> None:
        now_us = self.schedule.now_us
        clock = node.clock
        try:
            effects = node.handle(event, now_us if clock is None else clock.read(now_us))
        except InvariantBroken:  # of one that looks at what a shell is about to do
            raise
        except Exception as error:
            raise MachineRaised(node.address, event, error) from error
        carry = self._carry
        try:
            for effect in effects:
                act = carry.get(type(effect))
                if act is None:
                    raise self.raised(
                        node, event.cause, LookupError(f"nobody carries out {type(effect).__name__}")
                    )
                act(node, effect)
        except Halted:
            return

    def _handle_told(self, node: Node, event: Event) -> None:
        """The same, with every step in the transcript."""
        assert self.transcript is not None
        now_us = self.schedule.now_us
        self.transcript.event(now_us, node.address, event)
        try:
            effects = node.handle(event, now_us if node.clock is None else node.clock.read(now_us))
        except InvariantBroken:  # of one that looks at what a shell is about to do
            raise
        except Exception as error:
            raise MachineRaised(node.address, event, error) from error
        for effect in effects:
            if type(effect) is not CrashHere:
                self.transcript.effect(now_us, node.address, effect)
            act = self._carry.get(type(effect))
            if act is None:
                raise self.raised(
                    node, event.cause, LookupError(f"nobody carries out {type(effect).__name__}")
                )
            try:
                act(node, effect)
            except Halted:
                return

    def raised(self, node: Node, cause: str, error: Exception) -> MachineRaised:
        """The error for a machine that asked for what there is not."""
        return MachineRaised(node.address, Event(cause=cause), error)

    # ── messages and timers ──────────────────────────────────────────────────────────────────────────────────

    def _send(self, node: Node, effect: Send) -> None:
        to = effect.to
        target = self._nodes.get(to)
        if target is None:
            self._send_group(node, effect)
            return
        network = self.network
        network.statistics.sent += 1
        path = node.paths.get(to) or network.path(node.address, to)
        event = Received(sender=node.address, message=effect.message, cause=effect.cause)
        schedule = self.schedule
        if path.plain and network.calm:
            delay_us = path.quantiles[self._network_bits(QUANTILE_BITS)]
            schedule.at(schedule.now_us + delay_us, self._arrive, target, event)
            return
        arrivals = network.arrivals(path, node.address, to, effect.message, schedule.now_us)
        if self.transcript is not None and len(arrivals) != 1:
            fate = "duplicates" if arrivals else "loses"
            self.tell(
                "network", f"{fate} {type(effect.message).__name__} {node.address} → {to}", effect.cause
            )
        for at_us in arrivals:
            schedule.at(at_us, self._arrive, target, event)

    def _send_group(self, node: Node, effect: Send) -> None:
        members = self._groups.get(effect.to)
        if members is None:
            raise self.raised(node, effect.cause, LookupError(f"there is no address {effect.to!r}"))
        for member in members:
            if effect.to in self._nodes[member].listens:
                self._send(node, Send(to=member, message=effect.message, cause=effect.cause))

    def _listen(self, node: Node, effect: kernel.Listen) -> None:
        node.listens.add(effect.address)

    def _stop_listening(self, node: Node, effect: kernel.StopListening) -> None:
        node.listens.discard(effect.address)

    def _arrive(self, node: Node, event: Received) -> None:
        if node.status is not Status.RUNNING:
            if node.status is Status.PAUSED and len(node.backlog) < BACKLOG_MAX:
                node.backlog.append((self._arrive, event))
            else:
                self.network.statistics.lost += 1
            return
        network = self.network
        if not network.calm and network.blocked(event.sender, node.address):
            network.statistics.cut += 1
            if self.transcript is not None:
                what = type(event.message).__name__
                self.tell(
                    "network", f"cuts off {what} {event.sender} → {node.address} in flight", event.cause
                )
            return
        hooks = self.observers.deliveries
        if hooks:
            for hook in hooks.get(type(event.message), ()):
                hook(event.sender, node.address, event.message)
        self.deliver(node, event)

    def answer(self, node: Node, starts_and_event: tuple[int, Event]) -> None:
        """An event for one start of a node: what the store or the outside tells it."""
        starts, event = starts_and_event
        if node.starts != starts:
            return
        if node.status is Status.RUNNING:
            self.deliver(node, event)
        elif node.status is Status.PAUSED:
            node.backlog.append((self.answer, starts_and_event))

    def _say(self, node: Node, effect: Say) -> None:
        hooks = self.observers.says
        if hooks:
            for hook in hooks.get(effect.text, ()):
                hook(node.address, effect)

    def _stop(self, node: Node, effect: Stop) -> None:
        node.forget()
        node.status = Status.STOPPED
        self._happened(node, "stopped")
        if node.restart_after_us is not None:
            self.schedule.at(self.schedule.now_us + node.restart_after_us, self._start, node, None)
        raise Halted

    def heal(self) -> None:
        """Put everything right: links, store, clocks and nodes. From now on no fault begins or ends."""
        self.healed = True
        self.tell("nemesis", "heals everything")
        self.network.heal()
        self.store.heal()
        for node in self._nodes.values():
            if node.clock is not None:
                node.clock.change(self.now_us)
            self.restart(node.address)  # first of all: it spares those that were to crash at their next event
            if node.status is Status.PAUSED or node.status is Status.ASLEEP:
                self._go_on(node)

    def fingerprint(self) -> str:
        """One line that differs if anything went differently. For the end of a run: it draws from every stream."""
        statistics = self.network.statistics
        return f"{self.schedule.fingerprint()} {statistics} {self.chances.fingerprint()}"


def _call(act: Callable[[], None], _: None) -> None:
    act()

"""Tables 1 and 4 beyond what one machine has room for: networks of up to a thousand brokers, in virtual time.

The machines that decide are those of the product, in one process (``simulated``). For each size the traffic between
brokers and leader at rest is counted. Then 1 to 5 brokers are killed at one moment, a whole cluster with its standby,
and a tenth of all. From the kill on:

- *lost*: the log says of each that it is lost;
- *taken over*: somebody was told to stand in for each that served, unless both of its backups were killed too; or a
  standby has its place already;
- *replaced*: a standby has joined under its name;
- *planned*: each broker that lost a backup was told of another.

Afterwards they are started again, and when everybody is at home and has backups the next run begins. Times are virtual,
so that a seed repeats them: messages and the store take theirs, processors take none. The leader's processor time is
measured beside it (``Effort``), and depends on the machine.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from tocsin.config import Membership, Recovery
from tocsin.model.network import Role
from tocsin.sim.chance import MILLION, Chance
from tocsin_labs.landmark.plan import Detect, Scale, Size
from tocsin_labs.landmark.simulated import Network, brokers_of
from tocsin_labs.landmark.watch import Fate, Watch, last
from tocsin_labs.stage import Stage

KB: Final = 1_000
CLUSTER: Final = "a cluster"
TENTH: Final = "a tenth"
TENTH_LEAST: Final = 20  # brokers; a tenth of fewer is one
SLICE_US: Final = 250_000  # of virtual time, between two looks at whether somebody wants it to end
FORMED_US: Final = 300 * MILLION  # within which a network is whole, or never is


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """The processor time of a stretch of virtual time. Measured: no seed repeats it."""

    span_s: float = 0.0  # virtual
    leader_s: float = 0.0  # processor time of the leader, decoding and encoding what it hears and says
    longest_s: float = 0.0  # of one event
    plans: int = 0  # of backups
    planning_s: float = 0.0  # processor time of these

    @property
    def share(self) -> float:
        """The share of one processor."""
        return self.leader_s / self.span_s if self.span_s else 0.0


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """While nothing happens."""

    brokers: int
    detect: Detect
    messages: float  # a second: beats, and the leader's answers
    heartbeats: float  # KB/s of these
    wrongly: int  # brokers that were taken for lost, from the network's beginning on
    effort: Effort

    @property
    def each(self) -> float:
        """The traffic of one broker."""
        return self.heartbeats / self.brokers


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    brokers: int
    detect: Detect
    what: str  # "1" to "5" brokers, CLUSTER or TENTH
    run: int
    fates: tuple[Fate, ...]
    bereaved: int  # brokers that lost a backup, and are there
    planned_s: float | None  # until the last of them had another; None if one has none, or there are none
    wrongly: int  # brokers that were taken for lost and had not been killed, since the run before
    effort: Effort

    @property
    def lost_s(self) -> float | None:
        return last(fate.lost_s for fate in self.fates)

    @property
    def taken_over_s(self) -> float | None:
        """A standby may be in a place before somebody stands in: whoever was to do that was killed too."""
        known = (fate for fate in self.fates if fate.serves and not fate.bereft)
        return last(fate.replaced_s if fate.taken_over_s is None else fate.taken_over_s for fate in known)

    @property
    def is_unfinished(self) -> bool:
        """Somebody was not missed, nobody stands in for somebody, or somebody has no backup in the place of one."""
        alone = all(fate.bereft or not fate.serves for fate in self.fates)
        taken = alone or self.taken_over_s is not None
        return self.lost_s is None or not taken or (self.bereaved > 0 and self.planned_s is None)

    @property
    def replaced(self) -> list[float]:
        """When standbys had places; there may be fewer standbys than places."""
        return [fate.replaced_s for fate in self.fates if fate.replaced_s is not None]


class Experiment:
    """One network, from its beginning on."""

    def __init__(self, plan: Scale, size: Size, detect: Detect, seed: int) -> None:
        self._plan = plan
        self._size = size
        self._detect: Detect = detect
        self._chance = Chance(seed, f"victims of {size.brokers} {detect}")
        self._network = Network(
            brokers_of(size.brokers, plan.brokers_each, plan.standbys_each),
            Membership(detect=detect),
            Recovery(promote_after_ms=plan.promote_after_ms),
            seed,
        )
        self._watch = Watch(self._network)

    async def form(self) -> None:
        """Until everybody is there, and has backups."""
        formed = await self._until(self._network.is_whole, FORMED_US)
        assert formed, "a network without trouble becomes whole"
        if self._size.interests:
            self._network.subscribers_come()
        await self._settle()

    async def _settle(self) -> None:
        ready = await self._until(lambda: self._network.is_whole() and self._watch.is_backed(), FORMED_US)
        assert ready, "a network without trouble is whole again, and has backups"
        beat_us = self._network.membership.beat_ms * 1_000
        await self._pass(int(self._plan.settle_s * MILLION) + self._chance.below(beat_us))

    async def rest(self) -> Rest:
        leader = self._network.coordinator
        messages, data, mark = leader.messages, leader.bytes, self._mark()
        await self._pass(int(self._plan.rest_s * MILLION))
        effort = self._effort(mark)
        return Rest(
            brokers=self._size.brokers,
            detect=self._detect,
            messages=(leader.messages - messages) / effort.span_s,
            heartbeats=(leader.bytes - data) / KB / effort.span_s,
            wrongly=self._watch.wrongly(),
            effort=effort,
        )

    async def kill(self, what: str, run: int) -> Kill:
        watch = self._watch
        victims = self._victims(what)
        mark = self._mark()
        watch.kill(victims)
        await self._until(watch.is_over, int(self._plan.deadline_s * MILLION))
        found = Kill(
            brokers=self._size.brokers,
            detect=self._detect,
            what=what,
            run=run,
            fates=watch.fates(),
            bereaved=watch.bereaved,
            planned_s=watch.planned_s(),
            wrongly=watch.wrongly(),
            effort=self._effort(mark),
        )
        watch.end()
        return found

    async def restore(self) -> None:
        await self._settle()

    def _victims(self, what: str) -> list[str]:
        brokers = self._network.brokers
        if what == TENTH:
            return self._chance.some_of(list(brokers), round(len(brokers) / 10))
        if what == CLUSTER:
            full = self._plan.brokers_each + self._plan.standbys_each
            chosen = f"c{1 + self._chance.below(len(brokers) // full)}"
            return [name for name, info in brokers.items() if info.cluster == chosen]
        serving = [name for name, info in brokers.items() if info.role != Role.STANDBY]
        return self._chance.some_of(serving, int(what))

    # ── virtual time, and the processor's ───────────────────────────────────────────────────────────────────

    async def _pass(self, span_us: int) -> None:
        await self._until(lambda: False, span_us)

    async def _until(self, ready: Callable[[], bool], within_us: int) -> bool:
        """Let time pass until it is so; False if it is not in time."""
        world = self._network.world
        end_us = world.now_us + within_us
        while not ready():
            if world.now_us >= end_us:
                return False
            world.run_until(min(end_us, world.now_us + SLICE_US))
            await asyncio.sleep(0)  # so that a request to end is heard
        return True

    def _mark(self) -> tuple[int, float, int, float]:
        network = self._network
        network.coordinator.longest_s = 0.0
        spent = network.coordinator.processor_s, network.planner.plans, network.planner.processor_s
        return network.world.now_us, *spent

    def _effort(self, mark: tuple[int, float, int, float]) -> Effort:
        network = self._network
        began_us, leader_s, plans, planning_s = mark
        return Effort(
            span_s=(network.world.now_us - began_us) / MILLION,
            leader_s=network.coordinator.processor_s - leader_s,
            longest_s=network.coordinator.longest_s,
            plans=network.planner.plans - plans,
            planning_s=network.planner.processor_s - planning_s,
        )


def kinds(plan: Scale, size: Size) -> list[str]:
    """The brokers to kill in a network of this size."""
    full = plan.brokers_each + plan.standbys_each
    brokers = brokers_of(size.brokers, plan.brokers_each, plan.standbys_each)
    serving = sum(each.role != Role.STANDBY for each in brokers)
    found = [str(each) for each in plan.failures if each < serving]
    if size.brokers >= 2 * full:
        found.append(CLUSTER)
    if size.brokers >= TENTH_LEAST:
        found.append(TENTH)
    return found


async def run(plan: Scale, seed: int, stage: Stage, rests: list[Rest], kills: list[Kill]) -> None:
    """Add all that is found, as it is."""
    work = [(Size(count, 0), plan.detects[0]) for count in plan.at_rest]
    work += [(size, detect) for size in plan.sizes for detect in plan.detects]
    whole, done = sum(_weight(size) for size, _ in work), 0.0
    for size, detect in work:
        if stage.is_cut:
            break
        words, began, part = _words(size, detect), done / whole, _weight(size) / whole
        stage.tell(words, began)
        with uncollected():
            experiment = Experiment(plan, size, detect, seed)
            await experiment.form()
            rests.append(await experiment.rest())
            order = [(number, what) for number in range(1, size.runs + 1) for what in kinds(plan, size)]
            for at, (number, what) in enumerate(order):
                if not await _go_on(experiment, stage, at):
                    break
                stage.tell(f"{words}: {_said(what)}", began + part * at / len(order))
                kills.append(await experiment.kill(what, number))
        done += _weight(size)


async def _go_on(experiment: Experiment, stage: Stage, done: int) -> bool:
    """Whether there is to be another run; all is as before the last one then."""
    if done and not stage.is_cut:
        await experiment.restore()
    return not stage.is_cut


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector: it would pass over the memory of all brokers again and again, on the leader's time."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _weight(size: Size) -> float:
    return size.brokers * (1.0 + size.runs)


def _words(size: Size, detect: Detect) -> str:
    return f"{size.brokers} simulated brokers, {detect} detection"


def _said(what: str) -> str:
    return f"{what} fail at once" if what.isdigit() and what != "1" else f"{what} fails"

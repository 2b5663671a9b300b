"""Faults as data: kind, time, duration and targets. A plan is drawn from the seed before the run begins.

Because a plan is a list of values, a failing run's story can name its faults, and a scenario or test can give a
plan of its own. Faults overlap freely; whatever is still wrong when the trouble ends is put right by
``World.heal``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tocsin.model.network import Address
from tocsin.sim.network import STORE, Cut, Direction, Weather
from tocsin.sim.store import StoreWeather

if TYPE_CHECKING:
    from tocsin.sim.world import World


class Fault(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something that goes wrong at ``at_us`` and is put right ``for_us`` later."""

    at_us: int
    for_us: int

    def begin(self, world: World) -> None:
        raise AssertionError("a fault says what begins")

    def end(self, world: World) -> None:
        """Nothing to put right, unless the fault says so."""

    def words(self) -> str:
        raise AssertionError("a fault has words")

    def __str__(self) -> str:
        return f"{seconds(self.at_us)} for {seconds(self.for_us)}: {self.words()}"


class Crash(Fault, frozen=True, kw_only=True):
    """A process ends and is started again; with ``after_effects``, in the middle of what its next event makes it do."""

    node: Address
    after_effects: int | None = None

    def begin(self, world: World) -> None:
        world.crash(self.node, self.after_effects)

    def end(self, world: World) -> None:
        world.restart(self.node)

    def words(self) -> str:
        if self.after_effects is None:
            return f"{self.node} crashes"
        return f"{self.node} crashes after {self.after_effects} effects of its next event"


class CrashTogether(Fault, frozen=True, kw_only=True):
    """Several processes end within one moment, as those of one rack do, and are started again."""

    nodes: tuple[Address, ...]

    def begin(self, world: World) -> None:
        for node in self.nodes:
            world.crash(node)

    def end(self, world: World) -> None:
        for node in self.nodes:
            world.restart(node)

    def words(self) -> str:
        return f"{', '.join(self.nodes)} crash together"


class Sleep(Fault, frozen=True, kw_only=True):
    """A machine keeps its memory but loses what arrives, as a laptop with its lid closed."""

    node: Address

    def begin(self, world: World) -> None:
        world.sleep(self.node)

    def end(self, world: World) -> None:
        world.wake(self.node)

    def words(self) -> str:
        return f"{self.node} sleeps"


class Pause(Fault, frozen=True, kw_only=True):
    """A process is frozen; what arrives waits, and comes all at once."""

    node: Address

    def begin(self, world: World) -> None:
        world.pause(self.node)

    def end(self, world: World) -> None:
        world.resume(self.node)

    def words(self) -> str:
        return f"{self.node} is frozen"


class Skew(Fault, frozen=True, kw_only=True):
    """A clock jumps ahead, and runs fast or slow for a while."""

    node: Address
    ahead_us: int = 0
    drift_ppm: int = 0

    def begin(self, world: World) -> None:
        world.set_clock(self.node, self.ahead_us, self.drift_ppm)

    def end(self, world: World) -> None:
        world.set_clock(self.node)

    def words(self) -> str:
        jump = f" jumps ahead by {seconds(self.ahead_us)} and" if self.ahead_us else ""
        return f"the clock of {self.node}{jump} drifts by {self.drift_ppm} ppm"


class Partition(Fault, frozen=True, kw_only=True):
    """Nothing passes between ``side`` and the rest, or only ``others``."""

    side: tuple[Address, ...]
    others: tuple[Address, ...] | None = None
    direction: Direction = "both"

    def cut(self) -> Cut:
        return Cut(
            frozenset(self.side), None if self.others is None else frozenset(self.others), self.direction
        )

    def begin(self, world: World) -> None:
        world.network.add(self.cut())

    def end(self, world: World) -> None:
        world.network.remove(self.cut())

    def words(self) -> str:
        against = "everybody else" if self.others is None else ", ".join(self.others)
        ways = {"both": "cut off from", "out": "not heard by", "in": "deaf to"}
        return f"{', '.join(self.side)} {ways[self.direction]} {against}"


class BadWeather(Fault, frozen=True, kw_only=True):
    """The network loses, repeats, delays and reorders more."""

    weather: Weather

    def begin(self, world: World) -> None:
        world.network.add(self.weather)

    def end(self, world: World) -> None:
        world.network.remove(self.weather)

    def words(self) -> str:
        weather = self.weather
        where = "the network" if weather.side is None else f"the links of {', '.join(sorted(weather.side))}"
        return (
            f"on {where} {weather.loss_ppm // 10_000} % are lost, {weather.duplicate_ppm // 10_000} % repeated, "
            f"{weather.reorder_ppm // 10_000} % held back up to {seconds(weather.reorder_us)}, "
            f"all delayed up to {seconds(weather.extra_us)}"
        )


class LeaderLoss(Fault, frozen=True, kw_only=True):
    """The store has no leader."""

    def begin(self, world: World) -> None:
        world.store.lose_leader()

    def end(self, world: World) -> None:
        world.store.find_leader()

    def words(self) -> str:
        return "the store has no leader"


class StoreTrouble(Fault, frozen=True, kw_only=True):
    """The store refuses, loses, does not answer, or is slow."""

    weather: StoreWeather

    def begin(self, world: World) -> None:
        world.store.weather.append(self.weather)

    def end(self, world: World) -> None:
        if self.weather in world.store.weather:
            world.store.weather.remove(self.weather)

    def words(self) -> str:
        weather = self.weather
        return (
            f"of requests the store refuses {weather.refuse_ppm // 10_000} %, loses {weather.lose_ppm // 10_000} %, "
            f"does not answer {weather.mute_ppm // 10_000} %, applies each up to {seconds(weather.slow_us)} late"
        )


class StoreClock(Fault, frozen=True, kw_only=True):
    """The store's clock jumps ahead, and stays there."""

    ahead_us: int

    def begin(self, world: World) -> None:
        world.store.jump(self.ahead_us)

    def words(self) -> str:
        return f"the store's clock jumps ahead by {seconds(self.ahead_us)}"


class OldNews(Fault, frozen=True, kw_only=True):
    """The store's leader stands still, and another goes on in its place. Half-way some are cut off from the store; then
    they ask the server that stood still. It answers plain reads for a while with what there was when it fell silent.
    """

    nodes: tuple[Address, ...]
    old_us: int  # how long it does not hear of its successor
    direction: Direction = "both"  # of the cut

    def _cut(self) -> Cut:
        return Cut(frozenset(self.nodes), frozenset((STORE,)), self.direction)

    def begin(self, world: World) -> None:
        world.store.fall_silent(self.nodes)
        world.at(world.now_us + self.for_us // 2, lambda: self._cut_off(world))

    def _cut_off(self, world: World) -> None:
        if not world.healed:
            world.network.add(self._cut())

    def end(self, world: World) -> None:
        world.network.remove(self._cut())
        world.store.wake_deposed(self.nodes)
        world.at(world.now_us + self.old_us, lambda: world.store.hear_of_successor(self.nodes))

    def words(self) -> str:
        nodes = ", ".join(self.nodes)
        return f"the store's leader stands still; then {nodes} hear old news for {seconds(self.old_us)}"


class WatchReset(Fault, frozen=True, kw_only=True):
    """Every watch is interrupted and begins again."""

    def begin(self, world: World) -> None:
        world.store.tails.reset_watches()

    def words(self) -> str:
        return "every watch is interrupted and reset"


class Lag(Fault, frozen=True, kw_only=True):
    """A node's follows and watches bring nothing; its requests are answered."""

    node: Address

    def begin(self, world: World) -> None:
        world.store.tails.hold(self.node)

    def end(self, world: World) -> None:
        world.store.tails.let_go(self.node)

    def words(self) -> str:
        return f"{self.node} hears nothing of what it follows"


def unleash(world: World, plan: list[Fault]) -> None:
    """Have the faults of a plan happen."""
    world.plan.extend(plan)
    for fault in plan:
        world.schedule.at(fault.at_us, _begin, world, fault)
        world.schedule.at(fault.at_us + fault.for_us, _end, world, fault)


def _begin(world: World, fault: Fault) -> None:
    if not world.healed:
        world.tell("nemesis", f"begins: {fault.words()} (for {seconds(fault.for_us)})")
        fault.begin(world)


def _end(world: World, fault: Fault) -> None:
    if not world.healed:
        world.tell("nemesis", f"ends: {fault.words()}")
        fault.end(world)


def seconds(us: int) -> str:
    """Microseconds as people read them, without a float."""
    return f"{us // 1_000_000}.{us % 1_000_000 // 1_000:03} s"

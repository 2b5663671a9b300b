"""Events a second of the simulator on one core, beside a bare event heap that does nothing: the most there could be.

Three loads: messages that go round among a hundred machines, timers that are set again, and the counter with its
faults. Each pair is measured back to back, several times, and the median of the ratios is what counts: the machine
is shared and noisy.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from pathlib import Path

from tocsin.core.machine import Effect, Event, Received, Send, SetTimer
from tocsin.model.network import Message
from tocsin.sim.runs.runner import run
from tocsin.sim.runs.scenario import find
from tocsin.sim.world import World

RESULTS = Path(__file__).parent / "results"
NODES = 100
IN_FLIGHT = 1_000  # messages or timers at a time: as deep as the heap of a middling scenario
ROUNDS, QUICK_ROUNDS = 7, 3
EVENTS, QUICK_EVENTS = 400_000, 100_000
TARGET = 200_000  # events a second on one core


class Token(Message, frozen=True):
    """The message that goes round."""

    number: int


class Runner:
    """Passes each token on to the next."""

    def __init__(self, following: str, tokens: int) -> None:
        self._following = following
        self._tokens = tokens

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        if isinstance(event, Received):
            return [Send(to=self._following, message=event.message, cause=event.cause)]
        return [Send(to=self._following, message=Token(number)) for number in range(self._tokens)]


class Ticker:
    """Sets each timer again when it has run out."""

    def __init__(self, timers: int) -> None:
        self._effects = {
            f"t{number}": SetTimer(name=f"t{number}", delay_us=1_000 + number) for number in range(timers)
        }

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        name = getattr(event, "name", None)
        return list(self._effects.values()) if name is None else [self._effects[name]]


def bare_heap(events: int) -> float:
    """Take the earliest of ``IN_FLIGHT`` entries and put one in later, with no machine and no network."""
    bits = random.Random(1).getrandbits
    heap: list[tuple[int, int, None]] = []
    for sequence in range(IN_FLIGHT):
        heappush(heap, (bits(10), sequence, None))
    sequence = IN_FLIGHT
    began = time.perf_counter()
    for _ in range(events):
        now, _, nothing = heappop(heap)
        sequence += 1
        heappush(heap, (now + bits(10), sequence, nothing))
    return events / (time.perf_counter() - began)


def run_world(world: World, events: int) -> float:
    """Run until so many events have happened, in steps of virtual time."""
    world.run_until(0)
    first = world.schedule.events
    began = time.perf_counter()
    while world.schedule.events - first < events:
        world.run_until(world.now_us + 100_000)
    return (world.schedule.events - first) / (time.perf_counter() - began)


def messages(events: int) -> float:
    world = World(1)
    for place in range(NODES):
        following = f"node/{(place + 1) % NODES}"
        machine = Runner(following, IN_FLIGHT // NODES)
        world.add(f"node/{place}", lambda _disk, machine=machine: machine)  # type: ignore[misc]
    return run_world(world, events)


def timers(events: int) -> float:
    world = World(1)
    for place in range(NODES):
        world.add(f"node/{place}", lambda _disk: Ticker(IN_FLIGHT // NODES))
    return run_world(world, events)


def counter(events: int) -> float:
    scenario = find("counter")
    done = seed = 0
    began = time.perf_counter()
    while done < events:
        done += run(scenario, seed).events
        seed += 1
    return done / (time.perf_counter() - began)


LOADS: dict[str, Callable[[int], float]] = {"messages": messages, "timers": timers, "counter": counter}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sim", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    quick = parser.parse_args(argv).quick
    rounds, events = (QUICK_ROUNDS, QUICK_EVENTS) if quick else (ROUNDS, EVENTS)
    figures: dict[str, dict[str, float]] = {}
    print(f"{'load':<10} {'events/s':>12} {'bare heap':>12} {'ratio':>7}   median of {rounds} pairs")
    for name, load in LOADS.items():
        pairs = [(load(events), bare_heap(events)) for _ in range(rounds)]
        ours, peer = (statistics.median(each) for each in zip(*pairs, strict=True))
        ratio = statistics.median(mine / theirs for mine, theirs in pairs)
        figures[name] = {
            "events_per_s": round(ours),
            "bare_heap_per_s": round(peer),
            "ratio": round(ratio, 3),
        }
        print(f"{name:<10} {ours:>12,.0f} {peer:>12,.0f} {ratio:>7.3f}", flush=True)
    verdict = "reached" if all(each["events_per_s"] > TARGET for each in figures.values()) else "missed"
    print(f"target of {TARGET:,} events/s on one core: {verdict}")
    RESULTS.mkdir(exist_ok=True)
    report = {"python": platform.python_version(), "quick": quick, "target_per_s": TARGET, "loads": figures}
    (RESULTS / "sim.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

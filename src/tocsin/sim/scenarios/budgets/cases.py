"""Three ways between three brokers, each near or far: what copies are worth (PubSubCoord's Table 1).

    source ─ east-1 ──── L1 ──── west-1 ─ sink
                 └─ L2 ─ hub-1 ─ L3 ─┘

The usual way leads over the routing broker. A **near** way takes 30 ms, and a **far** one 250 ms and repeats a segment
in a hundred.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import msgspec

from tocsin.config import Deadline
from tocsin.sim.chance import MILLION
from tocsin.sim.process.broker import broker_at
from tocsin.sim.process.stage import Stage
from tocsin.sim.scenarios.budgets import HOME, HUBS, ORIGIN, SETTINGS, SOON_US, spread, way
from tocsin.sim.scenarios.budgets.clients import Sink, Source
from tocsin.sim.world import World

CASES: Final = {  # L1, L2 and L3 → a budget a little above what the best way takes, in ms
    "AAA": 60,
    "AAB": 60,
    "ABA": 60,
    "ABB": 60,
    "BAA": 100,
    "BAB": 280,
    "BBA": 280,
    "BBB": 280,
}
DELAYS: Final = {
    "A": (30_000, 0),
    "B": (250_000, 10),
}  # one way, and how many of a thousand segments are repeated
LINKS: Final = ((ORIGIN, HOME), (ORIGIN, HUBS[0]), (HUBS[0], HOME))
EVERY_US: Final = 50_000
SETTLE_US: Final = 40 * MILLION  # for delays to be known, and ways to be taken
TOPIC: Final = "line/1"


class Measured(msgspec.Struct, frozen=True):
    """One case: how long messages took, and what that cost."""

    case: str
    delays_us: tuple[int, ...]  # of those that came, in rising order
    missed: float  # share of those published that came late, or not at all
    ways: tuple[str, ...]  # beside the usual one, in the end
    expected: float  # share that was predicted to be missed
    copies: int  # that were sent for each message

    @property
    def mean_us(self) -> int:
        return sum(self.delays_us) // max(1, len(self.delays_us))

    def quantile(self, permille: int) -> int:
        return self.delays_us[min(len(self.delays_us) - 1, len(self.delays_us) * permille // 1_000)]


def measure(case: str, budget_ms: int, messages: int, deadline: Deadline, seed: int = 1) -> Measured:
    """Run a case with so many messages."""
    settings = msgspec.structs.replace(
        SETTINGS,
        brokers=tuple(each for each in SETTINGS.brokers if each.id != HUBS[1]),
        deadline=deadline,
    )
    world = World(seed)
    try:
        stage = Stage(world, settings)
        stage.add_coordinators("coordinator-1")
        stage.add_brokers()
        spread(
            world,
            {frozenset(pair): way(*DELAYS[how], SOON_US) for pair, how in zip(LINKS, case, strict=True)},
        )
        begin_us, length_us = SETTLE_US, messages * EVERY_US
        source = Source(ORIGIN, TOPIC, f"{budget_ms}ms", 0, EVERY_US, begin_us + length_us)
        sink = Sink("sink", HOME, (f"$qos/budget={budget_ms}ms/line/+",))
        world.add(source.name, lambda _disk: source)
        world.add(sink.name, lambda _disk: sink)
        world.run_until(begin_us + length_us + 5 * MILLION)
        return _measured(case, world, source, sink, budget_ms * 1_000, begin_us)
    finally:
        world.close()


def _measured(case: str, world: World, source: Source, sink: Sink, budget_us: int, begin_us: int) -> Measured:
    counted = [each for each in sink.got if each.sent_us >= begin_us]
    sent = sum(at_us >= begin_us for at_us in source.sent_us.values())
    in_time = sum(each.delay_us <= budget_us for each in counted)
    broker = broker_at(world, ORIGIN)
    assert broker is not None, "nothing fails here"
    copies = broker.parts.exchange.copies
    told = next(iter(copies.ways.told.values()), None)
    ways = () if told is None else told.decision.ways
    expected = 1.0 if told is None else told.decision.miss
    delays = tuple(sorted(each.delay_us for each in counted))
    return Measured(case, delays, 1 - in_time / sent, ways, expected, len(ways))


def table(messages: int) -> Iterator[str]:
    """All cases, on the usual way alone and with copies, as lines of Markdown."""
    yield "| L1 L2 L3 | budget | alone: mean | p99 | missed | with copies: mean | p99 | missed | expected | ways |"
    yield "| --- " * 10 + "|"
    for case, budget_ms in CASES.items():
        alone, copied = (measure(case, budget_ms, messages, Deadline(ways_max=ways)) for ways in (1, 3))
        figures = [
            f"{each.mean_us / 1_000:.0f} | {each.quantile(990) / 1_000:.0f} | {each.missed:.2%}"
            for each in (alone, copied)
        ]
        ways = ", ".join(copied.ways) or "–"
        yield f"| {case} | {budget_ms} | {figures[0]} | {figures[1]} | {copied.expected:.2%} | {ways} |"


if __name__ == "__main__":
    for line in table(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000):
        sys.stdout.write(f"{line}\n")

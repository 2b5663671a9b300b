"""The cost model: what a message costs a broker's processor, fitted to what was measured of real brokers.

A broker is idle at some share of a processor, and each message adds to it:

    publisher's edge broker     a message in from a client, and out to the routing broker
    routing broker              a message in, and for each further broker a message out
    subscriber's edge broker    a message in from the routing broker, and for each further subscriber a message out

The cost of a message is what the broker took under the heaviest plain load, for each message of it: idling and waking
up are in it. That of a further broker or subscriber is what a load with several took more than the same one with one.
The lines say whether what a broker takes grows in proportion: a broker that has more to do reads more at once, and is
quicker for each message. Costs include the work of the valves that delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

MICRO: Final = 1e6


class Line(msgspec.Struct, frozen=True):
    """A straight line through some points."""

    slope: float
    start: float
    r2: float  # 1: they are on it

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> Line:
        count = len(points)
        if not count:
            return cls(0.0, 0.0, 0.0)
        mean_x = sum(x for x, _ in points) / count
        mean_y = sum(y for _, y in points) / count
        spread = sum((x - mean_x) ** 2 for x, _ in points)
        total = sum((y - mean_y) ** 2 for _, y in points)
        if not spread:
            return cls(0.0, mean_y, 1.0)
        slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
        start = mean_y - slope * mean_x
        off = sum((y - start - slope * x) ** 2 for x, y in points)
        return cls(slope, start, 1 - off / total if total else 1.0)


class Costs(msgspec.Struct, frozen=True):
    """Processor seconds for a message. ``…_line``: shares of a processor by messages a second, as measured."""

    source_line: Line  # of the publishers' edge broker
    hub_line: Line  # of the routing broker, one message out for each in
    target_line: Line  # of the subscribers' edge broker, with one subscriber
    source_s: float
    hub_s: float  # for a message in, and out to one broker
    target_s: float  # for a message in, and out to one subscriber
    out_s: float  # for each further broker that a message goes to
    reader_s: float  # for each further subscriber

    def hub_work_s(self, onward: int) -> float:
        return self.hub_s + (onward - 1) * self.out_s

    def target_work_s(self, readers: int) -> float:
        return self.target_s + (readers - 1) * self.reader_s

    @property
    def words(self) -> str:
        """One sentence, in µs of processor."""
        each = self.source_s, self.hub_s, self.out_s, self.target_s, self.reader_s
        source, hub, out, target, reader = (f"{MICRO * seconds:.1f}" for seconds in each)
        return (
            f"a message costs the publisher's edge broker {source} µs, the hub {hub} µs and {out} µs for each further "
            f"edge broker, the subscriber's edge broker {target} µs and {reader} µs for each further subscriber"
        )

"""A city with people who move, and emergencies: traces of our own, from a seed.

Streets are a grid. Somebody stands at a crossing for a while, chooses another one, walks there along the streets (first
along x or along y, by chance) at a pace of its own, and so on: the ONE simulator's way, with its default paces and
waits. Every user's position is published every ``interval_s``. An emergency happens every so often, anywhere, of any
kind.

Lengths are counted in millimetres and times in milliseconds, in whole numbers: one seed gives the same city everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tocsin.errors import OperatorError
from tocsin.sim.chance import Chance
from tocsin_demo.traces import ID_MAX, RADII_M, SAMPLES_MAX, Bounds, Sample

PACE_MM_S: Final = (500, 1_500)  # of people on foot
WAIT_MS: Final = (0, 120_000)
NAME_MAX: Final = ID_MAX - 10  # leaves room for the number


class City(msgspec.Struct, frozen=True):
    """How large it is, and what happens in it. The size, and how often things happen, are those of the workload with
    which the paper's group measures such backends."""

    seed: int = 1
    width_m: int = 4_500
    height_m: int = 3_400
    block_m: int = 100  # between two streets
    seconds: int = 600
    people: int = 400
    interval_s: int = 10  # between two places of somebody
    emergency_s: int = 10  # between two emergencies
    name: str = "user"  # before a person's number

    def check(self) -> None:
        """Raise ``OperatorError`` for a city that cannot be."""
        for name in ("width_m", "height_m", "block_m", "seconds", "interval_s", "emergency_s"):
            value = getattr(self, name)
            if not 1 <= value <= 10_000_000:
                raise OperatorError(f"a city with {name} = {value}", "Give 1 to 10 000 000")
        if self.block_m > min(self.width_m, self.height_m):
            raise OperatorError(f"blocks of {self.block_m} m are larger than the city", "Give smaller ones")
        if self.people < 0 or self.people * (self.seconds // self.interval_s + 1) > SAMPLES_MAX:
            raise OperatorError(
                f"{self.people} people every {self.interval_s} s for {self.seconds} s",
                f"Give fewer: a trace has at most {SAMPLES_MAX} samples",
            )
        if len(self.name.split()) != 1 or len(self.name) > NAME_MAX:
            raise OperatorError(
                f"people cannot be named {self.name!r}", f"Give a word of at most {NAME_MAX} letters"
            )

    @property
    def bounds(self) -> Bounds:
        return Bounds(0, self.seconds, 0, self.width_m, 0, self.height_m)


class _Walker:
    """One person, on the way along corners: (when it is there, x, y), in order."""

    def __init__(self, city: City, number: int) -> None:
        self._city = city
        self._chance = Chance(city.seed, f"person {number}")
        x, y = self._crossing()
        self._from = (0, x, y)
        self._path: list[tuple[int, int, int]] = []

    def _crossing(self) -> tuple[int, int]:
        city, chance = self._city, self._chance
        return (
            chance.between(0, city.width_m // city.block_m) * city.block_m * 1_000,
            chance.between(0, city.height_m // city.block_m) * city.block_m * 1_000,
        )

    def at(self, now_ms: int) -> tuple[int, int]:
        """Where it is; never asked for a time before the last one."""
        while not self._path or self._path[0][0] <= now_ms:
            if self._path:
                self._from = self._path.pop(0)
            else:
                self._choose()
        began_ms, from_x, from_y = self._from
        ends_ms, to_x, to_y = self._path[0]
        gone, all_ms = now_ms - began_ms, ends_ms - began_ms
        return from_x + (to_x - from_x) * gone // all_ms, from_y + (to_y - from_y) * gone // all_ms

    def _choose(self) -> None:
        """Wait, and then go to another crossing by a corner."""
        at_ms, x, y = self._from
        at_ms += 1 + self._chance.between(*WAIT_MS)
        pace = self._chance.between(*PACE_MM_S)
        to_x, to_y = self._crossing()
        self._path.append((at_ms, x, y))
        corner = (to_x, y) if self._chance.below(2) else (x, to_y)
        for next_x, next_y in (corner, (to_x, to_y)):
            length = abs(next_x - x) + abs(next_y - y)
            if length:
                at_ms += max(length * 1_000 // pace, 1)
                self._path.append((at_ms, next_x, next_y))
                x, y = next_x, next_y


def movements(city: City) -> Iterator[Sample]:
    """Where everybody is, every interval from 0 on. Raises ``OperatorError``."""
    city.check()
    walkers = [_Walker(city, number) for number in range(city.people)]
    for at_s in range(0, city.seconds + 1, city.interval_s):
        for number, walker in enumerate(walkers):
            x, y = walker.at(at_s * 1_000)
            yield Sample(at_s, f"{city.name}-{number}", x / 1_000, y / 1_000)


def disasters(city: City) -> Iterator[Sample]:
    """The emergencies, as a trace has them (``traces.emergencies`` reads them). Raises ``OperatorError``."""
    city.check()
    chance = Chance(city.seed, "emergencies")
    kinds = tuple(RADII_M)
    for number, at_s in enumerate(range(city.emergency_s, city.seconds + 1, city.emergency_s)):
        kind = chance.one_of(kinds)
        x, y = chance.between(0, city.width_m * 1_000), chance.between(0, city.height_m * 1_000)
        yield Sample(at_s, f"{kind}-{number}", x / 1_000, y / 1_000)

"""Chance that every machine agrees on: named sequences of integers, all drawn from one seed.

Each purpose (the network, the store, the nemesis, …) has its own sequence, so that one more draw in one place shifts
nothing in another, and a fault that is left out of a plan leaves the rest of the run as alike as can be.

Only ``random.Random.getrandbits`` is used: the Mersenne Twister's words are the same on every platform and Python
version, while the methods that return floats or shuffle are not promised to be.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

MILLION = 1_000_000  # rates are parts per million: integers that compare exactly


class Chance:
    """One sequence. It is a ``ports.Rng``."""

    __slots__ = ("bits",)

    def __init__(self, seed: int, purpose: str) -> None:
        digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
        self.bits = random.Random(int.from_bytes(digest[:16], "big")).getrandbits

    def below(self, bound: int) -> int:
        """An integer in ``[0, bound)``; the bias of the fixed 53 bits is far below what any run could see."""
        if bound <= 0:
            raise ValueError(f"chance below {bound}: the bound must be positive")
        return (self.bits(53) * bound) >> 53

    def between(self, low: int, high: int) -> int:
        """An integer in ``[low, high]``."""
        return low + self.below(high - low + 1)

    def happens(self, rate_ppm: int) -> bool:
        """True in ``rate_ppm`` of a million draws."""
        return self.below(MILLION) < rate_ppm

    def one_of(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def some_of(self, items: Sequence[Item], count: int) -> list[Item]:
        """``count`` different items, in the order drawn."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]

    def weighted(self, items: Sequence[tuple[Item, int]]) -> Item:
        """One item, by integer weight."""
        ticket = self.below(sum(weight for _, weight in items))
        for item, weight in items:
            if ticket < weight:
                return item
            ticket -= weight
        raise AssertionError("weights are positive, so a ticket always has an owner")


class Chances:
    """The sequences of one run, made when first asked for."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chances: dict[str, Chance] = {}

    def of(self, purpose: str) -> Chance:
        found = self._chances.get(purpose)
        if found is None:
            found = self._chances[purpose] = Chance(self.seed, purpose)
        return found

    def fingerprint(self) -> str:
        """Where every sequence stands. Draws from each, so it is for the end of a run only."""
        return " ".join(
            f"{purpose}={self._chances[purpose].bits(64):016x}" for purpose in sorted(self._chances)
        )

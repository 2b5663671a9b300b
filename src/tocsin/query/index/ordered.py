"""Numbers, or strings, in order, each with something: what a range of them leads to.

A sorted list in blocks, beside a dictionary. Invariants: blocks are ascending and none is empty; ``_firsts[i]`` is
above all of ``_blocks[i - 1]`` and not above any of ``_blocks[i]``; the blocks hold the dictionary's keys. With n
numbers an addition or removal costs a search and a move inside one block, and n / block only when a block divides; a
range costs a search and what it yields.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", float, str)
Item = TypeVar("Item")

BLOCK: Final = 512  # numbers in half a block: moving them costs less than the interpreter's steps around it


class OrderedMap(Generic[Key, Item]):
    """A dictionary that can be asked for a range of its keys. Not for NaN."""

    __slots__ = ("_blocks", "_firsts", "_held")

    def __init__(self) -> None:
        self._held: dict[Key, Item] = {}
        self._blocks: list[list[Key]] = []
        self._firsts: list[Key] = []

    def __len__(self) -> int:
        return len(self._held)

    def get(self, number: Key) -> Item | None:
        return self._held.get(number)

    def values(self) -> Iterable[Item]:
        """The values of all numbers, in no order that matters."""
        return self._held.values()

    def put(self, number: Key, held: Item) -> None:
        """Add, or replace what the number leads to."""
        if number not in self._held:
            self._insert(number)
        self._held[number] = held

    def pop(self, number: Key) -> Item:
        """Take out a number that is there."""
        held = self._held.pop(number)
        place = bisect_right(self._firsts, number) - 1
        block = self._blocks[place]
        del block[bisect_left(block, number)]
        if not block:
            del self._blocks[place], self._firsts[place]
        return held

    def between(self, low: Key, high: Key) -> Iterator[Item]:
        """The values of the numbers from ``low`` to ``high``, both included, in their order."""
        held = self._held
        for place in range(max(bisect_right(self._firsts, low) - 1, 0), len(self._blocks)):
            block = self._blocks[place]
            if block[0] > high:
                return
            for number in block[bisect_left(block, low) : bisect_right(block, high)]:
                yield held[number]

    def estimate(self, low: Key, high: Key) -> int:
        """About how many numbers lie there: exact within two blocks, whole blocks between them by their average."""
        if high < low or not self._blocks:
            return 0
        first = max(bisect_right(self._firsts, low) - 1, 0)
        last = max(bisect_right(self._firsts, high) - 1, 0)
        before = bisect_left(self._blocks[first], low)
        upto = bisect_right(self._blocks[last], high)
        if first == last:
            return upto - before
        average = len(self._held) // len(self._blocks)
        return len(self._blocks[first]) - before + upto + (last - first - 1) * average

    def _insert(self, number: Key) -> None:
        if not self._blocks:
            self._blocks.append([number])
            self._firsts.append(number)
            return
        place = max(bisect_right(self._firsts, number) - 1, 0)
        block = self._blocks[place]
        insort(block, number)
        self._firsts[place] = block[0]
        if len(block) > 2 * BLOCK:
            self._blocks.insert(place + 1, block[BLOCK:])
            self._firsts.insert(place + 1, block[BLOCK])
            del block[BLOCK:]

"""Intervals of numbers: which of them hold a value, and which hold only one of two values.

An interval tree whose shape is given by the numbers themselves, so that nothing is ever balanced. The bits of a
floating-point number, with its sign turned, order as the number does. The common beginning of two such bit strings
names a **node**: an interval is kept at the node where the bits of its ends part, and so holds the node's middle. A
value passes the nodes that its own bits begin with. At each it lies on one side of the middle, so that the low ends
alone decide, or the high ends alone; where there are many they are kept in order.

Cost of n intervals: ``holding`` takes a look-up at each length of beginning that is in use (64 at most, about ten for
values of one magnitude) and what it yields; so does ``crossing``, which is for a value that moves: intervals that
hold both the old and the new value are passed over in order, not one by one. Only at the one node where old and new
part are intervals that both are outside of looked at. Additions and removals take a search in order. Ends are
included; an end that is not is the next number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain
from struct import Struct
from typing import Final, Generic, TypeVar

from tocsin.query.index.bag import Bag, added, remove
from tocsin.query.index.ordered import OrderedMap

Member = TypeVar("Member", bound=Hashable)

WIDE: Final = 16  # intervals at a node from which on they are kept in order
_BITS: Final = 64
_SIGN: Final = 1 << (_BITS - 1)
_ALL: Final = (1 << _BITS) - 1
_FLOAT: Final = Struct(">d")
_WORD: Final = Struct(">Q")


def _word(number: float) -> int:
    """The number as an unsigned integer, in the same order."""
    (bits,) = _WORD.unpack(_FLOAT.pack(number + 0.0))  # + 0.0: there is one zero
    return bits ^ _ALL if bits & _SIGN else bits | _SIGN  # type: ignore[no-any-return]


def _name(word: int, level: int) -> int:
    """The node at which ``level`` bits are left open; one number for beginnings of any length."""
    return 1 << (_BITS - level) | word >> level


class _Interval(Generic[Member]):
    """One pair of ends, and all that have it."""

    __slots__ = ("high", "low", "members")

    def __init__(self, low: float, high: float) -> None:
        self.low = low
        self.high = high
        self.members: Bag[Member] = []

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


class _Sorted(Generic[Member]):
    """The intervals of a node that has many, by either end."""

    __slots__ = ("by_high", "by_low", "size")

    def __init__(self) -> None:
        self.by_low: OrderedMap[float, Bag[_Interval[Member]]] = OrderedMap()
        self.by_high: OrderedMap[float, Bag[_Interval[Member]]] = OrderedMap()
        self.size = 0

    def add(self, interval: _Interval[Member]) -> None:
        for order, end in ((self.by_low, interval.low), (self.by_high, interval.high)):
            order.put(end, added(order.get(end) or [], interval))
        self.size += 1

    def remove(self, interval: _Interval[Member]) -> None:
        for order, end in ((self.by_low, interval.low), (self.by_high, interval.high)):
            bag = order.get(end)
            assert bag is not None
            remove(bag, interval)
            if not bag:
                order.pop(end)
        self.size -= 1


_Node = list[_Interval[Member]] | _Sorted[Member]


class IntervalIndex(Generic[Member]):
    """Finds the intervals that hold a value, or only one of two values.

    A member may have several intervals, each pair of ends once.
    """

    __slots__ = ("_intervals", "_levels", "_nodes", "_used")

    def __init__(self) -> None:
        self._intervals: dict[tuple[float, float], _Interval[Member]] = {}
        self._nodes: dict[int, _Node[Member]] = {}
        self._levels: dict[int, int] = {}  # level → nodes there
        self._used: tuple[int, ...] = ()  # the levels that have nodes

    def __len__(self) -> int:
        return len(self._intervals)

    def add(self, low: float, high: float, member: Member) -> None:
        """``low`` is at most ``high``; infinities are ends like others."""
        interval = self._intervals.get((low, high))
        if interval is None:
            interval = self._intervals[low, high] = _Interval(low, high)
            self._keep(interval)
        interval.members = added(interval.members, member)

    def remove(self, low: float, high: float, member: Member) -> None:
        interval = self._intervals[low, high]
        remove(interval.members, member)
        if not interval.members:
            del self._intervals[low, high]
            self._drop(interval)

    def members(self) -> Iterator[Member]:
        """All of them, once for each interval."""
        for interval in self._intervals.values():
            yield from interval.members

    def holding(self, value: float) -> Iterator[Member]:
        """The members whose interval holds the value."""
        word = _word(value)
        for level in self._used:
            node = self._nodes.get(_name(word, level))
            if node is not None:
                for interval in _holding(node, value, word, level):
                    yield from interval.members

    def crossing(self, old: float, new: float) -> Iterator[Member]:
        """The members whose interval holds just one of the two; one may come twice."""
        old_word, new_word = _word(old), _word(new)
        for level in self._used:
            name, other = _name(old_word, level), _name(new_word, level)
            node = self._nodes.get(name)
            if name == other:
                if node is not None:
                    for interval in _between(node, old, new, old_word, new_word, level):
                        if interval.holds(old) != interval.holds(new):
                            yield from interval.members
                continue
            if node is not None:
                for interval in _holding(node, old, old_word, level):
                    yield from interval.members
            node = self._nodes.get(other)
            if node is not None:
                for interval in _holding(node, new, new_word, level):
                    yield from interval.members

    # ── nodes ───────────────────────────────────────────────────────────────────────────────────────────────

    def _keep(self, interval: _Interval[Member]) -> None:
        word = _word(interval.low)
        level = (word ^ _word(interval.high)).bit_length()
        name = _name(word, level)
        node = self._nodes.get(name)
        if node is None:
            self._nodes[name] = [interval]
            self._count(level, 1)
        elif isinstance(node, _Sorted):
            node.add(interval)
        else:
            node.append(interval)
            if len(node) > WIDE:
                wide: _Sorted[Member] = _Sorted()
                for each in node:
                    wide.add(each)
                self._nodes[name] = wide

    def _drop(self, interval: _Interval[Member]) -> None:
        word = _word(interval.low)
        level = (word ^ _word(interval.high)).bit_length()
        name = _name(word, level)
        node = self._nodes[name]
        node.remove(interval)
        if not (node.size if isinstance(node, _Sorted) else node):
            del self._nodes[name]
            self._count(level, -1)

    def _count(self, level: int, by: int) -> None:
        count = self._levels.get(level, 0) + by
        if count:
            self._levels[level] = count
        else:
            del self._levels[level]
        if len(self._levels) != len(self._used):
            self._used = tuple(sorted(self._levels))


def _below_middle(word: int, level: int) -> bool:
    return level > 0 and not word >> (level - 1) & 1


def _holding(
    node: _Node[Member], value: float, word: int, level: int
) -> Iterator[_Interval[Member]] | list[_Interval[Member]]:
    """The intervals of a node on the value's way that hold it."""
    if isinstance(node, list):
        return [interval for interval in node if interval.low <= value <= interval.high]
    if _below_middle(word, level):
        return chain.from_iterable(node.by_low.between(float("-inf"), value))
    return chain.from_iterable(node.by_high.between(value, float("inf")))


def _between(
    node: _Node[Member], old: float, new: float, old_word: int, new_word: int, level: int
) -> Iterator[_Interval[Member]] | list[_Interval[Member]]:
    """The intervals of a node on both ways that may hold just one of the values: an end lies between these."""
    if isinstance(node, list):
        return node
    low, high = min(old, new), max(old, new)
    below = (_below_middle(old_word, level), _below_middle(new_word, level))
    if below == (True, True):
        return chain.from_iterable(node.by_low.between(low, high))
    if below == (False, False):
        return chain.from_iterable(node.by_high.between(low, high))
    return chain.from_iterable(chain(node.by_low.between(low, high), node.by_high.between(low, high)))

"""States too large for one message: cut into parts, and put together again from parts that come in any order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

PART_MAX_BYTES = 256 << 10  # of filters or routes in one message: far below the bus's bound of 1 MiB
PARTS_MAX = 4_096  # 1 GiB in all: more than one broker should ever want


class Part(Protocol):
    """A message that is part ``part`` (from 0) of ``parts``."""

    @property
    def part(self) -> int: ...

    @property
    def parts(self) -> int: ...


Item = TypeVar("Item")
PartT = TypeVar("PartT", bound=Part)


def split(items: Sequence[Item], size: Callable[[Item], int]) -> list[tuple[Item, ...]]:
    """Cut a sequence into runs of at most PART_MAX_BYTES, keeping the order; at least one run, if an empty one."""
    runs: list[list[Item]] = [[]]
    room = PART_MAX_BYTES
    for item in items:
        cost = size(item)
        if cost > room and runs[-1]:
            runs.append([])
            room = PART_MAX_BYTES
        runs[-1].append(item)
        room -= cost
    return [tuple(run) for run in runs]


class Assembly(Generic[PartT]):
    """Collects the parts of one state at a time: a part of another state drops one that is still incomplete."""

    def __init__(self) -> None:
        self._state: Hashable = None
        self._parts: dict[int, PartT] = {}

    def add(self, state: Hashable, part: PartT) -> Sequence[PartT] | None:
        """All parts of ``state`` in order once they are there, else None."""
        if part.parts == 1:
            return (part,)
        if not 0 <= part.part < part.parts <= PARTS_MAX:
            return None
        if state != self._state:
            self._state, self._parts = state, {}
        self._parts[part.part] = part
        if len(self._parts) < part.parts:
            return None
        whole = [self._parts[number] for number in range(part.parts)]
        self._state, self._parts = None, {}
        return whole

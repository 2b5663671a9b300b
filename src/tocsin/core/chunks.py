"""Sequences too large for one message or record, cut into parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

PART_MAX_BYTES: Final = 256 << 10  # of one part: far below the store's and the bus's bound of 1 MiB

Item = TypeVar("Item")


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

"""Slots: 1 024 parts of all topics.

A slot is what moves between the members of a tier. There are many more slots than members, so that a tier can be
balanced by moving slots, and few enough for a table of them to be small.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from zlib import crc32

import msgspec

SLOTS: Final = 1_024
_MASK: Final = SLOTS - 1
MARK: Final = "@"  # before the name of a tier, where a route has a peer; no broker's id begins so
NOBODY: Final = ""


def slot_of(topic: str) -> int:
    """The slot of a topic, the same in every process."""
    return crc32(topic.encode()) & _MASK


def gate_of(tier: str) -> str:
    """The name by which routes lead to a tier."""
    return f"{MARK}{tier}"


def is_gate(peer: str) -> bool:
    """Whether a route leads to a tier, and not to a broker."""
    return peer.startswith(MARK)


class Slots(msgspec.Struct, frozen=True):
    """The carrier and the deputy of each slot of one tier; NOBODY where there is none."""

    carriers: tuple[str, ...] = (NOBODY,) * SLOTS
    deputies: tuple[str, ...] = (NOBODY,) * SLOTS

    @property
    def members(self) -> frozenset[str]:
        """The brokers that carry a slot, or are a deputy."""
        return frozenset((*self.carriers, *self.deputies)) - {NOBODY}

    def after(self, moves: Mapping[int, tuple[str, str]]) -> Slots:
        """The same with other carriers and deputies of some slots."""
        carriers, deputies = list(self.carriers), list(self.deputies)
        for slot, (carrier, deputy) in moves.items():
            carriers[slot], deputies[slot] = carrier, deputy
        return Slots(tuple(carriers), tuple(deputies))

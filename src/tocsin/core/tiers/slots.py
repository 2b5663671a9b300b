"""Slots: 1 024 parts of all topics.

A slot is what moves between the members of a tier. There are many more slots than members, so that a tier can be
balanced by moving slots, and few enough for a table of them to be small.

A few topics may be **apart** from their slots, because they have very much traffic. One member carries such a topic, or
several do: then it is **spread**, and each broker that publishes on it sends to one of them (``ranking``), so that what
one broker publishes keeps its order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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


def ranking(key: object, members: Collection[str]) -> list[str]:
    """These members by rendezvous hashing, the best first."""
    return sorted(members, key=lambda each: (-_mixed(f"{key}:{each}"), each))


def _mixed(text: str) -> int:
    """A hash of which all bits depend on all of the text: those of CRC-32 alone are alike for like texts."""
    value = crc32(text.encode()) * 0x9E3779B1 & 0xFFFFFFFF
    value = (value ^ value >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return value ^ value >> 16


class Slots(msgspec.Struct, frozen=True):
    """The carrier and the deputy of each slot of one tier; NOBODY where there is none."""

    carriers: tuple[str, ...] = (NOBODY,) * SLOTS
    deputies: tuple[str, ...] = (NOBODY,) * SLOTS
    apart: Mapping[str, tuple[str, ...]] = {}  # topics apart from their slots → the members that carry them

    @property
    def members(self) -> frozenset[str]:
        """The brokers that carry something, or are a deputy."""
        return frozenset((*self.carriers, *self.deputies)).union(*self.apart.values()) - {NOBODY}

    def after(
        self, moves: Mapping[int, tuple[str, str]], apart: Mapping[str, tuple[str, ...]] | None = None
    ) -> Slots:
        """The same with other carriers and deputies of some slots, and other topics apart, unless that is None."""
        carriers, deputies = list(self.carriers), list(self.deputies)
        for slot, (carrier, deputy) in moves.items():
            carriers[slot], deputies[slot] = carrier, deputy
        return Slots(tuple(carriers), tuple(deputies), self.apart if apart is None else dict(apart))

    def order(self, topic: str, origin: str) -> list[str]:
        """The members that carry a topic that is apart, in the order in which this broker prefers them."""
        return ranking(f"{topic}:{origin}", self.apart[topic])

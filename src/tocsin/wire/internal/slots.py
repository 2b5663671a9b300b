"""Slots that have other carriers and deputies, as bytes: five for each slot at most, and each name once."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from sys import byteorder
from typing import Final

import msgspec

from tocsin.errors import Malformed

NAMES_MAX: Final = 256  # an index of a name is one byte; the empty name is one of them
SLOTS_MAX: Final = 1 << 16


class SlotMoves(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Slots in order, and for each the indices of its carrier's and its deputy's name."""

    names: tuple[str, ...] = ()
    slots: bytes = b""  # two bytes each, the lower first
    carriers: bytes = b""
    deputies: bytes = b""

    @staticmethod
    def of(moves: Mapping[int, tuple[str, str]]) -> SlotMoves:
        """The moves of slots to (carrier, deputy)."""
        names = sorted({name for pair in moves.values() for name in pair})
        assert len(names) <= NAMES_MAX, "a tier has fewer members"
        index = {name: place for place, name in enumerate(names)}
        slots = sorted(moves)
        return SlotMoves(
            tuple(names),
            _two_bytes(array("H", slots)),
            bytes(index[moves[slot][0]] for slot in slots),
            bytes(index[moves[slot][1]] for slot in slots),
        )

    def each(self) -> dict[int, tuple[str, str]]:
        """Slot → (carrier, deputy); ``Malformed`` if this says nothing that makes sense."""
        slots = array("H")
        try:
            slots.frombytes(self.slots)
            if byteorder == "big":
                slots.byteswap()
            pairs = zip(slots, self.carriers, self.deputies, strict=True)
            return {slot: (self.names[carrier], self.names[deputy]) for slot, carrier, deputy in pairs}
        except (ValueError, IndexError) as error:
            raise Malformed(f"not moves of slots: {error}") from None

    def __len__(self) -> int:
        return len(self.carriers)


def _two_bytes(numbers: array[int]) -> bytes:
    if byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()

"""Pins: slots that an operator has given to one member of a tier.

A pin is a cell in the coordinators' table, so it holds until it is undone, whoever leads and whoever restarts. While
its member is gone or is being emptied, others carry the slot as usual.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tocsin.core.tiers.slots import SLOTS
from tocsin.errors import FormatNewer, Malformed
from tocsin.model.versions import Packed
from tocsin.ports import Change

KEY: Final = "core.pin."  # of the cells of pins, with the tier and the slot behind


class Pin(msgspec.Struct, frozen=True, array_like=True):
    """An operator's order that a member carries a slot."""

    broker: str
    topic: str  # for which it was given; people remember topics


PIN: Final = Packed("an order to carry a slot", msgspec.msgpack.Decoder(Pin))


def key_of(tier: str, slot: int) -> str:
    """The key of a pin's cell."""
    return f"{KEY}{tier}.{slot}"


def read_pin(key: str, value: bytes) -> tuple[str, int, Pin] | None:
    """The tier, the slot and the order in a cell; None if it is none."""
    tier, _, slot = key.removeprefix(KEY).rpartition(".")
    if not key.startswith(KEY) or not tier or not slot.isdecimal() or int(slot) >= SLOTS:
        return None
    try:
        return tier, int(slot), PIN.read(value)
    except (FormatNewer, Malformed):
        return None


class Pins:
    """The pins of all tiers, as the table says."""

    def __init__(self) -> None:
        self._pins: dict[str, tuple[str, int, str]] = {}  # key → tier, slot, broker
        self._told: dict[str, tuple[str, int, str]] | None = None  # while the table tells everything anew

    def of(self, tier: str) -> Mapping[int, str]:
        """The slots of a tier that are pinned, and to whom."""
        return {slot: broker for name, slot, broker in self._pins.values() if name == tier}

    def watched(self, change: Change) -> None:
        if change.kind == "reset":
            self._told = {}
        elif change.kind == "ready" and self._told is not None:
            self._pins, self._told = self._told, None
        elif change.key.startswith(KEY):
            known = self._pins if self._told is None else self._told
            known.pop(change.key, None)
            found = read_pin(change.key, change.value) if change.kind == "put" else None
            if found is not None:
                known[change.key] = (found[0], found[1], found[2].broker)

"""Which slots to move, so that the members of a tier carry alike.

``even`` looks at how many slots each member carries: after it no member has two more than another. It moves as few as
possible, and prefers slots whose deputy is the new carrier: the two change places. It spreads the deputies of each
carrier's slots over all other members too; another deputy costs nothing. Slots that are pinned count, and stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tocsin.core.tiers.slots import Slots
from tocsin.core.tiers.table import Moves

NO_PINS: Final[Mapping[int, str]] = {}
SPREAD_MAX: Final = 1  # slots that one member may carry more than another


def even(
    slots: Slots, members: Collection[str], leaving: Collection[str] = (), pins: Mapping[int, str] = NO_PINS
) -> Moves:
    """The moves that have every one of these members carry as many slots as the others, give or take one, and those
    that leave carry none. ``pins`` are slots that a member is to carry, if it is one of these. Slots of other brokers
    stay where they are."""
    carried: dict[str, list[int]] = {each: [] for each in sorted(members)}
    pinned: dict[str, list[int]] = {each: [] for each in carried}
    homeless = []
    deputies = list(slots.deputies)
    for slot, carrier in enumerate(slots.carriers):
        at = pins.get(slot, "")
        if at in pinned and (carrier in carried or carrier in leaving):
            pinned[at].append(slot)
            if deputies[slot] == at:
                deputies[slot] = carrier
        elif carrier in carried:
            carried[carrier].append(slot)
        elif carrier in leaving:
            homeless.append(slot)
    if not carried or (len(carried) < 2 and not homeless and not any(pinned.values())):
        return {}

    def count(member: str) -> tuple[int, str]:
        return len(carried[member]) + len(pinned[member]), member

    for slot in homeless:
        least = min(carried, key=count)
        deputy = deputies[slot]
        equal = deputy in carried and count(deputy)[0] <= count(least)[0]
        carried[deputy if equal else least].append(slot)
    while True:
        most = max((each for each in carried if carried[each]), key=count, default="")
        least = min(carried, key=count)
        if not most or count(most)[0] - count(least)[0] <= SPREAD_MAX:
            break
        kept = carried[most]
        slot = next((each for each in kept if deputies[each] == least), kept[-1])
        kept.remove(slot)
        carried[least].append(slot)
        if deputies[slot] == least:
            deputies[slot] = most
    after: Moves = {}
    for carrier in carried:
        kept = sorted(carried[carrier] + pinned[carrier])
        if len(carried) > 1:
            spread_deputies(kept, deputies, [each for each in carried if each != carrier])
        after.update((slot, (carrier, deputies[slot])) for slot in kept)
    return {
        slot: pair for slot, pair in after.items() if pair != (slots.carriers[slot], slots.deputies[slot])
    }


def spread_deputies(carried: Collection[int], deputies: list[str], others: Collection[str]) -> None:
    """Have these others be deputies of one carrier's slots alike, with as few changes as possible."""
    backed: dict[str, list[int]] = {each: [] for each in others}
    without: list[int] = []
    for slot in carried:
        backed.get(deputies[slot], without).append(slot)
    for slot in without:
        least = min(backed, key=lambda each: (len(backed[each]), each))
        backed[least].append(slot)
        deputies[slot] = least
    while True:
        most = max(backed, key=lambda each: (len(backed[each]), each))
        least = min(backed, key=lambda each: (len(backed[each]), each))
        if len(backed[most]) - len(backed[least]) <= SPREAD_MAX:
            return
        slot = backed[most].pop()
        backed[least].append(slot)
        deputies[slot] = least

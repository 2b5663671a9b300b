"""Which slots to move, so that the members of a tier carry alike.

``even`` looks at how many slots each member carries: after it no member has two more than another. It moves as few as
possible, and prefers slots whose deputy is the new carrier: the two change places. It spreads the deputies of each
carrier's slots over all other members too; another deputy costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tocsin.core.tiers.slots import Slots
from tocsin.core.tiers.table import Moves

SPREAD_MAX: Final = 1  # slots that one member may carry more than another


def even(slots: Slots, members: Collection[str], leaving: Collection[str] = ()) -> Moves:
    """The moves that have every one of these members carry as many slots as the others, give or take one, and those
    that leave carry none. Slots of other brokers stay where they are."""
    carried: dict[str, list[int]] = {each: [] for each in sorted(members)}
    homeless = []
    for slot, carrier in enumerate(slots.carriers):
        if carrier in carried:
            carried[carrier].append(slot)
        elif carrier in leaving:
            homeless.append(slot)
    if not carried or (len(carried) < 2 and not homeless):
        return {}
    deputies = list(slots.deputies)
    for slot in homeless:
        carried[_next_home(slot, deputies, carried)].append(slot)
    while True:
        most = max(carried, key=lambda each: (len(carried[each]), each))
        least = min(carried, key=lambda each: (len(carried[each]), each))
        if len(carried[most]) - len(carried[least]) <= SPREAD_MAX:
            break
        kept = carried[most]
        slot = next((each for each in kept if deputies[each] == least), kept[-1])
        kept.remove(slot)
        carried[least].append(slot)
        if deputies[slot] == least:
            deputies[slot] = most
    if len(carried) < 2:
        return {slot: (carrier, slots.carriers[slot]) for carrier in carried for slot in homeless}
    for carrier, kept in carried.items():
        _spread(kept, deputies, [each for each in carried if each != carrier])
    after = {slot: (carrier, deputies[slot]) for carrier, kept in carried.items() for slot in kept}
    return {
        slot: pair for slot, pair in after.items() if pair != (slots.carriers[slot], slots.deputies[slot])
    }


def _next_home(slot: int, deputies: list[str], carried: dict[str, list[int]]) -> str:
    """Who carries a slot that is given up: its deputy, if that has no more than others; else who has least."""
    least = min(carried, key=lambda each: (len(carried[each]), each))
    deputy = deputies[slot]
    return deputy if deputy in carried and len(carried[deputy]) <= len(carried[least]) else least


def _spread(carried: Collection[int], deputies: list[str], others: Collection[str]) -> None:
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

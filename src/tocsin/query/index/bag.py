"""A collection of few things, mostly, and of many, sometimes: a list that becomes a dictionary when it grows.

A list of one is a quarter of the smallest dictionary, and most buckets of an index hold one thing. A long list makes
the removal of all its members quadratic. Both iterate in the order of addition, so that nothing depends on hashes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, TypeVar

Member = TypeVar("Member", bound=Hashable)
Bag = list[Member] | dict[Member, None]

FEW: Final = 24  # members: up to here a search through the list costs no more than hashing


def added(bag: Bag[Member], member: Member) -> Bag[Member]:
    """The bag with one more member, which it does not hold yet. The one handed in is no longer used."""
    if isinstance(bag, dict):
        bag[member] = None
        return bag
    bag.append(member)
    return bag if len(bag) <= FEW else dict.fromkeys(bag)


def remove(bag: Bag[Member], member: Member) -> None:
    """Take out a member that is there."""
    if isinstance(bag, dict):
        del bag[member]
    else:
        bag.remove(member)

"""The quality of service of DDS endpoints, as values, and which quality an endpoint of the bridge must have.

The bridge's own endpoints have to match *every* endpoint that they serve, whichever came first. So

- a **reader** of the bridge asks for what all writers of its group offer. Reliability, durability and ownership decide
  the group: a best-effort reader would match reliable writers too, and get from them no more than best effort;
- a **writer** of the bridge offers the strictest of what the readers of its group request.

All durations are in nanoseconds; ``FOREVER`` is infinite.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import msgspec

FOREVER: Final = (1 << 63) - 1


class Durability(IntEnum):
    """What a late reader gets; each kind includes those before it."""

    VOLATILE = 0
    TRANSIENT_LOCAL = 1
    TRANSIENT = 2
    PERSISTENT = 3


class Liveliness(IntEnum):
    """Who says that a writer is alive; each kind is stricter than those before it."""

    AUTOMATIC = 0
    BY_PARTICIPANT = 1
    BY_TOPIC = 2


class Quality(msgspec.Struct, frozen=True):
    """What an endpoint offers or requests."""

    reliable: bool = False
    durability: Durability = Durability.VOLATILE
    exclusive: bool = False  # ownership
    strength: int = 0  # of ownership; offered only
    deadline_ns: int = FOREVER
    budget_ns: int = 0  # latency
    liveliness: Liveliness = Liveliness.AUTOMATIC
    lease_ns: int = FOREVER
    lifespan_ns: int = FOREVER  # offered only
    by_source: bool = False  # destination order
    partitions: tuple[str, ...] = ()
    depth: int = 1  # of the history that late readers get; 0: all
    xcdr2: bool = False  # its data representation is XCDR2, and not XCDR1


def strictest(requests: Iterable[Quality]) -> Quality:
    """What a writer has to offer so that each of these requests is met. They agree about ownership and partitions."""
    asked = tuple(requests)
    first = asked[0]
    return msgspec.structs.replace(
        first,
        reliable=any(each.reliable for each in asked),
        durability=max(each.durability for each in asked),
        deadline_ns=min(each.deadline_ns for each in asked),
        budget_ns=min(each.budget_ns for each in asked),
        liveliness=max(each.liveliness for each in asked),
        lease_ns=min(each.lease_ns for each in asked),
        by_source=any(each.by_source for each in asked),
        depth=_deepest(each.depth for each in asked),
    )


def weakest(offers: Iterable[Quality]) -> Quality:
    """What a reader may request so that each of these offers meets it. They agree about reliability, durability,
    ownership and partitions."""
    said = tuple(offers)
    return msgspec.structs.replace(
        said[0],
        strength=0,
        deadline_ns=FOREVER,
        budget_ns=FOREVER,
        liveliness=Liveliness.AUTOMATIC,
        lease_ns=FOREVER,
        lifespan_ns=FOREVER,
        by_source=False,
        depth=0,
    )


def mismatches(offered: Quality, requested: Quality) -> tuple[str, ...]:
    """The policies by which DDS does not connect these two; partitions are not among them: they are no mismatch."""
    pairs = (
        ("reliability", offered.reliable >= requested.reliable),
        ("durability", offered.durability >= requested.durability),
        ("ownership", offered.exclusive == requested.exclusive),
        ("deadline", offered.deadline_ns <= requested.deadline_ns),
        ("latency budget", offered.budget_ns <= requested.budget_ns),
        (
            "liveliness",
            offered.liveliness >= requested.liveliness and offered.lease_ns <= requested.lease_ns,
        ),
        ("destination order", offered.by_source >= requested.by_source),
    )
    return tuple(policy for policy, fits in pairs if not fits)


def _deepest(depths: Iterable[int]) -> int:
    found = tuple(depths)
    return 0 if 0 in found else max(found)

"""Whether what a publisher offers is as much as a subscriber requests: the rules of DDS.

| policy | it matches if |
| --- | --- |
| reliability, durability | at least as much is offered |
| deadline, budget | at most as much is offered |
| liveliness, lease | a kind at least as strict, and a lease at most as long, are offered |
| ownership | the same is offered |

A policy of which the subscriber says nothing always matches. A publisher that says nothing offers what follows from
its messages: at QoS 0 best effort and volatile, above that reliable and persistent; no deadline and no lease; a budget
of nothing; automatic liveliness; shared ownership. A message at QoS 0 is reliable (``core.quality.resending``) or lasts
(``core.quality.recalling``) if its stream offers that; it is in no log, and so never persistent.

**Partitions** are no matter of more or less. Two that have none in common do not meet, and that is no mismatch: nobody
is told.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec

from tocsin.core.quality.texts import value_text
from tocsin.model.quality import Durability, Liveliness, Offer, Ownership, Reliability, Request

NOTHING = Offer()  # what is offered by who says nothing
INFINITE = "infinite"


class Mismatch(msgspec.Struct, frozen=True):
    """Why a stream and a subscription are not connected."""

    policy: str
    offered: str
    requested: str


def mismatch(offer: Offer, request: Request, qos: int) -> Mismatch | None:
    """The first policy by which messages at this QoS do not match; None: they do."""
    reliability, durability = offered_by(offer, qos)
    if request.reliability is not None and reliability < request.reliability:
        return _mismatch("reliability", reliability, request.reliability)
    if request.durability is not None and durability < request.durability:
        return _mismatch("durability", durability, request.durability)
    if request.deadline_us is not None and _longer(offer.deadline_us, request.deadline_us):
        return _mismatch("deadline_us", offer.deadline_us, request.deadline_us)
    if request.budget_us is not None and (offer.budget_us or 0) > request.budget_us:
        return _mismatch("budget_us", offer.budget_us, request.budget_us)
    liveliness = Liveliness.AUTOMATIC if offer.liveliness is None else offer.liveliness
    if request.liveliness is not None and liveliness < request.liveliness:
        return _mismatch("liveliness", liveliness, request.liveliness)
    if request.lease_us is not None and _longer(offer.lease_us, request.lease_us):
        return _mismatch("lease_us", offer.lease_us, request.lease_us)
    ownership = Ownership.SHARED if offer.ownership is None else offer.ownership
    if request.ownership is not None and ownership is not request.ownership:
        return _mismatch("ownership", ownership, request.ownership)
    return None


def offered_by(offer: Offer, qos: int) -> tuple[Reliability, Durability]:
    """What a message at this QoS offers."""
    if not qos:
        durability = min(offer.durability or Durability.VOLATILE, Durability.TRANSIENT)
        return offer.reliability or Reliability.BEST_EFFORT, durability
    reliability = Reliability.RELIABLE if offer.reliability is None else offer.reliability
    return reliability, Durability.PERSISTENT if offer.durability is None else offer.durability


def meets(offer: Offer, request: Request) -> bool:
    """Whether the two have a partition in common. A subscriber that names none has all of them."""
    if not request.partition:
        return True
    return any(_alike(theirs, ours) for theirs in offer.partition or ("",) for ours in request.partition)


def _alike(one: str, other: str) -> bool:
    """Wildcards may be on either side; two names with wildcards are never alike, as DDS has it."""
    patterns = [name for name in (one, other) if "*" in name or "?" in name]
    if not patterns:
        return one == other
    return len(patterns) == 1 and (fnmatchcase(one, other) or fnmatchcase(other, one))


def _longer(offered_us: int | None, requested_us: int) -> bool:
    return offered_us is None or offered_us > requested_us


def _mismatch(field: str, offered: object, requested: object) -> Mismatch:
    said = INFINITE if offered is None else value_text(field, offered)
    return Mismatch(field.removesuffix("_us"), said, value_text(field, requested))

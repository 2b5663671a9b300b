"""Networks to plan backups for: the paper's, and some that are harder on one strategy or another.

All but the last draw: each broker has so many subscribers, and each of them one subscription. ``room`` is the
capacity over the mean load of a broker; below 3 no plan can be feasible, for each broker carries itself and two
others on average.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Hashable
from itertools import accumulate
from typing import Final, NamedTuple

from tocsin.core.assignment.demand import Demand, Member

CHANNELS: Final = 100
EACH: Final = 10  # distinct subscriptions of a channel
SUBSCRIBERS: Final = 1_000  # of a broker: 100 000 in the paper's network
CLUSTERS: Final = 3


class Network(NamedTuple):
    """One that plans are compared on."""

    name: str
    what: str
    demand: Demand


Draw = Callable[[random.Random, int, int], Hashable]  # for a broker of a cluster


def drawn(brokers: int, room: float, draw: Draw, seed: int, subscribers: int = SUBSCRIBERS) -> Demand:
    chance = random.Random(seed)
    names = [f"b{number:04}" for number in range(brokers)]
    holdings = {
        name: Counter(draw(chance, number, number % CLUSTERS) for _ in range(subscribers))
        for number, name in enumerate(names)
    }
    members = tuple(
        Member(name, f"c{number % CLUSTERS}", room * subscribers) for number, name in enumerate(names)
    )
    return Demand(members, holdings)


def uniform(chance: random.Random, broker: int, cluster: int) -> Hashable:
    """As the paper says nothing else: every subscription is as likely as any other."""
    return chance.randrange(CHANNELS * EACH)


_TICKETS: Final = list(accumulate(1 / rank for rank in range(1, 5 * CHANNELS * EACH)))


def skewed(chance: random.Random, broker: int, cluster: int) -> Hashable:
    """A few subscriptions that most have, and thousands that few have (Zipf)."""
    return bisect(_TICKETS, chance.random() * _TICKETS[-1])


def clustered(chance: random.Random, broker: int, cluster: int) -> Hashable:
    """Four fifths of the interests are those of a neighbourhood, of which a cluster has four."""
    if chance.random() < 0.2:
        return chance.randrange(CHANNELS * EACH)
    return ("near", cluster, broker // CLUSTERS % 4, chance.randrange(CHANNELS * EACH))


def adversarial(brokers: int, seed: int) -> Demand:
    """A broker that comes first takes a backup that it hardly needs from one that has no other.

    In each set of four, p could back a or b, not both; a would do with q for one subscription more, b for fifty. a
    comes first.
    """
    del seed
    members: list[Member] = []
    holdings: dict[str, dict[Hashable, int]] = {}
    for number in range(brokers // 4):
        cluster = f"c{number % CLUSTERS}"
        sets = {
            "a": range(50),
            "b": range(50, 100),
            "p": range(100),
            "q": range(1, 50),
        }
        for role, held in sets.items():
            name = f"{role}{number:03}"
            holdings[name] = {(number, k): 1 for k in held}
            members.append(Member(name, cluster, {"a": 301, "b": 301, "p": 151, "q": 301}[role]))
    return Demand(tuple(members), holdings)


def networks(brokers: int, seed: int = 1) -> list[Network]:
    """All networks of one size that are measured."""
    found = []
    for name, what, draw, rooms in (
        ("paper", "100 channels of 10 subscriptions, uniform", uniform, (math.inf, 8.0, 4.0)),
        ("skewed", "Zipf over 5 000 subscriptions", skewed, (math.inf, 4.0)),
        ("clustered", "neighbourhoods inside clusters", clustered, (math.inf, 4.0)),
    ):
        found += [Network(f"{name} {_said(room)}", what, drawn(brokers, room, draw, seed)) for room in rooms]
    found.append(Network("adversarial", "the first takes what the second needs", adversarial(brokers, seed)))
    return found


def _said(room: float) -> str:
    return "∞" if math.isinf(room) else f"×{room:g}"

"""Hot topics: which are apart from their slots, and who carries them (the leader's; pure).

Slots can be balanced as long as none of them brings much more than the others. A topic that brings more than HOT of a
member's fair share is **apart**: its slot moves without it. One that brings more than a member's share alone is
**spread** over several members, if it comes from several clusters: each broker that publishes on it sends to one of
them. It rejoins its slot when it brings less than COLD.

Which of them a broker sends to follows from a hash (``core.tiers.slots.ranking``), which the leader can work out
beforehand: so it chooses members among which the hash shares the topic well (``_chosen``), and not at one of which
several sources, or several hot topics, meet. It chooses anew when a member has TOO_MUCH of such topics, and others
would have less of them by BETTER.

Bounds: APART_MAX topics of a tier, SPREAD_MAX members for each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil
from typing import Final

import msgspec

from tocsin.core.tiers.slots import ranking

HOT: Final = (
    0.5  # of what a member carries in the mean: from here on a topic is apart, if its slot has others …
)
COLD: Final = 0.25  # … until it brings less than this
TOO_MUCH: Final = 1.1  # of the mean, from which on a topic is spread: members can be evened out to that
APART_MAX: Final = 16
SPREAD_MAX: Final = 8
BETTER: Final = 0.1  # of the mean, that another choice of members takes off the fullest of them
MOST: Final = 0.8  # of a topic; if its known sources bring less, the rest may be anywhere
ALONE: Final = 0.05  # of the mean; a slot whose other topics bring less may as well move with the topic


class TopicRate(msgspec.Struct, frozen=True):
    """What one topic brings in a second. ``origins``: clusters that it comes from; ``sources``: what each broker brings
    of it, as far as it is known."""

    weight: float
    origins: int
    rest: float = 0.0  # that the other topics of its slot bring
    sources: Mapping[str, float] = {}

    @property
    def is_known(self) -> bool:
        """Whether the sources are known of nearly all."""
        return 0 < MOST * self.weight < sum(self.sources.values())


def part(
    apart: Mapping[str, tuple[str, ...]],
    topics: Mapping[str, TopicRate],
    load: Mapping[str, float],
    members: Collection[str],
) -> dict[str, tuple[str, ...]]:
    """The topics that are to be apart, and the members that carry each. ``load`` is what each member carries now."""
    mean = sum(load.values()) / len(members) if members else 0.0
    if not mean:
        return dict(apart)
    left = dict.fromkeys(sorted(members), 0.0) | {each: load.get(each, 0.0) for each in members}
    fixed = dict.fromkeys(left, 0.0)  # what each carries of topics that are apart: slots cannot even that out
    found: dict[str, tuple[str, ...]] = {}
    ordered = sorted(topics.items(), key=lambda each: (-each[1].weight, each[0]))
    for topic, rate in ordered:
        known = tuple(each for each in apart.get(topic, ()) if each in left)
        if len(found) >= APART_MAX or rate.weight < (COLD if topic in apart else HOT) * mean:
            continue
        most = min(rate.origins, SPREAD_MAX, len(left))
        spread = max(1, min(most, ceil(rate.weight / mean))) if rate.weight > TOO_MUCH * mean else 1
        if topic not in apart and spread == 1 and rate.rest <= ALONE * mean:
            continue
        for each, share in _shares(topic, rate, known).items():
            left[each] -= share
        chosen, full = known, _fullest(topic, rate, known, fixed)
        if not known or full > TOO_MUCH * mean:
            better = _chosen(topic, rate, spread, left, fixed, TOO_MUCH * mean)
            if not known or full - _fullest(topic, rate, better, fixed) > BETTER * mean:
                chosen = better
        for each, share in _shares(topic, rate, chosen).items():
            left[each] += share
            fixed[each] += share
        found[topic] = tuple(sorted(chosen))
    return found


def _shares(topic: str, rate: TopicRate, members: Collection[str]) -> dict[str, float]:
    """What each of these members carries of a topic, if they carry it; as much as the others, if it is not known where
    it comes from."""
    shares = dict.fromkeys(members, 0.0)
    if not shares:
        return shares
    known = sum(rate.sources.values())
    scale = rate.weight / known if rate.is_known else 0.0
    for source, weight in rate.sources.items():
        shares[ranking(f"{topic}:{source}", members)[0]] += weight * scale
    rest = 0.0 if rate.is_known else rate.weight / len(shares)
    return {each: share + rest for each, share in shares.items()}


def _fullest(topic: str, rate: TopicRate, members: Collection[str], fixed: Mapping[str, float]) -> float:
    """What that one of these members carries of topics that are apart which carries most of them."""
    shares = _shares(topic, rate, members)
    return max((fixed[each] + share for each, share in shares.items()), default=0.0)


def _chosen(
    topic: str,
    rate: TopicRate,
    spread: int,
    left: Mapping[str, float],
    fixed: Mapping[str, float],
    goal: float,
) -> tuple[str, ...]:
    """The members for a topic: those that the hash has its sources send to, if it may choose among all, or among so
    many that carry least. Leave out the fullest, again and again, until none has more than the goal; the best choice
    that was seen."""
    idle = sorted(left, key=lambda each: (left[each], each))
    if spread == 1:
        return (min(idle, key=lambda each: (fixed[each] + rate.weight > goal, left[each], each)),)
    several = len(rate.sources) > 1 and rate.is_known
    wide = spread if not several else len(idle) if len(rate.sources) <= SPREAD_MAX else SPREAD_MAX
    tried, waiting = idle[:wide], idle[wide:]
    best: tuple[float, tuple[str, ...]] | None = None
    while tried:
        shares = _shares(topic, rate, tried)
        used = tuple(each for each in tried if shares[each])
        fullest = max(used, key=lambda each: (fixed[each] + shares[each], each))
        full = fixed[fullest] + shares[fullest]
        if best is None or full < best[0]:
            best = full, used
        if full <= goal or not several:
            break
        tried.remove(fullest)
        tried += waiting[:1]
        del waiting[:1]
    assert best is not None, "somebody is in the tier"
    return best[1]

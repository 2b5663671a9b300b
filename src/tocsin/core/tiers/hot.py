"""Hot topics: which are apart from their slots, and who carries them (the leader's; pure).

Slots can be balanced as long as none of them brings much more than the others. A topic that brings more than HOT of a
member's fair share is **apart**: its slot moves without it. One that brings more than a member's share alone is
**spread** over several members, if it comes from several clusters: each broker that publishes on it sends to one of
them. It rejoins its slot when it brings less than COLD.

Bounds: APART_MAX topics of a tier, SPREAD_MAX members for each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil
from typing import Final

import msgspec

HOT: Final = (
    0.5  # of what a member carries in the mean: from here on a topic is apart, if its slot has others …
)
COLD: Final = 0.25  # … until it brings less than this
TOO_MUCH: Final = 1.1  # of the mean, from which on a topic is spread: members can be evened out to that
APART_MAX: Final = 16
SPREAD_MAX: Final = 8
ALONE: Final = 0.05  # of the mean; a slot whose other topics bring less may as well move with the topic


class TopicRate(msgspec.Struct, frozen=True):
    """What one topic brings in a second. ``origins``: clusters that it comes from."""

    weight: float
    origins: int
    rest: float = 0.0  # that the other topics of its slot bring


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
    found: dict[str, tuple[str, ...]] = {}
    ordered = sorted(topics.items(), key=lambda each: (-each[1].weight, each[0]))
    for topic, rate in ordered:
        known = tuple(each for each in apart.get(topic, ()) if each in left)
        if len(found) >= APART_MAX or rate.weight < (COLD if topic in apart else HOT) * mean:
            continue
        most = min(rate.origins, SPREAD_MAX, len(left))
        spread = min(most, ceil(rate.weight / mean)) if rate.weight > TOO_MUCH * mean else 1
        if topic in apart and known and (spread <= len(known) or most <= len(known)):
            found[topic] = known
        elif topic in apart or spread > 1 or rate.rest > ALONE * mean:
            for each in known:
                left[each] -= rate.weight / len(known)
            chosen = sorted(left, key=lambda each: (left[each], each))[: max(1, spread)]
            for each in chosen:
                left[each] += rate.weight / len(chosen)
            found[topic] = tuple(sorted(chosen))
    return found

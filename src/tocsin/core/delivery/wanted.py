"""What a broker wants of the message log: the filters of its clients, and fewer, wider ones that cover them.

A reader of the log is made for some filters, by the store. It costs more the more filters it has, and filters that
overlap are not allowed. So the filters of the clients are **simplified**: what another one covers is left out, and two
that overlap become one that covers both. If there are still too many, or if they change too often
(``core.delivery.reading``), they are cut off behind their first levels, at worst before the first:

    EXACT    plant/+/alarm, plant/7/#      the filters, cut as little as it takes
    HEADS    plant/#                       the first level of each
    ALL      #                             everything

Wider filters read in vain, and miss nothing. Filters are read here as the log's subjects are: a leading wildcard
matches topics that begin with ``$``, too.

Invariants: every filter that is wanted is covered at every level; filters of one level do not overlap, and are within
``PATTERNS_MAX`` patterns and ``BYTES_MAX`` bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from typing import Final

from tocsin.ports import PATTERNS_MAX

ALL_FILTERS: Final = ("#",)
SPARED: Final = 2  # patterns of a selection that are for something else
BYTES_MAX: Final = 16 << 10  # of the filters of a reader; as patterns they may take six times as much
CUT_MAX: Final = 4_096  # with more filters than that, only their heads are looked at


class Level(IntEnum):
    """How exactly the log is read."""

    EXACT = 0
    HEADS = 1
    ALL = 2


# ── filters ──────────────────────────────────────────────────────────────────────────────────────────────────


def is_plain(topic_filter: str) -> bool:
    """Whether a filter has no wildcards."""
    return "#" not in topic_filter and "+" not in topic_filter


def covers(wide: str, narrow: str) -> bool:
    """Whether every topic that matches ``narrow`` matches ``wide`` too."""
    if wide in ("#", narrow):
        return True
    theirs = narrow.split("/")
    mine = wide.split("/")
    for i, level in enumerate(mine):
        if level == "#":
            return True
        if i >= len(theirs) or theirs[i] == "#" or level not in ("+", theirs[i]):
            return False
    return len(mine) == len(theirs)


def overlap(one: str, other: str) -> bool:
    """Whether some topic matches both."""
    mine, theirs = one.split("/"), other.split("/")
    for left, right in zip(mine, theirs, strict=False):
        if left == "#" or right == "#":
            return True
        if left != right and left != "+" and right != "+":
            return False
    if len(mine) == len(theirs):
        return True
    shorter, longer = sorted((mine, theirs), key=len)
    return longer[len(shorter)] == "#"  # a/# matches a


def join(one: str, other: str) -> str:
    """A filter that covers both; neither is much narrower if they overlap."""
    mine, theirs = one.split("/"), other.split("/")
    joined: list[str] = []
    for left, right in zip(mine, theirs, strict=False):
        if left == "#" or right == "#":
            return "/".join((*joined, "#"))
        joined.append(left if left == right else "+")
    if len(mine) != len(theirs):
        joined.append("#")
    return "/".join(joined)


def cut(topic_filter: str, levels: int) -> str:
    """A filter that covers this one and has no more than so many levels before ``#``."""
    parts = topic_filter.split("/")
    return topic_filter if len(parts) <= levels else "/".join((*parts[:levels], "#"))


def simplified(filters: Iterable[str]) -> tuple[str, ...]:
    """Filters that do not overlap and cover all of these."""
    wild: list[str] = []
    plain: list[str] = []
    for each in sorted(set(filters), key=lambda name: (name.count("/"), name)):
        if is_plain(each):
            plain.append(each)
            continue
        joined = each
        while (other := next((known for known in wild if overlap(known, joined)), None)) is not None:
            wild.remove(other)
            joined = join(other, joined)
        wild.append(joined)
    return (*wild, *(each for each in plain if not any(covers(known, each) for known in wild)))


def fits(filters: Collection[str]) -> bool:
    """Whether a reader may have all of these."""
    patterns = sum(2 if each.endswith("/#") else 1 for each in filters)  # a/# is a, and all below it
    return patterns <= PATTERNS_MAX - SPARED and sum(map(len, filters)) <= BYTES_MAX


# ── what is wanted ───────────────────────────────────────────────────────────────────────────────────────────


class Wanted:
    """Counts who wants what, and knows since when no filter has been added at each level."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()  # filter → by how many it is wanted
        self._heads: Counter[str] = Counter()  # its head → how many filters have it
        self._since_us: dict[Level, int] = {}  # when a level's filters grew last
        self._plans: dict[Level, tuple[str, ...]] = {}  # as far as they are made

    def __len__(self) -> int:
        return len(self._reasons)

    def __iter__(self) -> Iterator[str]:
        return iter(self._reasons)

    def __contains__(self, topic_filter: str) -> bool:
        return topic_filter in self._reasons

    def add(self, topic_filter: str, now_us: int) -> bool:
        """One more wants a filter; whether it is the first."""
        self._reasons[topic_filter] += 1
        if self._reasons[topic_filter] > 1:
            return False
        self._since_us[Level.EXACT] = now_us
        self._plans.clear()
        head = cut(topic_filter, 1)
        self._heads[head] += 1
        if self._heads[head] == 1:
            self._since_us[Level.HEADS] = now_us
        return True

    def remove(self, topic_filter: str) -> bool:
        """One fewer; whether that was the last."""
        assert self._reasons[topic_filter], f"nobody wants {topic_filter!r}"
        self._reasons[topic_filter] -= 1
        if self._reasons[topic_filter]:
            return False
        del self._reasons[topic_filter]
        self._plans.clear()
        head = cut(topic_filter, 1)
        self._heads[head] -= 1
        if not self._heads[head]:
            del self._heads[head]
        return True

    def grew_us(self, level: Level) -> int | None:
        """When the filters of a level grew last; None: never."""
        return self._since_us.get(level)

    def filters(self, level: Level) -> tuple[str, ...]:
        """What to read at a level."""
        found = self._plans.get(level)
        if found is None:
            found = self._plans[level] = self._make(level)
        return found

    def _make(self, level: Level) -> tuple[str, ...]:
        if level is Level.ALL or "#" in self._reasons:
            return ALL_FILTERS
        if level is Level.EXACT and len(self._reasons) <= CUT_MAX:
            deepest = max((each.count("/") + 1 for each in self._reasons), default=1)
            for depth in range(deepest, 1, -1):
                found = {cut(each, depth) for each in self._reasons}
                if fits(found) and fits(plan := simplified(found)):
                    return plan
        if not fits(self._heads):
            return ALL_FILTERS
        plan = simplified(self._heads)
        return plan if fits(plan) else ALL_FILTERS

"""Which readers and writers the bridge should have for a topic: pure functions of the endpoints that there are.

**Readers** are one for each group of the local network's writers that agree about type, reliability, durability,
ownership and partitions. Ours may match writers of another group as well: what comes from them is left to their own
group's reader, so that each sample is taken once.

**Writers** are mirrors: one for each quality, type and set of partitions that writers elsewhere offer, and for each
exclusive owner one of its own. They offer exactly what their sources offer. So DDS itself decides, as in one network,
who matches whom; it tells a reader which policy does not fit, and ownership, deadlines and liveliness mean what they
mean there. Nothing that a reader asks for changes a mirror, so that the first one cannot spoil it for the second.

**Plain writers** are for messages of no DDS writer: a publisher of MQTT has said no quality, so that they offer the
strictest of what the readers request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from fnmatch import fnmatchcase

import msgspec

from tocsin.bridge.dds.announced import Source
from tocsin.bridge.dds.quality import Durability, Quality, mismatches, strictest, weakest
from tocsin.bridge.dds.signals import Endpoint

Group = tuple[str, bool, Durability, bool, tuple[str, ...]]
Plain = tuple[int, tuple[str, ...]]  # what a message says of its source: strength and partitions


class Kind(Enum):
    """Of the bridge's entities."""

    READER = "reader"
    WRITER = "writer"


class Wish(msgspec.Struct, frozen=True):
    """An entity that the bridge should have."""

    kind: Kind
    topic: str
    type_name: str
    quality: Quality
    like: tuple[str, ...]  # endpoints that know the type
    sources: tuple[str, ...] = ()  # writers elsewhere that it stands for
    lively: bool = True  # whether one of those is

    @property
    def label(self) -> str:
        """What an operator may call it."""
        inside = f" in {', '.join(self.quality.partitions)}" if self.quality.partitions else ""
        return f"{self.kind.value} of {self.topic} ({self.type_name}{inside})"


def readers(writers: Iterable[Endpoint]) -> dict[str, Wish]:
    """The readers that take what these writers write, by name."""
    groups: dict[Group, list[Endpoint]] = {}
    for each in writers:
        groups.setdefault(group_of_writer(each), []).append(each)
    found: dict[str, Wish] = {}
    for group, members in groups.items():
        topic = members[0].topic
        like = tuple(sorted(each.key for each in members))
        quality = weakest(each.quality for each in members)
        found[f"reader {topic!r} {group!r}"] = Wish(Kind.READER, topic, group[0], quality, like)
    return found


def mirrors(topic: str, sources: Iterable[Source], there: Iterable[Endpoint]) -> dict[str, Wish]:
    """The writers that stand for these sources, as far as a reader there is in reach of them, by name."""
    groups: dict[tuple[str, Quality, str], list[Source]] = {}
    for source in sources:
        own = source.key if source.quality.exclusive else ""
        groups.setdefault((source.type_name, source.quality, own), []).append(source)
    found: dict[str, Wish] = {}
    asking = tuple(there)
    for (type_name, quality, own), members in groups.items():
        like = tuple(sorted(each.key for each in asking if _reaches(each, type_name, quality)))
        if not like:
            continue
        keys = tuple(sorted(each.key for each in members))
        lively = any(each.lively for each in members)
        name = f"mirror {topic!r} {type_name!r} {quality!r} {own}"
        found[name] = Wish(Kind.WRITER, topic, type_name, quality, like, keys, lively)
    return found


def plain(topic: str, said: Iterable[Plain], there: Iterable[Endpoint]) -> dict[str, Wish]:
    """The writers for messages of no DDS writer, by name."""
    groups: dict[tuple[str, bool, bool], list[Endpoint]] = {}
    for each in there:
        groups.setdefault((each.type_name, each.quality.exclusive, each.quality.xcdr2), []).append(each)
    found: dict[str, Wish] = {}
    for (type_name, exclusive, xcdr2), group in groups.items():
        for strength, partitions in said:
            wanting = [each for each in group if overlap(each.quality.partitions, partitions)]
            if not wanting:
                continue
            own = strength if exclusive else 0
            offered = msgspec.structs.replace(
                strictest(each.quality for each in wanting), partitions=partitions, strength=own
            )
            like = tuple(sorted(each.key for each in wanting))
            name = f"writer {topic!r} {type_name!r} {exclusive:d}{xcdr2:d} {own} {partitions!r}"
            found[name] = Wish(Kind.WRITER, topic, type_name, offered, like)
    return found


def histories(writers: Iterable[Endpoint]) -> Iterator[tuple[str, Quality, tuple[str, ...]]]:
    """The type, quality and writers of each late reader that finds what these writers keep."""
    groups: dict[tuple[str, bool, tuple[str, ...]], list[str]] = {}
    for each in writers:
        quality = each.quality
        if quality.reliable and quality.durability >= Durability.TRANSIENT_LOCAL:
            key = each.type_name, quality.exclusive, quality.partitions
            groups.setdefault(key, []).append(each.key)
    for (type_name, exclusive, partitions), keys in groups.items():
        quality = Quality(True, Durability.TRANSIENT_LOCAL, exclusive, partitions=partitions)
        yield type_name, quality, tuple(sorted(keys))


def misfit(sources: Iterable[Source], there: Iterable[Endpoint]) -> str:
    """Why DDS does not connect some source with some reader there, in words; empty if nothing is in the way."""
    offers = {(each.type_name, each.quality): each for each in sources}
    requests = {(each.type_name, each.quality) for each in there}
    for (kind, offered), source in offers.items():
        for wanted, requested in requests:
            if not overlap(requested.partitions, offered.partitions):
                continue
            if kind != wanted:
                return f"the type of the writer {source.key} elsewhere is {kind}, and a reader's here is {wanted}"
            if policies := mismatches(offered, requested):
                less = ", ".join(policies)
                return f"the writer {source.key} elsewhere offers less than a reader here requests: {less}"
    return ""


def group_of_writer(writer: Endpoint) -> Group:
    quality = writer.quality
    return writer.type_name, quality.reliable, quality.durability, quality.exclusive, quality.partitions


def group_of(wish: Wish) -> Group:
    quality = wish.quality
    return wish.type_name, quality.reliable, quality.durability, quality.exclusive, quality.partitions


def differs(wanted: Wish, held: Wish) -> bool:
    """Whether an entity has to be made anew; who else knows its type does not matter."""
    return (wanted.quality, wanted.type_name) != (held.quality, held.type_name)


def routes(wishes: Mapping[str, Wish]) -> dict[str, str]:
    """The writer of ours for each source."""
    return {source: name for name, wish in wishes.items() for source in wish.sources}


def overlap(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether partitions have one in common, as DDS has it: no partition is the one without a name, and a name may
    be a pattern on one side."""
    return any(_same(one, other) for one in some or ("",) for other in others or ("",))


def _reaches(reader: Endpoint, type_name: str, quality: Quality) -> bool:
    return reader.type_name == type_name and overlap(reader.quality.partitions, quality.partitions)


def _same(one: str, other: str) -> bool:
    patterns = [each for each in (one, other) if any(sign in each for sign in "*?[")]
    if len(patterns) == 2:
        return one == other
    if not patterns:
        return one == other
    pattern = patterns[0]
    return fnmatchcase(other if pattern == one else one, pattern)

"""How alike the members of a tier carry under a skewed load, by strategy, beside what can be reached at best.

1 000 topics with rates by Zipf's law (s = 0.8) between 120 clusters, in slots as their names say. *slots counted* is
the placing that knows no load; *evened out* is the strategy's own moves from there, 64 slots at most each, until it is
content. *hot apart*: topics that bring too much for that are carried apart from their slots first; each is published in
ORIGINS clusters. *LPT* places all slots anew, the heaviest first, each at the member that carries least; *bound* is the
larger of the mean and the heaviest slot, below which nothing can be that moves slots.
"""

from __future__ import annotations

import random
import statistics

import msgspec

from tocsin.core.tiers.hot import TopicRate, part
from tocsin.core.tiers.loads import Rate, TierLoad
from tocsin.core.tiers.placing import even
from tocsin.core.tiers.slots import SLOTS, Slots, ranking, slot_of
from tocsin.core.tiers.strategies import ACT, KINDS, Kind, Wanted, strategy
from tocsin.core.tiers.table import SlotTable

TOPICS, CLUSTERS, ZIPF, MESSAGES_S = 1_000, 120, 0.8, 20_000
MOVES_MAX = 64
ROUNDS_MAX = 40
ORIGINS = 4  # clusters that each topic is published in
SEEDS = 5


class Row(msgspec.Struct):
    """One placing: the most loaded member against the mean, and what strategies make smaller."""

    name: str
    uneven: float  # by messages
    uneven_bytes: float
    uneven_topics: float
    links: float  # pairs of a cluster and a member between which messages go
    delay_ms: float  # of a message, both hops, mean
    moved: float = 0.0  # slots
    rounds: float = 0.0


def drawn(seed: int, members: tuple[str, ...]) -> tuple[TierLoad, dict[str, TopicRate]]:
    """A load, with how far clusters are from members, and the rates of topics."""
    chance = random.Random(seed)
    shares = [1 / place**ZIPF for place in range(1, TOPICS + 1)]
    chance.shuffle(shares)
    rates = [Rate() for _ in range(SLOTS)]
    topics = {}
    for number, share in enumerate(shares):
        messages = MESSAGES_S * share / sum(shares)
        rate = rates[slot_of(f"topic/{number}")]
        topics[f"topic/{number}"] = TopicRate(
            messages, ORIGINS, sources={f"edge-{each}": messages / ORIGINS for each in range(ORIGINS)}
        )
        first = chance.randrange(CLUSTERS)
        ends = {first, (first + 1) % CLUSTERS}  # neighbours talk to each other
        rate.messages += messages
        rate.bytes += messages * chance.choice((64, 64, 256, 4_096))
        rate.topics += 1
        rate.ends = rate.ends | {f"lan-{end}": rate.ends.get(f"lan-{end}", 0.0) + messages for end in ends}
    spots = {name: chance.random() for name in (*members, *(f"lan-{each}" for each in range(CLUSTERS)))}
    topics = {
        topic: msgspec.structs.replace(rate, rest=rates[slot_of(topic)].messages - rate.weight)
        for topic, rate in topics.items()
    }
    load = TierLoad(
        tuple(rates), {}, lambda cluster, member: round(80_000 * abs(spots[cluster] - spots[member])) + 1_000
    )
    return load, topics


def seen(name: str, slots: Slots, load: TierLoad, members: tuple[str, ...]) -> Row:
    sums = {each: [0.0, 0.0, 0.0] for each in members}
    links, far = set(), 0.0
    for member, rate in load.apart.items():
        sums[member][0] += rate.messages
    for rate, carrier in zip(load.rates, slots.carriers, strict=True):
        for place, value in enumerate((rate.messages, rate.bytes, rate.topics)):
            sums[carrier][place] += value
        for cluster, messages in rate.ends.items():
            links.add((cluster, carrier))
            far += messages * load.distance(cluster, carrier)
    messages, size, topics = (
        max(column) / statistics.fmean(column) for column in zip(*sums.values(), strict=True)
    )
    return Row(name, messages, size, topics, float(len(links)), far / MESSAGES_S / 2 / 1_000)


def parted(
    slots: Slots, load: TierLoad, topics: dict[str, TopicRate], members: tuple[str, ...], kind: Kind
) -> tuple[Slots, TierLoad]:
    """The same with hot topics apart from their slots; each origin brings as much."""
    carried = strategy(kind).carried(Wanted(slots, members), load)
    apart = part({}, topics, carried, members)
    rates, extra = [msgspec.structs.replace(each) for each in load.rates], {each: Rate() for each in members}
    for topic, carriers in apart.items():
        weight = topics[topic].weight
        rates[slot_of(topic)].messages -= weight
        for origin in range(ORIGINS):
            at = ranking(f"{topic}:edge-{origin}", carriers)[0]
            extra[at].messages += weight / ORIGINS
    return slots.after({}, apart), msgspec.structs.replace(load, rates=tuple(rates), apart=extra)


def counted(members: tuple[str, ...]) -> Slots:
    table = SlotTable()
    table.follow(members)
    table.place(even(table.slots, members))
    return table.slots


def evened(
    name: str, kind: Kind, load: TierLoad, members: tuple[str, ...], hot: dict[str, TopicRate] | None = None
) -> Row:
    """From slots that are counted, as the leader does it: move after move, until the strategy is content."""
    ours, slots, moved, rounds = strategy(kind), counted(members), 0, 0
    if hot:
        slots, load = parted(slots, load, hot, members, kind)
        rounds = 1
    if kind == "hash":
        moves = ours.place(Wanted(slots, members), load)
        slots, moved, rounds = slots.after(moves), len(moves), 1
    while rounds < ROUNDS_MAX and ours.strain(Wanted(slots, members, most=MOVES_MAX), load) > ACT:
        moves = ours.relieve(Wanted(slots, members, most=MOVES_MAX), load)
        if not moves:
            break
        slots, moved, rounds = slots.after(moves), moved + len(moves), rounds + 1
    row = seen(name, slots, load, members)
    row.moved, row.rounds = moved, rounds
    return row


def lpt(load: TierLoad, members: tuple[str, ...]) -> Row:
    carried, carriers = dict.fromkeys(members, 0.0), [""] * SLOTS
    for slot in sorted(range(SLOTS), key=lambda each: -load.rates[each].messages):
        least = min(members, key=carried.__getitem__)
        carriers[slot] = least
        carried[least] += load.rates[slot].messages
    row = seen("LPT, by messages", Slots(tuple(carriers), ("",) * SLOTS), load, members)
    row.moved = sum(now != then for now, then in zip(carriers, counted(members).carriers, strict=True))
    return row


def compare(count: int, seeds: int = SEEDS) -> list[Row]:
    """Every strategy on the same loads; means over the seeds."""
    members = tuple(f"hub-{number:02}" for number in range(count))
    found: dict[str, list[Row]] = {}
    bounds = []
    for seed in range(seeds):
        load, topics = drawn(seed, members)
        heaviest = max(each.messages for each in load.rates)
        bounds.append(max(1.0, heaviest * count / MESSAGES_S))
        rows = [
            seen("slots counted", counted(members), load, members),
            *(evened(kind, kind, load, members) for kind in KINDS),
            evened("messages, hot apart", "messages", load, members, topics),
            lpt(load, members),
        ]
        for row in rows:
            found.setdefault(row.name, []).append(row)
    means = [
        Row(name, *(statistics.fmean(column) for column in zip(*map(_figures, rows), strict=True)))
        for name, rows in found.items()
    ]
    return [*means, Row("bound", statistics.fmean(bounds), 1.0, 1.0, 0.0, 0.0)]


def _figures(row: Row) -> tuple[float, ...]:
    return tuple(value for value in msgspec.structs.astuple(row) if not isinstance(value, str))


def show(count: int, rows: list[Row]) -> None:
    print(
        f"\n{count} members, {TOPICS:,} topics by Zipf's law (s = {ZIPF}), {MESSAGES_S:,} messages/s: max/mean of …"
    )
    print(
        f"{'':20}{'messages':>10}{'bytes':>8}{'topics':>8}{'links':>8}{'delay ms':>10}{'moved':>8}{'moves':>8}"
    )
    for row in rows:
        rest = (
            f"{row.links:>8,.0f}{row.delay_ms:>10.1f}{row.moved:>8,.0f}{row.rounds:>8.1f}"
            if row.links
            else ""
        )
        print(f"{row.name:20}{row.uneven:>10.2f}{row.uneven_bytes:>8.2f}{row.uneven_topics:>8.2f}{rest}")

"""Strategies: what members carry alike, how few slots move for it, and what nearness makes smaller."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.tiers.loads import Rate, TierLoad
from tocsin.core.tiers.placing import even
from tocsin.core.tiers.slots import SLOTS, Slots, ranking
from tocsin.core.tiers.strategies import ACT, GOAL, KINDS, Kind, Strategy, Wanted, strategy
from tocsin.core.tiers.table import Moves, SlotTable

NAMES = tuple(f"hub-{number}" for number in range(1, 9))


def evened(members: tuple[str, ...]) -> Slots:
    table = SlotTable()
    table.follow(members)
    table.place(even(table.slots, members))
    return table.slots


def skewed(seed: int, *, heavy: int = 200, ends: tuple[str, ...] = ()) -> TierLoad:
    """Some slots bring much, as topics by Zipf's law do; the others nothing."""
    chance = random.Random(seed)
    rates = [Rate() for _ in range(SLOTS)]
    for place, slot in enumerate(chance.sample(range(SLOTS), heavy), 20):
        messages = 40_000.0 / place
        rates[slot] = Rate(messages, messages * chance.randrange(50, 2_000), 1.0 + chance.randrange(4))
        rates[slot].ends = {each: messages for each in chance.sample(ends, min(2, len(ends)))}
    return TierLoad(tuple(rates))


def carried(slots: Slots, load: TierLoad, members: tuple[str, ...]) -> dict[str, float]:
    found: Counter[str] = Counter(dict.fromkeys(members, 0))
    for slot, carrier in enumerate(slots.carriers):
        found[carrier] += load.rates[slot].messages  # type: ignore[assignment]
    return dict(found)


def uneven(slots: Slots, load: TierLoad, members: tuple[str, ...]) -> float:
    found = carried(slots, load, members).values()
    return max(found) * len(found) / sum(found)


def whole(slots: Slots, members: tuple[str, ...]) -> None:
    assert set(slots.carriers) <= set(members)
    assert all(
        deputy != carrier and (deputy in members or len(members) < 2)
        for carrier, deputy in zip(slots.carriers, slots.deputies, strict=True)
    )


@pytest.mark.parametrize("seed", range(6))
def test_an_uneven_load_is_evened_out_by_few_moves(seed: int) -> None:
    members, load = NAMES[: 3 + seed % 4], skewed(seed)
    before = evened(members)
    ours = strategy("messages")
    wanted = Wanted(before, members, most=64)
    moves = ours.relieve(wanted, load)
    after = before.after(moves)
    whole(after, members)
    assert uneven(after, load, members) <= GOAL and len(moves) <= 64
    if uneven(before, load, members) > GOAL:
        for slot in moves:  # none of them was for nothing
            spared = before.after({each: pair for each, pair in moves.items() if each != slot})
            assert uneven(spared, load, members) >= uneven(after, load, members)


def test_slots_that_rest_or_are_pinned_do_not_move() -> None:
    members, load = NAMES[:3], skewed(1)
    before = Slots((NAMES[0],) * SLOTS, (NAMES[1],) * SLOTS)
    pins = {slot: before.carriers[slot] for slot in range(0, SLOTS, 3)}
    moves = strategy("messages").relieve(
        Wanted(before, members, pins=pins, rested=lambda slot: slot % 3 == 1, most=64), load
    )
    assert moves and all(slot % 3 == 1 for slot in moves)


def test_no_more_slots_move_than_may() -> None:
    members, load = NAMES[:6], skewed(2)
    lopsided = Slots((NAMES[0],) * SLOTS, (NAMES[1],) * SLOTS)
    assert len(strategy("messages").relieve(Wanted(lopsided, members, most=5), load)) == 5


def test_a_member_that_comes_gets_its_part_by_load() -> None:
    members, load = NAMES[:4], skewed(3)
    before = evened(members[:3])
    after = before.after(strategy("messages").place(Wanted(before, members), load))
    whole(after, members)
    assert uneven(after, load, members) < GOAL


def test_the_slots_of_one_that_leaves_go_to_others_alike() -> None:
    members, load = NAMES[:4], skewed(4)
    before = evened(members)
    moves = strategy("messages").place(Wanted(before, members[:3], leaving=(members[3],)), load)
    after = before.after(moves)
    whole(after, members[:3])
    assert uneven(after, load, members[:3]) < GOAL


@pytest.mark.parametrize(("kind", "of"), [("topics", "topics"), ("bytes", "bytes"), ("messages", "messages")])
def test_each_strategy_evens_out_what_it_is_named_for(kind: Kind, of: str) -> None:
    members, load = NAMES[:5], skewed(5)
    before = evened(members)
    after = before.after(strategy(kind).place(Wanted(before, members), load))
    found = Counter(dict.fromkeys(members, 0.0))
    for slot, carrier in enumerate(after.carriers):
        found[carrier] += getattr(load.rates[slot], of)
    assert max(found.values()) * len(members) / found.total() < GOAL


def test_a_quicker_machine_carries_more() -> None:
    members, load = NAMES[:3], skewed(6)
    quick = TierLoad(load.rates, {NAMES[0]: 3_000.0, NAMES[1]: 1_000.0, NAMES[2]: 1_000.0})
    before = evened(members)
    found = carried(before.after(strategy("processor").place(Wanted(before, members), quick)), load, members)
    total = sum(found.values())
    assert [round(found[each] / total, 1) for each in members] == [0.6, 0.2, 0.2]


def pairs(slots: Slots, load: TierLoad) -> int:
    return len({(end, slots.carriers[slot]) for slot in range(SLOTS) for end in load.rates[slot].ends})


def test_slots_of_the_same_clusters_come_together() -> None:
    clusters = tuple(f"lan-{number}" for number in range(12))
    members, load = NAMES[:4], skewed(7, ends=clusters, heavy=60)
    rates = list(load.rates)
    for slot, rate in enumerate(rates):  # what goes between neighbours stays between them
        if rate.ends:
            first = int(next(iter(rate.ends)).partition("-")[2]) // 2 * 2
            rate.ends = {f"lan-{first}": 1.0, f"lan-{first + 1}": 1.0}
            rates[slot] = rate
    before = evened(members)
    moves = strategy("connections").place(Wanted(before, members), load)
    after = before.after(moves)
    whole(after, members)
    assert pairs(after, load) < 0.75 * pairs(before, load)
    assert uneven(after, load, members) <= ACT + 0.05


def test_slots_go_to_members_near_their_clusters() -> None:
    members = NAMES[:2]
    near = {("west", NAMES[0]), ("east", NAMES[1])}
    load = skewed(8, ends=("west", "east"))
    for rate in load.rates:
        rate.ends = dict(list(rate.ends.items())[:1])
    load = TierLoad(load.rates, {}, lambda cluster, member: 1_000 if (cluster, member) in near else 80_000)
    before = evened(members)
    ours = strategy("delay")
    assert ours.strain(Wanted(before, members), load) > ACT
    after = before.after(ours.place(Wanted(before, members), load))

    def far(slots: Slots) -> float:
        return sum(
            count * load.distance(end, slots.carriers[slot])
            for slot in range(SLOTS)
            for end, count in load.rates[slot].ends.items()
        )

    assert far(after) < 0.4 * far(before) and uneven(after, load, members) <= ACT + 0.01


def test_hashing_moves_only_what_a_new_member_takes() -> None:
    ours, members = strategy("hash"), NAMES[:4]
    before = evened(members[:3])
    load = skewed(9)
    three = before.after(ours.place(Wanted(before, members[:3]), load))
    four = three.after(ours.place(Wanted(three, members), load))
    moved = [slot for slot in range(SLOTS) if three.carriers[slot] != four.carriers[slot]]
    assert {four.carriers[slot] for slot in moved} == {members[3]} and 200 < len(moved) < 320
    gone = SlotTable(four)
    gone.follow(members[:3])
    assert gone.slots.carriers == three.carriers  # its slots are their deputies', which come next by hash
    assert ours.strain(Wanted(four, members), load) == 1.0 and ours.relieve(Wanted(four, members), load) == {}


def test_rendezvous_hashing_gives_members_equal_parts() -> None:
    found = Counter(ranking(slot, NAMES)[0] for slot in range(SLOTS))
    assert min(found.values()) > SLOTS / len(NAMES) * 0.7


@given(
    st.sampled_from(KINDS),
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.sets(st.sampled_from(NAMES)),
    st.dictionaries(st.integers(0, SLOTS - 1), st.sampled_from(NAMES), max_size=20),
    st.integers(0, 99),
)
@settings(deadline=None, max_examples=60)
def test_every_slot_has_a_carrier_and_another_deputy_whatever_is_wanted(
    kind: Kind, members: set[str], leaving: set[str], pins: dict[int, str], seed: int
) -> None:
    staying = tuple(sorted(members - leaving))
    table = SlotTable()
    table.follow(members)
    before = table.slots
    ours: Strategy = strategy(kind)
    load = skewed(seed, ends=("east", "west", "north"))
    wanted = Wanted(before, staying, leaving & members, pins)
    made: list[Moves] = [ours.place(wanted, load), ours.relieve(wanted, load)]
    for moves in made[: 2 if not leaving & members else 1]:
        table = SlotTable(before)
        table.follow(members)
        table.place(moves)
        slots = table.slots
        assert all(each in members for each in slots.carriers)
        if staying and moves is made[0]:
            assert all(each in staying for each in slots.carriers)
            for slot, member in pins.items():
                assert member not in staying or slots.carriers[slot] == member
        for slot, (carrier, deputy) in moves.items():
            assert carrier != deputy and (carrier, deputy) != (before.carriers[slot], before.deputies[slot])

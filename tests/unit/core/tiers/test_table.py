"""The table of a tier's slots: every slot has a carrier and another deputy, whoever comes and goes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.tiers.placing import even
from tocsin.core.tiers.slots import NOBODY, SLOTS
from tocsin.core.tiers.table import SlotTable


def whole(table: SlotTable, members: set[str]) -> None:
    slots = table.slots
    for carrier, deputy in zip(slots.carriers, slots.deputies, strict=True):
        assert carrier in members if members else carrier == NOBODY
        assert (deputy in members and deputy != carrier) if len(members) > 1 else deputy == NOBODY


def evened(*members: str) -> SlotTable:
    table = SlotTable()
    table.follow(members)
    table.place(even(table.slots, members))
    return table


def test_slots_of_a_lost_member_go_to_their_deputies() -> None:
    table = evened("a", "b", "c", "d")
    before = table.slots
    moved = table.follow(("a", "b", "c"))
    for slot in range(SLOTS):
        if before.carriers[slot] == "d":
            assert table.slots.carriers[slot] == before.deputies[slot]
        else:
            assert table.slots.carriers[slot] == before.carriers[slot]
    assert set(moved) == {
        slot for slot in range(SLOTS) if "d" in (before.carriers[slot], before.deputies[slot])
    }


def test_the_loss_of_a_member_burdens_all_others_alike() -> None:
    table = evened("a", "b", "c", "d", "e")
    table.follow(("a", "b", "c", "d"))
    counts = table.carried()
    assert max(counts.values()) - min(counts.values()) <= 4


def test_a_member_that_comes_carries_nothing_before_it_is_told_to() -> None:
    table = evened("a", "b")
    assert table.follow(("a", "b", "c")) == {} and table.carried()["c"] == 0


def test_places_for_brokers_that_are_gone_have_no_effect() -> None:
    table = evened("a", "b")
    assert table.place({1: ("gone", "a"), SLOTS: ("a", "b")}) == {}
    table.place({1: ("a", "gone"), 2: ("b", "b")})
    whole(table, {"a", "b"})


def test_evening_out_moves_as_few_slots_as_possible() -> None:
    table = evened("a", "b", "c")
    before = table.slots
    table.follow(("a", "b", "c", "d"))
    moves = even(table.slots, table.members)
    moved = [slot for slot, (carrier, _) in moves.items() if carrier != before.carriers[slot]]
    assert len(moved) == SLOTS // 4 and all(moves[slot][0] == "d" for slot in moved)


def test_deputies_of_one_member_are_all_others() -> None:
    slots = evened("a", "b", "c", "d", "e").slots
    pairs = Counter(zip(slots.carriers, slots.deputies, strict=True))
    assert len(pairs) == 20 and max(pairs.values()) - min(pairs.values()) <= 2


steps = st.lists(
    st.one_of(
        st.tuples(st.just("members"), st.sets(st.sampled_from("abcde"))),
        st.tuples(
            st.just("place"),
            st.dictionaries(
                st.integers(0, SLOTS + 1), st.tuples(st.sampled_from("abcdefg"), st.sampled_from("abcdefg"))
            ),
        ),
        st.tuples(st.just("even"), st.sets(st.sampled_from("abcde"))),
    ),
    max_size=12,
)


@given(steps)
def test_whatever_happens_every_slot_has_one_carrier_and_another_deputy(
    story: list[tuple[str, object]],
) -> None:
    table, copy = SlotTable(), SlotTable()
    known = copy.slots
    for what, given_ in story:
        if what == "members":
            moves = table.follow(given_)  # type: ignore[arg-type]
        elif what == "place":
            moves = table.place(given_)  # type: ignore[arg-type]
        else:
            ready = set(table.members) & given_  # type: ignore[operator]
            moves = table.place(even(table.slots, ready))
            counts = [table.carried()[each] for each in ready]
            assert not counts or max(counts) - min(counts) <= 1
        whole(table, set(table.members))
        known = known.after(moves)
        assert known == table.slots, "the moves that are told add up to the table"
        assert SlotTable(table.slots).slots == table.slots

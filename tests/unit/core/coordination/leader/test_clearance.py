"""A broker is told that the way is clear when all whom its commands concern know, in the order of the commands."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.coordination.leader.drafting import FORGET_US, ClearanceWaits, Cleared


def test_all_that_are_concerned_have_to_see_their_notice() -> None:
    tested = ClearanceWaits()
    tested.add("p", 7, 3, {"a": 5, "b": 2}, 0)
    assert tested.waits("p") and not tested.waits("a")
    assert tested.saw("a", 4) == [] and tested.saw("a", 5) == [] and tested.saw("b", 1) == []
    assert tested.saw("b", 9) == [Cleared("p", 7, 3)]
    assert not tested.waits("p")


def test_a_later_command_is_not_clear_before_an_earlier_one() -> None:
    tested = ClearanceWaits()
    tested.add("p", 7, 1, {"a": 1}, 0)
    tested.add("p", 7, 2, {"b": 1}, 0)
    assert tested.saw("b", 1) == []
    assert tested.saw("a", 1) == [Cleared("p", 7, 2)]


def test_what_was_seen_before_it_is_asked_about_counts() -> None:
    tested = ClearanceWaits()
    tested.saw("a", 5)
    assert tested.add("p", 7, 1, {"a": 6}, 0) == []
    assert tested.add("p", 7, 2, {"a": 5}, 0) == [], "not before the first"
    assert tested.add("q", 8, 1, {"a": 5}, 0) == [Cleared("q", 8, 1)]
    tested.gone("a")
    assert tested.add("q", 8, 2, {"a": 1}, 0) == [], "its next life has seen nothing"


def test_a_broker_may_see_a_notice_before_the_leaders_append_is_confirmed() -> None:
    tested = ClearanceWaits()
    assert tested.saw("a", 3) == []
    assert tested.add("p", 7, 1, {"a": 3}, 0) == [Cleared("p", 7, 1)]
    assert tested.add("p", 7, 2, {"a": 4}, 0) == []
    tested.gone("a")
    assert tested.add("q", 8, 1, {"a": 1}, 0) == [], "in its next life it begins at 1"


def test_a_command_that_concerns_nobody_is_clear_with_the_one_before_it() -> None:
    tested = ClearanceWaits()
    assert tested.add("p", 7, 1, {"a": 1}, 0) == []
    assert tested.add("p", 7, 2, {}, 0) == []
    assert tested.saw("a", 1) == [Cleared("p", 7, 2)]
    assert tested.add("p", 7, 3, {}, 0) == [Cleared("p", 7, 3)]


def test_brokers_that_spoke_together_are_clear_together() -> None:
    tested = ClearanceWaits()
    tested.add("p", 7, 1, {"b": 1}, 0)
    row = [Cleared("p", 7, 2), Cleared("q", 8, 5), Cleared("r", 9, 3)]
    assert tested.add_row(row, {"a": 4, "p": 3, "q": 6}, 0) == []
    assert tested.saw("a", 4) == tested.saw("p", 3) == []
    assert tested.gone("r") == []
    assert tested.saw("q", 6) == [Cleared("q", 8, 5)], (
        "one is gone, and an earlier command of one is not clear"
    )
    assert tested.saw("b", 1) == [Cleared("p", 7, 2)]
    assert not any(tested.waits(each) for each in "pqr")


def test_nobody_waits_for_a_broker_that_is_gone() -> None:
    tested = ClearanceWaits()
    tested.add("p", 7, 1, {"a": 1}, 0)
    tested.add("q", 8, 1, {"p": 1}, 0)
    assert tested.gone("p") == [Cleared("q", 8, 1)]
    assert tested.saw("a", 1) == [], "who is gone is told nothing"


def test_what_waits_for_too_long_is_forgotten() -> None:
    tested = ClearanceWaits()
    tested.add("p", 7, 1, {"a": 1}, 0)
    tested.forget(FORGET_US)
    assert tested.waits("p")
    tested.forget(FORGET_US + 1)
    assert not tested.waits("p") and tested.saw("a", 1) == []


def test_what_another_broker_says_of_the_same_is_not_clear_before() -> None:
    """A client has moved: the stream is in place, and not everybody whom it concerns knows it."""
    tested = ClearanceWaits()
    tested.add("p", 7, 1, {"a": 5, "b": 2, "q": 1}, 0, {"anna", "t"})
    assert tested.waits("q", {"anna"}) and tested.waits("q", {"t", "u"}) and not tested.waits("q", {"ben"})
    assert tested.add("q", 8, 4, {}, 0, {"anna"}) == [], "not for itself, it is told in order"
    assert tested.saw("a", 9) == []
    assert tested.saw("b", 2) == [Cleared("q", 8, 4)]
    assert tested.saw("q", 1) == [Cleared("p", 7, 1)] and not tested.waits("q", {"anna", "t"})


def test_a_broker_that_is_gone_leaves_what_others_have_to_know() -> None:
    tested = ClearanceWaits()
    tested.add("p", 7, 1, {"a": 5}, 0, {"anna"})
    tested.gone("p")
    assert tested.add("q", 8, 1, {"a": 7}, 0, {"ben"}) == []
    assert tested.add("r", 9, 1, {}, 0, {"anna"}) == []
    assert tested.saw("a", 5) == [Cleared("r", 9, 1)], "notices are awaited in their order"
    assert tested.saw("a", 7) == [Cleared("q", 8, 1)]


def test_what_was_inherited_is_handed_on_and_forgotten_in_time() -> None:
    tested = ClearanceWaits()
    tested.add("p", 7, 1, {"a": 1}, 0, {"anna"})
    tested.add("q", 8, 1, {"b": 1}, 0, {"anna"})
    tested.add("r", 9, 1, {}, 0, {"anna"})
    assert tested.saw("b", 1) == []
    tested.forget(FORGET_US + 1)
    assert not tested.waits("s", {"anna"}) and tested.add("s", 1, 1, {}, FORGET_US + 1, {"anna"}) != []


@given(
    st.lists(st.sets(st.sampled_from("abc"), min_size=1), max_size=12),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 12)), max_size=40),
)
def test_exactly_the_commands_whose_needs_are_met_are_clear(
    needs: list[set[str]], seen: list[tuple[str, int]]
) -> None:
    tested = ClearanceWaits()
    for number, brokers in enumerate(needs, 1):
        tested.add("p", 7, number, dict.fromkeys(sorted(brokers), number), 0)
    knows, clear = dict.fromkeys("abc", 0), 0
    for broker, notice in seen:
        knows[broker] = max(knows[broker], notice)
        for told in tested.saw(broker, notice):
            clear = told.number
        met = [all(knows[each] >= number for each in brokers) for number, brokers in enumerate(needs, 1)]
        assert clear == (met.index(False) if False in met else len(met))

"""The account, held against one that is counted the slow way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin_demo.scene.account import EXAMPLES_MAX, Account, Result, account, late

ONE, TWO, THREE = Result(1, 1, 9), Result(1, 2, 3), Result(2, 3, 9)
RESULTS = st.builds(Result, st.integers(1, 3), st.integers(1, 4), st.sampled_from((3, 9)))


def by_hand(committed: dict[str, list[Result]], got: dict[str, list[Result]]) -> tuple[int, int, int, int]:
    """delivered, lost, duplicates, strange: each result is taken out of what is due, one by one."""
    delivered = lost = duplicates = strange = 0
    for name in {*committed, *got}:
        due = [each.key for each in committed.get(name, [])]
        left = list(due)
        for each in got.get(name, []):
            if each.key in left:
                left.remove(each.key)
                delivered += 1
            elif each.key in due:
                duplicates += 1
            else:
                strange += 1
        lost += len(left)
    return delivered, lost, duplicates, strange


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(RESULTS, max_size=6)),
    st.dictionaries(st.sampled_from("abc"), st.lists(RESULTS, max_size=8)),
)
def test_every_result_is_delivered_lost_repeated_or_strange(
    committed: dict[str, list[Result]], got: dict[str, list[Result]]
) -> None:
    found = account(committed, got)
    assert (found.delivered, found.lost, found.duplicates, found.strange) == by_hand(committed, got)
    assert found.committed == sum(map(len, committed.values())) == found.delivered + found.lost
    assert found.critical == sum(each.priority == 9 for some in committed.values() for each in some)


@given(st.lists(RESULTS, max_size=8))
def test_whoever_comes_in_order_within_each_class_is_not_late(got: list[Result]) -> None:
    ordered = sorted(got, key=lambda each: each.key)
    assert late(ordered) == 0
    critical_first = [*(e for e in ordered if e.priority == 9), *(e for e in ordered if e.priority != 9)]
    if len({each.key for each in got}) == len(got):
        assert late(critical_first) == 0


def test_a_result_behind_a_later_one_is_out_of_order() -> None:
    assert late([THREE, ONE]) == 1
    assert late([THREE, TWO]) == 0  # of different classes
    assert late([ONE, THREE, ONE]) == 0  # a repeat is not out of order
    assert late([THREE, ONE, ONE]) == 1


def test_when_everything_came_once_and_in_order_every_promise_was_kept() -> None:
    found = account({"a": [ONE, TWO], "b": [THREE]}, {"a": [ONE, TWO], "b": [THREE], "c": []}, repeats=4)
    assert found == Account(3, 3, 3, 0, 0, 0, 0, repeats=4, critical=2)
    assert found.kept


def test_each_broken_promise_is_seen_and_said() -> None:
    lost = account({"a": [ONE, TWO]}, {"a": [ONE]})
    assert (lost.lost, lost.kept) == (1, False)
    assert lost.examples == ("a never got emergency 2 of execution 1",)
    twice = account({"a": [ONE]}, {"a": [ONE, ONE]})
    assert (twice.duplicates, twice.kept) == (1, False)
    assert twice.examples == ("a: 1 delivered, 1 duplicates",)
    strange = account({}, {"a": [ONE]})
    assert (strange.strange, strange.kept) == (1, False)
    disorderly = account({"a": [ONE, THREE]}, {"a": [THREE, ONE]})
    assert (disorderly.out_of_order, disorderly.kept) == (1, False)


def test_a_result_that_was_committed_twice_is_due_twice() -> None:
    assert account({"a": [ONE, ONE]}, {"a": [ONE, ONE]}).kept
    assert account({"a": [ONE, ONE]}, {"a": [ONE]}).lost == 1


def test_examples_are_bounded() -> None:
    assert len(account({str(n): [ONE] for n in range(50)}, {}).examples) == EXAMPLES_MAX

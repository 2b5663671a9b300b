"""The account finds every loss, repeat and disorder that is planted, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.chaos.account import EXAMPLES_MAX, Account, Promise, Spread

STREAM = "chaos/1/fire/0"
ORDINARY = Promise()


def an_account(promise: Promise = ORDINARY, messages: int = 5) -> Account:
    """One subscriber, and so many acknowledged messages, one a second."""
    account = Account()
    account.expect("s", STREAM, promise)
    for number in range(messages):
        assert account.published(STREAM, float(number)) == number
        account.acknowledged(STREAM, number)
    return account


def deliver(account: Account, *numbers: int) -> None:
    for number in numbers:
        account.delivered("s", STREAM, number, 100.0)


def test_what_arrives_once_and_in_order_keeps_every_promise() -> None:
    account = an_account()
    deliver(account, 0, 1, 2, 3, 4)
    totals = account.totals()
    assert totals.kept and account.settled and account.begun
    assert (totals.published, totals.acknowledged, totals.expected, totals.delivered) == (5, 5, 5, 5)
    assert totals.examples == ()


@pytest.mark.parametrize(("arrived", "lost"), [((0, 1, 3, 4), 1), ((0, 1, 2), 2), ((), 5), ((4,), 4)])
def test_a_planted_loss_is_found(arrived: tuple[int, ...], lost: int) -> None:
    account = an_account()
    deliver(account, *arrived)
    totals = account.totals()
    assert totals.lost == lost and not totals.kept and not account.complete
    assert "s never got" in totals.examples[0]


def test_what_was_not_acknowledged_may_be_missing_or_come() -> None:
    account = an_account(messages=2)
    account.published(STREAM, 2.0)
    account.published(STREAM, 3.0)
    deliver(account, 0, 1, 3)
    totals = account.totals()
    assert totals.kept and totals.delivered == 3
    assert account.complete and not account.settled


def test_what_was_refused_is_neither_owed_nor_waited_for() -> None:
    account = an_account(messages=2)
    for at_s in (2.0, 3.0):
        account.refused(STREAM, account.published(STREAM, at_s))
    deliver(account, 0, 1)
    assert account.settled
    deliver(account, 3)
    totals = account.totals()
    assert totals.kept and account.settled
    assert (totals.published, totals.acknowledged, totals.refused, totals.expected) == (4, 2, 2, 2)


def test_a_planted_repeat_counts_against_qos_2_only() -> None:
    for promise, kept in ((Promise(once=True), False), (Promise(once=False), True)):
        account = an_account(promise)
        deliver(account, 0, 1, 2, 1, 2, 3, 4)
        totals = account.totals()
        assert totals.kept is kept
        assert (totals.repeated, totals.repeated_once) == ((2, 0) if kept else (0, 2))
        assert totals.out_of_order == 0, "a repeat is not out of order"


def test_a_planted_disorder_is_found_unless_nobody_promised_order() -> None:
    for promise, kept in ((Promise(), False), (Promise(ordered=False), True)):
        account = an_account(promise)
        deliver(account, 0, 2, 1, 3, 4)
        totals = account.totals()
        assert totals.out_of_order == (0 if kept else 1) and totals.kept is kept


def test_repeats_within_a_group_are_told_apart() -> None:
    account = an_account(Promise(ordered=False))
    deliver(account, 0, 1, 2, 3, 4, 4)
    assert (account.totals().repeated, account.totals().repeated_shared) == (0, 1)


def test_repeats_to_everybody_and_repeats_to_some_are_counted_apart() -> None:
    account = Account()
    for receiver in ("s", "t"):
        account.expect(receiver, STREAM, ORDINARY)
    for number in range(2):
        account.published(STREAM, 0.0)
        for receiver in ("s", "t"):
            for _ in range(2 - number):
                account.delivered(receiver, STREAM, number, 1.0)
    totals = account.totals()
    assert (totals.repeated, totals.repeated_to_some) == (2, 0)
    account.delivered("t", STREAM, 1, 2.0)
    totals = account.totals()
    assert (totals.repeated, totals.repeated_to_some) == (3, 1)


@pytest.mark.parametrize(
    ("receiver", "stream", "number"), [("s", STREAM, 5), ("s", STREAM, -1), ("s", "x", 0), ("t", STREAM, 0)]
)
def test_what_was_never_published_is_strange(receiver: str, stream: str, number: int) -> None:
    account = an_account()
    deliver(account, 0, 1, 2, 3, 4)
    account.delivered(receiver, stream, number, 9.0)
    totals = account.totals()
    assert (totals.strange, totals.delivered, totals.kept) == (1, 5, False)


def test_a_fault_is_recovered_from_when_the_last_one_hears_something_newer() -> None:
    account = Account()
    for receiver in ("a", "b"):
        for stream in ("x", "y"):
            account.expect(receiver, stream, Promise())
    for stream in ("x", "y"):
        account.published(stream, 1.0)
    fault = account.broken(2.0)
    for receiver in ("a", "b"):
        for stream in ("x", "y"):
            account.delivered(receiver, stream, 0, 3.0)  # was published before the fault
    assert not account.recovered and len(account.waiting(fault)) == 4
    for stream in ("x", "y"):
        account.published(stream, 4.0)
    for receiver, stream in (("a", "x"), ("a", "y"), ("b", "x")):
        account.delivered(receiver, stream, 1, 5.0)
    assert account.waiting(fault) == [("b", "y")]
    assert account.totals().unrecovered == 1 and not account.totals().kept
    account.delivered("b", "y", 1, 6.5)
    assert (account.recovery_s(fault), account.waiting(fault)) == (4.5, [])
    assert account.totals().recovery == Spread(4.5, 4.5, 4.5)


def test_spreads_are_by_nearest_rank() -> None:
    assert Spread.of([]) is None
    assert Spread.of(map(float, range(1, 101))) == Spread(50.0, 95.0, 100.0)


def test_examples_are_few() -> None:
    account = Account()
    for number in range(EXAMPLES_MAX + 5):
        account.expect(f"s{number}", STREAM, Promise())
    account.acknowledged(STREAM, account.published(STREAM, 0.0))
    assert account.totals().lost == EXAMPLES_MAX + 5
    assert len(account.totals().examples) == EXAMPLES_MAX


# ── against a deliberately simple account ────────────────────────────────────────────────────────────────────

STREAMS = ("x", "y")
PROMISES = {
    ("a", "x"): Promise(once=True),
    ("a", "y"): Promise(),
    ("b", "x"): Promise(ordered=False),
    ("b", "y"): Promise(once=True, ordered=False),
    ("c", "x"): Promise(),
    ("c", "y"): Promise(),
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(STREAMS)),
        st.tuples(st.just("acknowledge"), st.sampled_from(STREAMS), st.integers(0, 8)),
        st.tuples(st.just("deliver"), st.sampled_from(sorted(PROMISES)), st.integers(-1, 8)),
        st.tuples(st.just("break")),
    ),
    max_size=60,
)


def simple(steps: list[tuple[Any, ...]]) -> dict[str, Any]:
    """The whole history, gone through again for every question."""
    sent: dict[str, list[int]] = {stream: [] for stream in STREAMS}
    acknowledged: set[tuple[str, int]] = set()
    came: dict[tuple[str, str], list[tuple[int, int]]] = {pair: [] for pair in PROMISES}
    faults: list[int] = []
    strange = 0
    for at, step in enumerate(steps):
        match step:
            case ("publish", stream):
                sent[stream].append(at)
            case ("acknowledge", stream, number) if number < len(sent[stream]):
                acknowledged.add((stream, number))
            case ("deliver", pair, number):
                if 0 <= number < len(sent[pair[1]]):
                    came[pair].append((number, at))
                else:
                    strange += 1
            case ("break",):
                faults.append(at)
    figures = {"lost": 0, "repeated": 0, "repeated_shared": 0, "repeated_once": 0, "out_of_order": 0}
    for pair, arrivals in came.items():
        numbers = [number for number, _ in arrivals]
        firsts = list(dict.fromkeys(numbers))
        promise = PROMISES[pair]
        figures["lost"] += sum((pair[1], n) in acknowledged and n not in numbers for n in range(9))
        key = "repeated_once" if promise.once else "repeated" if promise.ordered else "repeated_shared"
        figures[key] += len(numbers) - len(firsts)
        if promise.ordered:
            figures["out_of_order"] += sum(
                any(earlier > number for earlier in firsts[:place]) for place, number in enumerate(firsts)
            )
    figures["repeated_to_some"] = 0
    for pair in came:
        alike = [other for other in PROMISES if other[1] == pair[1] and PROMISES[other].ordered]
        for number in range(9) if PROMISES[pair].ordered and not PROMISES[pair].once else ():
            again = [max(0, [n for n, _ in came[other]].count(number) - 1) for other in (pair, *alike)]
            figures["repeated_to_some"] += again[0] - min(again)
    recoveries: list[int | None] = []
    for fault in faults:
        heard = [
            [at for number, at in came[pair] if at > fault and sent[pair[1]][number] > fault] for pair in came
        ]
        recoveries.append(max(map(min, heard)) - fault if all(heard) else None)
    return {**figures, "strange": strange, "recoveries": recoveries, "acknowledged": len(acknowledged)}


@given(STEPS)
def test_it_says_the_same_as_a_simple_one(steps: list[tuple[Any, ...]]) -> None:
    account = Account()
    for pair, promise in PROMISES.items():
        account.expect(*pair, promise)
    published = dict.fromkeys(STREAMS, 0)
    faults: list[int] = []
    for at, step in enumerate(steps):
        match step:
            case ("publish", stream):
                account.published(stream, float(at))
                published[stream] += 1
            case ("acknowledge", stream, number) if number < published[stream]:
                account.acknowledged(stream, number)
            case ("deliver", pair, number):
                account.delivered(pair[0], pair[1], number, float(at))
            case ("break",):
                faults.append(account.broken(float(at)))
    expected = simple(steps)
    totals = account.totals()
    assert [account.recovery_s(fault) for fault in faults] == expected.pop("recoveries")
    assert {name: getattr(totals, name) for name in expected} == expected
    assert account.complete == (totals.lost == 0)
    assert totals.published == sum(published.values())

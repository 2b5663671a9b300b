"""Debts for what had to be told: they grow, are forgiven with time, and are remembered within a bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.unit.core.coordination.histories import batches
from tocsin.core.coordination.state import spending
from tocsin.core.coordination.state.spending import Spending
from tocsin.core.coordination.state.state import State
from tocsin.wire.internal.commands import Batch, Limits
from tocsin.wire.internal.notices import told_bytes

SECOND_US = 1_000_000
LIMITS = Limits(told_burst_bytes=1_000, told_rate_bytes=100)


def test_a_debt_is_forgiven_with_time() -> None:
    debts = Spending()
    debts.charge("anna", 1_500, 0, LIMITS)
    assert debts.problem("anna", 0, LIMITS) == (
        "too much had to be told because of this user's clients; try again in 5 s"
    )
    assert debts.problem("ben", 0, LIMITS) is None
    assert debts.problem("anna", 5 * SECOND_US, LIMITS) is None
    debts.charge("anna", 1, 5 * SECOND_US, LIMITS)
    assert debts.owes("anna", 5 * SECOND_US, LIMITS) == 1_001
    assert debts.owes("anna", 500 * SECOND_US, LIMITS) == 0


def test_without_a_rate_nobody_owes_anything() -> None:
    debts = Spending()
    debts.charge("anna", 1 << 40, 0, Limits())
    assert debts.debts == {} and debts.problem("anna", 0, Limits()) is None


def test_only_the_largest_debts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spending, "USERS_MAX", 2)
    debts = Spending()
    for user, size in (("a", 500), ("b", 100), ("c", 300)):
        debts.charge(user, size, 0, LIMITS)
    assert list(debts.debts) == ["a", "c"]


@settings(max_examples=100, deadline=None)
@given(batches)
def test_a_state_counts_what_it_tells(history: list[Batch]) -> None:
    state, told = State(), 0
    for batch in history:
        outcome = state.apply(batch.at_us, batch.commands)
        told += outcome.size
        assert outcome.size >= sum(told_bytes(item) for items in outcome.items.values() for item in items)
        assert state.told == told

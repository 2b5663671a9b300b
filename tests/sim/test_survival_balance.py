"""Clients that are moved between brokers arrive, are told everything and are not moved in a circle; planted bugs show
that the promises would notice."""

from __future__ import annotations

import pytest

from tests.sim.survival_bugs import Planted
from tocsin.broker.survival.moving_out import Removal
from tocsin.core.coordination.leader.balancing import Balance
from tocsin.core.survival.moving_out import MovingOut
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find

CIRCLE = "no client is moved in a circle"
EVEN = "in the end the brokers of a cluster are about as full as each other"
EMPTY = "a broker that is being emptied has no clients in the end"


@pytest.mark.parametrize("scenario", ["survival-balance", "survival-drain-clusters"])
def test_some_seeds_with_clients_that_are_moved_break_nothing(scenario: str) -> None:
    assert [outcome for outcome in run_many(scenario, 0, 3) if outcome.broken] == []


@pytest.mark.parametrize("scenario", ["survival-balance", "survival-drain-clusters"])
def test_moving_clients_in_a_calm_network_breaks_nothing(scenario: str) -> None:
    assert run(find(scenario), 0, plan=[]).broken is None


class Restless(MovingOut):
    """Lets clients go that have just come."""

    def __init__(self, rest_us: int) -> None:
        super().__init__(0)


def moves_in_circles(patch: pytest.MonkeyPatch) -> None:
    """A leader reckons anew while clients are on their way, and brokers also move those who have just come."""
    patch.setattr(Removal, "choosing", Restless)
    patch.setattr(Balance, "_go_on", lambda self, *asked: None)


def balances_nothing(patch: pytest.MonkeyPatch) -> None:
    """A leader never begins to balance."""
    patch.setattr(Balance, "_begin", lambda self, *asked: None)


def empties_nobody(patch: pytest.MonkeyPatch) -> None:
    """A broker that is being emptied takes new clients, and moves nobody."""
    patch.setattr(Removal, "told", lambda self, moves: None)


PLANTED: dict[str, Planted] = {
    "clients are moved in circles": Planted(moves_in_circles, CIRCLE, [], scenario="survival-balance"),
    "nobody is moved to balance": Planted(balances_nothing, EVEN, [], scenario="survival-balance"),
    "a drained cluster keeps its clients": Planted(
        empties_nobody, EMPTY, [], scenario="survival-drain-clusters"
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[bug]
    found = planted.find(monkeypatch)
    assert found is not None, f"{planted.seeds} seeds did not find it"
    assert found.invariant in (planted.invariant, planted.also)

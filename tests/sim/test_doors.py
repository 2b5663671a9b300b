"""Whoever knows one address of a network is served, whatever fails; without the door's precautions that is not so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.survival_bugs import Planted, find_again
from tocsin.core.door import door
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find

CIRCLE = "no client is sent in a circle"
HOME = "in the end everybody is at home, and nobody stands in for anybody"

# Seeds that broke something, and what they found.
FOUND: dict[int, str] = {
    4: "a door moved a client for good whose home had not joined yet, and it never came back there",
    337: "the promise asked a backup that had been left behind, and caught up with the answer on its way",
    340: "a broker that stopped redirected a client that the door had passed on, since it follows nobody",
    5043: "a connection from before a cut was stored after it, over what its client had unsubscribed from since",
}


def test_some_seeds_with_doors_break_nothing() -> None:
    assert [outcome for outcome in run_many("survival-doors", 0, 2) if outcome.broken] == []


@pytest.mark.parametrize("seed", FOUND)
def test_seed_of_doors_that_broke_something_breaks_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_again(monkeypatch)
    assert run(find("survival-doors"), seed).broken is None


def forgets_redirects(patch: pytest.MonkeyPatch) -> None:
    """A client that did not follow is redirected again."""
    patch.setattr(door, "_is_back", lambda visit, now_us: False)


def test_client_that_is_sent_in_a_circle_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Planted(forgets_redirects, CIRCLE, scenario="survival-doors").find(monkeypatch)
    assert broken is not None
    assert broken.invariant == CIRCLE


def test_home_that_a_door_takes_away_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = door.Redirect

    def for_good(chosen: Any, address: str, moved: bool) -> door.Redirect:
        return made(chosen, address, moved=True)

    monkeypatch.setattr(door, "Redirect", for_good)
    broken = run(find("survival-doors"), 4).broken
    assert broken is not None
    assert broken.invariant == HOME

"""Brokers and coordinator agree on routes, whatever the seeds invent."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from tocsin.core.machine import Effect
from tocsin.core.membership import Member
from tocsin.core.registry import Registry
from tocsin.model.network import RoutesVersion
from tocsin.sim.runner import run, run_many
from tocsin.sim.scenario import find
from tocsin.sim.scenarios import routes
from tocsin.wire.control import Heartbeat, Routes

ONCE_FAILED = (3,)  # a broker that was forgotten and came back saw the numbers of routes begin anew


def test_a_hundred_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("routes", 0, 100) if outcome.broken] == []


@pytest.mark.slow
def test_ten_thousand_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("routes", 0, 10_000, jobs=2) if outcome.broken] == []


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    assert run(find("routes"), seed).broken is None


class CredulousMember(Member):
    """Bug: applies a change to whatever routes it has."""

    def _take_routes(self, cause: str, message: Routes) -> list[Effect]:
        if message.base:
            self.routes_version = RoutesVersion(message.version.incarnation, message.base)
        return super()._take_routes(cause, message)


class DeafRegistry(Registry):
    """Bug: does not look at what a heartbeat says."""

    def _on_heartbeat(self, cause: str, beat: Heartbeat, now_us: int) -> list[Effect]:
        self._meet(beat.broker, beat.incarnation, now_us)
        return []


@pytest.mark.parametrize("machines", [{"member": CredulousMember}, {"registry": DeafRegistry}], ids=str)
def test_a_planted_bug_is_found(machines: dict[str, Any]) -> None:
    usual = find("routes")
    wrong = msgspec.structs.replace(usual, build=partial(routes.build, **machines))
    assert any(run(wrong, seed).broken is not None for seed in range(200))

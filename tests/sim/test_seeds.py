"""Many seeds of every scenario. ``make test-slow SEEDS=5000`` runs as many of each."""

from __future__ import annotations

import os

import pytest

from tocsin.sim.process import stage
from tocsin.sim.runs.runner import run_many
from tocsin.sim.runs.scenario import scenarios

SEEDS = int(os.environ.get("SEEDS", "50"))
READERS = ("channels", "durable", "groups", "quality", "streams", "survival")  # whose brokers follow the log


@pytest.mark.slow
@pytest.mark.timeout(86_400)
@pytest.mark.parametrize("name", sorted(scenarios()))
def test_many_seeds_break_nothing(name: str) -> None:
    assert [outcome for outcome in run_many(name, 0, SEEDS, jobs=2) if outcome.broken] == []


@pytest.mark.parametrize("name", READERS)
def test_brokers_that_read_all_of_the_log_break_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``messages.read = "all"``; the scenarios read by interest, as brokers do by default."""
    monkeypatch.setattr(stage, "READ", "all")
    assert [outcome for outcome in run_many(name, 0, 3, jobs=1) if outcome.broken] == []

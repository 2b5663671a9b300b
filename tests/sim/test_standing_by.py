"""A broker reads no notices of results until somebody there wants some; whoever comes then misses nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from tests.sim.search import seeds_from
from tocsin.broker.channels import results
from tocsin.broker.channels.results import Results
from tocsin.broker.delivery import client_delivery
from tocsin.errors import StoreError
from tocsin.model.results import result_position
from tocsin.sim.runs.runner import run
from tocsin.sim.runs.scenario import find

SEEDS = 8
OFTEN_S = 0.2  # so that many looks fall between two steps of clients

Bug = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "STAND_BY_S", OFTEN_S)


@pytest.mark.parametrize("name", ["channels", "shared-channels"])
def test_some_seeds_break_nothing(name: str) -> None:
    assert [run(find(name), seed).broken for seed in range(SEEDS)] == [None] * SEEDS


def moves_on_in_any_case(patch: pytest.MonkeyPatch) -> None:
    """The end that was asked for counts, though somebody wants results by the time of the answer."""

    async def stand_by(self: Results) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OFTEN_S):
                await self._expected.wait()
        with contextlib.suppress(StoreError):
            self.tail = self.done = max(self.tail, result_position(await self._log.last() + 1, 0) - 1)

    patch.setattr(Results, "_stand_by", stand_by)


def forgets_who_comes_back(patch: pytest.MonkeyPatch) -> None:
    """A session that has channels begins, and notices are read only later."""
    patch.setattr(client_delivery, "ChannelFilter", object)


def never_reads(patch: pytest.MonkeyPatch) -> None:
    """Nobody is expected to want results."""
    patch.setattr(Results, "expected", lambda self: None)


@pytest.mark.parametrize(
    ("bug", "seed"),
    [(moves_on_in_any_case, 5), (forgets_who_comes_back, 30), (never_reads, 0)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_planted_bug_is_found(bug: Bug, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    found = (run(find("channels"), each).broken for each in seeds_from(seed, 40))
    assert next((each for each in found if each is not None), None) is not None

"""Subscribers get what meets their requests and nothing else, whatever the seeds invent; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.sim.search import seeds_from
from tocsin.broker.connection import subscribe
from tocsin.broker.connection.subscribe import ClientSubscriber
from tocsin.broker.delivery import history
from tocsin.broker.delivery.history import History
from tocsin.broker.quality.requests import Requests
from tocsin.core.delivery import machine
from tocsin.core.forwarding.table import Wanted
from tocsin.core.quality.judging import Judge, Verdict
from tocsin.model.publication import Publication
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find

SEEDS = 40  # within which each planted bug has to be found
REQUESTED = "subscribers get what meets their requests, and nothing else"


def test_some_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("quality", 0, 6) if outcome.broken] == []


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────

Plant = Callable[[pytest.MonkeyPatch], None]


def reads_everything(patch: pytest.MonkeyPatch) -> None:
    """What is read from the log for a client that was away is not judged."""
    patch.setattr(Judge, "fits", lambda self, request, message: True)


def judges_none_live(patch: pytest.MonkeyPatch) -> None:
    """What comes while a client is connected is not judged."""

    def all_of_it(
        self: Requests, wanted: Wanted[Any], publication: Publication, sent_us: int = 0
    ) -> Wanted[Any]:
        return wanted

    patch.setattr(Requests, "judged", all_of_it)


def forgets_requests(patch: pytest.MonkeyPatch) -> None:
    """A client that comes back has its subscriptions, without their requests."""
    restore = ClientSubscriber.restore

    def bare(self: ClientSubscriber, *, channels: bool = True) -> None:
        held = self._client.delivery.subscriptions
        for name, each in held.items():
            held[name] = msgspec.structs.replace(each, request="")
        restore(self, channels=channels)

    patch.setattr(ClientSubscriber, "restore", bare)


def goes_by_the_stream(patch: pytest.MonkeyPatch) -> None:
    """A message is judged by what is known of its stream now, and not by what it says itself."""
    patch.setattr(Requests, "_offered", lambda self, publication: self._offers.of(publication.topic))


def compares_no_deadlines(patch: pytest.MonkeyPatch) -> None:
    """Partitions and fields are looked at, and no deadline."""
    judge = Judge.judge

    def lenient(self: Judge, request: str, offered: str, payload: bytes, qos: int) -> Verdict:
        verdict = judge(self, request, offered, payload, qos)
        return Verdict.DELIVER if verdict is Verdict.MISMATCH else verdict

    patch.setattr(Judge, "judge", lenient)


def doubles_the_seam(patch: pytest.MonkeyPatch) -> None:
    """A subscription with history is in force from the beginning: what comes meanwhile is in both."""
    for module in (subscribe, history, machine):
        patch.setattr(module, "UNBEGUN", 0)


def leaves_a_gap(patch: pytest.MonkeyPatch) -> None:
    """A subscription with history begins where the log ends, and not where the history does."""
    run_history = History.run

    async def hurried(self: History) -> None:
        begin = self._begin
        self._begin = lambda begun: begin(msgspec.structs.replace(begun, since=begun.since + 2))
        await run_history(self)

    patch.setattr(History, "run", hurried)


# Each with a seed that shows it.
PLANTED: list[tuple[Plant, int]] = [
    (reads_everything, 0),
    (judges_none_live, 0),
    (forgets_requests, 0),
    (goes_by_the_stream, 0),
    (compares_no_deadlines, 0),
    (doubles_the_seam, 0),
    (leaves_a_gap, 0),
]


@pytest.mark.parametrize(("plant", "shown_by"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_bug_is_found(plant: Plant, shown_by: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    scenario = find("quality")
    seeds = seeds_from(shown_by, SEEDS)
    found = next((broken for seed in seeds if (broken := run(scenario, seed).broken)), None)
    assert found is not None, f"{SEEDS} seeds did not find {plant.__name__}"
    assert found.invariant == REQUESTED, found

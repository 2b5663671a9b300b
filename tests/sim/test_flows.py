"""Reliable flows lose and double nothing, history meets what comes, and leases are true; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.sim.search import seeds_from
from tocsin.broker.quality import flows
from tocsin.broker.quality.liveliness import Publishing
from tocsin.broker.quality.resending import Origins
from tocsin.broker.quality.rings import Rings
from tocsin.broker.quality.words import Words
from tocsin.core.quality.liveness import Liveness
from tocsin.core.quality.recalling import Seam
from tocsin.core.quality.resending import Window
from tocsin.model.quality import Flow, Life
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find

SEEDS = 40  # within which each planted bug has to be found
ORDER = "reliable messages come once and in order"
WHOLE = "no message of a reliable flow is lost"
HISTORY = "history and live messages meet"
BOTH = "a mismatch is told to both ends"
LIVES = "a publisher is told lost if it was away for its lease, and not otherwise"


def test_some_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("flows", 0, 5) if outcome.broken] == []


def test_a_lease_counts_from_the_last_sign_of_a_connection() -> None:
    assert run(find("flows"), 3).broken is None


def test_a_lease_outlives_a_crash_right_after_the_first_message() -> None:
    assert run(find("flows"), 203).broken is None


def test_a_restarted_origin_learns_who_wants_its_flows() -> None:
    assert run(find("flows"), 32).broken is None


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────

Plant = Callable[[pytest.MonkeyPatch], None]


def renews_no_lease_on_takeover(patch: pytest.MonkeyPatch) -> None:
    """A publisher that comes to another broker is not known to be alive there before it publishes."""
    patch.setattr(Publishing, "resumed", lambda self, client: None)


def believes_an_earlier_broker(patch: pytest.MonkeyPatch) -> None:
    """What the broker says that a publisher has left counts against where it is now."""
    know = Liveness.know

    def any_epoch(self: Liveness, broker: str, life: Life, ask: int = 0) -> bool:
        return know(self, broker, msgspec.structs.replace(life, epoch=self._ask + 10**18), ask)

    patch.setattr(Liveness, "know", any_epoch)


def reuses_the_window(patch: pytest.MonkeyPatch) -> None:
    """A new connection of a publisher is taken for the flow of the one before."""
    patch.setattr(flows, "Flow", lambda topic, client, epoch, broker: Flow(topic, client, 1, broker))


def passes_copies_on(patch: pytest.MonkeyPatch) -> None:
    """What has come already, or too soon, is passed on."""

    def take(self: Window[Any], number: int, item: Any) -> list[Any]:
        self.next = max(self.next, number + 1)
        return [item]

    patch.setattr(Window, "take", take)


def sends_nothing_again(patch: pytest.MonkeyPatch) -> None:
    """The origin keeps what a destination lacks, and does not send it."""
    patch.setattr(Origins, "_send", lambda self, broker, kept, late: None)


def tells_one_end(patch: pytest.MonkeyPatch) -> None:
    """What does not match is told to the subscriber, and not to the publisher."""
    say = Words.say

    def half(self: Words, subject: str, word: bytes) -> None:
        if not subject.endswith(".unmatched"):
            say(self, subject, word)

    patch.setattr(Words, "say", half)


def keeps_no_history(patch: pytest.MonkeyPatch) -> None:
    """No broker has anything from before a subscription."""
    patch.setattr(Rings, "recall", lambda self, pattern, request: [])


def holds_nothing(patch: pytest.MonkeyPatch) -> None:
    """Live messages do not wait for history."""
    patch.setattr(Seam, "take", lambda self, flow, number, item, size: True)


def repeats_at_the_seam(patch: pytest.MonkeyPatch) -> None:
    """What the history had already goes on once more."""
    patch.setattr(Seam, "_passes", lambda self, flow, number: self._is_newest(flow))


def mixes_brokers(patch: pytest.MonkeyPatch) -> None:
    """What a broker has of a publisher that has left it goes on after newer messages."""
    patch.setattr(Seam, "_is_newest", lambda self, flow: True)


# Each with a seed that shows it, and the promise that is broken.
PLANTED: list[tuple[Plant, int, str]] = [
    (renews_no_lease_on_takeover, 0, LIVES),
    (believes_an_earlier_broker, 0, LIVES),
    (reuses_the_window, 0, WHOLE),
    (passes_copies_on, 1, ORDER),
    (sends_nothing_again, 0, WHOLE),
    (tells_one_end, 0, BOTH),
    (keeps_no_history, 0, HISTORY),
    (holds_nothing, 0, HISTORY),
    (repeats_at_the_seam, 0, HISTORY),
    (mixes_brokers, 0, HISTORY),
]


@pytest.mark.parametrize(
    ("plant", "shown_by", "promise"), PLANTED, ids=[each[0].__name__ for each in PLANTED]
)
def test_a_planted_bug_is_found(
    plant: Plant, shown_by: int, promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    scenario = find("flows")
    seeds = seeds_from(shown_by, SEEDS)
    found = next(((seed, broken) for seed in seeds if (broken := run(scenario, seed).broken)), None)
    assert found is not None, f"{SEEDS} seeds did not find {plant.__name__}"
    assert found[1].invariant == promise, found

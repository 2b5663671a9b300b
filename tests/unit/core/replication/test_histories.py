"""A primary and its backups, whatever the network does: after quiet the copies are the primary's state, and nobody is
told to be synced before both have it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.replication.network import HAPPENINGS, History, random_history
from tocsin.core.machine import Effect, Received
from tocsin.core.replication import recipient
from tocsin.core.replication.backup import Backup
from tocsin.core.replication.gamma import Copy
from tocsin.wire.internal.replication import Applied, Bequest, Update

steps = st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 59)), max_size=60)


@given(steps)
@settings(max_examples=150, deadline=None)
def test_after_quiet_copies_are_the_state_and_nobody_was_told_too_early(
    happenings: list[tuple[str, int]],
) -> None:
    history = History()
    for what, number in happenings:
        history.happen(what, number)
    history.settle()
    history.check_settled()


@pytest.mark.parametrize("bytes_max", [150, 400, recipient.UPDATE_MAX_BYTES])
def test_long_histories_in_updates_of_any_size(bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipient, "UPDATE_MAX_BYTES", bytes_max)
    for seed in range(15):
        random_history(History(), seed, 300)


@pytest.mark.slow
@pytest.mark.parametrize("bytes_max", [150, 400, recipient.UPDATE_MAX_BYTES])
def test_many_long_histories(bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipient, "UPDATE_MAX_BYTES", bytes_max)
    for seed in range(15, 600):
        random_history(History(), seed, 400)


# ── bugs, to see that the checks find them ───────────────────────────────────────────────────────────────────


class TooEarly(Backup):
    """Answers that it has an update, and stores it with the next one."""

    def __init__(self, broker: str) -> None:
        super().__init__(broker)
        self._last: Update | None = None

    def _on_update(self, update: Update, now_us: int) -> list[Effect]:
        last, self._last = self._last, update
        before = [] if last is None or last == update else super()._on_update(last, now_us)
        answer = Applied(self._broker, update.series, update.number)
        return [*before, self._answer(update.primary, answer)]


class Careless(Backup):
    """Takes an update though something before it is missing."""

    def _on_update(self, update: Update, now_us: int) -> list[Effect]:
        copy = self.copies.get(update.primary)
        if copy is None or copy.series < update.series:
            copy = self.copies.setdefault(update.primary, Copy(update.role))
            copy.begin(update.series, update.role)
        copy.number = max(copy.number, update.number - 1)
        effects = super()._on_update(update, now_us)
        copy.number = max(copy.number, update.number)
        return effects


def found_within(make: type[Backup], seeds: int) -> bool:
    for seed in range(seeds):
        try:
            random_history(History(backup=make), seed, 300)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("bug", [TooEarly, Careless])
def test_a_planted_bug_is_found(bug: type[Backup]) -> None:
    assert found_within(bug, 40)
    assert not found_within(Backup, 3)


def test_the_checker_finds_a_primary_that_accepts_an_earlier_updates_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wait = recipient.Recipient.wait

    def eager(self: recipient.Recipient, client: str, ticket: int) -> bool:
        if client not in self._flying:
            return wait(self, client, ticket)
        self._flying[client].append(ticket)
        self.tickets[ticket] = client
        return True

    monkeypatch.setattr(recipient.Recipient, "wait", eager)
    assert found_within(Backup, 40)


def test_a_backup_that_forgets_to_sweep_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Copy) -> list[tuple[str, Bequest]]:
        self.whole = True
        return []

    monkeypatch.setattr(Copy, "sweep", forget)
    assert found_within(Backup, 40)


def test_an_update_that_comes_twice_is_answered_twice_and_applied_once() -> None:
    history = History()
    history.happen("come", 0)
    history.pass_time(10)
    to, data = next(each for each in history.messages if each[0] == "north")
    history.messages.clear()
    history.deliver(to, data)
    first = list(history.messages)
    history.messages.clear()
    history.deliver(to, data)
    assert history.messages == first and len(first) == 1
    assert history.backup("north").copies["p"].number == 1


def test_messages_of_others_are_not_for_a_backup() -> None:
    with pytest.raises(AssertionError, match="not for a backup"):
        Backup("north").handle(Received(sender="x", message=Applied("x", (0, 0, 0), 1)), 0)

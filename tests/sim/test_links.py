"""Messages go around links that are cut, once each, whatever the seeds invent; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from tocsin.core import passage
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.detours import Detours
from tocsin.core.coordination.leader import Leader
from tocsin.core.coordination.participant import Participant
from tocsin.core.coordination.rerouting import Rerouting
from tocsin.core.coordination.signals import LinksSeen
from tocsin.core.coordination.state import State
from tocsin.core.machine import Effect, Event
from tocsin.sim.runner import run, run_many
from tocsin.sim.scenario import Scenario, find
from tocsin.sim.scenarios import links
from tocsin.wire.commands import Lost

SEEDS = 60  # within which each planted bug has to be found

LOST = "nobody is lost for a link"
ORDER = "no message overtakes another"
WHOLE = "ways around lead somewhere"
FLOW = "messages flow again"


def test_twenty_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("links", 0, 20) if outcome.broken] == []


def test_where_only_links_fail_nobody_is_lost_and_messages_flow() -> None:
    scenario = find("links")
    for seed in range(20):
        assert run(scenario, seed, plan=[]).broken is None


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_five_thousand_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("links", 0, 5_000, jobs=2) if outcome.broken] == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_where_only_links_fail_two_thousand_seeds_break_nothing() -> None:
    scenario = find("links")
    assert [seed for seed in range(2_000) if run(scenario, seed, plan=[]).broken] == []


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────


class Mute(Participant):
    """Bug: a broker says nothing of its links."""

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        return [] if isinstance(event, LinksSeen) else super().handle(event, now_us)


class Blind(Rerouting):
    """Bug: a way is kept though a link of it is cut."""

    def _works(self, broker: str, peer: str, relays: Any, cut: Any) -> bool:
        return True


class Stubborn(Rerouting):
    """Bug: a row stays when the link is back."""

    def _rows(self, broker: str, cut: Any, now_us: int) -> Any:
        return {**self._state.detours.around(broker), **super()._rows(broker, cut, now_us)}


class Deafless(Rerouting):
    """Bug: a hub that nobody reaches keeps its cluster's traffic."""

    def _deaf(self, cut: Any) -> frozenset[str]:
        return frozenset()


class Accuser(Rerouting):
    """Bug: a broker that another does not reach counts as lost."""

    def look(self, cause: str, now_us: int) -> Any:
        commands, said = super().look(cause, now_us)
        members = self._state.members
        accused = {peer for peers in self._cut.values() for peer in peers if peer in members}
        return [*commands, *(Lost(each, members[each].incarnation) for each in sorted(accused))], said


class Forgetful(Detours):
    """Bug: relays are not told that they are."""

    def _onward(self) -> Any:
        return {}


def with_rerouting(kind: type[Rerouting]) -> Callable[..., Coordinator]:
    class Variant(Leader):
        def __init__(self, state: State, *rest: Any) -> None:
            super().__init__(state, *rest)
            self.rerouting = kind(state)

        def pump(self, cause: str, now_us: int) -> list[Effect]:
            believes, self.attention.believes = self.attention.believes, lambda lost: True  # type: ignore[method-assign]
            try:
                return super().pump(cause, now_us)
            finally:
                self.attention.believes = believes  # type: ignore[method-assign]

    class Planted(Coordinator):
        leading = Variant

    return Planted


class Whispers(Coordinator):
    def _opened(self, cause: str, position: int, now_us: int) -> list[Effect]:
        self.replica.detours.__class__ = Forgetful
        return super()._opened(cause, position, now_us)


PLANTED: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("mute", {"participant": Mute}, (FLOW,)),
    ("blind", {"coordinator": with_rerouting(Blind)}, (FLOW, WHOLE)),
    ("stubborn", {"coordinator": with_rerouting(Stubborn)}, (WHOLE,)),
    ("deafless", {"coordinator": with_rerouting(Deafless)}, (WHOLE,)),
    ("accuser", {"coordinator": with_rerouting(Accuser)}, (LOST,)),
    ("forgetful", {"coordinator": Whispers}, (FLOW, WHOLE)),
]


@pytest.mark.parametrize(("name", "variant", "expected"), PLANTED, ids=[each[0] for each in PLANTED])
def test_a_planted_bug_is_found(name: str, variant: dict[str, Any], expected: tuple[str, ...]) -> None:
    scenario: Scenario = msgspec.structs.replace(find("links"), build=partial(links.build, **variant))
    for seed in range(SEEDS):
        broken = run(scenario, seed, plan=[]).broken
        if broken is not None:
            assert broken.invariant in expected, broken
            return
    raise AssertionError(f"{name} was not found within {SEEDS} seeds")


def test_messages_overtake_each_other_if_none_waits_between_two_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage, "SETTLE_US", 0)
    scenario = find("links")
    found = next((broken for seed in range(SEEDS) if (broken := run(scenario, seed, plan=[]).broken)), None)
    assert found is not None and found.invariant == ORDER

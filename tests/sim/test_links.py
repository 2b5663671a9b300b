"""Messages go around links that are cut, once each, whatever the seeds invent; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

SEEDS = range(60)  # within which each planted bug has to be found
# Of some thousands of seeds one has a hub that only one other reaches, such as these:
WANTING = (9_429, 18_452)  # one of its own cluster that nobody reaches, and that has a link to it
WANTLESS = (70_022, 29_830)  # … that has none, since the hub wants nothing
AWAY = (18_189,)  # one in the other cluster, whose link is away for a moment
BACK = (33_319,)  # … that comes back when the hub is left out
UNWANTED = (12_223, 88_573)  # one in the other cluster, while nothing is wanted in the hub's
HUBS = (*WANTING, *WANTLESS, *AWAY, *BACK, *UNWANTED)

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


@pytest.mark.parametrize("seed", HUBS)
def test_a_hub_is_left_out_only_if_nobody_who_sends_over_it_reaches_it(seed: int) -> None:
    assert run(find("links"), seed).broken is None


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

    def _is_deaf(self, hub: str, rows: Any, cut: Any) -> bool:
        return False


class Courteous(Rerouting):
    """Bug: a hub keeps its cluster's traffic if any broker reaches it, though nobody in another cluster does."""

    def _is_deaf(self, hub: str, rows: Any, cut: Any) -> bool:
        reached = any(self.distances.reaches(each, hub) for each in self._state.members)
        return not reached and super()._is_deaf(hub, rows, cut)


class Incurious(Rerouting):
    """Bug: who comes when a hub is left out does not try it."""

    def _trials(self) -> dict[str, Any]:
        return {}


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
        def __init__(self, state: State, *rest: Any, **more: Any) -> None:
            super().__init__(state, *rest, **more)
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


PLANTED: list[tuple[str, dict[str, Any], tuple[str, ...], Sequence[int]]] = [
    ("mute", {"participant": Mute}, (FLOW,), SEEDS),
    ("blind", {"coordinator": with_rerouting(Blind)}, (FLOW, WHOLE), SEEDS),
    ("stubborn", {"coordinator": with_rerouting(Stubborn)}, (WHOLE,), SEEDS),
    ("deafless", {"coordinator": with_rerouting(Deafless)}, (WHOLE,), SEEDS),
    ("courteous", {"coordinator": with_rerouting(Courteous)}, (WHOLE,), WANTING),
    ("incurious", {"coordinator": with_rerouting(Incurious)}, (WHOLE,), BACK),
    ("accuser", {"coordinator": with_rerouting(Accuser)}, (LOST,), SEEDS),
    ("forgetful", {"coordinator": Whispers}, (FLOW, WHOLE), SEEDS),
]


@pytest.mark.parametrize(("name", "variant", "expected", "seeds"), PLANTED, ids=[each[0] for each in PLANTED])
def test_a_planted_bug_is_found(
    name: str, variant: dict[str, Any], expected: tuple[str, ...], seeds: Sequence[int]
) -> None:
    scenario: Scenario = msgspec.structs.replace(find("links"), build=partial(links.build, **variant))
    for seed in seeds:
        broken = run(scenario, seed, plan=[] if seeds is SEEDS else None).broken
        if broken is not None:
            assert broken.invariant in expected, broken
            return
    raise AssertionError(f"{name} was not found within {len(seeds)} seeds")


def test_messages_overtake_each_other_if_none_waits_between_two_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage, "SETTLE_US", 0)
    scenario = find("links")
    found = next((broken for seed in SEEDS if (broken := run(scenario, seed, plan=[]).broken)), None)
    assert found is not None and found.invariant == ORDER

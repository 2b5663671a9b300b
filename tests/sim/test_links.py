"""Messages go around links that are cut, once each, whatever the seeds invent; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.sim.search import seeds_from
from tocsin.core.coordination.leader.broker_watch import Attention
from tocsin.core.coordination.leader.rerouting import Rerouting
from tocsin.core.coordination.participant.link_reports import Linkage
from tocsin.core.coordination.state.detours import Detours
from tocsin.core.links import path
from tocsin.sim.faults.kinds import Crash, Fault
from tocsin.sim.runs.runner import Broken, run, run_many
from tocsin.sim.runs.scenario import Scenario, find
from tocsin.sim.scenarios import links
from tocsin.sim.scenarios.links.promises import Wanted
from tocsin.sim.scenarios.links.traffic import TOPICS, LinkCut
from tocsin.wire.internal.commands import Lost

SECOND = 1_000_000
SEEDS = 20  # within which each planted bug has to be found

LOST = "nobody is lost for a link"
ORDER = "no message overtakes another"
WHOLE = "ways around lead somewhere"
FLOW = "messages flow again"


def test_some_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("links", 0, 12) if outcome.broken] == []


def test_bytes_of_a_connection_that_was_given_up_do_not_come_late() -> None:
    """A relay's link was cut with messages on it, given up, and mended when newer ones had taken another way."""
    assert run(find("links"), 5058).broken is None


def test_where_only_links_fail_nobody_is_lost_and_messages_flow() -> None:
    scenario = find("links")
    for seed in range(8):
        assert run(scenario, seed, plan=[]).broken is None


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_where_only_links_fail_many_seeds_break_nothing() -> None:
    scenario = find("links")
    assert [seed for seed in range(200) if run(scenario, seed, plan=[]).broken] == []


# ── hubs that few reach ─────────────────────────────────────────────────────────────────────────────────────

HUB = "south-hub"
NORTH = ("north-1", "north-2", "north-hub")
SOUTH = ("south-1", HUB)
ALL: Wanted = dict.fromkeys(links.BROKERS, TOPICS)
LINE = tuple((one, other) for one in NORTH for other in SOUTH)  # nobody in the north reaches the south
# Nobody but north-1 reaches the hub, and nobody reaches north-1.
ONE_LINE = (
    *((each, HUB) for each in (*NORTH, "south-1") if each != "north-1"),
    *((each, "north-1") for each in (*NORTH, *SOUTH) if each != "north-1"),
)


class Situation(msgspec.Struct, frozen=True):
    """Links that are cut, what is wanted, and what else fails."""

    cuts: tuple[LinkCut, ...]
    wanted: Wanted
    plan: tuple[Fault, ...] = ()

    def broken(self, seed: int) -> Broken | None:
        build = partial(links.build, cuts=self.cuts, wanted=self.wanted)
        scenario: Scenario = msgspec.structs.replace(find("links"), build=build)
        return run(scenario, seed, plan=[*self.plan]).broken


def cut(at_s: int, until_s: int | None, *pairs: tuple[str, str]) -> LinkCut:
    return LinkCut(at_s * SECOND, None if until_s is None else until_s * SECOND, pairs)


WANTING = Situation((cut(5, None, *LINE),), ALL)  # one of its own cluster reaches it, which nobody reaches
WANTLESS = Situation((cut(5, None, *LINE),), {**ALL, HUB: ()})  # … that has no link to it
AWAY = Situation((cut(5, None, *ONE_LINE), cut(10, 18, ("north-1", HUB))), ALL)  # for a moment nobody does
BACK = Situation(  # the one that reaches it comes back when the hub is left out
    (cut(5, None, *ONE_LINE), cut(5, 30, ("north-1", HUB))),
    ALL,
    (Crash(at_us=20 * SECOND, for_us=2 * SECOND, node="north-1"),),
)
UNWANTED = Situation((cut(5, None, *ONE_LINE),), {**ALL, HUB: (), "south-1": ()})

# A link of every broker is cut, and comes back: whoever is busy takes two ways, one after the other.
RETURN = Situation(
    (
        cut(
            3,
            20,
            ("north-1", "north-2"),
            ("north-2", "north-1"),
            ("north-hub", "north-2"),
            ("south-1", "north-hub"),
            (HUB, "north-hub"),
        ),
    ),
    ALL,
)


@pytest.mark.parametrize(
    "situation",
    [WANTING, WANTLESS, AWAY, BACK, UNWANTED],
    ids=["wanting", "wantless", "away", "back", "unwanted"],
)
def test_a_hub_is_left_out_only_if_no_sender_reaches_it(situation: Situation) -> None:
    assert situation.broken(0) is None


def test_messages_stay_in_order_when_links_come_back() -> None:
    for seed in range(3):
        assert RETURN.broken(seed) is None


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────

Plant = Callable[[pytest.MonkeyPatch], None]


def mute(patch: pytest.MonkeyPatch) -> None:
    """A broker says nothing of its links."""
    patch.setattr(Linkage, "see", lambda self, *seen: None)


def blind(patch: pytest.MonkeyPatch) -> None:
    """A way is kept though a link of it is cut."""
    patch.setattr(Rerouting, "_works", lambda self, *way: True)


def stubborn(patch: pytest.MonkeyPatch) -> None:
    """A row stays when the link is back."""
    rows = Rerouting._rows

    def kept(self: Rerouting, broker: str, cut: Any, now_us: int) -> Any:
        return {**self._state.detours.around(broker), **rows(self, broker, cut, now_us)}

    patch.setattr(Rerouting, "_rows", kept)


def deafless(patch: pytest.MonkeyPatch) -> None:
    """A hub that nobody reaches keeps its cluster's traffic."""
    patch.setattr(Rerouting, "_is_deaf", lambda self, *hub: False)


def courteous(patch: pytest.MonkeyPatch) -> None:
    """A hub keeps its cluster's traffic if any broker reaches it, though nobody in another cluster does."""
    is_deaf = Rerouting._is_deaf

    def reached_by_none(self: Rerouting, hub: str, rows: Any, cut: Any) -> bool:
        reached = any(self.distances.reaches(each, hub) for each in self._state.members)
        return not reached and is_deaf(self, hub, rows, cut)

    patch.setattr(Rerouting, "_is_deaf", reached_by_none)


def incurious(patch: pytest.MonkeyPatch) -> None:
    """Who comes when a hub is left out does not try it."""
    patch.setattr(Rerouting, "_trials", lambda self: {})


def accuser(patch: pytest.MonkeyPatch) -> None:
    """A broker that another does not reach counts as lost."""
    look = Rerouting.look

    def accuse(self: Rerouting, now_us: int) -> Any:
        commands, said = look(self, now_us)
        members = self._state.members
        accused = sorted({peer for peers in self._cut.values() for peer in peers if peer in members})
        return [*commands, *(Lost(each, members[each].incarnation) for each in accused)], said

    patch.setattr(Rerouting, "look", accuse)
    patch.setattr(Attention, "believes", lambda self, lost: True)


def forgetful(patch: pytest.MonkeyPatch) -> None:
    """Relays are not told that they are."""
    patch.setattr(Detours, "_onward", lambda self: {})


def hasty(patch: pytest.MonkeyPatch) -> None:
    """Messages do not wait between two ways."""
    patch.setattr(path, "SETTLE_US", 0)


SHOWN_BY: dict[Plant, int] = {deafless: 8, hasty: 10}  # seeds that show what the first ones do not

PLANTED: list[tuple[Plant, tuple[str, ...], Situation | None]] = [
    (mute, (FLOW,), None),
    (blind, (FLOW, WHOLE), None),
    (stubborn, (WHOLE,), None),
    (deafless, (WHOLE,), None),
    (courteous, (WHOLE,), WANTING),
    (incurious, (WHOLE,), BACK),
    (accuser, (LOST,), None),
    (forgetful, (FLOW, WHOLE), None),
    (hasty, (ORDER,), RETURN),
]


@pytest.mark.parametrize(
    ("plant", "expected", "situation"), PLANTED, ids=[plant.__name__ for plant, *_ in PLANTED]
)
def test_a_planted_bug_is_found(
    plant: Plant, expected: tuple[str, ...], situation: Situation | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in seeds_from(SHOWN_BY.get(plant, 0), SEEDS):
        broken = run(find("links"), seed, plan=[]).broken if situation is None else situation.broken(seed)
        if broken is not None:
            assert broken.invariant in expected, broken
            return
    raise AssertionError(f"{plant.__name__} was not found within {SEEDS} seeds")

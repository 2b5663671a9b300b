"""Groups that share results keep their promises, whatever the seeds invent; without any one precaution they do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import pytest
from _pytest.mark.structures import ParameterSet

from tests.sim.plans import crashes_in_turn, freezes_and_late_writes
from tocsin.broker.channels.backend_subscriptions import BackendSubscriptions
from tocsin.broker.shared.group_sources import ResultEntries
from tocsin.broker.shared.groups import Groups
from tocsin.core.channels.signals import LookAt, Looked
from tocsin.core.machine import Say
from tocsin.core.shared.stored_group import GROUP_KEYS, decode_group
from tocsin.ports import Change
from tocsin.sim.faults.plan import Profile
from tocsin.sim.process.stage import GROUPS
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.runner import Broken, run, run_many
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios import shared_channels
from tocsin.sim.scenarios.shared_channels import BROKERS, FAULTS
from tocsin.sim.world import World

QUICK = 20  # seeds
SHARED = "a group gets everything, in order, at QoS 2 once"
LEFT = "a group has settled everything in the end"
ONE = "a message is one member's at a time, and no two groups' of one name"
HELD = "what a group shares is held"
TIDY = "in the end what is held is what is wanted, and everything is settled"


def test_some_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("shared-channels", 0, 12) if outcome.broken] == []


def test_brokers_crash_in_turn_between_any_two_effects() -> None:
    for seed in range(2):
        assert run(find("shared-channels"), seed, plan=crashes_in_turn(seed, BROKERS)).broken is None


def test_shared_channels_survive_long_freezes_and_late_writes() -> None:
    for seed in range(2):
        plan = freezes_and_late_writes(BROKERS, second_s=8)
        assert run(find("shared-channels"), seed, plan=plan).broken is None


def test_a_run_has_results_for_all_members_and_holders_that_change() -> None:
    """Else the promises would promise nothing."""
    took: Counter[str] = Counter()
    holders: dict[str, set[str]] = {}

    class Counting(Invariant):
        name = "it counts"

        def attach(self, world: World) -> None:
            world.observers.on_say("took", lambda who, say: self._count(who, say))
            world.observers.on_change(GROUPS.name, self._look)

        def _count(self, who: str, say: Say) -> None:
            took[who] += 1

        def _look(self, change: Change) -> None:
            if change.kind == "put" and change.key.startswith(GROUP_KEYS):
                group = decode_group(change.value)
                assert group.source is not None
                holders.setdefault(group.name, set()).add(group.source.holder)

    scenario = find("shared-channels")
    counting = msgspec.structs.replace(
        scenario, build=lambda world: [*shared_channels.build(world), Counting()]
    )
    for seed in range(3):
        assert run(counting, seed).broken is None
    assert all(took[member] > 20 for member in shared_channels.MEMBERS)
    assert all(holders[name] == set(BROKERS) for name in shared_channels.LASTING)


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────


def forgets_its_groups_when_it_starts(plant: pytest.MonkeyPatch) -> None:
    """A broker that has just started does not look which groups it holds for."""
    plant.setattr(BackendSubscriptions, "_found_group", lambda backend, group, cause: None)


def lets_go_without_a_look(plant: pytest.MonkeyPatch) -> None:
    """A broker that has no member lets go, whether or not the group's cell names it."""

    async def looked(backend: BackendSubscriptions, asked: LookAt) -> Looked:
        return Looked(
            session=asked.session,
            client=asked.client,
            visits=asked.visits,
            home="nowhere",
            cause=asked.cause,
        )

    plant.setattr(BackendSubscriptions, "_looked_at_group", looked)


def reads_its_own_files_only(plant: pytest.MonkeyPatch) -> None:
    """Results that were made for another broker, the holder, do not arrive."""
    plant.setattr(Groups, "unseen", lambda groups, notice: set())


def passes_what_is_being_dispatched(plant: pytest.MonkeyPatch) -> None:
    """The results of a notice count as arrived before they are all read."""
    plant.setattr(ResultEntries, "done", ResultEntries.tail)


def begins_in_the_middle_of_a_notice(plant: pytest.MonkeyPatch) -> None:
    """A group that begins while a notice is dispatched expects the rest of it to arrive."""
    plant.setattr(ResultEntries, "tail", ResultEntries.done)


class Planted(NamedTuple):
    """A bug, within how many seeds it is found, what may be found to be broken, and the faults that show it."""

    bug: Callable[[pytest.MonkeyPatch], None]
    seeds: int
    broken: set[str]
    faults: Profile = FAULTS

    def found(self, seed: int) -> Broken | None:
        """What a seed finds with these faults."""
        return run(msgspec.structs.replace(find("shared-channels"), faults=self.faults), seed).broken


CRASHES = msgspec.structs.replace(FAULTS, kinds=(("crash", 1),), most=10)

PLANTED = (
    Planted(begins_in_the_middle_of_a_notice, 100, {SHARED, ONE}),
    Planted(forgets_its_groups_when_it_starts, 20, {HELD, TIDY}, CRASHES),
    Planted(lets_go_without_a_look, 20, {HELD, TIDY}),
    Planted(passes_what_is_being_dispatched, 20, {SHARED, ONE}),
    Planted(reads_its_own_files_only, 20, {SHARED, ONE}),
)


def cases() -> Iterator[ParameterSet]:
    """All planted bugs; those that a few seeds find are looked for in every run of the tests."""
    for planted in PLANTED:
        marks = () if planted.seeds <= QUICK else (pytest.mark.slow, pytest.mark.timeout(1_800))
        yield pytest.param(planted, id=planted.bug.__name__, marks=marks)


@pytest.mark.parametrize("planted", list(cases()))
def test_a_planted_bug_is_found(planted: Planted) -> None:
    with pytest.MonkeyPatch.context() as plant:
        planted.bug(plant)
        broken = (planted.found(seed) for seed in range(planted.seeds))
        found = next((each for each in broken if each is not None), None)
    assert found is not None, f"{planted.seeds} seeds did not find it"
    assert found.invariant in planted.broken


def test_the_same_faults_break_nothing_without_a_bug() -> None:
    planted = Planted(lambda plant: None, 2, set(), CRASHES)
    assert [each for seed in range(planted.seeds) if (each := planted.found(seed))] == []

"""Groups keep their promises, whatever the seeds invent; and without any one precaution they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import pytest
from _pytest.mark.structures import ParameterSet

from tests.sim.plans import SECOND, crashes_in_turn, freezes_and_late_writes
from tocsin.core.delivery.window import DeliveryWindow
from tocsin.core.machine import Effect, Stored, StoreFailed, Table
from tocsin.core.shared.cell import PUT
from tocsin.core.shared.draft import GroupDraft
from tocsin.core.shared.machine import Sharing
from tocsin.core.shared.member import LocalMember
from tocsin.core.shared.signals import SharingState
from tocsin.core.shared.stored_group import Member, StoredGroup
from tocsin.errors import Conflict, OutcomeUnknown
from tocsin.sim.faults.kinds import Fault, Partition, StoreTrouble
from tocsin.sim.faults.plan import Profile
from tocsin.sim.network import STORE
from tocsin.sim.runs.runner import Broken, run, run_many
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios.groups import BROKERS, FAULTS
from tocsin.sim.store import StoreWeather

QUICK = 20  # seeds
SHARED = "a group gets everything, in order, at QoS 2 once"
LEFT = "a group has settled everything in the end"
ONE = "a message is one member's at a time, and no two groups' of one name"


def test_some_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("groups", 0, 12) if outcome.broken] == []


def test_brokers_crash_in_turn_between_any_two_effects() -> None:
    for seed in range(2):
        assert run(find("groups"), seed, plan=crashes_in_turn(seed, BROKERS)).broken is None


def test_groups_survive_long_freezes_of_brokers_and_late_writes() -> None:
    for seed in range(2):
        assert run(find("groups"), seed, plan=freezes_and_late_writes(BROKERS, second_s=8)).broken is None


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────


def sends_before_the_claim(plant: pytest.MonkeyPatch) -> None:
    """A message is sent when its claim is asked for."""
    write = Sharing._write

    def early(sharing: Sharing, now_us: int) -> list[Effect]:
        effects = write(sharing, now_us)
        planned, sharing._planned = sharing._planned, []
        sent = [each.holder.give(each.claim, each.matched, repeat=False) for each in planned]
        return [*effects, *sent]

    plant.setattr(Sharing, "_write", early)


def takes_a_conflict_for_success(plant: pytest.MonkeyPatch) -> None:
    """A write that another broker's came before is taken for done."""

    def believe(sharing: Sharing, event: StoreFailed, now_us: int) -> list[Effect]:
        if event.request == PUT and isinstance(event.error, Conflict):
            return sharing.handle(Stored(request=PUT, value=event.error.actual or 0), now_us)
        return sharing._on_store_failure(event, now_us)

    table: Table = {**Sharing.table, (SharingState.HERE, StoreFailed): believe}
    plant.setattr(Sharing, "table", table)


def takes_silence_for_no(plant: pytest.MonkeyPatch) -> None:
    """A write that was not answered is taken for one that did not happen."""

    def despair(sharing: Sharing, event: StoreFailed, now_us: int) -> list[Effect]:
        cell = sharing._cell._cell
        if event.request != PUT or cell.asked == "read" or not isinstance(event.error, OutcomeUnknown):
            return sharing._on_store_failure(event, now_us)
        cell.drop()
        planned, sharing._planned = sharing._planned, []
        for each in planned:
            sharing._ports.give_back(each.holder.client, each.claim.packet_id)
        return sharing._go_on(now_us)

    table: Table = {**Sharing.table, (SharingState.HERE, StoreFailed): despair}
    plant.setattr(Sharing, "table", table)


def begins_where_its_broker_is(plant: pytest.MonkeyPatch) -> None:
    """A new group begins behind what its broker has seen of the log."""
    find = Sharing._begin

    def begin(sharing: Sharing, draft: GroupDraft) -> None:
        sharing._beginning._end = sharing._ports.tail
        find(sharing, draft)

    plant.setattr(Sharing, "_begin", begin)


def tells_members_before_the_group_begins(plant: pytest.MonkeyPatch) -> None:
    """Whoever is in the cell is told that it is a member, wherever the group will begin."""
    learn = LocalMember.learn

    def hasty(holder: LocalMember, group: StoredGroup | None) -> list[Effect]:
        known = group if group is None else msgspec.structs.replace(group, next=max(1, group.next))
        effects = learn(holder, known)
        holder.first = holder.first or (group.first if group is not None and holder.told else 0)
        return effects

    plant.setattr(LocalMember, "learn", hasty)


def keeps_those_whose_group_is_over(plant: pytest.MonkeyPatch) -> None:
    """Whoever was a member of a group that is over joins the next one unawares."""
    plant.setattr(LocalMember, "bereft", lambda holder, group: False)


def never_buries(plant: pytest.MonkeyPatch) -> None:
    """Nobody sees to it that incarnations are over."""
    plant.setattr(Sharing, "_look", lambda sharing, now_us: [])


def gives_away_what_is_held(plant: pytest.MonkeyPatch) -> None:
    """What a member that is away had at QoS 2 is given to others."""

    old = GroupDraft._away

    def away(draft: GroupDraft, client: str, member: Member, now_s: int) -> None:
        draft.free.update((claim.position, ()) for claim in draft._claims.pop(client, []))
        old(draft, client, member, now_s)

    plant.setattr(GroupDraft, "_away", away)


def forgets_the_id_too_soon(plant: pytest.MonkeyPatch) -> None:
    """A packet id is no longer stored as releasing while its claim may still be."""

    def pubcomp(delivery: DeliveryWindow, identifier: int) -> bool:
        if identifier not in delivery._releasing:
            return False
        del delivery._releasing[identifier]
        delivery._completed[identifier] = None
        return True

    plant.setattr(DeliveryWindow, "pubcomp", pubcomp)


def does_not_ask_the_session(plant: pytest.MonkeyPatch) -> None:
    """A claim is sent again, whatever the session knows of its packet id."""

    def restore(delivery: DeliveryWindow, identifier: int, group: str, position: int) -> None:
        delivery._claimed[identifier] = (group, position)
        delivery._releasing.pop(identifier, None)

    plant.setattr(DeliveryWindow, "restore", restore)


def lets_an_old_connection_join(plant: pytest.MonkeyPatch) -> None:
    """A broker that has lost a client makes it a member again."""

    def join(draft: GroupDraft, client: str, member: Member, user: str = "") -> bool:
        draft.members[client] = member
        return True

    plant.setattr(GroupDraft, "join", join)


# Faults that show some bugs sooner than others do.
SLOW_STORE = msgspec.structs.replace(
    FAULTS, kinds=(("store trouble", 6), ("leader loss", 1), ("lag", 1)), longest_us=12_000_000
)
CRASHES = msgspec.structs.replace(FAULTS, kinds=(("crash", 1),), most=10)
LAGGING = msgspec.structs.replace(FAULTS, kinds=(("lag", 5), ("crash", 1)), longest_us=12_000_000)
CUT_OFF = msgspec.structs.replace(
    FAULTS,
    kinds=(("store partition", 3), ("crash", 1)),
    brokers=BROKERS,
    shortest_us=6_000_000,
    longest_us=12_000_000,
    most=8,
)


# Leaders of the store that stood still, and answer with old news when they go on.
OLD_NEWS = msgspec.structs.replace(
    FAULTS,
    kinds=(("old news", 8), ("crash", 3), ("pause", 1)),
    brokers=BROKERS,
    shortest_us=1_000_000,
    longest_us=6_000_000,
    most=14,
)


def cut_off_in_turn(seed: int) -> list[Fault]:
    """Two brokers are cut off from the store one after the other, each for longer than its incarnation lasts."""
    first, second = BROKERS[seed % 3], BROKERS[(seed + 1) % 3]
    return [
        Partition(at_us=2 * SECOND, for_us=9 * SECOND, side=(first,), others=(STORE,)),
        Partition(at_us=11 * SECOND, for_us=8 * SECOND, side=(second,), others=(STORE,)),
    ]


def slow_all_along(seed: int) -> list[Fault]:
    """Everything that is asked of the store takes up to a second and a half."""
    slow = StoreWeather(slow_us=3 * SECOND // 2)
    return [StoreTrouble(at_us=SECOND // 2, for_us=19 * SECOND, weather=slow)]


class Planted(NamedTuple):
    """A bug, within how many seeds it is found, what may be found to be broken, and the faults that show it."""

    bug: Callable[[pytest.MonkeyPatch], None]
    seeds: int
    broken: set[str]
    faults: Profile | Callable[[int], list[Fault]] = FAULTS

    def found(self, seed: int) -> Broken | None:
        """What a seed finds with these faults."""
        if isinstance(self.faults, Profile):
            return run(msgspec.structs.replace(find("groups"), faults=self.faults), seed).broken
        return run(find("groups"), seed, plan=self.faults(seed)).broken


PLANTED = (
    Planted(begins_where_its_broker_is, 100, {ONE, SHARED}, LAGGING),
    Planted(does_not_ask_the_session, 20, {SHARED}),
    Planted(forgets_the_id_too_soon, 60, {SHARED}),
    Planted(gives_away_what_is_held, 60, {SHARED}, CRASHES),
    Planted(keeps_those_whose_group_is_over, 200, {SHARED}, cut_off_in_turn),
    Planted(lets_an_old_connection_join, 150, {SHARED, LEFT, ONE}, CUT_OFF),
    Planted(never_buries, 20, {LEFT, SHARED}, CRASHES),
    Planted(sends_before_the_claim, 60, {SHARED, LEFT}, SLOW_STORE),
    Planted(takes_a_conflict_for_success, 20, {SHARED, LEFT, ONE}),
    Planted(takes_silence_for_no, 100, {SHARED, LEFT}, SLOW_STORE),
    Planted(tells_members_before_the_group_begins, 20, {SHARED}, slow_all_along),
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
    for faults in (
        CRASHES,
        CUT_OFF,
        LAGGING,
        OLD_NEWS,
        SLOW_STORE,
        cut_off_in_turn,
        slow_all_along,
    ):
        planted = Planted(lambda plant: None, 2, set(), faults)
        assert [each for seed in range(planted.seeds) if (each := planted.found(seed))] == []

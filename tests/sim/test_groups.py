"""Groups keep their promises, whatever the seeds invent; and without any one precaution they do not."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.sim.plans import crashes_in_turn, freezes_and_late_writes
from tocsin.core.beginning import Beginning
from tocsin.core.delivery import Delivery
from tocsin.core.group_cell import PUT, GroupCell
from tocsin.core.group_draft import GroupDraft
from tocsin.core.holders import Holder
from tocsin.core.machine import Effect, Event, GetKey, Handler, Stored, StoreFailed
from tocsin.core.sharing import Sharing
from tocsin.core.stored_group import Member, StoredGroup
from tocsin.errors import Conflict, OutcomeUnknown
from tocsin.sim.runner import run, run_many
from tocsin.sim.scenario import find
from tocsin.sim.scenarios.groups import BROKERS, FAULTS

SEEDS = 1_000
# 1: a broker that was taken for dead forgot what its members had at QoS 2, and so never settled it.
# 227: a message was sent again to a client that comes back and whose session knows that it has it.
ONCE_FAILED = (1, 227)

SHARED = "a group gets everything, in order, at QoS 2 once"
LEFT = "a group has settled everything in the end"
ONE = "a message is one member's at a time, and no two groups' of one name"


def test_sixty_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("groups", 0, 60) if outcome.broken] == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_ten_thousand_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("groups", 0, 10_000, jobs=2) if outcome.broken] == []


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    assert run(find("groups"), seed).broken is None


def test_brokers_crash_in_turn_between_any_two_effects() -> None:
    for seed in range(8):
        assert run(find("groups"), seed, plan=crashes_in_turn(seed, brokers=3)).broken is None


def test_brokers_freeze_for_longer_than_their_lives_last_while_writes_are_applied_late() -> None:
    for seed in range(8):
        assert run(find("groups"), seed, plan=freezes_and_late_writes(second_s=5)).broken is None


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────


def sends_before_the_claim(plant: pytest.MonkeyPatch) -> None:
    """A message is sent when its claim is asked for."""
    write = Sharing._write

    def early(sharing: Sharing, cause: str, now_us: int) -> list[Effect]:
        effects = write(sharing, cause, now_us)
        planned, sharing._planned = sharing._planned, []
        sent = [each.holder.give(each.claim, each.matched, repeat=False, cause=cause) for each in planned]
        return [*effects, *sent]

    plant.setattr(Sharing, "_write", early)


def takes_a_conflict_for_success(plant: pytest.MonkeyPatch) -> None:
    """A write that another broker's came before is taken for done."""

    def believe(sharing: Sharing, event: StoreFailed, now_us: int) -> list[Effect]:
        if event.request == PUT and isinstance(event.error, Conflict):
            return sharing.handle(Stored(request=PUT, value=event.error.actual or 0), now_us)
        return sharing._on_store_failure(event, now_us)

    table: dict[tuple[str, type[Event]], Handler] = {**Sharing.table, ("here", StoreFailed): believe}
    plant.setattr(Sharing, "table", table)


def takes_silence_for_no(plant: pytest.MonkeyPatch) -> None:
    """A write that was not answered is taken for one that did not happen."""

    def despair(sharing: Sharing, event: StoreFailed, now_us: int) -> list[Effect]:
        cell = sharing._cell
        if event.request != PUT or cell._asked != PUT or not isinstance(event.error, OutcomeUnknown):
            return sharing._on_store_failure(event, now_us)
        cell._asked, cell._writing = "", False
        planned, sharing._planned = sharing._planned, []
        for each in planned:
            sharing._hands.give_back(each.holder.client, each.claim.packet_id)
        return sharing._go_on(event.cause, now_us)

    table: dict[tuple[str, type[Event]], Handler] = {**Sharing.table, ("here", StoreFailed): despair}
    plant.setattr(Sharing, "table", table)


def begins_where_its_broker_is(plant: pytest.MonkeyPatch) -> None:
    """A new group begins behind what its broker has seen of the log."""
    find = Sharing._begin

    def begin(sharing: Sharing, draft: GroupDraft) -> None:
        sharing._beginning._end = sharing._hands.tail
        find(sharing, draft)

    plant.setattr(Sharing, "_begin", begin)


def makes_the_group_in_one_write(plant: pytest.MonkeyPatch) -> None:
    """The log is asked where it ends before the cell is there, and the cell is made with what it said."""
    write = Sharing._write

    def at_once(sharing: Sharing, cause: str, now_us: int) -> list[Effect]:
        if sharing._cell.group is not None or not sharing._holders:
            return write(sharing, cause, now_us)
        position = sharing._beginning.position(sharing._cell.revision - 1)
        if not position:
            return [*sharing._beginning.ask(sharing._cell.revision - 1, cause)]
        sharing._cell.group = StoredGroup(sharing._name, position, first=position)
        effects = write(sharing, cause, now_us)
        sharing._cell.group, sharing._beginning = None, Beginning()
        return effects

    plant.setattr(Sharing, "_write", at_once)


def tells_members_before_the_group_begins(plant: pytest.MonkeyPatch) -> None:
    """Whoever is in the cell is told that it is a member, wherever the group will begin."""
    learn = Holder.learn

    def hasty(holder: Holder, group: StoredGroup | None, cause: str) -> list[Effect]:
        known = group if group is None else msgspec.structs.replace(group, next=max(1, group.next))
        effects = learn(holder, known, cause)
        holder.first = holder.first or (group.first if group is not None and holder.told else 0)
        return effects

    plant.setattr(Holder, "learn", hasty)


def keeps_those_whose_group_is_over(plant: pytest.MonkeyPatch) -> None:
    """Whoever was a member of a group that is over joins the next one unawares."""
    plant.setattr(Holder, "bereft", lambda holder, group: False)


def never_buries(plant: pytest.MonkeyPatch) -> None:
    """Nobody sees to it that lives are over."""
    plant.setattr(Sharing, "_look", lambda sharing, cause, now_us: [])


def gives_away_what_is_held(plant: pytest.MonkeyPatch) -> None:
    """What a member that is away had at QoS 2 is given to others."""

    old = GroupDraft._away

    def away(draft: GroupDraft, client: str, member: Member, now_s: int) -> None:
        draft.free.update((claim.position, ()) for claim in draft._claims.pop(client, []))
        old(draft, client, member, now_s)

    plant.setattr(GroupDraft, "_away", away)


def forgets_the_id_too_soon(plant: pytest.MonkeyPatch) -> None:
    """A packet id is no longer stored as releasing while its claim may still be."""

    def pubcomp(delivery: Delivery, identifier: int) -> bool:
        if identifier not in delivery._releasing:
            return False
        del delivery._releasing[identifier]
        delivery._completed[identifier] = None
        return True

    plant.setattr(Delivery, "pubcomp", pubcomp)


def does_not_ask_the_session(plant: pytest.MonkeyPatch) -> None:
    """A claim is sent again, whatever the session knows of its packet id."""

    def restore(delivery: Delivery, identifier: int, group: str, position: int) -> None:
        delivery._claimed[identifier] = (group, position)
        delivery._releasing.pop(identifier, None)

    plant.setattr(Delivery, "restore", restore)


def lets_an_old_connection_join(plant: pytest.MonkeyPatch) -> None:
    """A broker that has lost a client makes it a member again."""

    def join(draft: GroupDraft, client: str, member: Member, user: str = "") -> bool:
        draft.members[client] = member
        return True

    plant.setattr(GroupDraft, "join", join)


# Each with a seed that shows it, from which the search begins; and what may be found to be broken.
PLANTED: dict[Callable[[pytest.MonkeyPatch], None], tuple[int, set[str]]] = {
    begins_where_its_broker_is: (144, {ONE, SHARED}),
    does_not_ask_the_session: (1, {SHARED}),
    forgets_the_id_too_soon: (6, {SHARED}),
    gives_away_what_is_held: (0, {SHARED}),
    keeps_those_whose_group_is_over: (60, {SHARED}),
    lets_an_old_connection_join: (7, {SHARED, LEFT, ONE}),
    makes_the_group_in_one_write: (582, {ONE, SHARED}),
    never_buries: (19, {LEFT, SHARED}),
    sends_before_the_claim: (5, {SHARED}),
    takes_a_conflict_for_success: (0, {SHARED, LEFT, ONE}),
    takes_silence_for_no: (41, {SHARED, LEFT}),
    tells_members_before_the_group_begins: (95, {SHARED}),
}


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None]) -> None:
    scenario = find("groups")
    begin, invariants = PLANTED[bug]
    with pytest.MonkeyPatch.context() as plant:
        bug(plant)
        seeds = (*range(begin, SEEDS), *range(begin))
        found = next((broken for seed in seeds if (broken := run(scenario, seed).broken)), None)
    assert found is not None, f"{SEEDS} seeds did not find it"
    assert found.invariant in invariants


# Leaders of the store that stood still, and answer with old news when they go on.
OLD_NEWS = msgspec.structs.replace(
    FAULTS,
    kinds=(("old news", 8), ("crash", 3), ("pause", 1)),
    brokers=BROKERS,
    shortest_us=1_000_000,
    longest_us=6_000_000,
    most=14,
)


# A group's cell was read plainly, and members got what they had settled (94, 125), or never settled it (116).
@pytest.mark.parametrize("seed", [94, 116, 125])
def test_a_seed_that_old_news_broke_holds(seed: int) -> None:
    assert run(msgspec.structs.replace(find("groups"), faults=OLD_NEWS), seed).broken is None


def test_a_plain_read_of_a_groups_cell_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the 95th seed; those before it are left out, for they take a minute."""
    ask = GroupCell._ask

    def plain(self: GroupCell, request: str, cause: str) -> Effect:
        asked = ask(self, request, cause)
        return msgspec.structs.replace(asked, fresh=False) if isinstance(asked, GetKey) else asked

    monkeypatch.setattr(GroupCell, "_ask", plain)
    broken = run(msgspec.structs.replace(find("groups"), faults=OLD_NEWS), 94).broken
    assert broken is not None and broken.invariant == SHARED

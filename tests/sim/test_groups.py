"""Groups keep their promises, whatever the seeds invent; and without any one precaution they do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tocsin.core.delivery import Delivery
from tocsin.core.group_cell import PUT
from tocsin.core.group_draft import GroupDraft
from tocsin.core.machine import Effect, Event, Handler, Stored, StoreFailed
from tocsin.core.sharing import Sharing
from tocsin.core.stored_group import Member
from tocsin.errors import Conflict
from tocsin.sim.faults import Crash, Fault, LeaderLoss, Pause, StoreTrouble
from tocsin.sim.runner import run, run_many
from tocsin.sim.scenario import find
from tocsin.sim.store import StoreWeather

SECOND = 1_000_000
SEEDS = 1_000
# 1: a broker that was taken for dead forgot what its members had at QoS 2, and so never settled it.
# 227: a message was sent again to a client that comes back and whose session knows that it has it.
ONCE_FAILED = (1, 227)

SHARED = "a group gets everything, in order, at QoS 2 once"
LEFT = "a group has settled everything in the end"
ONE = "a message is one member's at a time"


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
        plan: list[Fault] = [
            Crash(
                at_us=at * SECOND // 2,
                for_us=SECOND // 4,
                node=f"broker/{1 + at % 3}",
                after_effects=(seed + at) % 4,
            )
            for at in range(2, 38)
        ]
        assert run(find("groups"), seed, plan=plan).broken is None


def test_brokers_freeze_for_longer_than_their_lives_last_while_writes_are_applied_late() -> None:
    slow = StoreWeather(slow_us=8 * SECOND, mute_ppm=200_000)
    for seed in range(8):
        plan: list[Fault] = [
            StoreTrouble(at_us=SECOND, for_us=15 * SECOND, weather=slow),
            Pause(at_us=4 * SECOND, for_us=6 * SECOND, node="broker/1"),
            LeaderLoss(at_us=8 * SECOND, for_us=SECOND),
            Pause(at_us=11 * SECOND, for_us=5 * SECOND, node="broker/2"),
        ]
        assert run(find("groups"), seed, plan=plan).broken is None


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

    def join(draft: GroupDraft, client: str, member: Member) -> bool:
        draft.members[client] = member
        return True

    plant.setattr(GroupDraft, "join", join)


PLANTED: dict[Callable[[pytest.MonkeyPatch], None], set[str]] = {
    does_not_ask_the_session: {SHARED},
    forgets_the_id_too_soon: {SHARED},
    gives_away_what_is_held: {SHARED},
    lets_an_old_connection_join: {SHARED, LEFT, ONE},
    never_buries: {LEFT, SHARED},
    sends_before_the_claim: {SHARED},
    takes_a_conflict_for_success: {SHARED},
}


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None]) -> None:
    scenario = find("groups")
    with pytest.MonkeyPatch.context() as plant:
        bug(plant)
        found = next((broken for seed in range(SEEDS) if (broken := run(scenario, seed).broken)), None)
    assert found is not None, f"{SEEDS} seeds did not find it"
    assert found.invariant in PLANTED[bug]

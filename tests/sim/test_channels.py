"""Channels keep their promises, whatever the seeds invent; and without any one precaution they do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
from _pytest.mark.structures import ParameterSet

from tests.sim.plans import crashes_in_turn, freezes_and_late_writes
from tests.sim.search import seeds_from
from tocsin.broker.channels.results import Dispatch, Results
from tocsin.broker.survival import provisional
from tocsin.core.channels.machine import ChannelHoldings
from tocsin.core.channels.signals import (
    CellFound,
    Doubted,
    Held,
    Left,
    Looked,
    Scanned,
    SessionFound,
    Unwanted,
    Wanted,
)
from tocsin.core.delivery.machine import ClientDelivery
from tocsin.core.delivery.session_cell import SessionCell
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import Progress
from tocsin.core.machine import Effect, Event, Handler, Say
from tocsin.model.results import result_position
from tocsin.ports import Entry
from tocsin.sim.faults.kinds import Fault, Partition
from tocsin.sim.faults.plan import Profile
from tocsin.sim.network import STORE
from tocsin.sim.process.stage import CHANNELS
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios import channels
from tocsin.sim.world import World

QUICK = 20  # seeds
SECOND = 1_000_000
ARRIVE = "subscribers get every result, in order, and none that they do not want"
HELD = "what is subscribed to is held"
TIDY = "in the end what is held is what is wanted, and everything is settled"


def test_some_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("channels", 0, 12) if outcome.broken] == []


# Seeds that broke something, and what they found.
FOUND: dict[int, str] = {
    5013: "the promise held a client to an UNSUBACK from before it had subscribed again",
    5073: "the promise did not know that two brokers that are cut off may have different subscriptions",
    7009: "the promise did not know that a broker may end before the store has what was given up there",
}


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_broke_something_breaks_nothing(seed: int) -> None:
    assert run(find("channels"), seed).broken is None


def test_a_run_has_results_moves_and_changes_of_mind() -> None:
    """Else the promises would promise nothing."""
    said: Counter[str] = Counter()
    brokers: set[str] = set()

    class Counting(Invariant):
        name = "it counts"

        def attach(self, world: World) -> None:
            for text in ("took", "subscribed", "unsubscribed"):
                world.observers.on_say(text, self._count)
            world.observers.on_change(
                CHANNELS.subscriptions.name, lambda change: brokers.add(change.key.split(".")[2])
            )

        def _count(self, who: str, say: Say) -> None:
            said[say.text] += 1

    scenario = find("channels")
    counting = msgspec.structs.replace(scenario, build=lambda world: [*channels.build(world), Counting()])
    for seed in range(3):
        assert run(counting, seed).broken is None
    assert said["took"] > 200 and said["subscribed"] > 15 and said["unsubscribed"] > 5
    assert brokers == set(channels.BROKERS)


def test_brokers_crash_in_turn_between_any_two_effects() -> None:
    for seed in range(2):
        assert run(find("channels"), seed, plan=crashes_in_turn(seed, channels.BROKERS)).broken is None


def test_writes_are_applied_late_while_brokers_freeze_and_clients_move() -> None:
    for seed in range(2):
        assert (
            run(find("channels"), seed, plan=freezes_and_late_writes(channels.BROKERS, second_s=4)).broken
            is None
        )


# All brokers are cut off from the store for a while. Clients give up channels meanwhile.
CUT_OFF: list[Fault] = [
    Partition(at_us=4 * SECOND, for_us=12 * SECOND, side=channels.BROKERS, others=(STORE,))
]
# One is. Clients come to it whose sessions others have had since it knew them.
ONE_CUT_OFF: list[Fault] = [
    Partition(at_us=3 * SECOND, for_us=13 * SECOND, side=("broker-3",), others=(STORE,)),
    Partition(at_us=17 * SECOND, for_us=SECOND, side=("broker-1",), others=(STORE,)),
]


@pytest.mark.parametrize("plan", [CUT_OFF, ONE_CUT_OFF], ids=["all", "one"])
def test_clients_change_their_minds_while_brokers_are_cut_off(plan: list[Fault]) -> None:
    for seed in (1, 2, 39):
        assert run(find("channels"), seed, plan=plan).broken is None


def test_bug_that_undoes_what_was_given_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is back drops what clients changed while it was cut off, though nobody has taken their sessions."""
    monkeypatch.setattr(provisional, "settle", lambda record, stored, **how: "let go")
    broken = (run(find("channels"), seed, plan=CUT_OFF).broken for seed in seeds_from(1, 20))
    found = next((each for each in broken if each is not None), None)
    assert found is not None and found.invariant == ARRIVE


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────

Handle = Callable[[ChannelHoldings, Any, int], list[Effect]]


def replace(plant: pytest.MonkeyPatch, kind: type[Event], make: Callable[[Handle], Handle]) -> None:
    """Have the holdings of every broker handle events of a kind in another way, which is made of the right one."""
    right: Handler = ChannelHoldings.table["*", kind]
    plant.setattr(ChannelHoldings, "table", {**ChannelHoldings.table, ("*", kind): make(right)})


def held_at_once(right: Handle, *, every: bool) -> Handle:
    def want(holdings: ChannelHoldings, event: Wanted, now_us: int) -> list[Effect]:
        if event.all is not every or not event.ticket:
            return right(holdings, event, now_us)
        effects = right(holdings, msgspec.structs.replace(event, ticket=0), now_us)
        return [*effects, Held(tickets=(event.ticket,))]

    return want


def ignored(right: Handle) -> Handle:
    return lambda holdings, event, now_us: []


def acknowledges_early(plant: pytest.MonkeyPatch) -> None:
    """SUBACK does not wait until the backend subscription is stored."""
    replace(plant, Wanted, lambda right: held_at_once(right, every=False))


def takes_before_it_holds(plant: pytest.MonkeyPatch) -> None:
    """A session is taken, and its old home lets go, before the new one holds what it is subscribed to."""
    replace(plant, Wanted, lambda right: held_at_once(right, every=True))

    def careless(right: Handle) -> Handle:
        return lambda holdings, event, now_us: right(
            holdings, msgspec.structs.replace(event, ready=True), now_us
        )

    replace(plant, Looked, careless)


def lets_go_of_who_is_away(plant: pytest.MonkeyPatch) -> None:
    """What a session holds is given up when its connection ends."""

    def forgetful(right: Handle) -> Handle:
        return lambda holdings, event, now_us: right(
            holdings, msgspec.structs.replace(event, expiry_s=0), now_us
        )

    replace(plant, Left, forgetful)


def deletes_before_the_scan(plant: pytest.MonkeyPatch) -> None:
    """After a start, cells are given up before the sessions were looked through, and before a leader counts on it."""

    def hasty(right: Handle) -> Handle:
        def found(holdings: ChannelHoldings, event: CellFound, now_us: int) -> list[Effect]:
            effects = right(holdings, event, now_us)
            holdings._cells._sure = True
            return [*effects, *holdings._cells.scanned()]

        return found

    replace(plant, CellFound, hasty)


def forgets_the_sessions_of_a_scan(plant: pytest.MonkeyPatch) -> None:
    """A scan looks at cells only."""
    replace(plant, SessionFound, ignored)


def hears_nothing(plant: pytest.MonkeyPatch) -> None:
    """The old home does not hear that a session moved, and does not look for itself either."""
    replace(plant, Doubted, ignored)

    def careless(right: Handle) -> Handle:
        def scanned(holdings: ChannelHoldings, event: Scanned, now_us: int) -> list[Effect]:
            for session in holdings.sessions.values():
                session.touched = True
            return right(holdings, event, now_us)

        return scanned

    replace(plant, Scanned, careless)


def keeps_what_is_unsubscribed(plant: pytest.MonkeyPatch) -> None:
    """An unsubscribed channel stays held."""
    replace(plant, Unwanted, ignored)


def reads_its_own_files_only(plant: pytest.MonkeyPatch) -> None:
    """Of a tick that did not know what is held here, the others' files are not read."""
    plant.setattr(ChannelHoldings, "unseen", lambda holdings, seen: set())


def begins_in_the_middle(plant: pytest.MonkeyPatch) -> None:
    """A client that begins while a notice is dispatched counts as live from there."""

    async def take(results: Results, entry: Entry, dispatch: Dispatch) -> None:
        notice = results._notice(entry)
        if notice is not None:
            unseen = frozenset(results._unseen(notice))
            await results._pass_on(entry.position, notice, unseen, dispatch)
        results.tail = results.done = result_position(entry.position + 1, 0) - 1

    plant.setattr(Results, "_take", take)


def settles_at_sending(plant: pytest.MonkeyPatch) -> None:
    """Results that were sent count as settled."""
    right = ClientDelivery._current

    def current(delivery: ClientDelivery, custody: SessionCell) -> StoredSession:
        session = right(delivery, custody)
        if session.results is None:
            return session
        return msgspec.structs.replace(session, results=Progress(session.results.next))

    plant.setattr(ClientDelivery, "_current", current)


def treats_all_alike(plant: pytest.MonkeyPatch) -> None:
    """Others do not wait until the client has the critical results."""
    right = ClientDelivery._follow_results

    def follow(delivery: ClientDelivery, *arguments: Any) -> list[Effect]:
        effects = right(delivery, *arguments)
        assert delivery.results.others is not None
        delivery.results.others.delivery.first = None
        return effects

    plant.setattr(ClientDelivery, "_follow_results", follow)


def stores_one_progress(plant: pytest.MonkeyPatch) -> None:
    """How far a client is with critical results is not stored, but taken to be as far as it is with others."""
    right = ClientDelivery._current

    def current(delivery: ClientDelivery, custody: SessionCell) -> StoredSession:
        return msgspec.structs.replace(right(delivery, custody), critical=None)

    plant.setattr(ClientDelivery, "_current", current)


# Faults that show some bugs sooner than others do.
RESTARTS = msgspec.structs.replace(channels.FAULTS, kinds=(("crash", 1),), targets=channels.BROKERS, most=8)
CUTS = msgspec.structs.replace(channels.FAULTS, kinds=(("partition", 1),), targets=channels.BROKERS, most=12)


class Planted(NamedTuple):
    """A bug, within how many seeds it is found, what is found to be broken, and the faults that show it."""

    bug: Callable[[pytest.MonkeyPatch], None]
    seeds: int
    broken: str
    faults: Profile = channels.FAULTS


PLANTED = (
    Planted(acknowledges_early, 40, HELD),
    Planted(begins_in_the_middle, 20, ARRIVE),
    Planted(deletes_before_the_scan, 20, HELD, RESTARTS),
    Planted(forgets_the_sessions_of_a_scan, 20, HELD, RESTARTS),
    Planted(hears_nothing, 20, TIDY),
    Planted(keeps_what_is_unsubscribed, 20, TIDY),
    Planted(lets_go_of_who_is_away, 20, HELD),
    Planted(reads_its_own_files_only, 20, ARRIVE),
    Planted(settles_at_sending, 40, ARRIVE),
    Planted(stores_one_progress, 40, ARRIVE, CUTS),
    Planted(takes_before_it_holds, 100, HELD),
    Planted(treats_all_alike, 20, ARRIVE),
)


def cases() -> Iterator[ParameterSet]:
    """All planted bugs; those that a few seeds find are looked for in every run of the tests."""
    for planted in PLANTED:
        marks = () if planted.seeds <= QUICK else (pytest.mark.slow, pytest.mark.timeout(1_800))
        yield pytest.param(planted, id=planted.bug.__name__, marks=marks)


@pytest.mark.parametrize("planted", list(cases()))
def test_a_planted_bug_is_found(planted: Planted) -> None:
    scenario = msgspec.structs.replace(find("channels"), faults=planted.faults)
    with pytest.MonkeyPatch.context() as plant:
        planted.bug(plant)
        broken = (run(scenario, seed).broken for seed in range(planted.seeds))
        found = next((each for each in broken if each is not None), None)
    assert found is not None, f"{planted.seeds} seeds did not find it"
    assert found.invariant == planted.broken


def test_the_same_faults_break_nothing_without_a_bug() -> None:
    for faults in (RESTARTS, CUTS):
        for seed in range(2):
            scenario = msgspec.structs.replace(find("channels"), faults=faults)
            assert run(scenario, seed).broken is None

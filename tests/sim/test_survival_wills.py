"""Of whom dies there is one will, whoever else fails; without any one precaution there is none, or one too many."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import msgspec
import pytest

from tests.sim.survival_bugs import first_broken, with_bug
from tocsin.core.coordination import planning as core_planning
from tocsin.core.coordination.planning import PlanMade
from tocsin.core.coordination.survival import Backups
from tocsin.core.machine import Effect
from tocsin.core.replication.backup import Backup
from tocsin.core.replication.copy import Copy
from tocsin.core.standing_in import AwaitWill
from tocsin.core.waiting_wills import Told, Verdict, WaitingWills
from tocsin.sim.faults import Crash, CrashTogether, Fault, Partition, Pause
from tocsin.sim.network import STORE
from tocsin.sim.plan import Profile
from tocsin.sim.runner import run
from tocsin.sim.scenario import find
from tocsin.sim.scenarios.durable.wire import Disconnect, Packet
from tocsin.sim.scenarios.survival.bequeathing import Bequeathing
from tocsin.sim.scenarios.survival.bequests import WillsOnce
from tocsin.sim.scenarios.survival.broker import SurvivalBroker
from tocsin.sim.scenarios.survival.long import LongMortal, PatientSurvivor
from tocsin.sim.scenarios.survival.planning import Planner
from tocsin.sim.scenarios.survival.population import BROKERS, FAULTS
from tocsin.sim.scenarios.survival.service import SurvivalService
from tocsin.sim.world import World
from tocsin.wire.replication import Bequest, Update

SECOND = 1_000_000
MINUTE = 60 * SECOND
SEEDS = 150

ONCE = "a will is in the log once"
LIVING = "no will is published of a client that is known to live, or to have left in order"
COPIED = "what is acknowledged and not degraded: every backup has the client's will"
TOLD = "whoever dies has its will published"

# Brokers that end, alone and together, and such that are not dead.
CRASHES = msgspec.structs.replace(
    FAULTS,
    kinds=(("crash", 4), ("pause", 3), ("crash together", 1), ("partition", 1)),
    targets=("north-1", "north-2", "south-1", "south-2"),
    shortest_us=3 * SECOND,
)


# Brokers that end, or are frozen, or cut off from the store.
STORELESS = msgspec.structs.replace(
    CRASHES,
    kinds=(("crash", 4), ("pause", 2), ("store partition", 4), ("store trouble", 2), ("crash in turn", 1)),
)


class DropsNobody(SurvivalBroker):
    """Bug: who comes back, here or elsewhere, is taken for dead all the same."""

    class wills(WaitingWills):
        def came(self, client: str, owner: str = "", *, back: bool) -> None:
            pass


class KeepsTheWill(SurvivalBroker):
    """Bug: a client that disconnects in order leaves its will."""

    class service(SurvivalService):
        def on_packet(self, packet: Packet) -> None:
            if isinstance(packet, Disconnect):
                self.close()
            super().on_packet(packet)


class TellsNobody(SurvivalBroker):
    """Bug: backups are not told of wills."""

    class service(SurvivalService):
        def bequest(self) -> Bequest | None:
            return None


class PublishesNone(SurvivalBroker):
    """Bug: who stands in for another has its clients' channels, and forgets their wills."""

    class bequests(Bequeathing):
        def _on_effect(self, effect: Effect) -> None:
            if not isinstance(effect, AwaitWill):
                super()._on_effect(effect)


class EachItsOwn(SurvivalBroker):
    """Bug: whoever publishes a will gives it an id of its own."""

    class bequests(Bequeathing):
        def record_id(self, will: Bequest) -> str:
            return self._broker.prefix()


class SettlesTooEarly(SurvivalBroker):
    """Bug: backups are told that a will is settled when it goes to the log, and not when it is there."""

    class bequests(Bequeathing):
        def _commit(self, will: Bequest, told: Told) -> None:
            super()._commit(will, lambda: None)
            told()


PLANTED: dict[type[SurvivalBroker], tuple[str, Profile]] = {
    DropsNobody: (LIVING, FAULTS),
    EachItsOwn: (ONCE, CRASHES),
    KeepsTheWill: (LIVING, FAULTS),
    PublishesNone: (TOLD, CRASHES),
    TellsNobody: (COPIED, FAULTS),
}


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: type[SurvivalBroker]) -> None:
    invariant, faults = PLANTED[bug]
    scenario = with_bug(bug, faults)
    found = first_broken(scenario, SEEDS)
    assert found is not None, f"{SEEDS} seeds did not find {bug.__name__}"
    assert found.invariant == invariant


# It dies while its broker is cut off from the store; then that one ends.
CUT_OFF: list[Fault] = [
    Partition(at_us=10 * SECOND, for_us=6 * SECOND, side=("south-1",), others=(STORE,)),
    Crash(at_us=15 * SECOND, for_us=8 * SECOND, node="south-1"),
]


def test_a_will_that_is_taken_for_settled_too_early_is_missed() -> None:
    scenario = with_bug(SettlesTooEarly, FAULTS)
    found = next(
        (broken for seed in range(SEEDS) if (broken := run(scenario, seed, plan=CUT_OFF).broken)), None
    )
    assert found is not None and found.invariant == TOLD


PLANS: dict[str, list[Fault]] = {
    "nothing fails": [],
    "its broker ends": [Crash(at_us=3 * SECOND, for_us=17 * SECOND, node="south-1")],
    "its broker ends with the will on its way to the log": CUT_OFF,
    "its broker is frozen": [Pause(at_us=5 * SECOND, for_us=12 * SECOND, node="south-1")],
    "its cluster ends": [CrashTogether(at_us=6 * SECOND, for_us=12 * SECOND, nodes=("south-1", "south-2"))],
    "its broker ends and is back before it is missed": [
        Crash(at_us=(4 + each) * SECOND, for_us=SECOND, node="south-1") for each in range(0, 16, 2)
    ],
}


@pytest.mark.parametrize("plan", PLANS)
def test_whoever_dies_has_one_will(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is seen that there is one: who looks for nothing finds nothing wrong."""
    told: list[str] = []
    finish = WillsOnce.finish

    def look(self: WillsOnce, world: object) -> None:
        told.extend(client for client, _ in self.told)
        finish(self, world)  # type: ignore[arg-type]

    monkeypatch.setattr(WillsOnce, "finish", look)
    for seed in range(4):
        assert run(find("survival"), seed, plan=PLANS[plan]).broken is None
    assert "emil" in told


def test_nobody_publishes_the_will_of_who_left_a_broker_in_order_that_was_taken_for_lost() -> None:
    scenario = msgspec.structs.replace(find("survival"), faults=STORELESS)
    assert run(scenario, 1025).broken is None


def test_an_old_goodbye_does_not_void_the_will_that_a_client_left_with_a_standby() -> None:
    assert run(find("survival"), 20_033).broken is None


# ── mends, each switched off ─────────────────────────────────────────────────────────────────────────────────


class MovesBackup(Fault, frozen=True, kw_only=True):
    """The remote backup of a broker becomes another one of that cluster."""

    node: str

    def begin(self, world: World) -> None:
        address, made = LAST_PLAN[world]
        before = made[self.node]
        remote = next(
            each.id for each in BROKERS if each.cluster != self.node[:5] and each.id != before.remote
        )
        moved = {**made, self.node: Backups(before.local, remote)}
        LAST_PLAN[world] = address, moved
        world.post(address, PlanMade(backups=moved))

    def words(self) -> str:
        return f"the remote backup of {self.node} is moved"


LAST_PLAN: WeakKeyDictionary[World, tuple[str, dict[str, Backups]]] = WeakKeyDictionary()


@pytest.fixture
def remembered_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remember what was planned last, so that a fault can move one backup of it."""
    post = Planner._post

    def remember(self: Planner, address: str, event: PlanMade) -> None:
        LAST_PLAN[self._world] = address, dict(event.backups)
        post(self, address, event)

    monkeypatch.setattr(Planner, "_post", remember)


class FormerBackupsAreSilent(SurvivalBroker):
    """Bug: a backup that is one no longer does not speak when its broker begins anew."""

    class backup(Backup):
        def _give_out(self, primary: str, copy: Copy, cause: str) -> list[Effect]:
            return []


class NobodyMourns(PatientSurvivor):
    """Bug: whoever has a copy leaves its wills to the one that stands in, whatever that one knows."""

    class backup(Backup):
        def _on_mourned(self, primary: str, now_us: int, cause: str) -> list[Effect]:
            return []


class GoodbyesStay(PatientSurvivor):
    """Bug: that a will is settled is not told to the backups, but that there is none any more."""

    class backup(Backup):
        def _on_update(self, update: Update, now_us: int, cause: str) -> list[Effect]:
            deltas = tuple(msgspec.structs.replace(each, void="") for each in update.deltas)
            return super()._on_update(msgspec.structs.replace(update, deltas=deltas), now_us, cause)


class AsksNobody(PatientSurvivor):
    """Bug: who has the will of an old copy looks into the store, and does not ask the others."""

    class bequests(Bequeathing):
        def _ask_others(self, names: tuple[str, ...], verdict: Verdict) -> None:
            verdict(any(map(self._broker.replicating.backup.is_void, names)))


def always_another(self: Planner, before: str | None, able: list[str]) -> str | None:
    others = [each for each in able if each != before] or able
    return self._chance.one_of(others) if others else None


def away(*nodes: str) -> list[Fault]:
    """Without the others of a cluster one broker has one backup, in the other cluster."""
    return [Crash(at_us=0, for_us=30 * MINUTE, node=node) for node in nodes]


# It restarts, unmissed, and its backup is moved meanwhile.
RESTARTED_ELSEWHERE: list[Fault] = [
    *away("south-2", "spare"),
    Crash(at_us=9 * SECOND, for_us=9 * SECOND // 10, node="south-1"),
    MovesBackup(at_us=9 * SECOND + SECOND // 3, for_us=0, node="south-1"),
]
# Its new backup has no copy, because nothing comes to it from there; then it is lost for longer than copies are kept.
LOST_WITHOUT_COPY: list[Fault] = [
    *away("south-2", "spare"),
    Partition(at_us=2 * MINUTE, for_us=MINUTE, side=("south-1",), others=("north-1", "north-2")),
    MovesBackup(at_us=3 * MINUTE - 10 * SECOND, for_us=0, node="south-1"),
    Crash(at_us=3 * MINUTE - 5 * SECOND, for_us=10 * MINUTE, node="south-1"),
]
# Who says goodbye to it, cut off from the store, is heard by its newest backup only; then it restarts, unmissed. In
# these runs backups are moved every twenty seconds.
UNSTORED_GOODBYES: list[Fault] = [*away("north-2", "spare")]
for at_us in range(2 * MINUTE, 20 * MINUTE, 3 * MINUTE):
    UNSTORED_GOODBYES += [
        Partition(at_us=at_us, for_us=62 * SECOND, side=("north-1",), others=(STORE,)),
        Crash(at_us=at_us + MINUTE, for_us=3 * SECOND, node="north-1"),
    ]

# With how many seeds find it: the long ones take a second each.
MENDS: dict[type[SurvivalBroker], tuple[str, list[Fault], int]] = {
    AsksNobody: (LIVING, UNSTORED_GOODBYES, 20),
    FormerBackupsAreSilent: (TOLD, RESTARTED_ELSEWHERE, 20),
    GoodbyesStay: (LIVING, UNSTORED_GOODBYES, 20),
    NobodyMourns: (TOLD, LOST_WITHOUT_COPY, 10),
}


@pytest.mark.usefixtures("remembered_plans")
@pytest.mark.parametrize("bug", MENDS, ids=lambda bug: bug.__name__)
def test_a_mend_is_needed(bug: type[SurvivalBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a seed shows what it mends, which breaks nothing with it."""
    invariant, plan, seeds = MENDS[bug]
    if plan is LOST_WITHOUT_COPY:  # it dies before that
        monkeypatch.setattr(LongMortal, "youth_us", 130 * SECOND)
        monkeypatch.setattr(LongMortal, "life_scale", 2)
    elif plan is UNSTORED_GOODBYES:
        monkeypatch.setattr(core_planning, "AGAIN_US", 20 * SECOND)
        monkeypatch.setattr(Planner, "_choose", always_another)
        monkeypatch.setattr(Planner, "_searched", Planner._drawn)
    for seed in range(seeds):
        broken = run(with_bug(bug), seed, plan=plan).broken
        if broken is not None:
            break
    assert broken is not None, f"{seeds} seeds did not find {bug.__name__}"
    assert broken.invariant == invariant
    sound = "survival-long" if issubclass(bug, PatientSurvivor) else "survival"
    assert run(find(sound), seed, plan=plan).broken is None

"""Of whom dies there is one will, whoever else fails; without any one precaution there is none, or one too many."""

from __future__ import annotations

import msgspec
import pytest

from tests.sim.survival_bugs import first_broken, with_bug
from tocsin.core.machine import Effect
from tocsin.core.standing_in import AwaitWill
from tocsin.core.waiting_wills import Told, WaitingWills
from tocsin.sim.faults import Crash, CrashTogether, Fault, Partition, Pause
from tocsin.sim.network import STORE
from tocsin.sim.plan import Profile
from tocsin.sim.runner import run
from tocsin.sim.scenario import find
from tocsin.sim.scenarios.durable.wire import Disconnect, Packet
from tocsin.sim.scenarios.survival.bequeathing import Bequeathing
from tocsin.sim.scenarios.survival.bequests import WillsOnce
from tocsin.sim.scenarios.survival.broker import SurvivalBroker
from tocsin.sim.scenarios.survival.population import FAULTS
from tocsin.sim.scenarios.survival.service import SurvivalService
from tocsin.wire.replication import Bequest

SECOND = 1_000_000
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

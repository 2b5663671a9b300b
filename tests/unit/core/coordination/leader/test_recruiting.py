"""Which edge broker stands by while standbys are in use, and for how long."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.unit.core.coordination.desk import OPTIONS, Desk, of, sent
from tests.unit.core.coordination.leader.test_promotions import edge, fit, standby
from tocsin.core.coordination.leader.backup_planning import SETTLE_US, PlanMade, WantPlan
from tocsin.core.coordination.leader.balancing import KEY, ORDER, Order
from tocsin.core.coordination.leader.promotions import LEFT_US, StandbyTold, WantScores
from tocsin.core.coordination.leader.recruiting import (
    DRAIN_US,
    OBSTACLES_MAX,
    RESTART_US,
    Network,
    Recruiting,
    RecruitRules,
)
from tocsin.core.coordination.leader.timers import CoordinatorTimer
from tocsin.core.coordination.state.backups import Backups, Survival
from tocsin.core.machine import Append, Effect, Say
from tocsin.core.survival.refuges import ROOMY
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.internal.commands import Joined, Left, Planned, Promoted
from tocsin.wire.internal.control import Beat, Pulse

SECOND = 1_000_000
RULES = RecruitRules(wanted=1, after_us=60 * SECOND)


def may(name: str, cluster: str = "n") -> BrokerInfo:
    return msgspec.structs.replace(edge(name, cluster), may_stand_by=True)


def in_place(name: str, spare: str = "spare", cluster: str = "n", lent_by: str = "n") -> BrokerInfo:
    return msgspec.structs.replace(edge(name, cluster), certified=spare, lent_by=lent_by)


def as_standby(info: BrokerInfo) -> BrokerInfo:
    return msgspec.structs.replace(info, role=Role.STANDBY)


LOST, A, B, C, D = in_place("lost"), edge("a"), edge("b"), may("c"), may("d")


class Scene:
    """A cluster whose standby has the place of a broker."""

    def __init__(self, *members: BrokerInfo, rules: RecruitRules = RULES) -> None:
        self.survival = Survival()
        self.recruiting = Recruiting(rules)
        self.members = list(members or (LOST, A, B, C))
        self.drained: set[str] = set()
        self.loads: dict[str, int] = {}
        self.clients = dict.fromkeys("abcd", 5)
        self.planning = False
        self.now_us = 0

    def look(self, later_us: int = 0) -> list[Effect]:
        self.now_us += later_us
        network = Network(self.survival, self.members, self.drained, self.loads, self.clients, self.planning)
        return self.recruiting.look(network, self.now_us)

    def said(self, later_us: int = 0) -> list[Say]:
        return of(Say, self.look(later_us))

    def recruit(self) -> str:
        """The broker that is recruited once the cluster has lacked standbys for long enough."""
        self.look()
        (said,) = self.said(RULES.after_us)
        return str(said.facts["broker"])

    def change(self, info: BrokerInfo) -> None:
        self.members = [each for each in self.members if each.id != info.id] + [info]

    def plan(self, **rows: Backups) -> None:
        self.survival.planned(rows)

    def lose(self, broker: BrokerInfo) -> None:
        self.members = [each for each in self.members if each.id != broker.id]
        self.survival.lost(broker, [each.id for each in self.members])

    def state_of(self, broker: str) -> str:
        recruiting = self.recruiting
        role = next((each.role for each in self.members if each.id == broker), None)
        if recruiting.roles.get(broker) == Role.EDGE:
            return "released"
        if recruiting.roles.get(broker) == Role.STANDBY:
            return "told"
        if broker in recruiting.emptying:
            return "emptied"
        return "standing by" if role == Role.STANDBY else "serving"


# ── the transitions ──────────────────────────────────────────────────────────────────────────────────────────

Step = Callable[[Scene], object]


def empty(scene: Scene) -> None:
    scene.clients["c"] = 0


def stand_by(scene: Scene) -> None:
    scene.change(as_standby(C))
    scene.look()


def give_back(scene: Scene) -> None:
    """The lost broker is back, and the standby is one again."""
    scene.change(edge("lost"))
    scene.change(standby("spare"))


def drain(scene: Scene) -> None:
    scene.drained.add("c")


def wait(scene: Scene) -> None:
    scene.look()
    scene.now_us += RULES.after_us


WALK: dict[str, list[Step]] = {
    "serving": [],
    "emptied": [wait, Scene.look],
    "told": [wait, Scene.look, empty, Scene.look],
    "standing by": [wait, Scene.look, empty, Scene.look, stand_by],
    "released": [wait, Scene.look, empty, Scene.look, stand_by, drain, Scene.look],
}
ROWS: list[tuple[str, str, list[Step], str]] = [
    ("serving", "the cluster lacks standbys", [wait], "emptied"),
    ("serving", "it lacks none", [give_back, wait], "serving"),
    ("serving", "something speaks against it", [drain, wait], "serving"),
    ("emptied", "it has no clients, and no plan names it", [empty], "told"),
    ("emptied", "it has clients", [], "emptied"),
    ("emptied", "a plan names it", [empty, lambda s: s.plan(a=Backups("c"))], "emptied"),
    ("emptied", "a plan is on its way", [empty, lambda s: setattr(s, "planning", True)], "emptied"),
    ("emptied", "nobody knows its clients", [lambda s: s.clients.pop("c")], "emptied"),
    ("emptied", "it is needed no longer", [give_back], "serving"),
    ("emptied", "it is lost", [lambda s: s.lose(C)], "serving"),
    ("emptied", "an operator has it drained", [drain], "serving"),
    ("emptied", "it is not empty in time", [lambda s: setattr(s, "now_us", s.now_us + DRAIN_US)], "serving"),
    ("told", "a client comes", [lambda s: s.clients.update(c=1)], "emptied"),
    ("told", "a plan names it", [lambda s: s.plan(a=Backups(None, "c"))], "emptied"),
    ("told", "it leaves to come back", [lambda s: s.lose(C)], "told"),
    ("told", "it joins as a standby", [stand_by], "standing by"),
    ("standing by", "the place is still taken", [wait], "standing by"),
    ("standing by", "enough others are free, for a moment", [give_back], "standing by"),
    ("standing by", "enough others are free", [give_back, wait], "released"),
    ("standing by", "an operator has it drained", [drain], "released"),
    ("released", "it still stands by", [wait], "released"),
    ("released", "it joins as an edge broker", [lambda s: s.change(C)], "serving"),
]


@pytest.mark.parametrize(
    ("state", "what", "steps", "then"), ROWS, ids=[f"{row[0]}: {row[1]}" for row in ROWS]
)
def test_every_transition_is_as_the_table_says(state: str, what: str, steps: list[Step], then: str) -> None:
    scene = Scene()
    for step in WALK[state]:
        step(scene)
    assert scene.state_of("c") == state
    for step in steps:
        step(scene)
    scene.look()
    assert scene.state_of("c") == then


# ── who may ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_one_with_the_fewest_clients_is_recruited() -> None:
    scene = Scene(LOST, A, B, C, D)
    scene.loads = {"c": 300, "d": 100}
    assert scene.recruit() == "d"
    assert scene.recruiting.emptying == {"d"}
    assert scene.look(RULES.after_us) == [], "one at a time"


def test_among_equally_full_ones_the_better_machine_is_recruited() -> None:
    scene = Scene(LOST, A, B, C, D)
    scene.loads = {"c": 100, "d": 120}
    (asked,) = of(WantScores, scene.look())
    assert [(each.standby.id, [peer.id for peer in each.peers]) for each in asked.questions] == [
        ("c", ["a", "b", "d"]),
        ("d", ["a", "b", "c"]),
    ]
    scene.recruiting.told(fit("c", 0.2))
    scene.recruiting.told(fit("d", 0.9))
    (said,) = scene.said(RULES.after_us)
    assert (said.facts["broker"], said.facts["place"], said.facts["score"]) == ("d", "lost", 0.9)


def test_who_does_not_answer_comes_last() -> None:
    scene = Scene(LOST, A, B, C, D)
    scene.look()
    scene.recruiting.told(StandbyTold(standby="c", summary=None, problem="no answer"))
    scene.recruiting.told(fit("d", 0.1))
    assert scene.said(RULES.after_us)[0].facts["broker"] == "d"


def lost_with_a_copy(scene: Scene) -> None:
    scene.plan(gone=Backups("c"))
    scene.lose(edge("gone"))


OBSTACLES: dict[str, tuple[str, Step]] = {
    "settings": ("may_stand_by", lambda s: s.change(edge("c"))),
    "promoted": ("a standby has its name", lambda s: s.change(msgspec.structs.replace(C, certified="x"))),
    "ordered": ("an operator", drain),
    "a copy": ("may need it as its backup", lost_with_a_copy),
    "few": ("fewer than 2 other", lambda s: s.members.remove(B)),
    "few, as one is drained": ("fewer than 2 other", lambda s: s.drained.update("ab")),
    "no room": ("no room", lambda s: s.loads.update(a=ROOMY, b=ROOMY, lost=ROOMY)),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_who_may_not_be_recruited_is_told_why(obstacle: str) -> None:
    words, step = OBSTACLES[obstacle]
    scene = Scene(LOST, A, B, C)
    if obstacle == "few":
        scene.members.remove(LOST)
        scene.change(in_place("far", cluster="s"))
    step(scene)
    scene.look()
    (said,) = scene.said(RULES.after_us)
    told = {each.partition(": ")[0]: each for each in said.facts["why"]}  # type: ignore[attr-defined]
    assert said.text == "nobody can be recruited as a standby" and words in told["c"]
    assert scene.said(RULES.after_us) == [], "once for each place"
    (lack,) = scene.recruiting.lacks()
    assert (lack.cluster, lack.free, lack.wanted) == ("n", 0, 1) and words in lack.obstacles["c"]


def test_a_place_elsewhere_counts_for_the_cluster_that_lent_the_standby() -> None:
    scene = Scene(in_place("far", cluster="s", lent_by="n"), A, B, C, may("t", "s"), edge("u", "s"))
    assert scene.recruit() == "c"


def test_without_the_setting_nobody_is_recruited() -> None:
    scene = Scene(rules=RecruitRules())
    scene.look()
    assert scene.look(RULES.after_us) == [] and scene.recruiting.lacks() == ()


def test_a_recruit_of_earlier_settings_is_released() -> None:
    scene = Scene(LOST, A, B, as_standby(C), rules=RecruitRules())
    scene.look()
    assert scene.said(RULES.after_us)[0].text == "a recruited broker is released: it serves again"


def test_a_cluster_without_a_promoted_standby_lacks_none() -> None:
    scene = Scene(A, B, C, D)
    scene.look()
    assert scene.look(RULES.after_us) == []


def test_the_recruit_that_joined_last_is_released_first() -> None:
    scene = Scene(LOST, A, B, as_standby(D), as_standby(C), standby("x"))
    scene.look()
    scene.look(RULES.after_us)
    assert scene.recruiting.roles == {"c": Role.EDGE}
    assert scene.recruiting.standing_by == {"d"}


def test_nobody_is_released_while_a_place_is_empty() -> None:
    scene = Scene(LOST, A, B, as_standby(C), standby("x"))
    scene.look()
    scene.lose(A)
    scene.look(RULES.after_us)
    assert scene.recruiting.roles == {}


def test_one_that_could_not_be_emptied_rests() -> None:
    scene = Scene()
    scene.recruit()
    scene.look(DRAIN_US)
    scene.look()
    (said,) = scene.said(RULES.after_us)
    assert "c: it was given up: it was not empty" in str(said.facts["why"])


def test_a_large_cluster_says_why_not_of_those_who_may_first() -> None:
    scene = Scene(LOST, *(edge(f"e-{number}") for number in range(OBSTACLES_MAX)), D)
    drain_all = {each.id for each in scene.members}
    scene.drained |= drain_all
    scene.look()
    scene.look(RULES.after_us)
    (lack,) = scene.recruiting.lacks()
    assert len(lack.obstacles) == OBSTACLES_MAX and next(iter(lack.obstacles)) == "d"


# ── a new leader ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_leader_goes_on_with_what_the_old_one_began() -> None:
    scene = Scene()
    assert scene.recruiting.adopt(C, 0)
    scene.look()
    assert scene.state_of("c") == "emptied"
    assert not scene.recruiting.adopt(C, 0), "it knows that already"


def test_a_late_beat_of_a_broker_given_up_recruits_nobody() -> None:
    scene = Scene()
    scene.recruit()
    give_back(scene)
    scene.look()
    assert not scene.recruiting.adopt(C, scene.now_us)


@pytest.mark.parametrize("info", [edge("c"), as_standby(C)], ids=["it may not", "it stands by"])
def test_nobody_else_is_adopted(info: BrokerInfo) -> None:
    assert not Recruiting(RULES).adopt(info, 0)


# ── within a leadership ──────────────────────────────────────────────────────────────────────────────────────

QUICK = msgspec.structs.replace(
    OPTIONS, lease_us=10**12, recruit=RecruitRules(1, 2 * SECOND), suspect_after_us=10**12
)


class Leading:
    """A leader of a cluster whose standby has the place of a broker."""

    def __init__(self, *more: BrokerInfo) -> None:
        self.desk = Desk(QUICK)
        self.desk.lead()
        self.beats = 0
        self.infos = (LOST, A, B, C, *more)
        for each in self.infos:
            self.join(each)

    def join(self, info: BrokerInfo, incarnation: int = 7) -> list[Effect]:
        return self.desk.take(self.desk.submit(Joined(info), broker=info.id, incarnation=incarnation))

    def beat(
        self, broker: str, clients: int, *, recruited: bool = False, incarnation: int = 7
    ) -> Pulse | None:
        self.beats += 1
        beat = Beat(
            broker, incarnation, 9, number=self.beats, interval_ms=500, clients=clients, recruited=recruited
        )
        return next(iter(sent(Pulse, self.desk.hear(beat))), None)

    def look(self, later_us: int = 0) -> list[Effect]:
        self.desk.now_us += later_us
        return self.desk.fire(CoordinatorTimer.PLAN)

    def recruit(self) -> None:
        for each in self.infos:
            self.beat(each.id, 3)
        self.look()
        self.look(2 * SECOND)


def test_the_recruit_is_drained_and_told_when_it_is_empty() -> None:
    leading = Leading()
    leading.recruit()
    leading.desk.now_us += SECOND
    pulse = leading.beat("c", 3)
    assert pulse is not None and pulse.moves is not None and pulse.role is None
    assert (pulse.moves.drain, pulse.moves.recruits) == (True, True)
    assert {each.id for each in pulse.moves.to} <= {"a", "b", "lost"}
    leading.beat("c", 0)
    leading.look()
    pulse = leading.beat("c", 0)
    assert pulse is not None and pulse.role == Role.STANDBY


def test_a_plan_that_names_the_empty_recruit_is_not_used() -> None:
    leading = Leading()
    leading.recruit()
    desk = leading.desk
    old = {"a": Backups("c"), "b": Backups("a"), "c": Backups("a"), "lost": Backups("a")}
    desk.take(desk.handle(PlanMade(backups=old)))
    leading.beat("c", 0)
    leading.look()
    pulse = leading.beat("c", 0)
    assert pulse is not None and pulse.role is None, "a plan names it"
    assert of(Append, desk.handle(PlanMade(backups={**old, "b": Backups("c")}))) == []
    (want,) = of(WantPlan, leading.look(SETTLE_US))
    assert {each.id for each in want.brokers} == {"a", "b", "lost"}
    new = {"a": Backups("b"), "b": Backups("a"), "lost": Backups("a")}
    desk.take(desk.handle(PlanMade(backups=new)))
    assert isinstance(desk.batches[-1].commands[0], Planned)
    leading.look()
    pulse = leading.beat("c", 0)
    assert pulse is not None and pulse.role == Role.STANDBY


def test_nobody_takes_the_place_of_a_recruit_that_changes_its_role() -> None:
    leading = Leading(standby("spare-2", "elsewhere"))
    leading.recruit()
    leading.beat("c", 0)
    leading.look()
    leading.desk.take(leading.desk.submit(Left(), broker="c", first=2))
    leading.desk.now_us += LEFT_US
    assert not of(Append, leading.desk.fire(CoordinatorTimer.PROMOTE))
    leading.join(as_standby(C), incarnation=8)
    assert leading.desk.machine.replica.survival.vacancies == {}
    leading.look(RESTART_US)
    assert leading.desk.machine.leader is not None
    assert leading.desk.machine.leader.recruits.standing_by == {"c"}


def test_a_beat_that_says_recruited_is_answered_with_moves_at_once() -> None:
    leading = Leading()
    pulse = leading.beat("c", 3, recruited=True)
    assert pulse is not None and pulse.moves is not None and pulse.moves.recruits


def test_a_recruit_that_stands_by_is_promoted_like_any_other() -> None:
    leading = Leading()
    leading.join(as_standby(C), incarnation=8)
    desk = leading.desk
    desk.take(desk.submit(Left(), broker="a", first=2))
    desk.now_us += LEFT_US
    desk.take(desk.fire(CoordinatorTimer.PROMOTE))
    assert Promoted("a", "c") in desk.batches[-1].commands


def test_a_drain_of_an_operator_is_stronger() -> None:
    leading = Leading()
    leading.recruit()
    leading.desk.watch("put", f"{KEY}c", ORDER.write(Order(1)), 9)
    leading.look()
    pulse = leading.beat("c", 3)
    assert pulse is not None and pulse.moves is not None
    assert (pulse.moves.drain, pulse.moves.recruits) == (True, False)

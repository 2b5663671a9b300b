"""Which standby takes a lost broker's place, and when."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from tests.unit.core.coordination.desk import OPTIONS, Desk, of, sent
from tests.unit.core.coordination.leader.test_backup_planning import NORTH_1, with_two
from tocsin.config import Scoring
from tocsin.core.assignment.ranking.scoring import Resource, score
from tocsin.core.coordination.leader.promotions import (
    ANSWER_US,
    ARRIVE_US,
    LEFT_US,
    PENDING_US,
    Chosen,
    Promotions,
    StandbyTold,
    WantScores,
    links_of,
)
from tocsin.core.coordination.leader.timers import CoordinatorTimer
from tocsin.core.coordination.state.backups import Backups, Survival
from tocsin.core.machine import Effect, Say
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.wire.internal.commands import Joined, Left, Promoted
from tocsin.wire.internal.control import Unknown
from tocsin.wire.internal.summaries import UNMEASURED, Summary

DOOR = (Entrance(Scheme.MQTT, "x:1883"),)


def edge(name: str, cluster: str = "n") -> BrokerInfo:
    return BrokerInfo(name, cluster, Role.EDGE, "127.0.0.1", 9, DOOR)


def standby(name: str, cluster: str = "n") -> BrokerInfo:
    return BrokerInfo(name, cluster, Role.STANDBY, "127.0.0.1", 9)


def fit(name: str, score: float) -> StandbyTold:
    summary = Summary(1, 1, {}, terms={"power": (score, 1.0)}, weights={"power": 1.0})
    return StandbyTold(standby=name, summary=summary)


class Scene:
    """A lost broker, others, and standbys."""

    def __init__(self, *standbys: BrokerInfo, after_us: int = 0) -> None:
        self.survival = Survival()
        self.promotions = Promotions(after_us)
        self.members = [edge("other"), *standbys]
        self.now_us = 1_000
        self.pending: list[Promoted] = []

    def lose(self, broker: BrokerInfo) -> None:
        self.survival.lost(broker, [each.id for each in self.members])

    def look(self) -> tuple[list[Promoted], list[Effect]]:
        return self.promotions.look(self.survival, self.members, self.pending, self.now_us)

    def promoted(self) -> list[Promoted]:
        return self.look()[0]

    def tell(self, *told: StandbyTold) -> None:
        for each in told:
            self.promotions.told(each, self.now_us)

    def asked(self) -> list[list[str]]:
        return [[each.standby.id for each in want.questions] for want in of(WantScores, self.look()[1])]


LOST = edge("lost")
A, B, Z, S = standby("a"), standby("b"), standby("z"), standby("s", "s")


def test_the_best_of_those_that_answer_is_promoted_at_once() -> None:
    scene = Scene(A, B, Z, S)
    scene.lose(LOST)
    assert scene.asked() == [["a", "b", "z", "s"]], "all are asked when a broker is lost"
    assert scene.asked() == [], "once"
    scene.tell(fit("a", 0.1), fit("b", 0.5), fit("s", 1.0))
    assert scene.promoted() == [], "z has a moment left"
    scene.tell(fit("z", 0.9))
    promoted, effects = scene.look()
    assert promoted == [Promoted("lost", "z")]
    (chosen,) = of(Chosen, effects)
    assert [each.name for each in chosen.candidates] == ["z", "b", "a", "s"]


def test_who_does_not_answer_is_waited_for_briefly_and_then_comes_last() -> None:
    scene = Scene(A, Z)
    scene.tell(fit("z", 1.0))
    scene.now_us += 1
    scene.lose(LOST)
    scene.look()
    scene.tell(fit("a", 0.1))
    assert scene.promoted() == []
    assert scene.promotions.next_us(scene.now_us) == scene.now_us + ANSWER_US
    scene.now_us += ANSWER_US
    promoted, effects = scene.look()
    assert promoted == [Promoted("lost", "a")]
    silent = of(Chosen, effects)[0].candidates[1]
    assert (silent.name, silent.answered, silent.score is not None) == ("z", False, True)


def test_the_place_of_a_broker_that_vanished_waits_for_its_restart() -> None:
    scene = Scene(A)
    scene.promotions.vanished("lost", scene.now_us + 1_400_000)
    scene.lose(LOST)
    scene.look()
    scene.tell(fit("a", 0.5))
    assert scene.promoted() == [], "it may be restarting"
    assert scene.promotions.next_us(scene.now_us + ANSWER_US) == scene.now_us + 1_400_000
    scene.now_us += 1_400_000
    assert scene.promoted() == [Promoted("lost", "a")]


def test_a_standby_of_which_nothing_is_known_is_better_than_none() -> None:
    scene = Scene(A, B)
    scene.lose(LOST)
    scene.look()
    scene.tell(StandbyTold(standby="a", summary=None, problem="no responders"))
    assert scene.promoted() == [], "an answer may still come"
    scene.now_us += ANSWER_US
    assert scene.promoted() == [Promoted("lost", "a")]


def test_an_operator_can_have_it_wait_for_quick_restarts() -> None:
    scene = Scene(A, after_us=3_000_000)
    scene.lose(LOST)
    assert scene.asked() == [["a"]], "the question need not wait"
    scene.tell(fit("a", 1.0))
    due_us = scene.now_us + 3_000_000
    assert scene.promotions.next_us(scene.now_us + ANSWER_US) == due_us
    scene.now_us = due_us - 1
    assert scene.promoted() == []
    scene.survival.joined("lost")
    scene.now_us = due_us
    assert scene.promoted() == [], "it is back"


def test_a_broker_that_left_has_time_to_come_back() -> None:
    scene = Scene(A)
    scene.lose(LOST)
    scene.promotions.left("lost", None, scene.now_us)
    scene.look()
    scene.tell(fit("a", 1.0))
    scene.now_us += LEFT_US - 1
    assert scene.promoted() == []
    scene.now_us += 1
    assert scene.promoted() == [Promoted("lost", "a")]


def test_another_standby_follows_only_one_that_is_lost_on_its_way() -> None:
    scene = Scene(A, B)
    scene.lose(LOST)
    scene.look()
    scene.tell(fit("a", 1.0), fit("b", 0.5))
    scene.pending = scene.promoted()
    assert scene.pending == [Promoted("lost", "a")]
    assert scene.promoted() == [], "it is about to be in the log"
    scene.pending = []
    scene.survival.promoted("lost", "a")
    assert scene.promoted() == []
    scene.members.remove(A)
    scene.survival.lost(A, ["other", "b"])  # as it does when it leaves under its own name
    scene.promotions.left("a", "lost", scene.now_us)
    assert scene.promoted() == [] == scene.promoted()
    scene.now_us += ARRIVE_US
    scene.look()
    scene.tell(fit("b", 0.5))
    assert scene.promoted() == [Promoted("lost", "b")], "it never came"


def test_lost_brokers_get_different_standbys_and_the_last_one_is_reported() -> None:
    scene = Scene(A, Z, S)
    scene.members.append(msgspec.structs.replace(edge("held"), certified="elsewhere"))
    for name, cluster in (("x", "n"), ("y", "n"), ("w", "n"), ("v", "n")):
        scene.lose(edge(name, cluster))
    scene.look()
    scene.tell(fit("a", 0.1), fit("z", 0.9), fit("s", 1.0))
    promoted, effects = scene.look()
    assert promoted == [Promoted("x", "z"), Promoted("y", "a"), Promoted("w", "s")]
    warnings = [each for each in of(Say, effects) if each.level == "warning"]
    assert [each.facts["broker"] for each in warnings] == ["w", "v"]
    assert "the last standby is in use" in warnings[0].text and "no standby is left" in warnings[1].text
    scene.pending = promoted
    assert [each for each in of(Say, scene.look()[1]) if each.level == "warning"] == [], "once"


def test_the_peers_of_a_broker_are_those_from_before_it_was_lost() -> None:
    scene = Scene(A)
    far, near = edge("far", "s"), edge("near")
    scene.members += [LOST, far, near]
    scene.survival.planned({"lost": Backups("near", None)})
    links = links_of([("far", "lost", 7)])
    (want,) = of(WantScores, scene.promotions.ask(scene.survival, scene.members, links))
    peers = {each.broker.id: each.peers for each in want.vacancies}
    assert peers["lost"] == ("far", "near", "other")
    assert {each.id for each in want.questions[0].peers} == {"far", "near", "other", "lost"}
    scene.members.remove(LOST)
    scene.lose(LOST)
    (again,) = of(WantScores, scene.look()[1])
    assert {each.id for each in again.questions[0].peers} == {"far", "near", "other"}
    assert again.vacancies == (), "who would take other places is another question"


def test_a_network_without_standbys_asks_nobody() -> None:
    scene = Scene()
    assert scene.promotions.ask(scene.survival, scene.members, {}) == []
    scene.lose(LOST)
    assert scene.look() == ([], [])


def test_standbys_are_asked_again_while_they_are_measuring() -> None:
    scene = Scene(A)
    scene.tell(StandbyTold(standby="a", summary=Summary(1, 1, {}, unprobed={"other": UNMEASURED})))
    assert not scene.promotions.is_pending(scene.now_us + PENDING_US - 1)
    assert scene.promotions.is_pending(scene.now_us + PENDING_US)
    scene.promotions.ask(scene.survival, scene.members, {})
    assert not scene.promotions.is_pending(scene.now_us + PENDING_US)
    scene.tell(StandbyTold(standby="a", summary=Summary(1, 1, {}, unprobed={"other": "refused"})))
    assert not scene.promotions.is_pending(scene.now_us + 9 * PENDING_US), "that will not change soon"


# ── in the leader ────────────────────────────────────────────────────────────────────────────────────────────


def with_standby() -> Desk:
    desk = with_two()
    desk.take(desk.submit(Joined(standby("spare")), broker="spare"))
    return desk


def test_standbys_are_asked_with_each_plan() -> None:
    desk = with_standby()
    (want,) = of(WantScores, desk.fire(CoordinatorTimer.PLAN))
    assert [each.standby.id for each in want.questions] == ["spare"]
    assert [each.broker.id for each in want.vacancies] == ["north", "south"]


def test_a_promotion_is_in_the_log() -> None:
    desk = with_standby()
    desk.take(desk.submit(Left(), first=2))
    desk.handle(fit("spare", 0.5))
    desk.now_us += LEFT_US
    desk.take(desk.fire(CoordinatorTimer.PROMOTE))
    assert desk.batches[-1].commands == (Promoted("north", "spare"),)
    assert desk.machine.replica.survival.promotions == {"spare": "north"}


def machine(scoring: Scoring, cores: float, hours: float) -> Summary:
    """What a standby with these free cores and this battery says of itself."""
    needs, weights = scoring.needs(standby=True), scoring.weights(standby=True)
    have = {"processor": cores, "memory": 8.0, "bandwidth": 100.0, "battery": hours}
    made = score({name: Resource(amount, needs[name]) for name, amount in have.items()}, {}, weights)
    terms = {name: (each.value, each.weight) for name, each in made.terms.items()}
    probes = {"south": (2_000, 100_000)}
    return Summary(1, 1, {}, terms=terms, weights=scoring.standby_weights(), need_mbit=10.0, probes=probes)


@pytest.mark.parametrize(
    ("own", "chosen"),
    [
        ({"configuration": "static"}, "fast"),
        ({"configuration": "mobile-servicing"}, "mains"),
        ({"configuration": "mobile-backup"}, "mains"),
        ({"configuration": "mobile-backup", "battery_weight": 0.0}, "fast"),
    ],
)
def test_the_configuration_decides_between_speed_and_mains(own: dict[str, Any], chosen: str) -> None:
    scoring = Scoring(**own)
    desk = with_two()
    for name in ("fast", "mains"):
        desk.take(desk.submit(Joined(standby(name, "north")), broker=name))
    desk.take(desk.submit(Left(), first=2))
    desk.handle(
        StandbyTold(standby="fast", summary=machine(scoring, cores=8.0, hours=0.45))
    )  # 15 % of 3 hours
    desk.handle(StandbyTold(standby="mains", summary=machine(scoring, cores=0.25, hours=math.inf)))
    desk.now_us += LEFT_US
    effects = desk.fire(CoordinatorTimer.PROMOTE)
    desk.take(effects)
    assert desk.batches[-1].commands == (Promoted("north", chosen),)
    (said,) = of(Chosen, effects)
    assert said.candidates[0].name == chosen and all(each.answered for each in said.candidates)


def test_a_follower_ignores_what_standbys_say() -> None:
    desk = Desk(OPTIONS)
    desk.start()
    assert desk.handle(fit("spare", 0.5)) == []


def test_a_standby_that_comes_after_the_broker_is_back_stays_a_standby() -> None:
    desk = with_standby()
    late = msgspec.structs.replace(NORTH_1, certified="spare")
    effects = desk.submit(Joined(late), incarnation=99)
    assert [each.incarnation for each in sent(Unknown, effects)] == [99]
    assert desk.machine.replica.members["north"].info == NORTH_1
    desk.take(desk.submit(Left(), first=2))
    desk.take(desk.submit(Joined(late), incarnation=99))
    assert desk.machine.replica.members["north"].info == late, "now the place is empty"

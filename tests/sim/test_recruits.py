"""Brokers that are recruited as standbys lose nobody and nothing; without any one precaution that is not so."""

from __future__ import annotations

import pytest

from tests.sim.survival_bugs import SECOND, Planted
from tocsin.core.coordination.leader.recruiting import Network, Recruiting, RecruitRules
from tocsin.core.coordination.participant.network_view import NetworkView
from tocsin.core.machine import Effect
from tocsin.model.network import BrokerInfo
from tocsin.sim.faults.kinds import Crash, Fault
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find
from tocsin.sim.runs.transcript import Transcript

IDLE = "a broker that begins to stand by has no clients, and backs nobody"
GOES_ON = "a new leader goes on to empty the broker that the old one has recruited"
IN_TIME = "a recruit is released when there are enough standbys without it"
IN_PLACE = "in the end every broker is in its place, and nobody stands in for anybody"
NAME = "survival-recruits"

# A broker is away for long, so that the standby is in use and another broker is recruited.
AWAY: list[Fault] = [Crash(at_us=6 * SECOND, for_us=25 * SECOND, node="north-3")]
# The leader ends while the recruit is emptied.
LED_ANEW: list[Fault] = [
    *AWAY,
    *(
        Crash(at_us=9_500_000, for_us=for_us, node=node)
        for node, for_us in (("coordinator-1", 12 * SECOND), ("coordinator-2", 4 * SECOND))
    ),
]


def test_some_seeds_with_recruits_break_nothing() -> None:
    assert [outcome for outcome in run_many(NAME, 0, 3) if outcome.broken] == []


def test_a_recruit_stands_by_and_serves_again() -> None:
    transcript = Transcript()
    assert run(find(NAME), 0, transcript, AWAY).broken is None
    said = [line.text for line in transcript]
    began, ended = (
        next(place for place, text in enumerate(said) if words in text)
        for words in ("says: this broker is recruited, and stands by", "says: this broker is released")
    )
    assert began < ended


def stands_by_too_early(patch: pytest.MonkeyPatch) -> None:
    """A broker stands by as soon as it has no clients: plans that name it are not made anew before."""

    def is_empty(self: Recruiting, broker: str, network: Network) -> bool:
        return network.clients.get(broker) == 0

    patch.setattr(Recruiting, "_is_ready", is_empty)
    patch.setattr(NetworkView, "counts_on_it", False)


def forgets_the_recruitment(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not go on with what the old one has begun."""

    def adopts_nobody(self: Recruiting, info: BrokerInfo, now_us: int) -> bool:
        return False

    patch.setattr(Recruiting, "adopt", adopts_nobody)


def releases_at_once(patch: pytest.MonkeyPatch) -> None:
    """A recruit is released while the promoted standby still has its place."""
    release = Recruiting._release

    def careless(self: Recruiting, *what: object) -> list[Effect]:
        rules, self._rules = self._rules, RecruitRules(0, self._rules.after_us)
        effects = release(self, *what)  # type: ignore[arg-type]
        self._rules = rules
        return effects

    patch.setattr(Recruiting, "_release", careless)


def releases_nobody(patch: pytest.MonkeyPatch) -> None:
    """A recruit stands by for ever."""
    patch.setattr(Recruiting, "_release", lambda self, *what: [])


PLANTED: dict[str, Planted] = {
    "the role changes before the plan is made anew": Planted(stands_by_too_early, IDLE, AWAY, scenario=NAME),
    "a new leader forgets the recruitment": Planted(
        forgets_the_recruitment, GOES_ON, LED_ANEW, scenario=NAME
    ),
    "the release does not wait": Planted(releases_at_once, IN_TIME, AWAY, scenario=NAME),
    "nobody is released": Planted(releases_nobody, IN_PLACE, AWAY, scenario=NAME),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_about_recruits_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[bug]
    found = planted.find(monkeypatch)
    assert found is not None, f"{planted.seeds} seeds did not find it"
    assert found.invariant == planted.invariant


def test_a_new_leader_goes_on_with_a_recruitment() -> None:
    transcript = Transcript()
    assert run(find(NAME), 0, transcript, LED_ANEW).broken is None
    said = [line.text for line in transcript]
    led = [place for place, text in enumerate(said) if "says: leads" in text]
    emptied = [place for place, text in enumerate(said) if "says: this broker is being emptied" in text]
    stood_by = [place for place, text in enumerate(said) if "says: this broker is recruited" in text]
    assert emptied[0] < led[-1] < stood_by[0]

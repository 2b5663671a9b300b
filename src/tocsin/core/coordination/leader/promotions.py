"""Which standby takes a lost broker's place, and when (decision 030; Landmark 4.2).

Standbys are asked for their scores with each plan of backups (``WantScores``), and again when a broker is lost. With
each question goes whom they should measure the way to. Answers come one by one (``StandbyTold``).

    a broker is lost ──► all free standbys are asked
        ──► all have answered, or ANSWER_US has passed; and ``promote_after``
        ──► the best takes the place (``core.assignment.ranking.standbys``)

A broker that **vanished** was missed by its closed links (``core.survival.detection``), sooner than a restart takes.
Its place waits until its silence would have been suspicious. A broker that **left** was stopped on purpose, and is
mostly back in a moment: its place waits LEFT_US at least. One whose silence was too long has been away for longer than
a restart takes already.

So a standby that answers is promoted within the round trip of one question. One that does not answer in time
counts by what it said last, behind those that did answer: it may be as dead as the broker. If none answers, one of them
is promoted all the same. A promoted standby leaves under its own name before it joins under the broker's: it has
ARRIVE_US for that. A standby that is lost on the way is followed by the next best.

The peers of a broker are remembered from before it was lost: its links are gone by then, and brokers tell of those that
they have.

What was told is not in the log: a leader that takes over asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from tocsin.core.assignment.ranking.standbys import Candidate, Neighbourhood, Targets, rank
from tocsin.core.coordination.state.backups import NONE, Survival, able
from tocsin.core.machine import Effect, Event, Say
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.internal.commands import Promoted
from tocsin.wire.internal.summaries import UNMEASURED, Summary

ANSWER_US: Final = 500_000  # for standbys to answer when a broker is lost: a hundred times what that takes
LEFT_US: Final = 5_000_000  # who leaves on purpose mostly restarts: a restart takes a second or two
ARRIVE_US: Final = (
    5_000_000  # for a promoted standby to join under the new name, after it has left under its own
)
PENDING_US: Final = 10_000_000  # ask again, while a standby is still measuring
VALID_US: Final = 180_000_000  # an answer counts: three plans long
SILENT: Final = "does not answer"


class Question(msgspec.Struct, frozen=True):
    """For one standby."""

    standby: BrokerInfo
    peers: tuple[BrokerInfo, ...]  # to measure the way to


class Vacancy(msgspec.Struct, frozen=True):
    """A broker whose place a standby may take, and the broker's peers."""

    broker: BrokerInfo
    peers: tuple[str, ...]


class WantScores(Effect, frozen=True, kw_only=True):
    """Ask these standbys → ``StandbyTold`` for each; and write down who would take which place."""

    questions: tuple[Question, ...]
    vacancies: tuple[Vacancy, ...] = ()  # to be explained when the answers are there; none: do not


class StandbyTold(Event, frozen=True, kw_only=True):
    """The answer of one standby."""

    standby: str
    summary: Summary | None  # None: there is none …
    problem: str = ""  # … because of this


class Chosen(Effect, frozen=True, kw_only=True):
    """A standby is promoted: write down why."""

    vacancy: Vacancy
    candidates: tuple[Candidate, ...]  # the best first, which is the one


class _Told(msgspec.Struct, frozen=True):
    """What a standby said last, and whether it answered the last question."""

    at_us: int
    summary: Summary | None
    problem: str


class _Empty(msgspec.Struct):
    """A broker's place, while it is gone."""

    since_us: int
    left: bool = False  # the broker said that it goes
    comes_us: int = 0  # until when somebody is on the way into the place
    asked_us: dict[str, int] = {}  # standby → when it was asked because of this place
    without: bool = False  # it was said that there is no standby for it


class Promotions:
    """Chooses standbys for one leader."""

    def __init__(self, after_us: int) -> None:
        self._after_us = after_us
        self._told: dict[str, _Told] = {}  # of standbys that are there
        self._peers: dict[str, tuple[str, ...]] = {}  # of each broker, from before it was lost
        self._empty: dict[str, _Empty] = {}  # by the broker that is gone
        self._vanished_us: dict[
            str, int
        ] = {}  # brokers that were missed early → until when their places wait
        self._awaited: set[str] = set()  # standbys that were asked because of a loss, and have not answered
        self._again_us: int | None = None  # when to ask again: somebody is measuring

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    def ask(
        self, survival: Survival, members: Collection[BrokerInfo], links: Mapping[str, set[str]]
    ) -> list[Effect]:
        """Ask all standbys. ``links``: broker → those with which it has links."""
        brokers = [each for each in members if able(each)]
        around = Neighbourhood(brokers)
        for broker in brokers:
            self._peers[broker.id] = _peers_of(broker, around, survival, links.get(broker.id, ()))
        kept = {each.id for each in brokers} | survival.vacancies.keys()
        self._peers = {name: peers for name, peers in self._peers.items() if name in kept}
        self._again_us = None
        standbys = _free(survival, members)
        if not standbys and not any(each.certified for each in brokers):
            return []  # it is a network without any
        vacancies = tuple(Vacancy(each, self._peers[each.id]) for each in brokers)
        return [WantScores(questions=self._questions(standbys, vacancies, brokers), vacancies=vacancies)]

    def _questions(
        self, standbys: Sequence[BrokerInfo], vacancies: Sequence[Vacancy], brokers: Iterable[BrokerInfo]
    ) -> tuple[Question, ...]:
        infos = {each.id: each for each in brokers}
        targets = Targets((each.broker, each.peers) for each in vacancies)
        return tuple(
            Question(each, tuple(infos[name] for name in targets.of(each) if name in infos))
            for each in standbys
        )

    def told(self, event: StandbyTold, now_us: int) -> bool:
        """An answer. One that is missing leaves what was known, and says that it is missing. Whether there is
        something to look at: all that were asked because of a loss have answered, and this was the last."""
        last = self._awaited == {event.standby}
        self._awaited.discard(event.standby)
        before = self._told.get(event.standby)
        summary = event.summary
        if summary is None:
            kept = None if before is None else before.summary
            self._told[event.standby] = _Told(now_us, kept, event.problem or SILENT)
            return last
        self._told[event.standby] = _Told(now_us, summary, "")
        if UNMEASURED in summary.unprobed.values() and self._again_us is None:
            self._again_us = now_us + PENDING_US
        return last

    def is_pending(self, now_us: int) -> bool:
        """Whether it is time to ask again, for what standbys were measuring."""
        return self._again_us is not None and now_us >= self._again_us

    def left(self, broker: str, place: str | None, now_us: int, returns_us: int = 0) -> None:
        """A broker has said that it goes; ``place``: that of which it was promised the place; ``returns_us``: by when
        it is back, if it only changes its role."""
        if place is None:
            self._empty[broker] = _Empty(now_us, left=True, comes_us=returns_us)
        else:
            self._empty.setdefault(place, _Empty(now_us)).comes_us = now_us + ARRIVE_US

    def vanished(self, broker: str, until_us: int) -> None:
        """A broker is missed before its silence is suspicious: it may be restarting."""
        self._vanished_us[broker] = until_us

    # ── choosing ────────────────────────────────────────────────────────────────────────────────────────────

    def look(
        self,
        survival: Survival,
        members: Collection[BrokerInfo],
        pending: Collection[Promoted],
        now_us: int,
    ) -> tuple[list[Promoted], list[Effect]]:
        """The promotions to make now, and what there is to ask and to say. ``pending`` are promotions on their way into
        the log."""
        taken = {each.standby for each in pending}
        free = [each for each in _free(survival, members) if each.id not in taken]
        filled = {*survival.promotions.values(), *(each.broker for each in pending)}
        self._empty = {name: self._empty.get(name) or _Empty(now_us) for name in survival.vacancies}
        self._vanished_us = {
            name: until_us for name, until_us in self._vanished_us.items() if until_us > now_us
        }
        for name in self._vanished_us.keys() & self._empty.keys():
            self._empty[name].comes_us = max(self._empty[name].comes_us, self._vanished_us[name])
        places = [each.info for name, each in survival.vacancies.items() if name not in filled]
        if not places:
            return [], []
        there = {each.id for each in members}
        self._told = {name: each for name, each in self._told.items() if name in there}
        self._awaited &= there
        effects = self._ask_because_of(places, free, survival, members, now_us)
        promoted: list[Promoted] = []
        for place in places:
            empty = self._empty[place.id]
            if now_us < self._due_us(empty):
                continue
            if not free:
                effects += self._missing(place, empty, members)
            elif all(self._is_settled(each.id, empty, now_us) for each in free):
                candidates = self._rank(place, free, empty, there, now_us)
                best = candidates[0].name
                free = [each for each in free if each.id != best]
                promoted.append(Promoted(place.id, best))
                vacancy = Vacancy(place, self._there(place.id, there))
                effects += [Chosen(vacancy=vacancy, candidates=candidates), *_said(place.id, best, free)]
                empty.asked_us.clear()  # should the standby fail, they are asked anew
        return promoted, effects

    def _ask_because_of(
        self,
        places: Sequence[BrokerInfo],
        free: Sequence[BrokerInfo],
        survival: Survival,
        members: Collection[BrokerInfo],
        now_us: int,
    ) -> list[Effect]:
        """Ask each free standby once for each place that is empty."""
        names = {each.id for each in free}
        asked = [each for each in places if not names <= self._empty[each.id].asked_us.keys()]
        if not asked:
            return []
        brokers = [each for each in members if able(each)]
        around = Neighbourhood(brokers)
        for place in asked:
            if place.id not in self._peers:
                self._peers[place.id] = _peers_of(place, around, survival, ())
            self._empty[place.id].asked_us = dict.fromkeys(names, now_us) | self._empty[place.id].asked_us
        self._awaited |= names
        vacancies = [Vacancy(each, self._peers[each.id]) for each in asked]
        return [WantScores(questions=self._questions(free, vacancies, brokers))]

    def _due_us(self, empty: _Empty) -> int:
        after_us = max(self._after_us, LEFT_US) if empty.left else self._after_us
        return max(empty.since_us + after_us, empty.comes_us)

    def _is_settled(self, standby: str, empty: _Empty, now_us: int) -> bool:
        """Whether a standby has answered, or had time to."""
        asked_us = empty.asked_us[standby]
        told = self._told.get(standby)
        answered = told is not None and not told.problem and told.at_us >= asked_us
        return answered or now_us - asked_us >= ANSWER_US

    def _rank(
        self,
        place: BrokerInfo,
        free: Sequence[BrokerInfo],
        empty: _Empty,
        there: Collection[str],
        now_us: int,
    ) -> tuple[Candidate, ...]:
        fresh = {name: each for name, each in self._told.items() if now_us - each.at_us < VALID_US}
        told = {name: each.summary for name, each in fresh.items() if each.summary is not None}
        silent = {
            each.id: fresh[each.id].problem or SILENT if each.id in fresh else SILENT
            for each in free
            if each.id not in fresh
            or fresh[each.id].problem
            or fresh[each.id].at_us < empty.asked_us[each.id]
        }
        return rank(place, self._there(place.id, there), free, told, silent)

    def _there(self, broker: str, there: Collection[str]) -> tuple[str, ...]:
        """The peers of a broker that are there."""
        return tuple(each for each in self._peers.get(broker, ()) if each in there)

    def _missing(self, place: BrokerInfo, empty: _Empty, members: Iterable[BrokerInfo]) -> list[Effect]:
        """Say once that there is no standby for a place, where there are some in other places."""
        if empty.without or not any(each.certified for each in members):
            return []
        empty.without = True
        text = "no standby is left to take the place of a broker that is gone"
        return [Say(level="warning", text=text, facts={"broker": place.id})]

    def next_us(self, now_us: int) -> int | None:
        """When to look again; None: nothing is waited for."""
        times = [self._due_us(each) for each in self._empty.values()]
        asked_us = {at_us for each in self._empty.values() for at_us in {*each.asked_us.values()}}
        times += [at_us + ANSWER_US for at_us in asked_us]
        return min((each for each in times if each > now_us), default=None)


def _peers_of(
    broker: BrokerInfo, around: Neighbourhood, survival: Survival, links: Iterable[str]
) -> tuple[str, ...]:
    backups = survival.plan.get(broker.id, NONE)
    return around.peers_of(broker, links, (backups.local, backups.remote))


def _free(survival: Survival, members: Iterable[BrokerInfo]) -> list[BrokerInfo]:
    """The standbys that nobody's place is promised to."""
    return [each for each in members if each.role == Role.STANDBY and each.id not in survival.promotions]


def _said(broker: str, standby: str, left: Sequence[BrokerInfo]) -> list[Effect]:
    facts = {"broker": broker, "standby": standby}
    said: list[Effect] = [Say(text="a standby is to take the place of a broker that is gone", facts=facts)]
    if not left:
        text = "the last standby is in use: the next broker that fails is not replaced"
        said.append(Say(level="warning", text=text, facts=facts))
    return said


def links_of(rows: Iterable[tuple[str, str, int]]) -> dict[str, set[str]]:
    """Broker → those with which it has links, by all distances that were measured."""
    found: dict[str, set[str]] = {}
    for broker, peer, _ in rows:
        found.setdefault(broker, set()).add(peer)
        found.setdefault(peer, set()).add(broker)
    return found

"""Asks standbys for their scores, for the leader, and writes down who would take which place, and who did.

The explanations go into the table of the coordinators, so that ``tocsin explain standby`` needs nobody to be alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from tocsin.core.assignment.ranking.standbys import Candidate, rank
from tocsin.core.coordination.leader.promotions import (
    Chosen,
    Question,
    StandbyTold,
    Vacancy,
    WantScores,
)
from tocsin.core.machine import Event
from tocsin.errors import TocsinError
from tocsin.model.network import BrokerInfo
from tocsin.model.versions import Document
from tocsin.ports import Bus, Table
from tocsin.runtime.machines.clock import wall_s
from tocsin.runtime.machines.tasks import Tasks
from tocsin.wire.internal.summaries import Ask, Summary, decode_summary, encode, subject

ANSWER_S: Final = 2.0
ASKED_AT_ONCE: Final = 32
SHOWN_MAX: Final = 20  # candidates of an explanation
NEXT: Final = "explain.standby."  # who would take a broker's place
LAST: Final = "explain.promotion."  # who was given it last

Post = Callable[[Event], None]


class Shown(msgspec.Struct, frozen=True):
    """A candidate, as an explanation has it."""

    name: str
    near: bool  # of the broker's cluster
    answered: bool
    score: float | None  # None: not known
    terms: dict[str, tuple[float, float]]  # value and weight
    unanswered: dict[str, str]  # terms that count 0 because they are not known, and why
    delay_us: int | None
    kbit_s: int | None
    problems: tuple[str, ...]
    configuration: str = ""  # the preset of its weights; empty: not known
    changed: dict[str, tuple[float, float]] = {}  # settings that the preset changed: `static`'s, and its own


class Replacement(msgspec.Struct, frozen=True):
    """The standby that would take a broker's place, or was given it, and why: the first of the ordered candidates."""

    broker: str
    cluster: str
    at_s: float
    peers: tuple[str, ...]  # that the candidates have measured
    candidates: tuple[Shown, ...]


EXPLANATION: Final = Document("why a standby takes a broker's place", msgspec.json.Decoder(Replacement))


class StandbyDesk:
    """Asks standbys when the leader wants their scores, and records the leader's choice."""

    def __init__(self, bus: Bus, table: Table, network: str, post: Post) -> None:
        self._bus = bus
        self._table = table
        self._network = network
        self._post = post
        self._told: dict[str, Summary] = {}  # the last answers, by standby
        self._silent: dict[str, str] = {}  # those that gave none to the last question, and why
        # A bug costs the answer or the record that it happened in: the leader asks again.
        self._tasks = Tasks("asking standbys", lambda error: None)
        self._explaining: asyncio.Task[None] | None = None
        self._log = structlog.get_logger()

    def want(self, effect: WantScores) -> None:
        self._tasks.spawn(self._ask_all(effect))

    def chosen(self, effect: Chosen) -> None:
        self._tasks.spawn(self._record(LAST, effect.vacancy, effect.candidates))

    async def close(self) -> None:
        await self._tasks.wait_closed()

    async def _ask_all(self, effect: WantScores) -> None:
        permits = asyncio.Semaphore(ASKED_AT_ONCE)
        await asyncio.gather(*(self._ask(each, permits, effect.cause) for each in effect.questions))
        if effect.vacancies:
            if self._explaining is not None:
                self._explaining.cancel()
            standbys = [each.standby for each in effect.questions]
            self._explaining = self._tasks.spawn(self._explain(effect.vacancies, standbys))

    async def _ask(self, question: Question, permits: asyncio.Semaphore, cause: str) -> None:
        standby = question.standby.id
        async with permits:
            try:
                asked = encode(Ask(peers=question.peers, standby=True))
                answer = await self._bus.request(subject(self._network, standby), asked, deadline_s=ANSWER_S)
                summary = decode_summary(answer)
            except TocsinError as error:
                self._log.info("a standby does not say how fit it is", standby=standby, problem=str(error))
                self._silent[standby] = str(error)
                self._post(StandbyTold(cause=cause, standby=standby, summary=None, problem=str(error)))
                return
        self._told[standby] = summary
        self._silent.pop(standby, None)
        self._post(StandbyTold(cause=cause, standby=standby, summary=summary))

    async def _explain(self, vacancies: Sequence[Vacancy], standbys: Sequence[BrokerInfo]) -> None:
        """Write down who would take each place; nobody waits for it, and the next round ends it."""
        names = {each.id for each in standbys}
        self._told = {name: each for name, each in self._told.items() if name in names}
        self._silent = {name: each for name, each in self._silent.items() if name in names}
        told, silent = dict(self._told), dict(self._silent)
        for each in vacancies:
            ranking = await asyncio.to_thread(rank, each.broker, each.peers, standbys, told, silent)
            await self._record(NEXT, each, ranking)

    async def _record(self, prefix: str, vacancy: Vacancy, ranking: Sequence[Candidate]) -> None:
        broker = vacancy.broker
        candidates = tuple(shown(each) for each in ranking[:SHOWN_MAX])
        written = Replacement(broker.id, broker.cluster, wall_s(), vacancy.peers, candidates)
        try:
            await self._table.put(f"{prefix}{broker.id}", EXPLANATION.write(written))
        except TocsinError as error:
            self._log.info("why a standby takes a place is not written down", problem=str(error))


def shown(candidate: Candidate) -> Shown:
    score = candidate.score
    return Shown(
        candidate.name,
        candidate.near,
        candidate.answered,
        None if score is None else score.total,
        {} if score is None else {name: (term.value, term.weight) for name, term in score.terms.items()},
        {} if score is None else score.unanswered,
        candidate.delay_us,
        candidate.kbit_s,
        candidate.problems,
        candidate.configuration,
        candidate.changed,
    )

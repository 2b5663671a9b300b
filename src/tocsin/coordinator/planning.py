"""Plans backups for the leader: asks brokers what they hold, has ``core.assignment`` choose, and writes down why.

For a broker that does not answer, its last answer counts. The explanation of each choice goes into the table of the
coordinators, so that ``tocsin explain backup`` needs nobody to be alive.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import structlog

from tocsin.core.coordination.leader.backup_planning import PlanMade, WantPlan
from tocsin.core.coordination.state.backups import Backups
from tocsin.core.links.distances import Distances
from tocsin.core.machine import Event
from tocsin.errors import TocsinError
from tocsin.model.network import BrokerInfo
from tocsin.model.versions import Document
from tocsin.ports import Bus, Table
from tocsin.runtime.machines.clock import wall_s
from tocsin.wire.summaries import Ask, Summary, decode_summary, encode, subject

if TYPE_CHECKING:
    from tocsin.core.assignment.demand import Demand
    from tocsin.core.assignment.outcome import Plan
    from tocsin.core.assignment.planning import Strategy
    from tocsin.core.assignment.ranking import Facts, Weights

ANSWER_S: Final = 2.0  # for one page of a summary
PAGES_MAX: Final = 500
ASKED_AT_ONCE: Final = 32
SHOWN_MAX: Final = 20  # candidates of an explanation
# Subscriptions that a broker counts as holding at least when resources are weighed against them: else a bad machine
# would not matter where there are few. By default 6 are such that a score below 0.75 counts, which a busy processor
# alone does not bring about: a plan should not follow its ups and downs.
HELD_LEAST: Final = 6.0
HOPS: Final = {
    "local": 0.0,
    "remote": 1.0,
}  # between clusters: how far a backup is of which nobody has measured it
PREFIX: Final = "explain.backup."

Post = Callable[[Event], None]


class Shown(msgspec.Struct, frozen=True):
    """A candidate, as an explanation has it."""

    name: str
    score: float
    terms: dict[str, tuple[float, float]]  # value and weight
    added: int  # subscriptions that it would have to create
    obstacle: str | None
    chosen: bool
    unanswered: dict[str, str]
    machine: dict[
        str, tuple[float, float]
    ] = {}  # what the score of its resources is made of: value and weight
    problems: tuple[str, ...] = ()  # descriptions of the unknown parts
    delay_us: int | None = None  # of a round trip, as it was measured; None: nobody has


class Explanation(msgspec.Struct, frozen=True):
    """Why a broker has the backups that it has."""

    broker: str
    at_s: float
    held: int
    local: tuple[Shown, ...]
    remote: tuple[Shown, ...]
    shortfalls: tuple[str, ...] = ()
    strategy: str = "search"


EXPLANATION: Final = Document("why a broker has its backups", msgspec.json.Decoder(Explanation))


class Planner:
    """Plans backups when the leader asks, and records why each was chosen."""

    def __init__(
        self,
        bus: Bus,
        table: Table,
        network: str,
        post: Post,
        weights: Mapping[str, float] | None = None,
        strategy: Strategy = "search",
    ) -> None:
        self._strategy: Strategy = strategy
        self._bus = bus
        self._table = table
        self._network = network
        self._post = post
        self._weights = weights
        self._known: dict[str, tuple[dict[int, int], Summary]] = {}  # the last answer of each broker
        self._task: asyncio.Task[None] | None = None
        self._explaining: asyncio.Task[None] | None = None  # of the newest plan
        self._log = structlog.get_logger()

    def want(self, effect: WantPlan) -> None:
        """Plan, unless that is under way: the leader asks again."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._plan(effect))

    async def close(self) -> None:
        await self._end(self._task)
        await self._end(self._explaining)

    async def _end(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _plan(self, effect: WantPlan) -> None:
        brokers = effect.brokers
        slots = asyncio.Semaphore(ASKED_AT_ONCE)
        await asyncio.gather(*(self._ask(each.id, slots) for each in brokers))
        self._known = {each.id: self._known[each.id] for each in brokers if each.id in self._known}
        try:
            decision = await asyncio.to_thread(
                decide, brokers, dict(self._known), effect.previous, self._weights, self._strategy
            )
        except Exception:
            self._log.exception("no plan of backups could be made")
            return
        self._post(PlanMade(cause=effect.cause, backups=decision.backups))
        await self._end(self._explaining)
        self._explaining = asyncio.get_running_loop().create_task(self._explain(decision, wall_s()))

    async def _explain(self, decision: Decision, at_s: float) -> None:
        """Write down why, broker by broker: nobody waits for it, and a newer plan ends it."""
        for member in decision.demand.members:
            try:
                each = await asyncio.to_thread(decision.explained, member.name, at_s)
                for problem in each.shortfalls:
                    self._log.warning("a broker lacks a backup", broker=each.broker, problem=problem)
                await self._table.put(f"{PREFIX}{each.broker}", EXPLANATION.write(each))
            except TocsinError as error:
                self._log.info("why a broker has its backups is not written down", problem=str(error))
                return
            except Exception:
                self._log.exception("why a broker has its backups cannot be said", broker=member.name)
                return

    async def _ask(self, broker: str, slots: asyncio.Semaphore) -> None:
        held: dict[int, int] = {}
        async with slots:
            ask, pages = Ask(), 1
            try:
                while ask.page < min(pages, PAGES_MAX):
                    answer = decode_summary(
                        await self._bus.request(
                            subject(self._network, broker), encode(ask), deadline_s=ANSWER_S
                        )
                    )
                    pages = answer.pages
                    held.update(answer.held)
                    ask = Ask(ask.page + 1, answer.summary)
            except TocsinError as error:
                self._log.info("a broker does not say what it holds", broker=broker, problem=str(error))
                return
        self._known[broker] = held, answer


class Decision(NamedTuple):
    """A plan, and what is needed to say why it is so."""

    backups: dict[str, Backups]
    demand: Demand
    made: Plan
    facts: dict[str, Facts]
    told: dict[str, Summary]
    weights: Weights
    distances: Distances

    def explained(self, broker: str, at_s: float) -> Explanation:
        """Why a broker has its backups. For all brokers that takes longer than the plan itself."""
        return _explained(self, broker, at_s)


def decide(
    brokers: Sequence[BrokerInfo],
    known: Mapping[str, tuple[dict[int, int], Summary]],
    previous: Mapping[str, Backups],
    weights: Mapping[str, float] | None = None,
    strategy: Strategy = "search",
) -> Decision:
    """The plan. Imports what needs numpy: nobody else waits for that. ``weights``: of the ranking's terms.

    By ``search`` the previous plan is fitted to the demand. The other strategies plan anew: what is random follows from
    the brokers' names, so that a plan lasts while they are the same.
    """
    from tocsin.core.assignment.demand import Demand, Member, unsaid_capacities
    from tocsin.core.assignment.outcome import Backups as Chosen
    from tocsin.core.assignment.outcome import Plan
    from tocsin.core.assignment.planning import plan
    from tocsin.core.assignment.ranking import Facts, Weights, handicaps
    from tocsin.core.assignment.replanning import replan

    distances = Distances({each.id: each.cluster for each in brokers})
    for name, (_, answer) in known.items():
        distances.tell(name, answer.delays)
    facts = {
        each.id: Facts(
            resources=known[each.id][1].resources if each.id in known else None,
            remoteness=_remoteness(each, len(brokers), distances),
        )
        for each in brokers
    }
    holdings: dict[str, dict[Hashable, int]] = {
        name: {k: count for k, count in held.items() if count > 0} for name, (held, _) in known.items()
    }
    mean = sum(map(len, holdings.values())) / len(brokers) if brokers else 0.0
    weighing = Weights(**weights) if weights else Weights()
    handicap = handicaps(facts, max(mean, HELD_LEAST), weighing)
    room = unsaid_capacities({each.id: sum(holdings.get(each.id, {}).values()) for each in brokers})
    members = tuple(
        Member(
            each.id,
            each.cluster,
            (known[each.id][1].capacity if each.id in known else 0.0) or room[each.id],
            handicap[each.id],
        )
        for each in brokers
    )
    demand = Demand(members, holdings)
    names = {each.id for each in brokers}
    before = {name: Chosen(each.local, each.remote) for name, each in previous.items() if name in names}
    if strategy == "search" and before:
        made = replan(Plan("search", before, {}, {}, {}), demand).plan
    else:
        made = plan(demand, strategy, _ChanceOfNames(names))
    backups = {name: Backups(each.local, each.remote) for name, each in made.backups.items()}
    told = {name: answer for name, (_, answer) in known.items()}
    return Decision(backups, demand, made, facts, told, weighing, distances)


class _ChanceOfNames:
    """Chance that is the same for the same brokers."""

    def __init__(self, names: Iterable[str]) -> None:
        self._seed = "\0".join(sorted(names))
        self._drawn = 0

    def below(self, bound: int) -> int:
        self._drawn += 1
        digest = hashlib.blake2b(f"{self._drawn} {self._seed}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) % bound


def _explained(decision: Decision, broker: str, at_s: float) -> Explanation:
    from tocsin.core.assignment.ranking import explain

    demand, made, facts, told = decision.demand, decision.made, decision.facts, decision.told
    delays = {name: measured_us(decision.distances, broker, name) for name in facts}
    silent = Summary(0, 0, {}, problems=("the broker does not answer",))
    local, remote = (
        tuple(
            Shown(
                each.name,
                each.score.total,
                {name: (term.value, term.weight) for name, term in each.score.terms.items()},
                each.added,
                each.obstacle,
                each.chosen,
                each.score.unanswered,
                told.get(each.name, silent).terms,
                told.get(each.name, silent).problems,
                delays[each.name],
            )
            for each in explain(demand, made, broker, role, _at(facts, delays, HOPS[role]), decision.weights)[
                :SHOWN_MAX
            ]
        )
        for role in ("local", "remote")
    )
    said = {name for name, answer in told.items() if answer.capacity}
    shortfalls = tuple(
        str(each)
        for each in made.shortfalls
        if each.broker == broker and (each.kind == "nobody" or each.backup in said)
    )
    held = len(demand.holdings.get(broker, {}))
    return Explanation(broker, at_s, held, local, remote, shortfalls, made.strategy)


def _at(facts: Mapping[str, Facts], delays: Mapping[str, int | None], hops: float) -> dict[str, Facts]:
    return {
        name: msgspec.structs.replace(each, distance=_distance(delays[name], hops))
        for name, each in facts.items()
    }


def measured_us(distances: Distances, a: str, b: str) -> int | None:
    """The round trip between two brokers, if one of them has measured it."""
    found = distances.between(a, b)
    return found.us if found.measured else None


def _distance(delay_us: int | None, hops: float) -> float:
    from tocsin.core.assignment.ranking import DELAY_US

    return hops if delay_us is None else delay_us / DELAY_US


def _remoteness(broker: BrokerInfo, brokers: int, distances: Distances) -> float:
    """How much less near a broker is than its kind, in the mean of all others; 0 to those where nobody has measured."""
    from tocsin.core.assignment.ranking import nearness

    missing = 0.0
    for other in sorted(distances.neighbours(broker.id)):
        delay_us, cluster = measured_us(distances, other, broker.id), distances.cluster(other)
        if delay_us is not None and cluster is not None:
            hops = HOPS["local" if cluster == broker.cluster else "remote"]
            missing += max(0.0, nearness(hops) - nearness(_distance(delay_us, hops)))
    return missing / max(1, brokers - 1)

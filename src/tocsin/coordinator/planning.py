"""Plans backups for the leader: asks brokers what they hold, has ``core.assignment`` choose, and writes down why.

For a broker that does not answer, its last answer counts. The explanation of each choice goes into the table of the
coordinators, so that ``tocsin explain backup`` needs nobody to be alive.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
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
from tocsin.runtime.machines.tasks import Tasks
from tocsin.wire.internal.summaries import Ask, Summary, decode_summary, encode, subject

if TYPE_CHECKING:
    from tocsin.core.assignment.demand import Demand
    from tocsin.core.assignment.outcome import Plan, Role
    from tocsin.core.assignment.planning import Strategy
    from tocsin.core.assignment.ranking.ranking import Facts, Weights

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
ROLES: Final[tuple[Role, ...]] = ("local", "remote")
PREFIX: Final = "explain.backup."
PAIRS: Final = "pairs"  # of client and subscription: the load of a broker, or …
BYTES: Final = "bytes/s"  # … the data that these bring
LEAST_ROOM: Final = 1e-9  # a capacity of less would be no bound

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
    load: float = 0.0  # what it would carry (P[j] of eq. 7), in the unit of the explanation
    capacity: float = 0.0  # what that has to stay below


class Explanation(msgspec.Struct, frozen=True):
    """Why a broker has the backups that it has."""

    broker: str
    at_s: float
    held: int
    local: tuple[Shown, ...]
    remote: tuple[Shown, ...]
    shortfalls: tuple[str, ...] = ()
    strategy: str = "search"
    load_bytes_per_s: float | None = None  # of its own clients, by measured rates; None: nobody has measured
    unit: str = PAIRS  # of loads and capacities
    # By role, the candidate that would add fewer subscriptions than the choice and has no room: capacity decided.
    without_room: dict[str, str] = {}


SAID_S: Final = 600.0  # what was written so lately is there; another leader may have written since


def _is_said(explanation: Explanation, before: Explanation | None) -> bool:
    """Whether what was written down before says as much: the same choice for the same subscriptions. The scores and
    loads of candidates vary all the time."""
    if before is None or explanation.at_s - before.at_s > SAID_S:
        return False
    return _choice(explanation) == _choice(before)


def _choice(explanation: Explanation) -> tuple[object, ...]:
    candidates = [_candidates(role) for role in (explanation.local, explanation.remote)]
    said = explanation.held, explanation.shortfalls, explanation.strategy, explanation.unit
    return candidates, said, explanation.without_room


def _candidates(shown: tuple[Shown, ...]) -> list[tuple[str, bool]]:
    """Who was chosen of whom. Which of many are shown depends on their scores, so that only the chosen ones count."""
    return sorted((each.name, each.chosen) for each in shown if each.chosen or len(shown) < SHOWN_MAX)


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
        # A bug costs the plan or the explanation that it happened in: the leader asks again.
        self._tasks = Tasks("planning backups", lambda error: None)
        self._planning: asyncio.Task[None] | None = None
        self._explaining: asyncio.Task[None] | None = None  # of the newest plan
        self._explained: dict[str, Explanation] = {}  # broker → what was written down of it last
        self._log = structlog.get_logger()

    def want(self, effect: WantPlan) -> None:
        """Plan, unless that is under way: the leader asks again."""
        if self._planning is None or self._planning.done():
            self._planning = self._tasks.spawn(self._plan(effect))

    async def close(self) -> None:
        await self._tasks.wait_closed()

    async def _plan(self, effect: WantPlan) -> None:
        brokers = effect.brokers
        permits = asyncio.Semaphore(ASKED_AT_ONCE)
        await asyncio.gather(*(self._ask(each.id, permits) for each in brokers))
        self._known = {each.id: self._known[each.id] for each in brokers if each.id in self._known}
        decision = await asyncio.to_thread(
            decide, brokers, dict(self._known), effect.previous, self._weights, self._strategy
        )
        self._post(PlanMade(cause=effect.cause, backups=decision.backups))
        if self._explaining is not None:
            self._explaining.cancel()
            await asyncio.gather(self._explaining, return_exceptions=True)
        self._explaining = self._tasks.spawn(self._explain(decision, wall_s()))

    async def _explain(self, decision: Decision, at_s: float) -> None:
        """Write down why, broker by broker, unless it is there: nobody waits for it, and a newer plan ends it."""
        self._explained = {
            each.name: self._explained[each.name]
            for each in decision.demand.members
            if each.name in self._explained
        }
        for member in decision.demand.members:
            try:
                each = await asyncio.to_thread(decision.explained, member.name, at_s)
                for problem in each.shortfalls:
                    self._log.warning("a broker lacks a backup", broker=each.broker, problem=problem)
                if not _is_said(each, self._explained.get(each.broker)):
                    await self._table.put(f"{PREFIX}{each.broker}", EXPLANATION.write(each))
                    self._explained[each.broker] = each
            except TocsinError as error:
                self._log.info("why a broker has its backups is not written down", problem=str(error))
                return

    async def _ask(self, broker: str, permits: asyncio.Semaphore) -> None:
        held: dict[int, int] = {}
        rates: dict[int, float] | None = None
        async with permits:
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
                    if answer.rates is not None:
                        rates = {**(rates or {}), **answer.rates}
                    ask = Ask(ask.page + 1, answer.summary)
            except TocsinError as error:
                self._log.info("a broker does not say what it holds", broker=broker, problem=str(error))
                return
        self._known[broker] = held, msgspec.structs.replace(answer, rates=rates)


class Decision(NamedTuple):
    """A plan, and what is needed to say why it is so."""

    backups: dict[str, Backups]
    demand: Demand
    made: Plan
    facts: dict[str, Facts]
    told: dict[str, Summary]
    weights: Weights
    distances: Distances
    unit: str
    loads: (
        dict[str, float] | None
    )  # of each broker's own clients in bytes a second; None: nobody has measured

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

    Loads are counted in pairs of client and subscription, or, if a broker states its capacity as data, in bytes a
    second by measured rates (eq. 7).
    """
    from tocsin.core.assignment.demand import Demand, Member, unsaid_capacities
    from tocsin.core.assignment.outcome import Backups as Chosen
    from tocsin.core.assignment.outcome import Plan
    from tocsin.core.assignment.planning import plan
    from tocsin.core.assignment.ranking.ranking import Facts, Weights, handicaps
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
    told = {name: answer for name, (_, answer) in known.items()}
    weighed = _weigh([each.id for each in brokers], holdings, told)
    room = unsaid_capacities(weighed.loads)
    members = tuple(
        Member(each.id, each.cluster, weighed.capacities.get(each.id, room[each.id]), handicap[each.id])
        for each in brokers
    )
    demand = Demand(members, holdings, weighed.rates)
    names = {each.id for each in brokers}
    before = {name: Chosen(each.local, each.remote) for name, each in previous.items() if name in names}
    if strategy == "search" and before:
        made = replan(Plan("search", before, {}, {}, {}), demand).plan
    else:
        made = plan(demand, strategy, _ChanceOfNames(names))
    backups = {name: Backups(each.local, each.remote) for name, each in made.backups.items()}
    return Decision(
        backups, demand, made, facts, told, weighing, distances, weighed.unit, weighed.loads_bytes_per_s
    )


class _Weighed(NamedTuple):
    """The loads of brokers and what they can carry, in one unit."""

    unit: str
    rates: dict[Hashable, float]  # empty: each pair counts 1
    loads: dict[str, float]
    capacities: dict[str, float]  # where one is stated
    loads_bytes_per_s: dict[str, float] | None


def _weigh(
    brokers: Sequence[str], holdings: Mapping[str, Mapping[Hashable, int]], told: Mapping[str, Summary]
) -> _Weighed:
    """One broker that states data is enough to count data for all: loads of two kinds have no sum. A capacity in pairs
    is then that of so many pairs with the mean rate.
    """
    from tocsin.core.assignment.rates import Measured, mean_rate, rates

    measured = {
        name: Measured(answer.rates, answer.rest) for name, answer in told.items() if answer.rates is not None
    }
    found = rates(holdings, measured)
    pairs = {each: float(sum(holdings.get(each, {}).values())) for each in brokers}
    in_bytes: dict[str, float] | None = None
    if measured:
        in_bytes = {
            each: math.fsum(found[k] * count for k, count in holdings.get(each, {}).items())
            for each in brokers
        }
    stated = {name: answer.capacity for name, answer in told.items() if answer.capacity}
    as_data = {
        name: answer.capacity_bytes_per_s for name, answer in told.items() if answer.capacity_bytes_per_s
    }
    if not as_data or in_bytes is None:
        return _Weighed(PAIRS, {}, pairs, stated, in_bytes)
    mean = mean_rate(holdings, found, measured)
    capacities = {name: max(capacity * mean, LEAST_ROOM) for name, capacity in stated.items()} | as_data
    return _Weighed(BYTES, found, in_bytes, capacities, in_bytes)


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
    from tocsin.core.assignment.ranking.ranking import explain, without_room

    demand, made, facts, told = decision.demand, decision.made, decision.facts, decision.told
    delays = {name: measured_us(decision.distances, broker, name) for name in facts}
    silent = Summary(0, 0, {}, problems=("the broker does not answer",))
    unit = BYTES if decision.unit == BYTES else ""
    capacity = {each.name: each.capacity for each in demand.members}
    candidates = {
        role: explain(demand, made, broker, role, _at(facts, delays, HOPS[role]), decision.weights, unit)
        for role in ROLES
    }
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
                each.carried,
                capacity[each.name],
            )
            for each in candidates[role][:SHOWN_MAX]
        )
        for role in ROLES
    )
    said = {name for name, answer in told.items() if answer.capacity or answer.capacity_bytes_per_s}
    shortfalls = tuple(
        each.text(unit)
        for each in made.shortfalls
        if each.broker == broker and (each.kind == "nobody" or each.backup in said)
    )
    return Explanation(
        broker,
        at_s,
        len(demand.holdings.get(broker, {})),
        local,
        remote,
        shortfalls,
        made.strategy,
        None if decision.loads is None else decision.loads[broker],
        decision.unit,
        {role: name for role in ROLES if (name := without_room(candidates[role])) is not None},
    )


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
    from tocsin.core.assignment.ranking.ranking import DELAY_US

    return hops if delay_us is None else delay_us / DELAY_US


def _remoteness(broker: BrokerInfo, brokers: int, distances: Distances) -> float:
    """How much less near a broker is than its kind, in the mean of all others; 0 to those where nobody has measured."""
    from tocsin.core.assignment.ranking.ranking import nearness

    missing = 0.0
    for other in sorted(distances.neighbours(broker.id)):
        delay_us, cluster = measured_us(distances, other, broker.id), distances.cluster(other)
        if delay_us is not None and cluster is not None:
            hops = HOPS["local" if cluster == broker.cluster else "remote"]
            missing += max(0.0, nearness(hops) - nearness(_distance(delay_us, hops)))
    return missing / max(1, brokers - 1)

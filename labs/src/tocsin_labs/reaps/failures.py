"""Figs 5a and 5b: some brokers of one cluster fail at once.

``Survival`` decides which broker stands in for which. A stand-in knows of the lost broker's subscribers what its
``Backup`` machine has in its copy at that moment. All brokers run ``Primary`` and ``Backup`` for all subscribers, in
virtual time, and several sets of brokers are looked at, at several moments, as if they failed just then. Positions do
not depend on who the backup is, so one run, with our plan, serves all ways to choose. How long it takes is
``recovery``'s model.

A result that a stand-in fetches for the subscribers of several lost brokers is fetched once.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from tocsin.core.assignment.outcome import Plan
from tocsin.core.assignment.planning import Strategy, plan
from tocsin.core.coordination.state.backups import Backups, Survival
from tocsin.core.replication.signals import Policy
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.sim.chance import Chance
from tocsin.sim.schedule import Schedule
from tocsin_labs.reaps.backend import Backend, due
from tocsin_labs.reaps.parameters import Parameters
from tocsin_labs.reaps.recovery import Rates, Recovered, Taken, recover
from tocsin_labs.reaps.replicas import Replicas, homes_of
from tocsin_labs.reaps.retrieval import MB, STRATEGIES
from tocsin_labs.reaps.workload import ADDRESS, SECOND_US, Workload

SETTLED_S: Final = 20  # by then the backups have everything once
DETECTED_S: Final = 2  # from the failure to the word of it: results of that time are to be fetched, too
CLUSTER: Final = "c0"  # whose brokers fail
RATES: Final = Rates()


class Failed(msgspec.Struct, frozen=True):
    """So many brokers failed; means over all that was drawn, latencies in seconds from the word of the loss."""

    room: float | None
    scheme: str
    failed: int
    retrieved_mb: float  # twice
    delivered_mb: float  # twice
    remote_brokers: float  # whose remote backup stands in
    remote_subscribers: float
    nobody: float  # brokers for which nobody stands in
    created: float  # subscriptions, by all that stand in
    mean_s: float  # until a subscriber has everything
    longest_s: float


class Moment(msgspec.Struct, frozen=True):
    """The state when brokers fail, by broker and k: results that were delivered and are not known to be (the most of
    any subscriber, and of all), and results that come until the loss is known."""

    most: Mapping[str, Mapping[int, int]]
    all: Mapping[str, Mapping[int, int]]
    new: Sequence[int]  # by channel


class _Scheme(msgspec.Struct, frozen=True):
    room: float | None
    strategy: Strategy
    plan: Plan
    held: Mapping[
        str, frozenset[int]
    ]  # what each broker has at the backend: its own, and what it keeps ready


def run(workload: Workload, given: Parameters, tell: Callable[[float], None]) -> list[Failed]:
    """Ever more brokers of a cluster, with every way to choose backups."""
    cluster = [name for name in workload.brokers if workload.cluster_of[name] == CLUSTER]
    counts = (*(each for each in given.failing.failed if each < len(cluster)), len(cluster))
    moments = _moments(workload, given, cluster, lambda part: tell(part * 0.5))
    schemes = [
        _scheme(workload, given, room, strategy) for room in given.failing.rooms for strategy in STRATEGIES
    ]
    # The brokers that fail, one after the other: the same for every choice of backups, and some more each time.
    chance = Chance(given.seed, "who fails")
    cases = [
        (moment, chance.some_of(cluster, len(cluster)))
        for moment in moments
        for _ in range(given.failing.draws)
    ]
    found: list[Failed] = []
    total = len(counts) * len(schemes)
    for scheme in schemes:
        for count in counts:
            tell(0.5 + 0.5 * len(found) / total)
            drawn = [_fail(workload, scheme, moment, order[:count]) for moment, order in cases]
            found.append(_mean(drawn))
    return found


def _mean(drawn: Sequence[Failed]) -> Failed:
    numbers = ("retrieved_mb", "delivered_mb", "remote_brokers", "remote_subscribers", "nobody", "created")
    latencies = ("mean_s", "longest_s")
    means = {name: statistics.fmean(getattr(each, name) for each in drawn) for name in (*numbers, *latencies)}
    return msgspec.structs.replace(drawn[0], **means)


def _scheme(workload: Workload, given: Parameters, room: float | None, strategy: Strategy) -> _Scheme:
    demand = workload.demand(room=room)
    chosen = plan(demand, strategy, Chance(given.seed, f"RND {room}"))
    held = {name: set(demand.holdings[name]) for name in workload.brokers}
    own = {name: frozenset(each) for name, each in held.items()}
    for broker, backups in chosen.backups.items():
        if backups.local is not None:
            held[backups.local] |= own[broker]
    return _Scheme(room, strategy, chosen, {name: frozenset(each) for name, each in held.items()})


def _moments(
    workload: Workload, given: Parameters, cluster: Sequence[str], tell: Callable[[float], None]
) -> list[Moment]:
    """Run all brokers, and look at those of a cluster now and then."""
    schedule = Schedule()
    backend = Backend(workload, schedule)
    replicas = all_replicas(workload, given, backend, schedule)
    chance, failing = Chance(given.seed, "moments"), given.failing
    first, last = SETTLED_S * SECOND_US, failing.seconds * SECOND_US
    found: list[Moment] = []
    for at_us in sorted(chance.between(first, last) for _ in range(failing.moments)):
        tell(at_us / last)
        schedule.run_until(at_us)
        repeated = {name: replicas.repeated(name) for name in cluster}
        channels = range(len(workload.periods_us))
        found.append(
            Moment(
                {name: {k: max(counts) for k, counts in each.items()} for name, each in repeated.items()},
                {name: {k: sum(counts) for k, counts in each.items()} for name, each in repeated.items()},
                [due(workload, channel, at_us, at_us + DETECTED_S * SECOND_US) for channel in channels],
            )
        )
    assert not replicas.troubles(), "nothing is lost in this network"
    return found


def all_replicas(workload: Workload, given: Parameters, backend: Backend, schedule: Schedule) -> Replicas:
    """All brokers with all their subscribers, and our plan."""
    chosen = plan(workload.demand())
    policy = Policy(mode="periodic", period_us=round(given.failing.period_s * SECOND_US))
    chance = Chance(given.seed, "starts")
    starts = {name: chance.below(policy.period_us) for name in workload.brokers}
    backups = {name: Backups(each.local, each.remote) for name, each in chosen.backups.items()}
    homes = homes_of(workload, range(len(workload.brokers)))
    return Replicas(homes, backups, policy, backend, schedule, workload, starts)


def stand_ins(workload: Workload, chosen: Plan, lost: Sequence[str]) -> dict[str, str | None]:
    """The stand-in for each lost broker, as the coordinators' log has it."""
    survival = Survival()
    survival.planned({name: Backups(each.local, each.remote) for name, each in chosen.backups.items()})
    members = set(workload.brokers)
    for name in lost:
        members.discard(name)
        survival.lost(_info(workload, name), members)
    return {name: survival.vacancies[name].by for name in lost}


def _info(workload: Workload, name: str) -> BrokerInfo:
    entrance = Entrance(Scheme.MQTT, f"{ADDRESS}:1883")
    return BrokerInfo(name, workload.cluster_of[name], Role.EDGE, ADDRESS, 1883, (entrance,))


def _fail(workload: Workload, scheme: _Scheme, moment: Moment, lost: Sequence[str]) -> Failed:
    sizes, plan_of = workload.sizes, scheme.plan.backups
    places = stand_ins(workload, scheme.plan, lost)
    remote = [name for name in lost if places[name] is not None and places[name] == plan_of[name].remote]
    by_stand_in: dict[str, list[str]] = {}
    for name, stand_in in places.items():
        if stand_in is not None:
            by_stand_in.setdefault(stand_in, []).append(name)
    retrieved = created = 0
    recovered: list[Recovered] = []
    for stand_in, brokers in by_stand_in.items():
        again: dict[int, int] = {}
        for name in brokers:
            for k, count in moment.most[name].items():
                again[k] = max(again.get(k, 0), count)
        retrieved += sum(sizes[k] * count for k, count in again.items())
        taken = [_taken(workload, moment, name, remote=name in remote) for name in brokers]
        needed = frozenset(k for each in taken for k in each.subscribers)
        lacking = needed - scheme.held[stand_in]
        created += len(lacking)
        recovered.append(recover(taken, lacking, sizes, RATES, bulk=scheme.strategy == "search"))
    subscribers = sum(each.subscribers for each in recovered)
    return Failed(
        room=scheme.room,
        scheme=STRATEGIES[scheme.strategy],
        failed=len(lost),
        retrieved_mb=retrieved / MB,
        delivered_mb=sum(sizes[k] * count for name in lost for k, count in moment.all[name].items()) / MB,
        remote_brokers=len(remote),
        remote_subscribers=sum(len(workload.subscribers_of(name)) for name in remote),
        nobody=sum(stand_in is None for stand_in in places.values()),
        created=created,
        mean_s=sum(each.sum_s for each in recovered) / subscribers if subscribers else 0.0,
        longest_s=max((each.longest_s for each in recovered), default=0.0),
    )


def _taken(workload: Workload, moment: Moment, name: str, *, remote: bool) -> Taken:
    subscribers = workload.subscribers_of(name)
    most = moment.most[name]
    results = {k: most.get(k, 0) + moment.new[workload.channel_of(k)] for k in set(subscribers)}
    return Taken(remote, subscribers, results)

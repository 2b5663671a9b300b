"""Figs 5a and 5b: some brokers of one cluster fail at once.

``Survival`` decides which broker stands in for which. A stand-in knows of the lost broker's subscribers what its
``Backup`` machine has in its copy at that moment. All brokers run ``Primary`` and ``Backup`` for all subscribers, in
virtual time, and several sets of brokers are looked at, at several moments, as if they failed just then. Positions do
not depend on who the backup is, so one run, with our plan, serves all ways to choose. How long it takes is simulated
with the machines that take sessions and hold subscriptions (``takeover``), and timed by measured rates.

A result that a stand-in fetches for the subscribers of several lost brokers is fetched once.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Final

import msgspec

from tocsin.core.assignment.planning import Strategy, plan
from tocsin.core.coordination.state.backups import Backups, Survival
from tocsin.core.replication.signals import Policy
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.sim.chance import Chance
from tocsin.sim.schedule import Schedule
from tocsin_labs.reaps.backend import Backend, due
from tocsin_labs.reaps.parameters import Parameters
from tocsin_labs.reaps.rates import Rates
from tocsin_labs.reaps.replicas import Replicas, homes_of
from tocsin_labs.reaps.retrieval import MB, STRATEGIES
from tocsin_labs.reaps.takeover import Recovered, Standing, Taken, recover
from tocsin_labs.reaps.workload import ADDRESS, SECOND_US, Workload

SETTLED_S: Final = 20  # by then the backups have everything once
DETECTED_S: Final = 2  # from the failure to the word of it: results of that time are to be fetched, too
CLUSTER: Final = "c0"  # whose brokers fail
ONE_EACH: Final = "one each"
ONE_BY_ONE: Final = "LCS/MMCS, one by one"


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
    created: float  # subscriptions that clients waited for, by all that stand in
    served_s: float  # until the last subscriber has its session
    mean_s: float  # until a subscriber has everything
    longest_s: float


class Moment(msgspec.Struct, frozen=True):
    """The state when brokers fail, by broker and k: results that were delivered and are not known to be (the most of
    any subscriber, and of all), and results that come until the loss is known."""

    most: Mapping[str, Mapping[int, int]]
    all: Mapping[str, Mapping[int, int]]
    new: Sequence[int]  # by channel


class _Scheme(msgspec.Struct, frozen=True):
    """A way to choose backups, and to create what they lack."""

    name: str
    room: float | None
    backups: Mapping[str, Backups]
    one_by_one: bool = False


def run(workload: Workload, given: Parameters, tell: Callable[[float], None], rates: Rates) -> list[Failed]:
    """Ever more brokers of a cluster, with every way to choose backups."""
    cluster = [name for name in workload.brokers if workload.cluster_of[name] == CLUSTER]
    counts = (*(each for each in given.failing.failed if each < len(cluster)), len(cluster))
    moments = _moments(workload, given, cluster, lambda part: tell(part * 0.5))
    schemes = _schemes(workload, given)
    holdings = {name: frozenset(each) for name, each in workload.holdings().items()}
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
            drawn = [
                _fail(
                    workload,
                    holdings,
                    scheme,
                    moment,
                    order[:count],
                    rates if number < given.failing.timed else None,
                )
                for number, (moment, order) in enumerate(cases)
            ]
            found.append(_mean(drawn, given.failing.timed))
    return found


def _mean(drawn: Sequence[Failed], timed: int) -> Failed:
    numbers = ("retrieved_mb", "delivered_mb", "remote_brokers", "remote_subscribers", "nobody")
    means = {name: statistics.fmean(getattr(each, name) for each in drawn) for name in numbers}
    for name in ("created", "served_s", "mean_s", "longest_s"):
        means[name] = statistics.fmean(getattr(each, name) for each in drawn[:timed])
    return msgspec.structs.replace(drawn[0], **means)


def _schemes(workload: Workload, given: Parameters) -> list[_Scheme]:
    found = []
    for room in given.failing.rooms:
        for strategy, name in STRATEGIES.items():
            backups = _planned(workload, room, strategy, Chance(given.seed, f"RND {room}"))
            found.append(_Scheme(name, room, backups))
            if strategy == "lcs_mmcs":
                found.append(_Scheme(ONE_BY_ONE, room, backups, one_by_one=True))
    return [*found, _Scheme(ONE_EACH, None, one_each(workload))]


def _planned(
    workload: Workload, room: float | None, strategy: Strategy, chance: Chance
) -> dict[str, Backups]:
    chosen = plan(workload.demand(room=room), strategy, chance)
    return {name: Backups(each.local, each.remote) for name, each in chosen.backups.items()}


def one_each(workload: Workload) -> dict[str, Backups]:
    """A plan in which every broker backs one of its own cluster, and of each other cluster at most one.

    Nobody would choose it. It takes the effect away that one broker stands in for several, or fetches for them once.
    """
    by_cluster: dict[str, list[str]] = {}
    for name in workload.brokers:
        by_cluster.setdefault(workload.cluster_of[name], []).append(name)
    found = {}
    for cluster, names in by_cluster.items():
        others = [
            name
            for each in zip_longest(*(those for other, those in by_cluster.items() if other != cluster))
            for name in each
            if name is not None
        ]
        for at, name in enumerate(names):
            local = names[(at + 1) % len(names)]
            found[name] = Backups(local if local != name else None, others[at % len(others)])
    return found


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


def stand_ins(
    workload: Workload, backups: Mapping[str, Backups], lost: Sequence[str]
) -> dict[str, str | None]:
    """The stand-in for each lost broker, as the coordinators' log has it."""
    survival = Survival()
    survival.planned(dict(backups))
    members = set(workload.brokers)
    for name in lost:
        members.discard(name)
        survival.lost(_info(workload, name), members)
    return {name: survival.vacancies[name].by for name in lost}


def _info(workload: Workload, name: str) -> BrokerInfo:
    entrance = Entrance(Scheme.MQTT, f"{ADDRESS}:1883")
    return BrokerInfo(name, workload.cluster_of[name], Role.EDGE, ADDRESS, 1883, (entrance,))


def _fail(
    workload: Workload,
    holdings: Mapping[str, frozenset[int]],
    scheme: _Scheme,
    moment: Moment,
    lost: Sequence[str],
    rates: Rates | None,
) -> Failed:
    """What follows if these brokers fail; without rates nothing is timed."""
    sizes, backups = workload.sizes, scheme.backups
    places = stand_ins(workload, backups, lost)
    remote = [name for name in lost if places[name] is not None and places[name] == backups[name].remote]
    by_stand_in: dict[str, list[str]] = {}
    for name, stand_in in places.items():
        if stand_in is not None:
            by_stand_in.setdefault(stand_in, []).append(name)
    retrieved = 0
    for brokers in by_stand_in.values():
        again: dict[int, int] = {}
        for name in brokers:
            for k, count in moment.most[name].items():
                again[k] = max(again.get(k, 0), count)
        retrieved += sum(sizes[k] * count for k, count in again.items())
    recovered: list[Recovered] = []
    if rates is not None:
        standing = [
            Standing(
                stand_in,
                holdings[stand_in],
                {name: holdings[name] for name, each in backups.items() if each.local == stand_in},
                [_taken(workload, moment, name, remote=name in remote) for name in brokers],
            )
            for stand_in, brokers in by_stand_in.items()
        ]
        recovered = recover(workload, standing, rates, one_by_one=scheme.one_by_one)
    subscribers = sum(each.subscribers for each in recovered)
    return Failed(
        room=scheme.room,
        scheme=scheme.name,
        failed=len(lost),
        retrieved_mb=retrieved / MB,
        delivered_mb=sum(sizes[k] * count for name in lost for k, count in moment.all[name].items()) / MB,
        remote_brokers=len(remote),
        remote_subscribers=sum(len(workload.subscribers_of(name)) for name in remote),
        nobody=sum(stand_in is None for stand_in in places.values()),
        created=sum(each.created for each in recovered),
        served_s=max((each.served_s for each in recovered), default=0.0),
        mean_s=sum(each.sum_s for each in recovered) / subscribers if subscribers else 0.0,
        longest_s=max((each.longest_s for each in recovered), default=0.0),
    )


def _taken(workload: Workload, moment: Moment, name: str, *, remote: bool) -> Taken:
    subscribers = workload.subscribers_of(name)
    most = moment.most[name]
    results = {k: most.get(k, 0) + moment.new[workload.channel_of(k)] for k in set(subscribers)}
    return Taken(name, remote, subscribers, results)

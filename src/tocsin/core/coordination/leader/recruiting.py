"""Which edge broker stands by while standbys are in use, and for how long (decision 065; Landmark 4.2).

    serving ──recruited──► emptied ──no clients──► out of plans ──backs nobody──► told to stand by ──► standing by
       ▲                      │                                                                           │
       ├──────given up────────┘                                                                           │
       └──────────────────────────────────────released──────────────────────────────────────────────────┘

A cluster **lacks** standbys while one of its standbys has the place of a broker and fewer than ``wanted`` are free.
After ``after_us`` of that the leader **recruits** an edge broker of the cluster that may stand by. The broker is
emptied as by ``tocsin drain``. Once it has no clients it counts as a standby when backups are planned. Once no plan
names it, it is told to start again as a standby. It leaves and joins again, and its **role in the log says that it
stands by**: a leader that takes over finds it there. A broker that is being emptied says so with each beat: a leader
that takes over goes on with it.

When as many others of the cluster are free as are wanted, for ``after_us``, the broker is **released**: it is told to
start again as an edge broker. One that has a place is not released.

Transitions of a broker that may stand by:

    serving      the cluster lacks standbys for after_us, and nothing speaks against it → emptied
    emptied      it has no clients, and no plan names it → told
    emptied      it is needed no longer, lost, or not empty in time; something speaks against it → serving
    told         a client comes, or a plan names it → emptied
    told         it joins as a standby → standing by
    standing by  enough others are free for after_us, or an operator has it drained → released
    released     it joins as an edge broker → serving

Invariants:

- one broker of a cluster is emptied at a time, and at least OTHERS edge brokers that nobody empties stay beside it;
- a broker is told to stand by only while it has no clients, and no plan of backups names it;
- an operator's drain is stronger: it ends a recruitment, and releases a broker that stands by.

Nothing of this is a command: all of it can be said again, and a broker that hears nothing serves on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from tocsin.core.assignment.ranking.standbys import Candidate, Neighbourhood, rank
from tocsin.core.coordination.leader.promotions import SILENT, Question, StandbyTold, WantScores
from tocsin.core.coordination.state.backups import NONE, Survival, able
from tocsin.core.machine import Effect, Say
from tocsin.core.survival.refuges import ROOMY, STEP
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.internal.summaries import Summary

OTHERS: Final = 2  # edge brokers of a cluster that stay: each needs a local backup
DRAIN_US: Final = 600_000_000  # to empty a broker: thousands of clients at the rate of a drain
REST_US: Final = 600_000_000  # before a broker that could not be emptied is tried again
ECHO_US: Final = 5_000_000  # in which the last beat that says "recruited" has come: it recruits nobody again
RESTART_US: Final = 30_000_000  # to start again in the other role
OBSTACLES_MAX: Final = 20  # brokers of which it is told why they cannot be recruited
ASK_US: Final = 20_000_000  # between two questions to those who may be recruited


class RecruitRules(msgspec.Struct, frozen=True):
    """What the settings say."""

    wanted: int = 0  # free standbys of a cluster; 0: nobody is recruited
    after_us: int = 60_000_000


class Network(msgspec.Struct, frozen=True):
    """The network, as the leader knows it."""

    survival: Survival
    members: Collection[BrokerInfo]
    drained: Collection[str]  # that operators have emptied
    loads: Mapping[str, int]  # in thousandths
    clients: Mapping[str, int]  # that are connected, of those that have said it
    planning: bool = False  # a plan of backups is on its way into the log


class Lack(msgspec.Struct, frozen=True):
    """A cluster that lacks standbys, and nobody is being emptied for it."""

    cluster: str
    place: str  # the broker whose place a standby of the cluster has
    free: int
    wanted: int
    obstacles: dict[
        str, str
    ]  # edge broker of the cluster, OBSTACLES_MAX at most → the first reason why it cannot be recruited


class Recruit(msgspec.Struct, frozen=True):
    """A broker that is being emptied to stand by."""

    broker: str
    place: str  # the broker whose place a standby has; empty: an earlier leader knew it
    clients: int  # that are still connected to it


class _Pool(msgspec.Struct, frozen=True):
    """The standbys of a cluster."""

    cluster: str
    places: tuple[BrokerInfo, ...]  # brokers whose places its standbys have, the newest last
    free: tuple[BrokerInfo, ...]

    def lacks(self, wanted: int) -> bool:
        return bool(self.places) and len(self.free) < wanted


class _Wait(msgspec.Struct):
    """A cluster that lacks standbys."""

    since_us: int
    asked_us: int | None = None
    lack: Lack | None = None  # since nobody can be recruited


class _Emptying(msgspec.Struct):
    """A broker that is recruited, and serves still."""

    cluster: str
    place: str
    since_us: int
    told_us: int | None = None  # since when it is told to stand by


class _Rest(msgspec.Struct, frozen=True):
    until_us: int
    why: str


class Recruiting:
    """Recruits and releases brokers for one leader."""

    def __init__(self, rules: RecruitRules) -> None:
        self._rules = rules
        self._waits: dict[str, _Wait] = {}  # by cluster
        self._emptying: dict[str, _Emptying] = {}  # by broker
        self._resting: dict[str, _Rest] = {}  # brokers that were given up
        self._enough_us: dict[str, int] = {}  # cluster → since when its pool is full without its last recruit
        self._released: dict[str, None] = {}  # that are told to serve again
        self.standing_by: frozenset[str] = frozenset()  # recruits that do, and are not released
        self._told: dict[str, Summary] = {}  # what those who may be recruited have said of themselves
        self._silent: dict[str, str] = {}
        self._clients: Mapping[str, int] = {}

    # ── what follows from it ────────────────────────────────────────────────────────────────────────────────

    @property
    def emptying(self) -> frozenset[str]:
        """The brokers that are emptied to stand by."""
        return frozenset(self._emptying)

    @property
    def unplanned(self) -> frozenset[str]:
        """The brokers that count as standbys when backups are planned, though they serve still."""
        return frozenset(each for each in self._emptying if self._clients.get(each) == 0)

    @property
    def roles(self) -> dict[str, Role]:
        """The brokers that are told to start again, and their next role."""
        told = {name: Role.STANDBY for name, each in self._emptying.items() if each.told_us is not None}
        return told | dict.fromkeys(self._released, Role.EDGE)

    def returns(self, broker: str) -> bool:
        """Whether a broker that leaves does so to stand by, so that nobody takes its place."""
        each = self._emptying.get(broker)
        return each is not None and each.told_us is not None

    def recruits(self) -> tuple[Recruit, ...]:
        """The brokers that are being emptied."""
        return tuple(
            Recruit(name, each.place, self._clients.get(name, 0))
            for name, each in sorted(self._emptying.items())
        )

    def lacks(self) -> tuple[Lack, ...]:
        """The clusters for which nobody can be recruited, and why."""
        return tuple(each.lack for _, each in sorted(self._waits.items()) if each.lack is not None)

    # ── what is heard ───────────────────────────────────────────────────────────────────────────────────────

    def told(self, event: StandbyTold) -> None:
        """A broker's answer to ``WantScores``."""
        if event.summary is None:
            self._silent[event.standby] = event.problem or SILENT
        else:
            self._told[event.standby] = event.summary
            self._silent.pop(event.standby, None)

    def adopt(self, info: BrokerInfo, now_us: int) -> bool:
        """A broker says that it is being emptied to stand by: an earlier leader has recruited it."""
        known = info.id in self._emptying or info.id in self._resting
        if known or not info.may_stand_by or info.role != Role.EDGE:
            return False
        self._emptying[info.id] = _Emptying(info.cluster, "", now_us)
        return True

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────

    def look(self, network: Network, now_us: int) -> list[Effect]:
        """Recruit, give up or release brokers, and ask those that have to say something first."""
        self._clients = dict(network.clients)
        infos = {each.id: each for each in network.members}
        for table in (self._told, self._silent):
            for gone in [each for each in table if each not in infos]:
                del table[gone]
        self._resting = {name: each for name, each in self._resting.items() if each.until_us > now_us}
        self._released = {
            name: None for name in self._released if name in infos and infos[name].role == Role.STANDBY
        }
        pools = _pools(network)
        effects = self._go_on(network, infos, pools, now_us)
        self._waits = {name: each for name, each in self._waits.items() if name in pools}
        self._enough_us = {name: each for name, each in self._enough_us.items() if name in pools}
        for pool in pools.values():
            effects += self._look_at(pool, network, now_us)
            effects += self._release(pool, network, now_us)
        self.standing_by = frozenset(
            each.id for each in infos.values() if each.recruited and each.id not in self._released
        )
        return effects

    # ── recruiting ──────────────────────────────────────────────────────────────────────────────────────────

    def _look_at(self, pool: _Pool, network: Network, now_us: int) -> list[Effect]:
        """Recruit for one cluster, if it lacks standbys."""
        if not pool.lacks(self._rules.wanted):
            self._waits.pop(pool.cluster, None)
            return []
        if any(each.cluster == pool.cluster for each in self._emptying.values()):
            return []
        wait = self._waits.setdefault(pool.cluster, _Wait(now_us))
        serving = [each for each in network.members if _serves(each, pool.cluster)]
        found = {each.id: self._obstacle(each, network) for each in serving}
        able_ones = [each for each in serving if found[each.id] is None]
        first = sorted(serving, key=lambda each: (not each.may_stand_by, each.id))[:OBSTACLES_MAX]
        obstacles = {each.id: why for each in first if (why := found[each.id]) is not None}
        place = pool.places[-1]
        if now_us - wait.since_us >= self._rules.after_us:
            if able_ones:
                del self._waits[pool.cluster]
                return [self._recruit(place, able_ones, network, now_us)]
            return self._nobody(
                Lack(pool.cluster, place.id, len(pool.free), self._rules.wanted, obstacles), wait
            )
        if able_ones and (wait.asked_us is None or now_us - wait.asked_us >= ASK_US):
            wait.asked_us = now_us
            return [WantScores(questions=_questions(place, able_ones, network))]
        return []

    def _obstacle(self, broker: BrokerInfo, network: Network) -> str | None:
        """The first reason why a serving broker of a cluster cannot be recruited."""
        if not broker.may_stand_by:
            return "its settings do not say may_stand_by"
        if broker.certified:
            return "a standby has its name"
        rest = self._resting.get(broker.id)
        return self._hindrance(broker, network) or (None if rest is None else rest.why)

    def _hindrance(self, broker: BrokerInfo, network: Network) -> str | None:
        """The first reason why a broker cannot be emptied, or go on with it."""
        if broker.id in network.drained:
            return "an operator has it drained"
        if network.survival.stands_in(broker.id):
            return "a broker that is gone may need it as its backup"
        busy = {*network.drained, *self._emptying, broker.id}
        others = [each for each in network.members if _serves(each, broker.cluster) and each.id not in busy]
        if len(others) < OTHERS:
            return f"fewer than {OTHERS} other edge brokers of its cluster would serve"
        load = sum(network.loads.get(each.id, 0) for each in (broker, *others))
        if load >= ROOMY * len(others):
            return "the other edge brokers of its cluster have no room for its clients"
        return None

    def _recruit(
        self, place: BrokerInfo, able_ones: list[BrokerInfo], network: Network, now_us: int
    ) -> Effect:
        """The one with the fewest clients, in steps, then the best score."""
        ranked = rank(place, _peers(place, network), able_ones, self._told, self._silent)
        fewest = {each.id: network.loads.get(each.id, 0) // STEP for each in able_ones}
        best = min(ranked, key=lambda each: (fewest[each.name], each.merit))
        cluster = next(each.cluster for each in able_ones if each.id == best.name)
        self._emptying[best.name] = _Emptying(cluster, place.id, now_us)
        return Say(
            text="an edge broker is recruited: it is emptied, and will stand by",
            facts={
                "broker": best.name,
                "place": place.id,
                "clients": network.clients.get(best.name, 0),
                "score": _score(best),
            },
        )

    def _nobody(self, lack: Lack, wait: _Wait) -> list[Effect]:
        """Say once for each place that nobody can be recruited."""
        said = wait.lack is not None and wait.lack.place == lack.place
        wait.lack = lack
        if said:
            return []
        text = "nobody can be recruited as a standby"
        why = [f"{broker}: {obstacle}" for broker, obstacle in lack.obstacles.items()]
        return [Say(level="warning", text=text, facts={"place": lack.place, "why": why})]

    # ── going on ────────────────────────────────────────────────────────────────────────────────────────────

    def _go_on(
        self, network: Network, infos: Mapping[str, BrokerInfo], pools: Mapping[str, _Pool], now_us: int
    ) -> list[Effect]:
        """Look after the brokers that are being emptied."""
        effects: list[Effect] = []
        for name, each in tuple(self._emptying.items()):
            info = infos.get(name)
            if info is None:
                if each.told_us is None or now_us - each.told_us >= RESTART_US:
                    effects += self._give_up(name, "it is lost", now_us)
            elif info.role == Role.STANDBY:
                del self._emptying[name]
                facts = {"broker": name, "place": each.place}
                effects.append(Say(text="a recruited broker stands by from now on", facts=facts))
            else:
                effects += self._step(info, each, network, pools.get(each.cluster), now_us)
        return effects

    def _step(
        self, info: BrokerInfo, each: _Emptying, network: Network, pool: _Pool | None, now_us: int
    ) -> list[Effect]:
        name = info.id
        hindrance = self._hindrance(info, network)
        if pool is None or not pool.lacks(self._rules.wanted):
            hindrance = "it is needed no longer"
        if hindrance is not None:
            return self._give_up(name, hindrance, now_us)
        if now_us - each.since_us >= DRAIN_US:
            return self._give_up(name, f"it was not empty after {DRAIN_US // 1_000_000} s", now_us, REST_US)
        if not self._is_ready(name, network):
            each.told_us = None
        elif each.told_us is None:
            each.told_us = now_us
        return []

    def _is_ready(self, broker: str, network: Network) -> bool:
        """Whether a broker may stand by: it has no clients, and nobody counts on it."""
        empty = network.clients.get(broker) == 0
        return empty and not network.planning and not network.survival.backs_any(broker)

    def _give_up(self, broker: str, why: str, now_us: int, rest_us: int = ECHO_US) -> list[Effect]:
        del self._emptying[broker]
        self._resting[broker] = _Rest(now_us + rest_us, f"it was given up: {why}")
        text = "a recruitment is given up: the broker serves on"
        return [Say(level="warning", text=text, facts={"broker": broker, "why": why})]

    # ── releasing ───────────────────────────────────────────────────────────────────────────────────────────

    def _release(self, pool: _Pool, network: Network, now_us: int) -> list[Effect]:
        """Release a recruit of a cluster, the one that joined last: an operator wants it, or it is not needed."""
        recruits = [each.id for each in pool.free if each.recruited and each.id not in self._released]
        ordered = [each for each in recruits if each in network.drained]
        if ordered:
            return [self._let_go(ordered[-1], "an operator has it drained")]
        others = sum(each.id not in self._released for each in pool.free) - 1
        if not recruits or others < self._rules.wanted or network.survival.vacancies:
            self._enough_us.pop(pool.cluster, None)
        elif now_us - self._enough_us.setdefault(pool.cluster, now_us) >= self._rules.after_us:
            del self._enough_us[pool.cluster]
            return [self._let_go(recruits[-1], "there are enough standbys without it")]
        return []

    def _let_go(self, broker: str, why: str) -> Effect:
        self._released[broker] = None
        text = "a recruited broker is released: it serves again"
        return Say(text=text, facts={"broker": broker, "why": why})


def _pools(network: Network) -> dict[str, _Pool]:
    """The standbys of each cluster that has any, or has lent one."""
    places: dict[str, list[BrokerInfo]] = {}
    free: dict[str, list[BrokerInfo]] = {}
    for each in network.members:
        if each.certified:
            places.setdefault(each.lent_by or each.cluster, []).append(each)
        elif each.role == Role.STANDBY and each.id not in network.survival.promotions:
            free.setdefault(each.cluster, []).append(each)
    return {
        name: _Pool(name, tuple(places.get(name, ())), tuple(free.get(name, ())))
        for name in sorted({*places, *free})
    }


def _serves(broker: BrokerInfo, cluster: str) -> bool:
    return broker.cluster == cluster and broker.role == Role.EDGE and bool(broker.entrances)


def _peers(place: BrokerInfo, network: Network) -> tuple[str, ...]:
    backups = network.survival.plan.get(place.id, NONE)
    brokers = [each for each in network.members if able(each)]
    return Neighbourhood(brokers).peers_of(place, (), (backups.local, backups.remote))


def _questions(place: BrokerInfo, able_ones: Iterable[BrokerInfo], network: Network) -> tuple[Question, ...]:
    infos = {each.id: each for each in network.members}
    peers = [infos[name] for name in _peers(place, network)]
    return tuple(Question(each, tuple(peer for peer in peers if peer.id != each.id)) for each in able_ones)


def _score(candidate: Candidate) -> float | None:
    return None if candidate.score is None else round(candidate.score.total, 3)

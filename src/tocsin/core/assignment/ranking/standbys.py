"""Which standby takes a lost broker's place: the ranking of the Landmark paper (4.2, eqs. 1 to 5).

A standby says what its machine has (processor, memory, battery, the operator's criteria), and what it has measured to
other brokers. This module works out the terms that depend on peers, for one lost broker. Its **peers** are the
brokers that it exchanged messages with, and that the standby will exchange messages with.

    U_BW = exp(min(mean_i BW_e,i − BW_n, 0))      over the peers to which the bandwidth was measured
    U_D  = 1 / (1 + mean_i delay_i / DELAY_US)     over the peers to which the round trip was measured

A standby that answers comes before one that does not, one of the lost broker's cluster before one of another, and
then the better score. A term that was not measured counts 0 and is named. A score that is unknown is the worst, and
no reason not to choose a standby if there is no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Final

import msgspec

from tocsin.core.assignment.ranking.ranking import DELAY_US, nearness
from tocsin.core.assignment.ranking.scoring import NO_ANSWER, Resource, Score, Term, utility, weighted
from tocsin.model.network import BrokerInfo
from tocsin.wire.internal.summaries import UNMEASURED, Summary

BANDWIDTH: Final = "bandwidth"
DELAY: Final = "delay"
KBIT: Final = 1_000  # in a Mbit
PEERS_MAX: Final = 8  # of one broker: a mean of more says no more
TARGETS_MAX: Final = 16  # brokers to which one standby measures

Value = tuple[float, str | None]  # of a term, and why it is 0 if it is not known


class Candidate(msgspec.Struct, frozen=True):
    """A standby that could take a broker's place."""

    name: str
    near: bool  # it is of the lost broker's cluster
    answered: bool
    score: Score | None = None  # None: not known
    delay_us: int | None = None  # the mean of what it has measured to the broker's peers …
    kbit_s: int | None = None  # … and of the bandwidth
    problems: tuple[str, ...] = ()  # what is not known, and why
    configuration: str = ""  # the preset of its weights; empty: not known …
    changed: dict[
        str, tuple[float, float]
    ] = {}  # … and the settings that it changed: `static`'s, and its own

    @property
    def merit(self) -> tuple[bool, bool, float, str]:
        """The smallest is the best."""
        score = -1.0 if self.score is None else self.score.total
        return not self.answered, not self.near, -score, self.name


def rank(
    place: BrokerInfo,
    peers: Sequence[str],
    standbys: Iterable[BrokerInfo],
    told: Mapping[str, Summary],
    silent: Mapping[str, str],
) -> tuple[Candidate, ...]:
    """All who could take this place, the best first. ``told`` has what they said last; ``silent`` those that do not
    answer just now, and why."""
    found = (
        judge(each.id, each.cluster == place.cluster, told.get(each.id), peers, silent.get(each.id))
        for each in standbys
    )
    return tuple(sorted(found, key=lambda each: each.merit))


def judge(
    standby: str, near: bool, told: Summary | None, peers: Sequence[str], silence: str | None
) -> Candidate:
    """One standby, for a broker with these peers. ``silence``: why it does not answer."""
    problems = () if silence is None else (silence,)
    if told is None:
        return Candidate(standby, near, False, problems=problems or (NO_ANSWER,))
    delays, speeds = _measured(told, peers)
    unknown = (f"{peer}: {told.unprobed.get(peer, UNMEASURED)}" for peer in peers if peer not in speeds)
    return Candidate(
        standby,
        near,
        silence is None,
        score_of(told, peers),
        _mean(delays),
        _mean(speeds),
        (*problems, *told.problems, *unknown),
        told.configuration,
        told.changed,
    )


def score_of(told: Summary, peers: Sequence[str]) -> Score | None:
    """U_T of a standby for a broker with these peers. None: it has nothing to make it of."""
    if not told.weights:  # it measures nothing: its own score is all there is
        terms = {name: Term(value, weight) for name, (value, weight) in told.terms.items()}
        return None if told.resources is None else Score(told.resources, terms, {})
    values: dict[str, Value] = {name: (value, None) for name, (value, _) in told.terms.items()}
    values.pop(BANDWIDTH, None)
    if not values:
        return None  # its machine was not looked at yet
    if peers:
        delays, speeds = _measured(told, peers)
        values |= {BANDWIDTH: _bandwidth(speeds, told.need_mbit), DELAY: _delay(delays)}
    weights = {name: told.weights.get(name, 0.0) for name in values}
    return weighted(values, weights) if any(weights.values()) else None


def _measured(told: Summary, peers: Sequence[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Round trips and bandwidths to peers, where they are known."""
    delays = {peer: told.probes[peer][0] for peer in peers if peer in told.probes}
    speeds = {peer: told.probes[peer][1] for peer in delays if told.probes[peer][1] > 0}
    return delays, speeds


def _mean(values: Mapping[str, int]) -> int | None:
    return sum(values.values()) // len(values) if values else None


def _bandwidth(speeds: Mapping[str, int], need_mbit: float) -> Value:
    mean = _mean(speeds)
    return utility(Resource(None if mean is None else mean / KBIT, need_mbit))


def _delay(delays: Mapping[str, int]) -> Value:
    mean = _mean(delays)
    return (0.0, NO_ANSWER) if mean is None else (nearness(mean / DELAY_US), None)


# ── peers ───────────────────────────────────────────────────────────────────────────────────────────────────


class Neighbourhood:
    """The brokers that there are, by cluster: for the peers of one, or of all."""

    def __init__(self, brokers: Iterable[BrokerInfo]) -> None:
        self._clusters: dict[str, list[str]] = {}  # cluster → the names in it, sorted
        self._there: set[str] = set()
        for each in brokers:
            self._clusters.setdefault(each.cluster, []).append(each.id)
            self._there.add(each.id)
        for names in self._clusters.values():
            names.sort()

    def peers_of(
        self, broker: BrokerInfo, neighbours: Iterable[str], backups: Iterable[str | None]
    ) -> tuple[str, ...]:
        """The peers of a broker: those that it has links with, its backups, and those of its cluster, in this order."""
        own = self._clusters.get(broker.cluster, ())
        wanted = dict.fromkeys((*sorted(neighbours), *(each for each in backups if each), *own))
        there = (name for name in wanted if name in self._there and name != broker.id)
        return tuple(islice(there, PEERS_MAX))


class Targets:
    """The brokers that standbys measure: the peers of the brokers whose places they may take.

    Those of a standby's own cluster's brokers come first, and of these the ones that most of them have; then those of
    the others'. What all standbys count alike is counted once.
    """

    def __init__(self, places: Iterable[tuple[BrokerInfo, Sequence[str]]]) -> None:
        self._near: dict[str, Counter[str]] = {}  # cluster → peers, and how many of its brokers have each
        self._all: Counter[str] = Counter()
        for broker, peers in places:
            self._near.setdefault(broker.cluster, Counter()).update(peers)
            self._all.update(peers)
        self._order = sorted(self._all, key=lambda name: (-self._all[name], name))

    def of(self, standby: BrokerInfo) -> tuple[str, ...]:
        near = self._near.get(standby.cluster, Counter())
        first = sorted(near, key=lambda name: (-near[name], near[name] - self._all[name], name))
        rest = (name for name in self._order if name not in near)
        return tuple(islice(chain(first, rest), TARGETS_MAX))

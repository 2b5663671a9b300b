"""One score for all who could be a backup, or take a broker's place, and what it is made of.

| term | from 0 to 1 | from |
| --- | --- | --- |
| ``similarity`` | the share of the broker's subscriptions that the candidate need not create | what both hold |
| ``nearness`` | 1 / (1 + distance) | the measured delay over DELAY_US; else hops between clusters |
| ``room`` | the share of its capacity that would be left | eq. 7 |
| ``resources`` | U_T of the Landmark paper, with the operator's criteria | ``core.assignment.ranking.scoring`` |

The score is their mean by weights that the operator can set. Unknown terms count 0, and are named.

A plan of all backups minimises what the first term measures, over all brokers at once; the others enter it as
**handicaps**: a candidate with the score s of its other terms may cost so many subscriptions less, in exchange for
a worse s, as the weights say (``handicaps``). For one decision by itself, a standby that is promoted, the ranking
decides alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

import msgspec

from tocsin.core.assignment.demand import Demand, Member
from tocsin.core.assignment.outcome import Plan, Role, amount
from tocsin.core.assignment.ranking.scoring import NO_ANSWER, Score, normalised, weighted

DELAY_US: Final = 50_000  # a round trip that counts as one hop: between regions of one continent
TERMS: Final = ("similarity", "nearness", "room", "resources")


class Weights(msgspec.Struct, frozen=True):
    """How much each term counts; they are divided by their sum."""

    similarity: float = 0.6
    nearness: float = 0.1
    room: float = 0.1
    resources: float = 0.2

    def by_name(self) -> dict[str, float]:
        return {name: float(getattr(self, name)) for name in TERMS}


class Facts(msgspec.Struct, frozen=True):
    """The properties of a candidate beside its subscriptions. None: not known."""

    distance: float | None = 0.0
    resources: float | None = None
    remoteness: float = (
        0.0  # how much less near it is to others than its kind, where that was measured; 0 to 1
    )


class Candidate(msgspec.Struct, frozen=True):
    """Somebody who could be chosen. ``obstacle`` says why not; ``added`` is the number that it would have to create,
    ``carried`` the load that it would have."""

    name: str
    score: Score
    added: int
    obstacle: str | None = None
    chosen: bool = False
    carried: float = 0.0


def rate(
    *, similarity: float | None, room: float | None, facts: Facts, weights: Weights | None = None
) -> Score:
    """One candidate's score."""
    distance = facts.distance
    near = nearness(distance) if distance is not None and distance >= 0 else None
    given = {"similarity": similarity, "nearness": near, "room": room, "resources": facts.resources}
    values = {name: _known(value) for name, value in given.items()}
    return weighted(values, (weights or Weights()).by_name())


def nearness(distance: float) -> float:
    return 1 / (1 + distance)


def ranked(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The best first; those with an obstacle last; of equals the smallest name first."""
    return tuple(
        sorted(candidates, key=lambda each: (each.obstacle is not None, -each.score.total, each.name))
    )


def explain(
    demand: Demand,
    plan: Plan,
    broker: str,
    role: Role,
    facts: Mapping[str, Facts] | None = None,
    weights: Weights | None = None,
    unit: str = "",
) -> tuple[Candidate, ...]:
    """All who could be this backup of the broker, with everything else as the plan has it, best first. ``unit``: of
    loads, in words."""
    members = {each.name: each for each in demand.members}
    own = members[broker]
    chosen = getattr(plan.backups[broker], role)
    load, held = _load(demand, broker), _held(demand, broker)
    backed = _backed(plan, role, broker)
    found = []
    for other in demand.members:
        if other.name == broker or (other.cluster == own.cluster) != (role == "local"):
            continue
        there = (other.name, *backed[other.name])
        added = len(held.difference(*(_held(demand, each) for each in there)))
        carried = plan.load[other.name] + (0.0 if other.name == chosen else load)
        score = rate(
            similarity=1 - added / len(held) if held else 1.0,
            room=_room(other, carried),
            facts=(facts or {}).get(other.name, Facts()),
            weights=weights,
        )
        obstacle = (
            None
            if carried < other.capacity
            else f"would have to carry {amount(carried, unit)}, can carry less than {amount(other.capacity, unit)}"
        )
        found.append(Candidate(other.name, score, added, obstacle, other.name == chosen, carried))
    return ranked(found)


def without_room(candidates: Iterable[Candidate]) -> str | None:
    """Whether capacity decided: the candidate that would add the fewest subscriptions, fewer than the choice, and has
    no room. None: there is none, or no choice."""
    candidates = tuple(candidates)
    chosen = next((each for each in candidates if each.chosen), None)
    if chosen is None:
        return None
    barred = [
        each
        for each in candidates
        if each.obstacle is not None and not each.chosen and each.added < chosen.added
    ]
    return min(barred, key=lambda each: (each.added, each.name)).name if barred else None


def handicaps(facts: Mapping[str, Facts], mean_held: float, weights: Weights | None = None) -> dict[str, int]:
    """The handicap of each broker, in subscriptions, for ``Member.handicap``.

    A candidate that would add m of n subscriptions has the score w_s · (1 − m/n) + w_r · r, so that for r to be 1
    instead of r is worth (w_r / w_s) · (1 − r) · n subscriptions. Room does not enter so: it is a constraint of plans.
    Nor do distances, which are between two; but a broker that is far from all that have measured it
    (``Facts.remoteness``) is a worse backup for any of them.
    """
    shares = normalised((weights or Weights()).by_name())
    if shares["similarity"] == 0:
        return dict.fromkeys(facts, 0)
    worth = mean_held / shares["similarity"]
    return {
        name: round(
            worth
            * (shares["resources"] * (1 - _known(each.resources)[0]) + shares["nearness"] * each.remoteness)
        )
        for name, each in facts.items()
    }


def _known(value: float | None) -> tuple[float, str | None]:
    if value is None:
        return 0.0, NO_ANSWER
    if not 0 <= value <= 1:  # nan too
        return 0.0, f"is {value}, not between 0 and 1"
    return value, None


def _room(member: Member, carried: float) -> float:
    if math.isinf(member.capacity):
        return 1.0
    return max(1 - carried / member.capacity, 0.0) if member.capacity > 0 else 0.0


def _held(demand: Demand, broker: str) -> set[Hashable]:
    return {k for k, count in demand.holdings.get(broker, {}).items() if count}


def _load(demand: Demand, broker: str) -> float:
    held = demand.holdings.get(broker, {})
    return math.fsum(demand.rates.get(k, 1.0) * count for k, count in held.items())


def _backed(plan: Plan, role: Role, apart_from: str) -> defaultdict[str, list[str]]:
    """Candidate → the brokers that it covers already, since it is their backup."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for broker, backups in plan.backups.items():
        if backups.local is not None and (role == "remote" or broker != apart_from):
            found[backups.local].append(broker)
        if role == "remote" and backups.remote is not None and broker != apart_from:
            found[backups.remote].append(broker)
    return found

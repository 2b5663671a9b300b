"""Why a message takes the way that it takes: the routes, slots and deputies that one topic meets, as the log has them.

What a broker does meanwhile may differ: it takes the deputy where its link to a carrier is down, and holds messages
while their slot moves (``core.tiers.ways``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tocsin.core.coordination.state.state import State
from tocsin.core.filters import interest_of
from tocsin.core.tiers.slots import MARK, is_gate, slot_of
from tocsin.errors import OperatorError
from tocsin.model.network import Scope
from tocsin.wire.mqtt.topics import matches

NAMED_MAX: Final = 20  # brokers that a refusal names


class Leg(msgspec.Struct, frozen=True):
    """One broker that gets a message, the filters for which it does, and the relays around a link that is cut."""

    broker: str
    filters: tuple[str, ...]
    around: tuple[str, ...] | None = None  # none: straight over the link; (): it is cut, and there is no way


class Over(msgspec.Struct, frozen=True):
    """A tier that a message goes over."""

    tier: str
    carrier: str
    deputy: str
    onward: tuple[Leg, ...]
    around: tuple[str, ...] | None = None  # to the carrier
    apart: bool = False  # the topic is carried apart from its slot


class Explained(msgspec.Struct, frozen=True):
    """Where the messages of a topic go that are published at one broker."""

    topic: str
    broker: str
    cluster: str
    slot: int
    here: tuple[str, ...]  # filters of clients of that broker
    straight: tuple[Leg, ...]
    over: tuple[Over, ...]


def explain_route(state: State, topic: str, broker: str) -> Explained:
    """Where messages go at QoS 0; ``KeyError`` if the broker is not there."""
    plan, slot = state.interest.plan, slot_of(topic)
    info = plan.brokers[broker]
    around = state.detours.around(broker)
    origin = _peers(state, broker, Scope.ORIGIN, topic)
    straight = [Leg(each, named, around.get(each)) for each, named in origin.items() if not is_gate(each)]
    over = []
    for gate in filter(is_gate, origin):
        slots = state.tiers.tables[gate.removeprefix(MARK)].slots
        carrier, deputy = slots.carriers[slot], slots.deputies[slot]
        apart = topic in slots.apart
        if apart:
            order = [*slots.order(topic, broker), carrier]
            carrier, deputy = order[0], order[1]
        beyond = state.detours.around(carrier)
        onward = [
            Leg(each, named, beyond.get(each))
            for each, named in _peers(state, carrier, Scope.TRANSIT, topic).items()
            if plan.brokers[each].cluster != info.cluster
        ]
        own = _matching(plan.interests(carrier), topic)
        if own and plan.brokers[carrier].cluster != info.cluster:
            onward.append(Leg(carrier, own))
        legs = tuple(sorted(onward, key=lambda leg: leg.broker))
        over.append(Over(gate.removeprefix(MARK), carrier, deputy, legs, around.get(carrier), apart))
    here = _matching(plan.interests(broker), topic)
    return Explained(topic, broker, info.cluster, slot, here, tuple(straight), tuple(over))


def _peers(state: State, broker: str, scope: Scope, topic: str) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for route in state.interest.plan.routes_for(broker, topic):
        if route.scope is scope and matches(interest_of(route.filter).pattern, topic):
            found.setdefault(route.peer, []).append(route.filter)
    return {peer: tuple(sorted(found[peer])) for peer in sorted(found)}


def _matching(filters: frozenset[str], topic: str) -> tuple[str, ...]:
    return tuple(sorted(each for each in filters if matches(interest_of(each).pattern, topic)))


class Part(msgspec.Struct, frozen=True):
    """What one member of a tier carries."""

    broker: str
    cluster: str
    slots: int
    deputy_of: int  # slots
    shunned: bool = False  # other clusters do not reach it


class TierShown(msgspec.Struct, frozen=True):
    """A tier: its members, and the clusters that it carries for."""

    tier: str
    members: tuple[Part, ...]
    clusters: tuple[str, ...]
    apart: dict[str, tuple[str, ...]] = {}  # topics apart from their slots → the members that carry them


def tiers_of(state: State) -> tuple[TierShown, ...]:
    """All tiers, by name."""
    plan, found = state.interest.plan, []
    for tier, table in sorted(state.tiers.tables.items()):
        carried, slots = table.carried(), table.slots
        members = [
            Part(each, plan.brokers[each].cluster, carried[each], slots.deputies.count(each))
            for each in table.members
        ]
        members += [
            Part(each, plan.brokers[each].cluster, 0, 0, shunned=True)
            for each in sorted(plan.shunned & plan.brokers.keys())
            if plan.member_of(each) == tier
        ]
        clusters = {info.cluster for info in plan.brokers.values() if plan.tier_for(info.cluster) == tier}
        found.append(TierShown(tier, tuple(members), tuple(sorted(clusters)), table.apart))
    return tuple(found)


def tier_of(state: State, broker: str) -> str:
    """The tier of a routing broker. ``OperatorError`` if it is in none, with those that are."""
    tier = state.interest.plan.member_of(broker)
    if tier:
        return tier
    known = sorted(each for table in state.tiers.tables.values() for each in table.members)
    more = f" … ({len(known)} in all)" if len(known) > NAMED_MAX else ""
    raise OperatorError(
        f"{broker!r} is no routing broker that carries now",
        f"Name one of {', '.join(known[:NAMED_MAX])}{more}" if known else "Start routing brokers first",
    )


def carriers_of(state: State, tier: str) -> tuple[str, ...]:
    """Who carries each slot; empty: the tier is gone."""
    table = state.tiers.tables.get(tier)
    return () if table is None else table.slots.carriers

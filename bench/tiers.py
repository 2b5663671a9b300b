"""The leader's work when a routing broker leaves or is relieved of slots; routes and bytes that brokers are told.

The network is that of the PubSubCoord paper's largest figure: 120 edge brokers, each in a cluster of its own, 40
routing brokers in a cloud, 10 000 interests in 1 000 topics. *tiers* is the state that ships, with the notices as they
are encoded. *hubs* is the way before: a route names the first routing broker by name, so that all routes are compared
when routing brokers change. Both run in this process, one after the other, ROUNDS times; the figures are medians.

``tier_balance`` adds how alike members carry under a skewed load, by strategy; ``tier_origins`` what it saves that only
brokers with publishers hold routes.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from bench import tier_balance, tier_origins
from tocsin.core.coordination.state.state import Outcome, State
from tocsin.core.forwarding.routes import RouteChange
from tocsin.core.tiers.placing import even
from tocsin.model.network import BrokerInfo, Role, Route, Scope
from tocsin.wire.internal.commands import Elected, Interests, Joined, Limits, Lost, Placed, Said
from tocsin.wire.internal.notices import Routes, encode_item
from tocsin.wire.internal.slots import SlotMoves

RESULTS = Path(__file__).parent / "results"
EDGES, HUBS, TOPICS, INTERESTS = 120, 40, 1_000, 10_000
QUICK = (30, 10, 300, 2_000)
ROUNDS = 5
TIER = "cloud"


class Size:
    """How large the network is."""

    def __init__(self, edges: int, hubs: int, topics: int, interests: int) -> None:
        self.topics = tuple(f"topic/{number}" for number in range(topics))
        self.hubs = [BrokerInfo(f"hub-{n:03}", TIER, Role.ROUTING, "127.0.0.1", n) for n in range(hubs)]
        self.edges = [
            BrokerInfo(f"edge-{n:03}", f"lan-{n:03}", Role.EDGE, "127.0.0.1", n) for n in range(edges)
        ]
        # Each broker wants as many topics, and each topic is wanted at as many brokers.
        each = interests // edges
        self.wants = {
            edge.id: tuple(self.topics[(place * each + n) % topics] for n in range(each))
            for place, edge in enumerate(self.edges)
        }


# ── the way before ──────────────────────────────────────────────────────────────────────────────────────────


def named_routes(size: Size, hubs: Sequence[BrokerInfo]) -> dict[str, set[Route]]:
    """Every broker's routes where a route names a broker: the first routing broker carries for all clusters."""
    first = hubs[0].id
    wanted = {each for topics in size.wants.values() for each in topics}
    counts: dict[str, int] = {}
    for topics in size.wants.values():
        for each in topics:
            counts[each] = counts.get(each, 0) + 1
    abroad = {topic: Route(Scope.ORIGIN, first, topic) for topic in wanted}
    found: dict[str, set[Route]] = {}
    for edge in size.edges:
        own = set(size.wants[edge.id])
        found[edge.id] = {route for topic, route in abroad.items() if counts[topic] > (topic in own)}
    straight = {Route(Scope.ORIGIN, edge, topic) for edge, topics in size.wants.items() for topic in topics}
    onward = {Route(Scope.TRANSIT, edge, topic) for edge, topics in size.wants.items() for topic in topics}
    for hub in hubs:
        found[hub.id] = straight | onward if hub.id == first else set(abroad.values())
    return found


def hub_leaves(size: Size) -> tuple[float, int]:
    """Seconds of processor, and routes that change, when the first hub leaves."""
    before = named_routes(size, size.hubs)
    began = time.process_time()
    after = named_routes(size, size.hubs[1:])
    changes = 0
    for broker, routes in after.items():
        had = before.get(broker, set())
        change = RouteChange(tuple(sorted(routes - had, key=_order)), tuple(sorted(had - routes, key=_order)))
        changes += len(change.added) + len(change.removed)
    return time.process_time() - began, changes


def _order(route: Route) -> tuple[str, str, str]:
    return route.scope.value, route.peer, route.filter


# ── tiers ───────────────────────────────────────────────────────────────────────────────────────────────────


def network(size: Size, *, everywhere: bool = False) -> State:
    """``everywhere``: as if every broker published every topic."""
    state = State()
    if everywhere:
        state.interest.plan.origins = tier_origins.Everywhere([each.id for each in size.edges])
    state.apply(0, (Elected("c", Limits(), 1),))
    for info in (*size.hubs, *size.edges):
        state.apply(0, (Said(info.id, 1, 1, (Joined(info),)),))
    for edge, topics in size.wants.items():
        state.apply(0, (Said(edge, 1, 2, (Interests(topics),)),))
    table = state.tiers.tables[TIER]
    state.apply(0, (Placed(TIER, SlotMoves.of(even(table.slots, table.members))),))
    return state


def told(outcome: Outcome) -> tuple[int, int, int]:
    """Routes that change, and the bytes that one broker is told at most and all are told."""
    routes, largest, total = 0, 0, 0
    for items in outcome.items.values():
        routes += sum(len(each.added) + len(each.removed) for each in items if isinstance(each, Routes))
        size = sum(len(memoryview(encode_item(each))) for each in items)
        largest, total = max(largest, size), total + size
    return routes, largest, total


def measured(apply: Callable[[], Outcome]) -> dict[str, float]:
    began = time.process_time()
    outcome = apply()
    took_s = time.process_time() - began
    routes, largest, total = told(outcome)
    return {"leader_ms": took_s * 1e3, "routes": routes, "bytes_a_broker": largest, "bytes": total}


def member_leaves(size: Size) -> dict[str, float]:
    state = network(size)
    return measured(lambda: state.apply(0, (Lost(size.hubs[0].id, 1),)))


def member_is_relieved(size: Size) -> dict[str, float]:
    """All slots of one member go to the others, as before it is stopped."""
    state = network(size)
    first = size.hubs[0].id

    def relieve() -> Outcome:
        table = state.tiers.tables[TIER]
        moves = even(table.slots, [each for each in table.members if each != first], (first,))
        return state.apply(0, (Placed(TIER, SlotMoves.of(moves)),))

    return measured(relieve)


def everything_moves(size: Size) -> dict[str, float]:
    """Every slot gets another carrier."""
    state = network(size)
    slots = state.tiers.tables[TIER].slots
    moves = {slot: (slots.deputies[slot], carrier) for slot, carrier in enumerate(slots.carriers)}
    return measured(lambda: state.apply(0, (Placed(TIER, SlotMoves.of(moves)),)))


def interest_comes(size: Size) -> dict[str, float]:
    """One broker wants a topic that nobody wanted."""
    state = network(size)
    return measured(lambda: state.apply(0, (Said("edge-000", 1, 3, (Interests(("new/topic",)),)),)))


CASES: Mapping[str, Callable[[Size], dict[str, float]]] = {
    "a member leaves": member_leaves,
    "a member is relieved": member_is_relieved,
    "every slot moves": everything_moves,
    "a new topic is wanted": interest_comes,
}


def medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench tiers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller network")
    chosen = parser.parse_args(argv)
    size = Size(*(QUICK if chosen.quick else (EDGES, HUBS, TOPICS, INTERESTS)))
    before: list[dict[str, float]] = []
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CASES}
    for _ in range(ROUNDS):
        took_s, changes = hub_leaves(size)
        before.append({"leader_ms": took_s * 1e3, "routes": changes})
        for name, case in CASES.items():
            found[name].append(case(size))
    old = medians(before)
    results = {"a hub leaves (hubs)": old, **{name: medians(rows) for name, rows in found.items()}}
    print(f"{len(size.edges)} edge brokers, {len(size.hubs)} routing brokers, {len(size.wants)} × ", end="")
    print(
        f"{len(size.wants['edge-000'])} interests; {platform.machine()}, Python {platform.python_version()}"
    )
    print(f"{'':24}{'leader ms':>11}{'routes':>10}{'bytes, one':>12}{'bytes, all':>12}")
    for name, row in results.items():
        sizes = [
            f"{row[each]:>12,.0f}" if each in row else f"{'–':>12}" for each in ("bytes_a_broker", "bytes")
        ]
        print(f"{name:24}{row['leader_ms']:>11.2f}{row['routes']:>10,.0f}{''.join(sizes)}")
    ratio = old["leader_ms"] / results["a member leaves"]["leader_ms"]
    print(f"a member that leaves costs the leader 1/{ratio:,.0f} of what a hub did")
    for members in (8,) if chosen.quick else (8, 40):
        balanced = tier_balance.compare(members, 2 if chosen.quick else tier_balance.SEEDS)
        tier_balance.show(members, balanced)
        results[f"balance, {members} members"] = {row.name: row.uneven for row in balanced}

    def made(everywhere: bool) -> State:
        return network(size, everywhere=everywhere)

    compared = tier_origins.compare(size, made)
    tier_origins.show(size, made, compared)
    for name, ways in compared.items():
        results |= {f"{name}, {way}": msgspec.structs.asdict(row) for way, row in ways.items()}
    RESULTS.mkdir(exist_ok=True)
    name = "tiers-quick.json" if chosen.quick else "tiers.json"
    (RESULTS / name).write_text(json.dumps(results, indent=2) + "\n")
    return 0

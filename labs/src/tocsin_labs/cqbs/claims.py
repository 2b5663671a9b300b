"""The paper's statements about designs and coordinators, of those runs that have both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tocsin_labs.cqbs.coordinator import Coordinated
from tocsin_labs.cqbs.designs.run import Designed
from tocsin_labs.figures import shown
from tocsin_labs.statements import Claim

BENEFICIAL: Final = (
    0.8  # of the logged design's mean at most, if consensus elsewhere is to be very beneficial
)


def of_coordinators(alone: Coordinated | None, replicated: Coordinated | None) -> list[Claim]:
    """V-B: what replication costs."""
    if alone is None or replicated is None or not alone.undisturbed or not replicated.undisturbed:
        return []
    one, three = alone.undisturbed.mean, replicated.undisturbed.mean
    words = "a coordinator without replicas is quicker than three"
    return [Claim("V-B", words, one < three, f"{shown(one)} ms alone, {shown(three)} ms with three (mean)")]


def of_designs(designs: Sequence[Designed]) -> list[Claim]:
    """VI-B, and what III-C says of equal queries."""
    found: list[Claim] = []
    by_name = {each.name: each for each in designs}
    for servers in dict.fromkeys(each.servers for each in designs):
        found += _consensus(by_name, servers)
        found += _sharing(by_name, servers)
    logged, broadcast = by_name.get("logged-1"), by_name.get("broadcast")
    if logged is not None and broadcast is not None:
        here, there = shown(broadcast.cpu_ms), shown(logged.cpu_ms)
        evidence = f"{here} ms of processor for a change, {there} ms with a coordinator"
        words = "without a coordinator a change is expensive, as it is told to all brokers (ten here)"
        found.append(Claim("VI-B", words, broadcast.cpu_ms > logged.cpu_ms, evidence))
    return found


def _consensus(by_name: Mapping[str, Designed], servers: int) -> list[Claim]:
    logged, ahead = by_name.get(f"logged-{servers}"), by_name.get(f"ahead-{servers}")
    if logged is None or ahead is None or not logged.found.all or not ahead.found.all:
        return []
    before, after = logged.found.all.mean, ahead.found.all.mean
    words = f"consensus off the hot path could be very beneficial (servers of the store: {servers})"
    evidence = f"{shown(after)} ms instead of {shown(before)} ms (mean), and what is told is not on disk yet"
    return [Claim("V-B, VI-B", words, after <= BENEFICIAL * before, evidence)]


def _sharing(by_name: Mapping[str, Designed], servers: int) -> list[Claim]:
    shared, unshared = by_name.get(f"logged-{servers}-equal"), by_name.get(f"unshared-{servers}-equal")
    if shared is None or unshared is None:
        return []
    words = f"equal queries are to be kept once (servers of the store: {servers})"
    evidence = (
        f"a query of its own for each subscriber: {shown(unshared.cpu_ms)} ms of processor for a change instead of "
        f"{shown(shared.cpu_ms)} ms, and {shown(unshared.asking_cpu_ms)} ms until all were answered instead of "
        f"{shown(shared.asking_cpu_ms)} ms"
    )
    better = shared.cpu_ms < unshared.cpu_ms and shared.asking_cpu_ms < unshared.asking_cpu_ms
    return [Claim("III-C, IV-B", words, better, evidence)]

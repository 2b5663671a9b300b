"""Which brokers of a tier run: so many as its leader wants, of those that are configured.

A leader says how many members a tier should have, and which of them carry nothing any more and may stop
(``core.coordination.leader.growth``). Here that becomes names: further members are started in the order in which they
are configured; one that may stop does so, unless as many as are wanted would not be left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tocsin.core.supervision.machine import Row
from tocsin.core.supervision.signals import ChildWanted

FACT: Final = "tiers"  # of the reports of a coordinator that leads
RUNNING: Final = ("waiting", "starting", "ready", "degraded", "backing off")


class TierWanted(msgspec.Struct, frozen=True):
    """What one tier should be."""

    members: int
    spare: tuple[str, ...] = ()


def heed(
    tiers: Mapping[str, tuple[str, ...]], facts: object, rows: Iterable[Row], cause: str
) -> list[ChildWanted]:
    """What follows from a coordinator's words. ``tiers``: the children of each, in order, by their names."""
    try:
        wanted = msgspec.convert(facts, dict[str, TierWanted])
    except msgspec.ValidationError:
        return []  # no coordinator of ours says this
    health = {row.name: row.health for row in rows}
    said = []
    for tier, children in tiers.items():
        asked = wanted.get(tier)
        if asked is None:
            continue
        running = [each for each in children if health.get(each) in RUNNING]
        idle = [each for each in children if health.get(each) == "reserve"]
        lacking = max(0, asked.members - len(running))
        said += [ChildWanted(child=each, wanted=True, cause=cause) for each in idle[:lacking]]
        too_many = max(0, len(running) - asked.members)
        spare = [each for each in running if each.rpartition("/")[2] in asked.spare]
        said += [ChildWanted(child=each, wanted=False, cause=cause) for each in spare[:too_many]]
    return said

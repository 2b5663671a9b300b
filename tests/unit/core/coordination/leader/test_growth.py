"""Which members a tier lacks, which leave, and when they may be stopped."""

from __future__ import annotations

from tests.unit.core.coordination.state.test_tiers import HUBS, Net
from tocsin.core.coordination.leader.growth import Growth
from tocsin.core.coordination.leader.pinning import Pins
from tocsin.core.coordination.leader.placing import Placing
from tocsin.core.tiers.elasticity import GrowthRules
from tocsin.wire.internal.commands import Left, Said
from tocsin.wire.internal.control import Load, SlotLoad

SECOND = 1_000_000
RULES = GrowthRules(1, 3, 5 * SECOND, 20 * SECOND)


class Tier:
    """Members that are as busy as a member is with 100 messages a second."""

    def __init__(self, *names: str, rules: GrowthRules = RULES) -> None:
        self.net = Net("east", *names)
        self.emptied: set[str] = set()
        self.placing = Placing(self.net.state, lambda name: True, lambda: self.carry_nothing, Pins())
        self.growth = Growth(self.net.state, self.placing.loads_of, lambda: self.emptied, rules)
        self.now_us = 0

    @property
    def carry_nothing(self) -> frozenset[str]:
        return self.growth.leaving | self.emptied

    @property
    def members(self) -> tuple[str, ...]:
        return self.net.state.tiers.tables["cloud"].members

    def run(self, seconds: float, messages: int) -> None:
        end_us = self.now_us + round(seconds * SECOND)
        while self.now_us < end_us:
            self.now_us += SECOND // 2
            carriers = self.net.state.tiers.tables["cloud"].slots.carriers
            slots = range(0, 1_024, 8)
            for member in self.members:
                own = [slot for slot in slots if carriers[slot] == member]
                each = messages // len(slots)
                rows = tuple(SlotLoad(slot, each, 0, 1) for slot in own)
                total = each * len(own)
                self.placing.heard(Load(member, 1, total * 10, total, 0, 0, (), rows), self.now_us)
            self.growth.look(self.now_us)
            for placed in self.placing.look(self.now_us):
                self.net.apply(placed)

    def stop(self, name: str) -> None:
        number = self.net.state.members[name].applied + 1
        self.net.apply(Said(name, 1, number, (Left(),)))


def test_members_are_wanted_when_the_load_rises() -> None:
    tier = Tier("hub-1")
    tier.run(10, 0)
    assert tier.growth.wanted()["cloud"].members == 1
    tier.run(30, 128)
    wanted = tier.growth.wanted()["cloud"]
    assert (wanted.members, wanted.there, wanted.spare) == (3, 1, ()) and wanted.use is not None
    for name in ("hub-2", "hub-3"):
        tier.net.join(name)
    tier.run(20, 128)
    assert tier.growth.wanted()["cloud"].there == 3
    carried = tier.net.state.tiers.tables["cloud"].carried()
    assert min(carried.values()) > 200


def test_the_emptiest_leaves_and_is_spare_when_nothing_goes_over_it() -> None:
    tier = Tier(*HUBS)
    tier.run(15, 128)
    tier.run(30, 0)
    (leaving,) = tier.growth.leaving
    tier.run(10, 0)
    wanted = tier.growth.wanted()["cloud"]
    assert wanted.members == 2 and wanted.spare == (leaving,)
    assert leaving not in tier.net.state.tiers.tables["cloud"].slots.carriers
    tier.stop(leaving)
    tier.run(1, 0)
    assert tier.growth.leaving == frozenset() and tier.growth.wanted()["cloud"].there == 2


def test_a_member_that_leaves_stays_when_the_load_comes_back() -> None:
    tier = Tier(*HUBS)
    tier.run(15, 128)
    tier.run(30, 0)
    assert tier.growth.leaving
    tier.run(30, 256)
    assert tier.growth.leaving == frozenset()
    carried = tier.net.state.tiers.tables["cloud"].carried()
    assert min(carried.values()) > 200


def test_a_member_that_an_operator_empties_does_not_count() -> None:
    tier = Tier(*HUBS)
    tier.emptied = {"hub-2"}
    tier.run(15, 128)
    assert tier.growth.wanted()["cloud"].there == 2


def test_without_rules_nothing_is_wanted() -> None:
    tier = Tier(*HUBS, rules=GrowthRules())
    tier.run(60, 0)
    assert tier.growth.wanted() == {} and tier.growth.leaving == frozenset()

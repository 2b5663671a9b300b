"""What the leader makes of members' reports: rates of slots, which go along when slots move."""

from __future__ import annotations

from tocsin.core.tiers.loads import MEASURED_US, STALE_US, TierLoads
from tocsin.core.tiers.slots import SLOTS, Slots
from tocsin.wire.internal.control import Load, SlotLoad, TopicLoad

HALF = Slots(("a",) * 512 + ("b",) * 512, ("b",) * 512 + ("a",) * 512)


def load(broker: str, slots: dict[int, int], more: int = 0, busy: int = 0) -> Load:
    rows = tuple(SlotLoad(slot, count, count * 10, 1) for slot, count in slots.items())
    total = sum(slots.values()) + more
    return Load(broker, 1, busy, total, total * 10, 3, (), rows)


def told(*loads: Load, slots: Slots = HALF) -> TierLoads:
    found = TierLoads()
    found.follow(slots, 0)
    for each in loads:
        found.heard(each, 0)
    return found


def messages(loads: TierLoads) -> list[float]:
    return [each.messages for each in loads.look(lambda cluster, member: 0).rates]


def test_slots_that_are_not_named_share_the_rest() -> None:
    rates = messages(told(load("a", {0: 100, 1: 50}, more=510)))
    assert rates[:3] == [100, 50, 1] and sum(rates) == 660


def test_a_member_says_nothing_of_slots_that_it_does_not_carry() -> None:
    assert messages(told(load("a", {600: 100})))[600] == 0


def test_a_rate_goes_along_with_its_slot_until_it_is_measured_anew() -> None:
    loads = told(load("a", {0: 100}), load("b", {600: 10}))
    moved = HALF.after({0: ("b", "a")})
    loads.follow(moved, 10)
    loads.heard(load("b", {600: 10}), 20)  # of a window in which the slot was another's
    assert messages(loads)[0] == 100
    loads.heard(load("b", {0: 150, 600: 10}), 30)
    assert messages(loads)[0] == 150
    loads.heard(load("b", {0: 20, 600: 10}), 10 + MEASURED_US)
    assert messages(loads)[0] == 20
    loads.heard(load("b", {600: 10}), 20 + MEASURED_US)
    assert messages(loads)[0] == 0


def test_the_sources_of_a_topic_are_the_clusters_that_members_tell() -> None:
    def hot(broker: str, *ends: tuple[int, int]) -> Load:
        topics = (TopicLoad("hot", 100, 2_000, len(ends), ends),)
        return Load(broker, 1, 0, 100, 2_000, 1, ("east", "west"), (), topics)

    loads = told(hot("a", (0, 70), (1, 30)), hot("b", (1, 100), (9, 50)))
    assert loads.topics("messages")["hot"].sources == {"east": 70, "west": 130}
    assert loads.topics("bytes")["hot"].sources == {"east": 1_400, "west": 2_600}


def test_a_slot_rests_after_it_moved() -> None:
    loads = told()
    loads.follow(HALF.after({7: ("b", "a")}), 1_000)
    rested = loads.rested(60_000, 60_000)
    assert not rested(7) and rested(8)
    assert loads.rested(61_000, 60_000)(7)


def test_what_a_machine_could_carry_follows_from_what_it_does() -> None:
    loads = told(load("a", {0: 1_000}, busy=500), load("b", {600: 1_000}, busy=125))
    assert loads.look(lambda cluster, member: 0).speeds == {"a": 2_000, "b": 8_000}
    assert told(load("a", {0: 1_000}, busy=2)).look(lambda cluster, member: 0).speeds == {}


def test_an_old_report_is_no_report() -> None:
    loads = told(load("a", {}))
    assert loads.is_known("a", STALE_US) and not loads.is_known("a", STALE_US + 1)
    assert not loads.is_known("b", 0)
    loads.follow(Slots(("b",) * SLOTS, ("c",) * SLOTS), STALE_US + 1)
    assert "a" not in loads.reports

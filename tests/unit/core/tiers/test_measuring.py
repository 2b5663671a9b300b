"""What a member of a tier measures of what it carries."""

from __future__ import annotations

from tocsin.core.tiers.measuring import BUSIEST, CARRIED_MAX, WINDOW_US, LoadMeter
from tocsin.core.tiers.slots import slot_of
from tocsin.wire.internal.control import SLOT_LOADS_MAX, TOPIC_MAX, SlotLoad, TopicLoad

CLUSTER_OF = {"west-1": "west", "west-2": "west", "north-1": "north", "east-1": "east"}.__getitem__


def settled(meter: LoadMeter, at_once: int = 100) -> int:
    return sum(1 for _ in meter.settle(at_once))


def test_messages_and_bytes_count_for_the_slot_of_their_topic() -> None:
    meter = LoadMeter(CLUSTER_OF, 0)
    line = meter.carried("line/1")
    for _ in range(10):
        line.add("east", ("west-1", "west-2"), 5, 500)
    settled(meter)
    assert meter.look(WINDOW_US - 1) is None
    found = meter.look(WINDOW_US)
    assert found is not None
    assert (found.messages_s, found.bytes_s, found.links) == (10, 1_000, 2)
    assert found.slots == (SlotLoad(slot_of("line/1"), 10, 1_000, 1),) and found.clusters == ("east",)
    assert found.topics == (TopicLoad("line/1", 10, 1_000, 1, ((0, 10),)),)
    line.add("east", ("west-1",), 10, 0)
    settled(meter)
    again = meter.look(2 * WINDOW_US)
    assert again is not None and again.messages_s == 2 and again.links == 1


def test_ends_are_the_clusters_that_messages_come_from_and_go_to() -> None:
    meter = LoadMeter(CLUSTER_OF, 0, ends=True)
    meter.carried("t").add("east", ("west-1", "west-2", "north-1"), 50, 0)
    settled(meter)
    found = meter.look(WINDOW_US)
    assert found is not None
    ((_, _, _, _, ends),) = ((each.slot, 0, 0, 0, each.ends) for each in found.slots)
    assert {found.clusters[place]: count for place, count in ends} == {"east": 20, "west": 10, "north": 10}


def test_topics_apart_from_their_slots_count_for_themselves() -> None:
    meter = LoadMeter(CLUSTER_OF, 0)
    meter.apart = {"hot"}
    meter.carried("hot").add("east", ("west-1",), 100, 0)
    settled(meter)
    found = meter.look(WINDOW_US)
    assert found is not None and found.slots == () and found.topics[0].topic == "hot"


def test_a_report_names_the_heaviest_and_is_bounded() -> None:
    meter = LoadMeter(CLUSTER_OF, 0)
    for number in range(3_000):
        meter.carried(f"t/{number}").add("east", ("west-1",), 5 + number, 0)
    meter.carried("x" * (TOPIC_MAX + 1)).add("east", ("west-1",), 1_000_000, 0)
    assert settled(meter) == 31
    found = meter.look(WINDOW_US)
    assert found is not None and len(found.slots) == SLOT_LOADS_MAX
    assert len(found.topics) == BUSIEST - 1 and found.topics[0].topic == "t/2999"


def test_no_more_topics_wait_than_may() -> None:
    meter = LoadMeter(CLUSTER_OF, 0)
    for number in range(CARRIED_MAX + 5):
        meter.carried(f"t/{number}").add("east", (), 5, 0)
    assert settled(meter, CARRIED_MAX) == 1
    found = meter.look(WINDOW_US)
    assert found is not None and found.messages_s == CARRIED_MAX + 5

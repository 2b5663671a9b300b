"""When the leader moves slots: after a while in which nothing happens, to members that are ready."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.core.coordination.state.test_tiers import HUBS, Net
from tocsin.core.coordination.leader.pinning import KEY, PIN, Pin, Pins, key_of, read_pin
from tocsin.core.coordination.leader.placing import (
    GATHER_US,
    LOOK_US,
    MOVED_MAX,
    REST_US,
    UNEVEN_US,
    UNTOLD_US,
    Placing,
)
from tocsin.ports import Change
from tocsin.wire.internal.commands import Lost, Placed
from tocsin.wire.internal.control import Load, SlotLoad, TopicLoad


class Leader:
    def __init__(self, *names: str) -> None:
        self.net = Net(*names)
        self.ready = set(names)
        self.emptied: set[str] = set()
        self.now_us = 0
        self.pins = Pins()
        self.placing = Placing(self.net.state, self.ready.__contains__, lambda: self.emptied, self.pins)

    def tell(self, rates: Mapping[int, int] = {}) -> None:
        """Every member tells what its slots bring."""
        for member in self.net.state.tiers.tables["cloud"].members:
            rows = tuple(
                SlotLoad(slot, each, 0, 1) for slot, each in rates.items() if self.carrier(slot) == member
            )
            total = sum(each.messages_s for each in rows)
            self.placing.heard(Load(member, 1, 0, total, 0, 0, (), rows), self.now_us)

    def pass_time(self, us: int, rates: Mapping[int, int]) -> list[Placed]:
        """Look as often as leaders do, with loads that are told."""
        said, end_us = [], self.now_us + us
        while self.now_us < end_us:
            self.now_us += LOOK_US
            self.tell(rates)
            now = self.placing.look(self.now_us)
            for each in now:
                self.net.apply(each)
            said += now
        return said

    def load(self, rates: Mapping[int, int]) -> list[int]:
        return [
            sum(each for slot, each in rates.items() if self.carrier(slot) == hub) for hub in sorted(HUBS)
        ]

    def wait(self, us: int = GATHER_US) -> list[Placed]:
        self.placing.look(self.now_us)
        self.tell()
        self.now_us += us
        said = self.placing.look(self.now_us)
        for each in said:
            self.net.apply(each)
        return said

    def pin(self, slot: int, broker: str) -> None:
        value = PIN.write(Pin(broker, "a/topic"))
        self.pins.watched(Change("put", key_of("cloud", slot), value, 1))

    def carrier(self, slot: int) -> str:
        return self.net.state.tiers.tables["cloud"].slots.carriers[slot]

    @property
    def carried(self) -> list[int]:
        counts = self.net.state.tiers.tables["cloud"].carried()
        return [counts[each] for each in sorted(HUBS) if each in counts]


def test_members_that_come_together_are_placed_together() -> None:
    leader = Leader("east", "hub-1")
    leader.net.join("hub-2")
    assert leader.wait(GATHER_US - 1) == []
    leader.net.join("hub-3")
    leader.ready |= set(HUBS)
    assert len(leader.wait()) == 1 and leader.carried == [342, 341, 341]
    assert leader.wait() == []


def test_a_member_that_has_no_routes_yet_carries_nothing() -> None:
    leader = Leader("east", "hub-1", "hub-2")
    leader.ready.discard("hub-2")
    assert leader.wait() == [] and leader.carried == [1_024, 0]
    leader.ready.add("hub-2")
    leader.wait()
    assert leader.carried == [512, 512]


def test_a_member_that_carries_everything_can_be_emptied() -> None:
    """The others bring nothing yet, by which a part of the load could be measured."""
    leader = Leader("east", "hub-1", "hub-2")
    leader.wait()
    busy = [slot for slot in range(1_024) if leader.carrier(slot) == "hub-1"][:18]
    rows = tuple(SlotLoad(slot, 20, 0, 1) for slot in busy)
    busiest = (TopicLoad("line/1", 20, 0, 1),)
    leader.placing.heard(Load("hub-1", 1, 0, 360, 0, 0, (), rows, busiest), leader.now_us)
    leader.placing.heard(Load("hub-2", 1, 0, 0, 0, 0), leader.now_us)
    leader.emptied = {"hub-1"}
    for _ in range(4):
        leader.now_us += LOOK_US
        for placed in leader.placing.look(leader.now_us):
            leader.net.apply(placed)
    assert leader.carried == [0, 1_024]


def test_an_emptied_member_gives_its_slots_up_and_gets_them_back() -> None:
    leader = Leader("east", *HUBS)
    leader.wait()
    leader.emptied = {"hub-2"}
    leader.wait()
    assert leader.carried == [512, 0, 512]
    assert "hub-2" not in leader.net.state.tiers.tables["cloud"].slots.deputies
    leader.emptied = set()
    leader.wait()
    assert sorted(leader.carried) == [341, 341, 342]


def test_where_all_are_emptied_they_go_on() -> None:
    leader = Leader("east", "hub-1", "hub-2")
    leader.wait()
    leader.emptied = {"hub-1", "hub-2"}
    assert leader.wait() == [] and leader.carried == [512, 512]


def test_the_only_one_left_carries_everything_without_a_deputy() -> None:
    leader = Leader("east", "hub-1", "hub-2")
    leader.wait()
    leader.emptied = {"hub-1"}
    leader.wait()
    assert leader.carried == [0, 1_024]


def test_slots_are_evened_out_when_a_lost_member_is_back() -> None:
    leader = Leader("east", *HUBS)
    leader.wait()
    leader.net.apply(Lost("hub-1", 1))
    leader.wait()
    assert leader.carried == [512, 512]
    leader.net.join("hub-1", 2)
    leader.wait()
    assert sorted(leader.carried) == [341, 341, 342]


def test_a_pinned_slot_stays_with_its_member_and_others_even_out() -> None:
    leader = Leader("east", *HUBS)
    leader.wait()
    for slot in range(8):
        leader.pin(slot, "hub-3")
    leader.wait()
    assert {leader.carrier(slot) for slot in range(8)} == {"hub-3"}
    assert sorted(leader.carried) == [341, 341, 342] and leader.wait() == []


def test_more_pins_than_a_members_part_are_all_kept() -> None:
    leader = Leader("east", *HUBS)
    for slot in range(800):
        leader.pin(slot, "hub-3")
    leader.wait()
    assert leader.carried == [112, 112, 800] and leader.wait() == []


def test_a_pin_to_a_member_that_is_gone_or_emptied_waits() -> None:
    leader = Leader("east", *HUBS)
    leader.pin(5, "hub-3")
    leader.wait()
    leader.emptied = {"hub-3"}
    leader.wait()
    assert leader.carrier(5) != "hub-3" and leader.carried[2] == 0
    leader.emptied = set()
    leader.wait()
    assert leader.carrier(5) == "hub-3"


def test_a_slot_that_was_pinned_stays_for_a_while_after() -> None:
    leader = Leader("east", *HUBS)
    for slot in range(100):
        leader.pin(slot, "hub-3")
    leader.wait()
    for slot in range(100):
        leader.pins.watched(Change("delete", key_of("cloud", slot), b"", 2))
    leader.wait()
    assert {leader.carrier(slot) for slot in range(100)} == {"hub-3"}
    leader.wait(REST_US)
    leader.emptied = {"hub-3"}
    leader.wait()
    assert leader.carried == [512, 512, 0]


def test_a_pin_ends_with_its_cell() -> None:
    leader = Leader("east", *HUBS)
    leader.pin(5, "hub-3")
    assert leader.pins.of("cloud") == {5: "hub-3"} and leader.pins.of("wan") == {}
    leader.pins.watched(Change("delete", key_of("cloud", 5), b"", 2))
    assert leader.pins.of("cloud") == {}
    leader.pin(6, "hub-1")
    for kind in ("reset", "ready"):
        leader.pins.watched(Change(kind, "", b"", 3))
    assert leader.pins.of("cloud") == {}


def test_cells_that_are_no_pins_are_passed_over() -> None:
    good = PIN.write(Pin("hub-1", "t"))
    assert read_pin(key_of("cloud", 5), good) == ("cloud", 5, Pin("hub-1", "t"))
    for key, value in (
        (f"{KEY}cloud.1024", good),
        (f"{KEY}cloud.x", good),
        (f"{KEY}5", good),
        ("core.drain.hub-1", good),
        (key_of("cloud", 5), b'{"seq":1}'),
    ):
        assert read_pin(key, value) is None


# ── by load ─────────────────────────────────────────────────────────────────────────────────────────────────


def skewed(leader: Leader) -> dict[int, int]:
    """One member has all slots that bring something: 90 of them."""
    first = [slot for slot in range(1_024) if leader.carrier(slot) == "hub-1"]
    return dict.fromkeys(first[:90], 100)


def test_a_load_that_stays_uneven_is_evened_out_by_one_move() -> None:
    leader = Leader("east", *HUBS)
    leader.wait()
    rates = skewed(leader)
    assert leader.pass_time(UNEVEN_US, rates) == []
    (placed,) = leader.pass_time(2 * LOOK_US, rates)
    assert 55 <= len(placed.moves) <= MOVED_MAX
    assert max(leader.load(rates)) <= 1.1 * sum(rates.values()) / 3
    assert leader.pass_time(3 * UNEVEN_US, rates) == []


def test_a_load_that_is_uneven_for_a_moment_moves_nothing() -> None:
    leader = Leader("east", *HUBS)
    leader.wait()
    rates = skewed(leader)
    alike = {slot: 100 for slot in range(1_024)}
    for _ in range(5):
        assert leader.pass_time(UNEVEN_US, rates) == [] and leader.pass_time(2 * LOOK_US, alike) == []


def test_a_slot_that_moved_rests() -> None:
    leader = Leader("east", *HUBS)
    leader.wait()
    rates = skewed(leader)
    (placed,) = leader.pass_time(2 * UNEVEN_US, rates)
    turned = dict.fromkeys((slot for slot in placed.moves.each() if leader.carrier(slot) == "hub-2"), 100)
    assert leader.pass_time(REST_US - 2 * UNEVEN_US, turned) == []
    assert leader.pass_time(3 * UNEVEN_US, turned) != []


def test_a_leader_waits_for_loads_before_it_changes_what_another_placed() -> None:
    leader = Leader("east", *HUBS)
    leader.wait()
    rates = skewed(leader)
    leader.pass_time(2 * UNEVEN_US, rates)
    next_one = Leader("east", *HUBS)
    next_one.net = leader.net
    next_one.placing = Placing(leader.net.state, leader.ready.__contains__, lambda: (), Pins())
    next_one.placing.look(0)
    assert next_one.placing.look(GATHER_US) == []
    next_one.now_us = GATHER_US
    next_one.tell(rates)
    before = next_one.net.state.tiers.tables["cloud"].slots
    for placed in next_one.placing.look(2 * GATHER_US):
        next_one.net.apply(placed)
    after = next_one.net.state.tiers.tables["cloud"].slots
    changed = sum(now != then for now, then in zip(after.carriers, before.carriers, strict=True))
    assert changed <= 8  # as many slots for each would have moved some 60


def test_a_leader_goes_on_without_loads_that_nobody_tells() -> None:
    leader = Leader("east", "hub-1", "hub-2")
    leader.placing.look(0)
    assert leader.placing.look(UNTOLD_US - 1) == []
    assert len(leader.placing.look(UNTOLD_US)) == 1


def test_what_members_told_last_can_be_seen() -> None:
    leader = Leader("east", "hub-1", "hub-2")
    leader.wait()
    leader.tell({0: 70})
    assert sum(each.messages_s for each in leader.placing.loads().values()) == 70

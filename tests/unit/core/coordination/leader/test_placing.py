"""When the leader moves slots: after a while in which nothing happens, to members that are ready."""

from __future__ import annotations

from tests.unit.core.coordination.state.test_tiers import HUBS, Net
from tocsin.core.coordination.leader.placing import GATHER_US, Placing
from tocsin.wire.internal.commands import Lost, Placed


class Leader:
    def __init__(self, *names: str) -> None:
        self.net = Net(*names)
        self.ready = set(names)
        self.emptied: set[str] = set()
        self.now_us = 0
        self.placing = Placing(self.net.state, self.ready.__contains__, lambda: self.emptied)

    def wait(self, us: int = GATHER_US) -> list[Placed]:
        self.placing.look(self.now_us)
        self.now_us += us
        said = self.placing.look(self.now_us)
        for each in said:
            self.net.apply(each)
        return said

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

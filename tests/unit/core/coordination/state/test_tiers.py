"""Tiers in the replicated state: who carries each slot, who is told, and what a snapshot keeps."""

from __future__ import annotations

import msgspec

from tocsin.core.coordination.participant.network_view import NetworkView
from tocsin.core.coordination.participant.signals import RoutesChanged
from tocsin.core.coordination.state.snapshot import restore, take
from tocsin.core.coordination.state.state import Outcome, State
from tocsin.core.tiers.slots import SLOTS
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.internal.commands import (
    Elected,
    Interests,
    Joined,
    Left,
    Limits,
    Lost,
    Placed,
    Said,
    Shunned,
)
from tocsin.wire.internal.notices import Carriers, Routes
from tocsin.wire.internal.slots import SlotMoves

HUBS = {name: BrokerInfo(name, "cloud", Role.ROUTING, "127.0.0.1", 1) for name in ("hub-1", "hub-2", "hub-3")}
EDGES = {name: BrokerInfo(name, name, Role.EDGE, "127.0.0.1", 1) for name in ("east", "west")}
ELECTED = Elected("c", Limits(), 1)


class Net:
    """A state, and what each broker makes of what it is told."""

    def __init__(self, *names: str) -> None:
        self.state = State()
        self.views: dict[str, NetworkView] = {}
        self.changes: dict[str, list[RoutesChanged]] = {}
        self.told = Outcome()
        self.apply(ELECTED)
        for name in names:
            self.join(name)

    def join(self, name: str, incarnation: int = 1) -> None:
        info = {**HUBS, **EDGES}[name]
        self.apply(
            Said(name, incarnation, 1, (Joined(info), *([Interests(("t",))] if name in EDGES else ())))
        )

    def apply(self, *commands: object) -> Outcome:
        self.told = self.state.apply(0, commands)  # type: ignore[arg-type]
        for broker, items in self.told.items.items():
            view = self.views.setdefault(broker, NetworkView())
            effects = view.apply(items, {}, fresh=broker in self.told.fresh)
            self.changes[broker] = [each for each in effects if isinstance(each, RoutesChanged)]
        return self.told

    @property
    def carriers(self) -> set[str]:
        return set(self.state.tiers.tables["cloud"].slots.carriers)

    def agree(self) -> None:
        """All brokers know what the state knows."""
        for broker, view in self.views.items():
            if broker in self.state.members:
                slots = {f"@{tier}": table.slots for tier, table in self.state.tiers.tables.items()}
                assert view.tiers == slots, broker


def test_the_first_member_carries_everything_and_the_next_is_its_deputy() -> None:
    net = Net("east", "west", "hub-1", "hub-2")
    table = net.state.tiers.tables["cloud"]
    assert net.carriers == {"hub-1"} and set(table.slots.deputies) == {"hub-2"}
    net.agree()
    assert {peer.id for peer in net.changes["east"][-1].peers} == {"hub-1", "hub-2"}


def test_a_lost_member_changes_a_table_and_no_route() -> None:
    net = Net("east", "west", "hub-1", "hub-2", "hub-3")
    outcome = net.apply(Lost("hub-1", 1))
    assert net.carriers == {"hub-2"}
    assert not any(isinstance(item, Routes) for items in outcome.items.values() for item in items)
    items = [item for items in outcome.items.values() for item in items if isinstance(item, Carriers)]
    assert len({id(each) for each in items}) == 1 and len(items) == 4, "the same item, for everybody"
    net.agree()


def test_slots_go_where_the_leader_places_them() -> None:
    net = Net("east", "west", "hub-1", "hub-2")
    net.apply(Placed("cloud", SlotMoves.of({5: ("hub-2", "hub-1"), 6: ("gone", "hub-1")})))
    slots = net.state.tiers.tables["cloud"].slots
    assert (slots.carriers[5], slots.deputies[5], slots.carriers[6]) == ("hub-2", "hub-1", "hub-1")
    net.agree()
    assert not net.apply(Placed("elsewhere", SlotMoves.of({5: ("hub-2", "hub-1")}))).items


def test_a_shunned_member_carries_nothing_until_it_is_placed_again() -> None:
    net = Net("east", "west", "hub-1", "hub-2")
    net.apply(Shunned(("hub-1",)))
    assert net.carriers == {"hub-2"}
    net.apply(Shunned(()))
    assert net.carriers == {"hub-2"}
    net.agree()


def test_without_members_a_tier_is_gone_and_routes_lead_straight() -> None:
    net = Net("east", "west", "hub-1")
    outcome = net.apply(Said("hub-1", 1, 2, (Left(),)))
    assert Carriers("cloud", gone=True) in outcome.items["east"] and not net.state.tiers.tables
    net.agree()
    assert {peer.id for peer in net.changes["east"][-1].peers} == {"west"}
    net.join("hub-1", 2)
    net.agree()


def test_a_member_that_restarts_keeps_its_slots() -> None:
    net = Net("east", "west", "hub-1", "hub-2")
    net.join("hub-1", 2)
    assert net.carriers == {"hub-1"}
    net.agree()


def test_a_snapshot_keeps_who_carries_what() -> None:
    net = Net("east", "west", "hub-1", "hub-2", "hub-3")
    moves = {slot: ("hub-3", "hub-2") for slot in range(0, SLOTS, 3)}
    net.apply(Placed("cloud", SlotMoves.of(moves)))
    restored = restore(take(net.state))
    assert restored.tiers.tables["cloud"].slots == net.state.tiers.tables["cloud"].slots
    for state in (restored, net.state):
        state.apply(1, (Lost("hub-1", 1),))
    assert restored.tiers.tables["cloud"].slots == net.state.tiers.tables["cloud"].slots
    assert take(restored) == take(net.state)


def test_replicas_of_an_old_log_agree_wherever_they_begin() -> None:
    """Nobody placed slots before a leader of this release was elected: it makes no difference who came first."""
    states = []
    for order in (("hub-1", "hub-2"), ("hub-2", "hub-1")):
        state = State()
        state.apply(0, tuple(Said(name, 1, 1, (Joined(HUBS[name]),)) for name in order))
        assert not state.tiers.tables
        state.apply(0, (ELECTED,))
        states.append(state.tiers.tables["cloud"].slots)
    assert states[0] == states[1] and set(states[0].carriers) == {"hub-1", "hub-2"}


def test_a_tier_is_named_by_a_setting_or_by_the_cluster() -> None:
    net = Net("east", "west", "hub-1")
    other = msgspec.structs.replace(HUBS["hub-2"], cluster="east", tier="cloud")
    net.apply(Said("hub-2", 1, 1, (Joined(other),)))
    assert net.state.tiers.tables["cloud"].members == ("hub-1", "hub-2")


def test_topics_apart_are_told_to_all_and_kept_in_snapshots() -> None:
    net = Net("east", "west", *HUBS)
    told = net.apply(Placed("cloud", SlotMoves(), {"hot": ("hub-1", "hub-2"), "other": ("hub-3", "gone")}))
    assert set(told.items) == {"east", "west", *HUBS}
    table = net.state.tiers.tables["cloud"]
    assert table.apart == {"hot": ("hub-1", "hub-2"), "other": ("hub-3",)}
    net.agree()
    assert net.apply(Placed("cloud", SlotMoves(), dict(table.apart))).items == {}
    again = restore(take(net.state))
    assert again.tiers.tables["cloud"].slots == table.slots


def test_a_topic_whose_members_are_gone_is_in_its_slot_again() -> None:
    net = Net("east", "west", *HUBS)
    net.apply(Placed("cloud", SlotMoves(), {"hot": ("hub-1", "hub-2")}))
    net.apply(Lost("hub-1", 1))
    assert net.state.tiers.tables["cloud"].apart == {"hot": ("hub-2",)}
    net.apply(Lost("hub-2", 1))
    assert net.state.tiers.tables["cloud"].apart == {}
    net.agree()

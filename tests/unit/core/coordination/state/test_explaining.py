"""Why a message takes its way: straight, over which member of a tier, and on to whom."""

from __future__ import annotations

import pytest

from tests.unit.core.coordination.state.test_tiers import Net
from tocsin.core.coordination.state.explaining import Leg, carriers_of, explain_route, tier_of, tiers_of
from tocsin.core.tiers.slots import slot_of
from tocsin.errors import OperatorError
from tocsin.wire.internal.commands import Interests, Placed, Rerouted, Said, Shunned
from tocsin.wire.internal.slots import SlotMoves


def net() -> Net:
    found = Net("east", "west", "hub-1", "hub-2", "hub-3")
    found.apply(Said("west", 1, 3, (Interests(("line/+", "$share/g/line/#")),)))
    slot = slot_of("line/1")
    found.apply(Placed("cloud", SlotMoves.of({slot: ("hub-3", "hub-1")})))
    return found


def test_a_message_into_another_cluster_goes_over_its_slots_carrier() -> None:
    found = explain_route(net().state, "line/1", "east")
    assert (found.cluster, found.slot, found.here, found.straight) == ("east", slot_of("line/1"), (), ())
    (over,) = found.over
    assert (over.tier, over.carrier, over.deputy) == ("cloud", "hub-3", "hub-1")
    assert over.onward == (Leg("west", ("$share/g/line/#", "line/+")),)


def test_nothing_is_said_where_nobody_wants_it() -> None:
    found = explain_route(net().state, "elsewhere", "east")
    assert not (found.here or found.straight or found.over)


def test_a_member_sends_straight_and_clients_at_the_broker_count() -> None:
    found = explain_route(net().state, "t", "hub-1")
    assert [each.broker for each in found.straight] == ["east", "west"] and not found.over
    assert explain_route(net().state, "t", "east").here == ("t",)


def test_a_carriers_own_clients_are_named() -> None:
    state = net()
    state.apply(Said("hub-3", 1, 2, (Interests(("line/1",)),)))
    (over,) = explain_route(state.state, "line/1", "east").over
    assert over.onward[0] == Leg("hub-3", ("line/1",))


def test_a_cut_link_and_its_relays_are_named() -> None:
    state = net()
    state.apply(Rerouted("east", (("hub-3", ("hub-2",)),)), Rerouted("hub-3", (("west", ()),)))
    (over,) = explain_route(state.state, "line/1", "east").over
    assert over.around == ("hub-2",) and over.onward[0].around == ()


def test_a_broker_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        explain_route(net().state, "t", "nobody")


def test_tiers_are_shown_with_members_that_are_shunned() -> None:
    state = net()
    state.apply(Shunned(("hub-2",)))
    (tier,) = tiers_of(state.state)
    assert tier.clusters == ("cloud", "east", "west")
    shown = {each.broker: (each.slots, each.shunned) for each in tier.members}
    assert shown == {"hub-1": (1_023, False), "hub-2": (0, True), "hub-3": (1, False)}


def test_a_broker_that_carries_nothing_has_no_tier() -> None:
    state = net().state
    assert tier_of(state, "hub-2") == "cloud"
    assert carriers_of(state, "cloud")[slot_of("line/1")] == "hub-3" and carriers_of(state, "wan") == ()
    for name in ("east", "nobody"):
        with pytest.raises(OperatorError, match="no routing broker") as caught:
            tier_of(state, name)
        assert "hub-1, hub-2, hub-3" in str(caught.value.remedy)

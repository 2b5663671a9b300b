"""A leader's attention: what it remembers of brokers goes with them, and a new leader asks who is there."""

from __future__ import annotations

import msgspec

from tests.unit.core.coordination.desk import OPTIONS
from tocsin.core.coordination.leader.balancing import DrainOrders
from tocsin.core.coordination.leader.broker_watch import HALF_FULL, Attention
from tocsin.core.coordination.state.state import State
from tocsin.core.machine import Send
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme, broker_address
from tocsin.wire.internal.commands import Joined, Left, Lost, Said
from tocsin.wire.internal.control import Beat, Pulse


def state_of(*names: str) -> State:
    state = State()
    for name in names:
        info = BrokerInfo(name, "lan", Role.EDGE, "127.0.0.1", 1)
        state.apply(0, (Said(name, 7, 1, (Joined(info),)),))
    return state


def test_all_brokers_are_told_who_leads() -> None:
    attention = Attention(state_of("a", "b"), OPTIONS, 0)
    sent = [(each.to, each.message) for each in attention.greet() if isinstance(each, Send)]
    assert sent == [(broker_address(name), Pulse(0, 7, 0)) for name in "ab"]


def test_what_is_known_of_a_broker_that_left_is_forgotten() -> None:
    state = state_of("a", "b")
    attention = Attention(state, OPTIONS, 0)
    for name in "ab":
        assert attention.beat(Beat(name, 7, 0, load=5, number=1), 0)
    state.apply(0, (Said("b", 7, 2, (Left(),)),))
    assert attention.look(400_000) == []
    assert set(attention._told) == set(attention._loads) == {"a"}


def test_who_is_silent_is_believed_to_be_lost_until_it_is_heard() -> None:
    attention = Attention(state_of("a"), OPTIONS, 0)
    found = [lost for at_us in range(100_000, 4_000_000, 100_000) for lost, _ in attention.look(at_us)]
    assert found == [Lost("a", 7)] and attention.believes(found[0])
    attention.sign("a", 4_000_000)
    assert not attention.believes(found[0])


def test_it_says_when_to_look_again() -> None:
    attention = Attention(state_of("a"), OPTIONS, 0)
    attention.look(100_000)
    assert 0 < attention.delay_us(100_000) <= 500_000
    assert attention.delay_us(60_000_000) == 0


def test_doors_hear_loads_in_steps_and_drained_brokers_as_full() -> None:
    orders = DrainOrders()
    orders.brokers = frozenset("d")
    attention = Attention(state_of(*"abcd"), OPTIONS, 0, orders)
    for name, load in (("a", 0), ("b", 123), ("c", 1_001), ("d", 0)):
        attention.beat(Beat(name, 7, 0, load=load, number=1), 0)
    assert attention.loads() == {"b": 100, "c": 1_000, "d": 1_000}


def homes_of_guests(load: int, *, stay: bool) -> tuple[str, ...]:
    """The homes that a leader names to a broker so full, of which one is another broker, and one a standby's place."""
    entrances = (Entrance(Scheme.MQTT, "h:1883"),)
    state = state_of("host")
    for info in (
        BrokerInfo("back", "lan", Role.EDGE, "h", 1, entrances=entrances),
        BrokerInfo("lost", "lan", Role.EDGE, "h", 1, entrances=entrances, certified="spare"),
    ):
        state.apply(0, (Said(info.id, 7, 1, (Joined(info),)),))
    attention = Attention(state, msgspec.structs.replace(OPTIONS, guests_stay=stay), 0)
    (effect,) = attention.beat(Beat("host", 7, 0, load=load, homes=("back", "lost"), number=1), 0)
    assert isinstance(effect, Send) and isinstance(effect.message, Pulse)
    return tuple(name for name, _ in effect.message.homes or ())


def test_guests_go_home_to_a_standby_unless_they_may_stay() -> None:
    assert homes_of_guests(HALF_FULL - 1, stay=False) == ("back", "lost")
    assert homes_of_guests(HALF_FULL - 1, stay=True) == ("back",), "until their own broker is back"
    assert homes_of_guests(HALF_FULL, stay=True) == ("back", "lost"), "their host needs the room"

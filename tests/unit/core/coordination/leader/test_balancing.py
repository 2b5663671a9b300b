"""Which clients move where: a drain empties its broker, balancing stops in time, and nobody goes to a drained one."""

from __future__ import annotations

from tocsin.core.coordination.leader.balancing import (
    KEY,
    ORDER,
    SETTLE_US,
    UNSAID_US,
    Balance,
    BalanceRules,
    DrainOrders,
    Emptying,
    Order,
)
from tocsin.core.survival.refuges import RefugePlan
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.ports import Change
from tocsin.wire.internal.control import Beat, Moves

SECOND = 1_000_000
RULES = BalanceRules(enabled=True, rate=10, threshold=200, grace_us=5 * SECOND)


def broker(name: str, cluster: str = "north", role: Role = Role.EDGE) -> BrokerInfo:
    entrance = Entrance(Scheme.MQTT, f"{name}:1883")
    return BrokerInfo(name, cluster, role, "127.0.0.1", 1, entrances=(entrance,))


A, B, C = broker("a"), broker("b"), broker("c", "south")
MORE = tuple(broker(f"b{number}") for number in range(4))


class Desk:
    """A leader's balance, with the loads that brokers told."""

    def __init__(self, rules: BalanceRules = RULES, **loads: int) -> None:
        self.orders = DrainOrders()
        self.balance = Balance(self.orders, rules)
        self.refuges = RefugePlan()
        self.loads = loads
        self.look()

    def look(self, now_us: int = 0) -> None:
        known = [each for each in (A, B, C, *MORE) if each.id in self.loads]
        self.refuges.rank([each for each in known if each.id not in self.balance.drained], self.loads)
        self.balance.look(known, self.loads, now_us)

    def drain(self, name: str) -> None:
        self.orders.watched(Change("put", f"{KEY}{name}", ORDER.write(Order(1))))
        self.look()

    def beat(self, name: str, clients: int, *, refuses: bool | None, now_us: int = 0) -> None:
        self.balance.heard(Beat(name, 1, 0, clients=clients, refuses=refuses), now_us)

    def emptying(self, **members: int) -> Emptying:
        """How far the one drain is, with these brokers there in these incarnations."""
        (found,) = self.balance.emptying(members)
        return found

    def say(self, now_us: int, **clients: int) -> None:
        """Brokers have so many clients, of 1 000 that each takes."""
        self.loads = clients
        for name, count in clients.items():
            self.balance.heard(Beat(name, 1, 0, load=count, clients=count, refuses=False), now_us)
        self.look(now_us)

    def moves(self, info: BrokerInfo, now_us: int) -> Moves | None:
        return self.balance.moves(info, self.refuges, now_us)


def test_a_drained_broker_moves_its_clients_at_the_rate() -> None:
    desk = Desk(a=10, b=10)
    assert desk.moves(A, 0) is None
    desk.drain("a")
    assert desk.moves(A, SECOND) == Moves(True, 10, (B,))
    assert desk.moves(A, SECOND + SECOND // 2) == Moves(True, 5, (B,))
    assert desk.moves(A, SECOND + SECOND // 2 + 1) == Moves(True, 0, (B,)), "nobody for a moment"
    assert desk.moves(A, 60 * SECOND) == Moves(True, 20, (B,), others=True), "silence moves no crowd"
    assert desk.moves(B, SECOND) is None


def test_clients_that_do_not_follow_have_a_grace() -> None:
    desk = Desk(a=10, b=10)
    desk.drain("a")
    told = [desk.moves(A, at * SECOND) for at in (1, 5, 6)]
    assert [each.others for each in told if each is not None] == [False, False, True]


def test_nobody_is_moved_to_a_drained_broker_or_to_none() -> None:
    desk = Desk(a=10, b=10)
    desk.drain("a")
    desk.drain("b")
    assert desk.moves(A, SECOND) == Moves(True, 0, ())
    assert desk.refuges.homes(("a", "b")) == (), "and guests are not sent home to it"


def test_an_undone_drain_ends() -> None:
    desk = Desk(a=10, b=10)
    desk.drain("a")
    assert desk.moves(A, SECOND) is not None
    desk.orders.watched(Change("delete", f"{KEY}a"))
    desk.look()
    assert desk.moves(A, 2 * SECOND) is None


def test_orders_stand_while_the_table_is_told_anew() -> None:
    orders = DrainOrders()
    orders.watched(Change("put", f"{KEY}a", ORDER.write(Order(1))))
    orders.watched(Change("reset"))
    assert orders.brokers == {"a"}
    orders.watched(Change("put", f"{KEY}b", ORDER.write(Order(1))))
    orders.watched(Change("ready"))
    assert orders.brokers == {"b"}


def crowded(**loads: int) -> Desk:
    """One of 1 000 clients a broker, that have said how many they have."""
    desk = Desk(a=0, b=0)
    desk.say(0, **loads)
    return desk


def test_a_batch_makes_two_brokers_as_full_as_each_other() -> None:
    desk = crowded(a=530, b=100, c=0)
    told = [desk.moves(A, at * SECOND) for at in range(1, 24)]
    gone = sum(each.count for each in told if each is not None)
    assert gone == 215, "530 - 215 = 100 + 215"
    assert told[0] == Moves(False, 10, (B,), left=215) and told[21] == Moves(False, 5, (B,), left=5)
    assert told[22] is None
    assert desk.moves(B, SECOND) is None and desk.moves(C, SECOND) is None


def test_each_of_several_empty_brokers_gets_its_share_in_turn() -> None:
    desk = crowded(a=900, b=0, b0=0)
    first = desk.moves(A, SECOND)
    assert first is not None and ([each.id for each in first.to], first.left) == (["b"], 300)
    for at in range(2, 31):
        desk.moves(A, at * SECOND)
    desk.say(30 * SECOND + SETTLE_US, a=600, b=300, b0=0)
    second = desk.moves(A, 41 * SECOND)
    assert second is not None and ([each.id for each in second.to], second.left) == (["b0"], 300)


def test_a_batch_is_not_reckoned_anew_while_clients_are_on_their_way() -> None:
    desk = crowded(a=320, b=100)
    for at in range(1, 12):
        desk.moves(A, at * SECOND)
        desk.say(at * SECOND, a=320, b=100)  # nobody has been counted yet
    assert desk.moves(A, 12 * SECOND) is None, "110 were allowed to go"
    desk.say(13 * SECOND, a=310, b=50)  # some are on their way
    assert desk.moves(A, 14 * SECOND) is None, "it rests"
    desk.say(11 * SECOND + SETTLE_US, a=320, b=100)
    assert desk.moves(A, 30 * SECOND) is not None, "they did not go"


def test_balancing_begins_only_above_the_threshold() -> None:
    assert crowded(a=300, b=100).moves(A, SECOND) is None
    assert crowded(a=301, b=100).moves(A, SECOND) is not None


def test_a_batch_ends_when_others_have_made_it_needless() -> None:
    desk = crowded(a=400, b=100)
    assert desk.moves(A, SECOND) is not None
    desk.say(SECOND, a=400, b=399)
    assert desk.moves(A, 2 * SECOND) is not None, "it goes on below the threshold …"
    desk.say(2 * SECOND, a=400, b=400)
    assert desk.moves(A, 3 * SECOND) is None, "… until both are as full"


def test_a_batch_ends_when_one_of_its_brokers_is_drained() -> None:
    desk = crowded(a=400, b=100)
    assert desk.moves(A, SECOND) is not None
    desk.drain("b")
    assert desk.moves(A, 2 * SECOND) is None


def test_the_emptiest_gets_clients_among_many_that_are_nearly_empty() -> None:
    """A broker is told of three refuges, and loads count in steps there: the emptiest may not be among them."""
    desk = crowded(a=400, b=20, b0=20, b1=20, b2=20, b3=10)
    told = desk.moves(A, SECOND)
    assert told is not None and [each.id for each in told.to] == ["b3"]


def test_balancing_is_off_unless_it_is_asked_for() -> None:
    desk = Desk(BalanceRules(), a=900, b=0)
    assert desk.moves(A, SECOND) is None


def test_how_far_a_drain_is_follows_from_beats() -> None:
    desk = Desk(a=10, b=10)
    desk.drain("a")
    desk.beat("a", 7, refuses=True)
    assert desk.emptying(a=1, b=1) == Emptying("a", 7, here=True, refuses=True)
    assert desk.emptying(b=1) == Emptying("a", 0, here=False, refuses=False)
    assert not desk.emptying(a=1).empty and desk.emptying(b=1).empty
    desk.beat("a", 0, refuses=True)
    assert desk.emptying(a=1).empty


def test_a_broker_is_empty_only_once_it_takes_nobody() -> None:
    desk = Desk(a=10, b=10)
    desk.beat("a", 0, refuses=False)  # clients came since
    desk.drain("a")
    assert not desk.emptying(a=1).empty, "it has not heard of the order"
    desk.beat("a", 0, refuses=False)
    assert not desk.emptying(a=1).empty
    desk.beat("a", 0, refuses=True)
    assert desk.emptying(a=1).empty
    assert not desk.emptying(a=2).empty, "a process that came since has said nothing"


def test_a_drain_that_begins_again_is_told_anew() -> None:
    desk = Desk(a=10, b=10)
    desk.drain("a")
    desk.beat("a", 0, refuses=True)
    desk.orders.watched(Change("delete", f"{KEY}a"))
    desk.beat("a", 0, refuses=True)  # on its way when the order was undone
    desk.drain("a")
    assert not desk.emptying(a=1).empty


def test_an_earlier_release_is_believed_after_a_while() -> None:
    desk = Desk(a=10, b=10)
    desk.drain("a")
    desk.beat("a", 0, refuses=None)
    desk.moves(A, 0)
    desk.beat("a", 0, refuses=None, now_us=UNSAID_US - 1)
    assert not desk.emptying(a=1).empty
    desk.beat("a", 0, refuses=None, now_us=UNSAID_US)
    assert desk.emptying(a=1).empty


def test_what_is_no_order_empties_nobody_and_undoes_nothing() -> None:
    orders = DrainOrders()
    for kind, key, value in (
        ("reset", "", b""),
        ("put", f"{KEY}a", b'{"stream":"tocsin-messages","seq":1}'),
        ("put", f"{KEY}b", ORDER.write(Order(1))),
        ("ready", "", b""),
        ("put", f"{KEY}c", b""),
        ("put", f"{KEY}b", b"{}"),
    ):
        orders.watched(Change(kind, key, value))  # type: ignore[arg-type]
    assert orders.brokers == {"b"}

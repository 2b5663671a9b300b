"""The clients that a broker lets go: those that follow first, those that ask for the same together."""

from __future__ import annotations

from tocsin.core.survival.moving_out import AGAIN_US, Going, Mover, MovingOut
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.wire.internal.control import Moves


def broker(name: str) -> BrokerInfo:
    return BrokerInfo(name, "north", Role.EDGE, "h", 1, entrances=(Entrance(Scheme.MQTT, f"{name}:1883"),))


TO = (broker("a"), broker("b"))


def mover(client: str, *asks: str, follows: bool = True, scheme: Scheme = Scheme.MQTT) -> Mover:
    return Mover(client, scheme, asks, follows)


def names(going: list[Going]) -> list[str]:
    return [each.client for each in going]


def test_clients_that_ask_for_the_same_go_together_to_one_broker() -> None:
    crowd = [mover(f"c{n}", "news" if n % 2 else "weather", "all") for n in range(10)]
    going = MovingOut().choose(Moves(True, 10, TO), crowd, 0)
    by_group = [
        {each.server_reference for each in going if int(each.client[1:]) % 2 == odd} for odd in (0, 1)
    ]
    assert all(len(each) == 1 for each in by_group), by_group
    parity = [int(each.client[1:]) % 2 for each in going]
    assert parity in ([0] * 5 + [1] * 5, [1] * 5 + [0] * 5), "one group after the other"


def test_no_more_go_than_may_and_nobody_is_told_twice() -> None:
    crowd, choice = [mover(f"c{n}", "x") for n in range(5)], MovingOut()
    first = names(choice.choose(Moves(True, 3, TO), crowd, 0))
    second = names(choice.choose(Moves(True, 3, TO), crowd, 1))
    assert (len(first), len(second)) == (3, 2) and not {*first} & {*second}
    assert choice.choose(Moves(True, 3, TO), crowd, 2) == []
    assert len(choice.choose(Moves(True, 9, TO), crowd, AGAIN_US)) == 3, "whoever is still here is told again"


def test_others_go_after_the_followers_and_only_if_they_may() -> None:
    crowd, choice = [mover("phone", "x", follows=False), mover("ours", "x")], MovingOut()
    assert names(choice.choose(Moves(True, 5, TO), crowd, 0)) == ["ours"]
    assert choice.choose(Moves(True, 5, TO), crowd, 1) == []
    assert names(choice.choose(Moves(True, 5, TO, others=True), crowd, 2)) == ["phone"]


def test_a_client_without_an_entrance_elsewhere_stays_while_it_may() -> None:
    crowd, choice = [mover("secure", "x", scheme=Scheme.MQTTS)], MovingOut()
    assert choice.choose(Moves(True, 5, TO), crowd, 0) == []
    assert choice.choose(Moves(True, 5, TO, others=True), crowd, 1) == [Going("secure", None)]


def test_nobody_goes_nowhere() -> None:
    assert MovingOut().choose(Moves(True, 5, ()), [mover("c", "x")], 0) == []


def balancing(count: int, left: int) -> Moves:
    return Moves(False, count, TO[:1], left=left)


def crowd(**sizes: int) -> list[Mover]:
    """Clients in groups of so many, of which each asks for the same."""
    return [mover(f"{name}{n:03}", name) for name, size in sizes.items() for n in range(size)]


def groups(going: list[Going]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in going:
        found[each.client[0]] = found.get(each.client[0], 0) + 1
    return found


def test_balancing_moves_whole_groups_that_fit_the_largest_first() -> None:
    going = MovingOut().choose(balancing(50, 50), crowd(a=60, b=30, c=25, d=15), 0)
    assert groups(going) == {"b": 30, "d": 15}, "and no group is broken up for the five that are left"


def test_a_group_under_way_goes_on_before_others() -> None:
    choice, here = MovingOut(), crowd(a=40, b=35)
    assert groups(choice.choose(balancing(10, 50), here, 0)) == {"a": 10}
    assert groups(choice.choose(balancing(10, 40), here, 1)) == {"a": 10}
    assert groups(choice.choose(balancing(10, 30), here, 2)) == {"a": 10}
    assert groups(choice.choose(balancing(20, 20), here, 3)) == {"a": 10}, "b does not fit"


def test_the_smallest_group_is_broken_up_if_none_fits() -> None:
    choice, here = MovingOut(), crowd(a=60, b=40)
    assert groups(choice.choose(balancing(10, 20), here, 0)) == {"b": 10}
    assert groups(choice.choose(balancing(10, 10), here, 1)) == {"b": 10}
    choice.ended()
    assert groups(choice.choose(balancing(30, 30), here, 2)) == {"b": 20}, "what is left of it fits by now"


def test_whoever_came_a_moment_ago_is_not_moved_to_balance() -> None:
    choice = MovingOut(rest_us=60)
    here = [Mover("old", Scheme.MQTT, ("x",), True, 0), Mover("new", Scheme.MQTT, ("y",), True, 10)]
    assert names(choice.choose(balancing(5, 5), here, 60)) == ["old"]
    assert names(choice.choose(Moves(True, 5, TO), here, 60)) == ["new"], "a drain does not ask"


def test_a_group_of_which_many_have_just_come_waits_for_them() -> None:
    old = [Mover(f"x{n}", Scheme.MQTT, ("x",), True, 0) for n in range(9)]
    new = [Mover(f"x{n}", Scheme.MQTT, ("x",), True, 10) for n in range(9, 11)]
    assert MovingOut(rest_us=60).choose(balancing(20, 20), [*old, *new], 60) == []
    assert len(MovingOut(rest_us=60).choose(balancing(20, 20), [*old, new[0]], 60)) == 9, "one of ten"
    assert len(MovingOut(rest_us=60).choose(balancing(20, 20), [*old, *new], 70)) == 11


def test_balancing_moves_only_those_that_follow() -> None:
    here = [mover("phone", "x", follows=False), mover("ours", "x")]
    assert names(MovingOut().choose(balancing(5, 5), here, 0)) == ["ours"]


def test_an_earlier_leader_does_not_say_how_many_in_all() -> None:
    assert groups(MovingOut().choose(balancing(5, 0), crowd(a=9, b=3), 0)) == {"a": 5}

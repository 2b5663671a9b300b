"""What brokers are told of routes when interests change."""

from __future__ import annotations

from tocsin.core.coordination.state.interest import Interest
from tocsin.model.network import BrokerInfo, Role, Route, Scope
from tocsin.wire.internal.notices import Routes


def info(name: str, port: int = 1) -> BrokerInfo:
    return BrokerInfo(name, "lan", Role.EDGE, "127.0.0.1", port)


def three() -> Interest:
    interest = Interest()
    for name in "abc":
        interest.join(info(name))
    interest.want("c", ["x"])
    interest.settle()
    return interest


def test_those_who_are_told_the_same_are_told_by_one_item() -> None:
    interest = three()
    interest.leave("c")
    told = interest.settle()
    assert told == {name: [Routes((), (Route(Scope.ORIGIN, "c", "x"),), ())] for name in "ab"}
    assert told["a"][0] is told["b"][0], "so that it is encoded once"


def test_senders_learn_the_new_address_of_a_broker_that_returned() -> None:
    interest = three()
    moved = info("c", port=2)
    interest.join(moved)
    interest.want("c", ["x"])
    assert interest.settle() == {name: [Routes((), (), (moved,))] for name in "ab"}
    interest.join(info("b", port=2))
    assert interest.settle() == {}, "nobody sends anything to it"


def test_what_comes_and_goes_at_once_is_told_to_nobody() -> None:
    interest = three()
    interest.want("a", ["y"])
    interest.release("a", ["y"])
    assert interest.settle() == {}

"""Which incarnations are over: a hint is asked after, and the store's answer counts."""

from __future__ import annotations

from tests.unit.core.shared.one_sharer import OTHER, OWN, Broker
from tocsin.core.machine import Stored, StoreFailed
from tocsin.core.shared.incarnations import ASK, Incarnations
from tocsin.core.shared.stored_group import Member, StoredGroup
from tocsin.errors import StoreUnavailable
from tocsin.ports import Cell

GROUP = StoredGroup(
    "n", 1, {"c": Member("s", 1, OWN, 0), "d": Member("s", 1, OTHER, 0), "e": Member("s", 1, "", 9, 99)}
)


def doubting() -> Incarnations:
    ports = Broker()
    ports.dead.update({OTHER, OWN, ""})
    return Incarnations(OWN, ports)


def test_only_other_brokers_overdue_lives_are_checked_one_at_a_time() -> None:
    assert Incarnations(OWN, Broker()).look(GROUP) == []
    incarnations = doubting()
    (asked,) = incarnations.look(GROUP)
    assert (asked.request, asked.key) == (ASK + OTHER, "life.o")
    assert incarnations.look(GROUP) == []


def test_a_life_that_the_store_has_goes_on_and_may_be_rechecked() -> None:
    incarnations = doubting()
    incarnations.look(GROUP)
    assert incarnations.answered(Stored(request=ASK + OTHER, value=Cell("life.o", OTHER.encode(), 3))) == ""
    assert not incarnations.over
    assert incarnations.look(GROUP)


def test_a_life_that_the_store_lacks_is_over_while_cells_name_it() -> None:
    incarnations = doubting()
    incarnations.look(GROUP)
    assert incarnations.answered(Stored(request=ASK + OTHER, value=None)) == OTHER
    assert incarnations.look(GROUP) == []
    incarnations.learn(GROUP)
    assert list(incarnations.over) == [OTHER]
    incarnations.learn(StoredGroup("n", 1, {"c": Member("s", 1, OWN, 0)}))
    assert not incarnations.over


def test_no_answer_says_nothing() -> None:
    incarnations = doubting()
    incarnations.look(GROUP)
    incarnations.failed(StoreFailed(request=ASK + OTHER, error=StoreUnavailable("get", "no leader")))
    assert not incarnations.over
    assert incarnations.look(GROUP)

"""Which lives are over: a hint is asked after, and the store's answer counts."""

from __future__ import annotations

from tests.unit.core.one_sharer import OTHER, OWN, Broker
from tocsin.core.machine import Stored, StoreFailed
from tocsin.core.shared.broker_runs import LIFE, Lives
from tocsin.core.shared.stored_group import Member, StoredGroup
from tocsin.errors import StoreUnavailable
from tocsin.ports import Cell

GROUP = StoredGroup(
    "n", 1, {"c": Member("s", 1, OWN, 0), "d": Member("s", 1, OTHER, 0), "e": Member("s", 1, "", 9, 99)}
)


def doubting() -> Lives:
    hands = Broker()
    hands.dead.update({OTHER, OWN, ""})
    return Lives(OWN, hands)


def test_only_other_brokers_overdue_lives_are_checked_one_at_a_time() -> None:
    assert Lives(OWN, Broker()).look(GROUP) == []
    lives = doubting()
    (asked,) = lives.look(GROUP)
    assert (asked.request, asked.key) == (LIFE + OTHER, "life.o")
    assert lives.look(GROUP) == []


def test_a_life_that_the_store_has_goes_on_and_may_be_rechecked() -> None:
    lives = doubting()
    lives.look(GROUP)
    assert lives.answered(Stored(request=LIFE + OTHER, value=Cell("life.o", OTHER.encode(), 3))) == ""
    assert not lives.over
    assert lives.look(GROUP)


def test_a_life_that_the_store_lacks_is_over_while_cells_name_it() -> None:
    lives = doubting()
    lives.look(GROUP)
    assert lives.answered(Stored(request=LIFE + OTHER, value=None)) == OTHER
    assert lives.look(GROUP) == []
    lives.learn(GROUP)
    assert list(lives.over) == [OTHER]
    lives.learn(StoredGroup("n", 1, {"c": Member("s", 1, OWN, 0)}))
    assert not lives.over


def test_no_answer_says_nothing() -> None:
    lives = doubting()
    lives.look(GROUP)
    lives.failed(StoreFailed(request=LIFE + OTHER, error=StoreUnavailable("get", "no leader")))
    assert not lives.over
    assert lives.look(GROUP)

"""Which brokers of a tier are started and stopped, by what its leader wants."""

from __future__ import annotations

from tocsin.core.supervision.machine import Health, Row
from tocsin.core.supervision.reserves import heed

TIERS = {"cloud": ("broker/c-1", "broker/c-2", "broker/c-3")}


def said(wanted: object, *health: Health) -> list[tuple[str, bool]]:
    rows = [
        Row(name, 2, each, "", None, 0, 0, 0, {}) for name, each in zip(TIERS["cloud"], health, strict=True)
    ]
    return [(each.child, each.wanted) for each in heed(TIERS, wanted, rows, "test")]


def test_as_many_as_are_missing_are_started_in_order() -> None:
    wanted = {"cloud": {"members": 2, "there": 1, "spare": [], "use": 0.9}}
    assert said(wanted, "ready", "reserve", "reserve") == [("broker/c-2", True)]
    assert said(wanted, "ready", "starting", "reserve") == []
    assert said(wanted, "backing off", "ready", "reserve") == []  # it comes back by itself


def test_a_member_that_is_spare_is_stopped_if_enough_are_left() -> None:
    wanted = {"cloud": {"members": 2, "spare": ["c-1"]}}
    assert said(wanted, "ready", "ready", "ready") == [("broker/c-1", False)]
    assert said(wanted, "leaving", "ready", "ready") == []
    assert said(wanted, "ready", "ready", "reserve") == []


def test_other_words_are_passed_over() -> None:
    assert said("nonsense", "ready", "reserve", "reserve") == []
    assert said({"wan": {"members": 9}}, "ready", "reserve", "reserve") == []

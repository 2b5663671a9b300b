"""When a member of a tier tells the leader what it carries."""

from __future__ import annotations

from tocsin.core.coordination.participant.load_reports import KEEP_US, LoadReports
from tocsin.core.coordination.participant.signals import LoadMeasured
from tocsin.core.tiers.measuring import Measured
from tocsin.wire.internal.control import SlotLoad


def seen(messages_s: int, busy: float = 0.5, **slots: int) -> LoadMeasured:
    rows = tuple(SlotLoad(int(slot[1:]), count, 0, 1) for slot, count in slots.items())
    return LoadMeasured(measured=Measured(messages_s, 0, 1, (), rows), busy=busy, cause="test")


NOTHING = LoadMeasured(measured=None, cause="test")


def test_nothing_is_told_before_somebody_leads() -> None:
    reports = LoadReports("hub-1")
    assert reports.see(seen(10), 0, 1, 0) is None and reports.see(seen(10), 1, 0, 0) is None


def test_a_leader_that_begins_is_told_at_once_what_was_measured_last() -> None:
    reports = LoadReports("hub-1")
    first = reports.see(seen(100), 7, 1, 0)
    assert first is not None and (first.broker, first.incarnation, first.messages_s) == ("hub-1", 7, 100)
    assert reports.see(NOTHING, 7, 1, 1) is None
    again = reports.see(NOTHING, 7, 2, 2)
    assert again is not None and again.messages_s == 100 and again.busy == 500


def test_a_change_of_a_quarter_is_told_and_no_smaller_one() -> None:
    reports = LoadReports("hub-1")
    reports.see(seen(100), 1, 1, 0)
    assert reports.see(seen(120), 1, 1, 1) is None
    assert reports.see(seen(140), 1, 1, 2) is not None
    assert reports.see(seen(140, busy=0.9), 1, 1, 3) is not None


def test_slots_that_came_and_went_are_told() -> None:
    reports = LoadReports("hub-1")
    reports.see(seen(100, s1=100), 1, 1, 0)
    assert reports.see(seen(100, s1=95, s2=5), 1, 1, 1) is None
    assert reports.see(seen(100, s3=100), 1, 1, 2) is not None


def test_the_same_is_told_again_after_a_while() -> None:
    reports = LoadReports("hub-1")
    reports.see(seen(100), 1, 1, 0)
    assert reports.see(seen(100), 1, 1, KEEP_US - 1) is None
    assert reports.see(seen(100), 1, 1, KEEP_US) is not None
    assert reports.see(seen(100), 2, 1, KEEP_US + 1) is not None

"""The delays of links, as pings and the kernel's figures tell them."""

from __future__ import annotations

from tocsin.broker.links.measured import CALM_US, EVERY_US, KEEP_US, KNOWN, PEERS_MAX, UNASKED_MAX, LinkDelays
from tocsin.runtime.machines.flow import Repeats


def known(*round_trips_us: int) -> LinkDelays:
    delays = LinkDelays()
    for each in round_trips_us:
        delays.measured("b", each, 0)
    return delays


def test_nothing_is_shown_of_a_link_that_was_never_measured() -> None:
    assert LinkDelays().shown("b", 0) is None


def test_a_late_answer_stands_for_the_pings_behind_it() -> None:
    delay = known(10_000, 10_000 + 3 * EVERY_US).shown("b", 0)
    assert delay is not None
    assert delay.samples == 2 + 2  # those that would have waited for 210 and 410 ms more


def test_a_link_is_asked_less_often_once_it_is_known() -> None:
    delays = LinkDelays()
    assert delays.is_due("b", 0)
    assert not delays.is_due("b", EVERY_US - 1)
    assert delays.is_due("b", EVERY_US)
    for _ in range(KNOWN):
        delays.measured("b", 1_000, EVERY_US)
    assert not delays.is_due("b", 2 * EVERY_US)
    assert delays.is_due("b", EVERY_US + CALM_US)


def test_a_late_answer_stands_for_no_more_than_a_bound() -> None:
    delay = known(10_000, 10_000 + 1_000 * EVERY_US).shown("b", 0)
    assert delay is not None
    assert delay.samples <= 2 + UNASKED_MAX


def test_what_is_shown_stays_while_it_differs_little() -> None:
    delays = known(*[10_000] * 10)
    shown = delays.shown("b", 0)
    delays.measured("b", 10_100, 1)
    assert delays.shown("b", 1) is shown
    assert delays.shown("b", KEEP_US) is not shown


def test_what_is_shown_changes_when_a_link_is_much_slower() -> None:
    delays = known(*[10_000] * 10)
    shown = delays.shown("b", 0)
    for _ in range(8):
        delays.measured("b", 80_000, 1)
    changed = delays.shown("b", 1)
    assert changed is not shown and changed is not None
    assert changed.quantile(900_000) > 60_000


def test_repeated_segments_make_a_tail_that_no_ping_has_shown() -> None:
    delays = known(*[10_000] * 50)
    delays.repeats("b", Repeats(sent=1_000, repeated=20, after_us=200_000))
    delay = delays.shown("b", 0)
    assert delay is not None
    assert delay.repeated_ppm == 20_000
    assert 0.015 < delay.miss(100_000) < 0.025


def test_few_segments_say_nothing_of_repeats() -> None:
    delays = known(*[10_000] * 50)
    delays.repeats("b", Repeats(sent=10, repeated=1, after_us=200_000))
    delay = delays.shown("b", 0)
    assert delay is not None and delay.repeated_ppm == -1


def test_a_new_connection_counts_its_segments_from_the_beginning() -> None:
    delays = known(*[10_000] * 50)
    delays.repeats("b", Repeats(sent=1_000, repeated=0, after_us=200_000))
    delays.repeats("b", Repeats(sent=500, repeated=15, after_us=200_000))
    delay = delays.shown("b", 0)
    assert delay is not None and delay.repeated_ppm == 10_000


def test_peers_have_a_bound() -> None:
    delays = LinkDelays()
    for number in range(PEERS_MAX + 1):
        delays.measured(f"b{number}", 1_000, 0)
    assert delays.shown("b0", 0) is None
    assert delays.shown("b1", 0) is not None


def test_a_link_that_is_gone_is_forgotten() -> None:
    delays = known(10_000)
    delays.forget("b")
    assert delays.shown("b", 0) is None

"""Batches of the log for a client that is behind, against a dumb reading of everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.delivery.attended import of, one
from tocsin.core.delivery.session_cell import AGAIN_US
from tocsin.core.delivery.signals import BatchRead, Deliver, DeliveryTimer, MatchedEntry, ReadBatch
from tocsin.core.delivery.tracks import CatchingUp
from tocsin.core.delivery.window import DeliveryWindow, Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import Say, SetTimer
from tocsin.errors import StoreUnavailable, Trimmed
from tocsin.ports import Entry

ONE = {"a": Subscription(qos=1), "zero": Subscription(qos=0)}


def behind(receive_max: int = 10) -> tuple[CatchingUp, DeliveryWindow]:
    delivery = DeliveryWindow(Progress(1), receive_max=receive_max, durable=True)
    return CatchingUp(delivery), delivery


def batch(*positions: int, to: int, tail: int) -> BatchRead:
    entries = [MatchedEntry(Entry(each, "t.m.a", b"", str(each), 0), 1) for each in positions]
    return BatchRead(entries=entries, next=to, tail=tail)


def test_one_batch_at_a_time_for_the_filters_above_qos_0() -> None:
    catching_up, _ = behind()
    assert catching_up.ask(ONE) == [ReadBatch(filters=("a",), start=1)]
    assert catching_up.ask(ONE) == []
    again = SetTimer(name=DeliveryTimer.READ_AGAIN, delay_us=AGAIN_US)
    assert catching_up.failed(StoreUnavailable("read", "no leader")) == [again]
    assert len(catching_up.ask(ONE)) == 1


def test_without_filters_there_is_nothing_to_catch_up_with() -> None:
    catching_up, delivery = behind()
    assert catching_up.ask({}) == []
    assert delivery.live


def test_a_batch_up_to_the_tail_is_the_last() -> None:
    catching_up, delivery = behind()
    catching_up.ask(ONE)
    sent, whole = catching_up.take(batch(2, 3, to=5, tail=9), False)
    assert ([each.entry.position for each in of(sent, Deliver)], whole, delivery.live) == (
        [2, 3],
        True,
        False,
    )
    assert one(catching_up.ask(ONE), ReadBatch).start == 5
    catching_up.take(batch(to=12, tail=11), False)
    assert delivery.live


def test_a_batch_stops_where_the_window_is_full_or_the_connection_congested() -> None:
    catching_up, delivery = behind(receive_max=1)
    catching_up.ask(ONE)
    sent, whole = catching_up.take(batch(2, 3, to=5, tail=9), False)
    assert ([each.entry.position for each in of(sent, Deliver)], whole, delivery.next) == ([2], False, 3)
    catching_up, delivery = behind()
    catching_up.ask(ONE)
    assert catching_up.take(batch(2, 3, to=5, tail=9), True) == ([], False)
    assert delivery.next == 2


def test_a_subscription_during_the_read_bounds_what_the_batch_is_good_for() -> None:
    catching_up, delivery = behind()
    catching_up.subscribed(Subscription(qos=1, since=1))  # no read is under way: it has no effect
    catching_up.ask(ONE)
    catching_up.subscribed(Subscription(qos=1, since=3))
    catching_up.subscribed(Subscription(qos=1, since=4))
    sent, whole = catching_up.take(batch(2, 4, to=9, tail=4), False)
    assert ([each.entry.position for each in of(sent, Deliver)], whole) == ([2], True)
    assert (delivery.next, delivery.live) == (4, False)
    catching_up.ask(ONE)
    catching_up.take(batch(4, to=9, tail=8), False)
    assert (delivery.next, delivery.live) == (9, True), "the next read knows them all"


def test_what_was_trimmed_is_passed_over() -> None:
    catching_up, delivery = behind()
    catching_up.ask(ONE)
    [said] = catching_up.failed(Trimmed("messages", 1, 20))
    assert isinstance(said, Say) and said.level == "warning"
    assert one(catching_up.ask(ONE), ReadBatch).start == 20
    assert delivery.progress() == Progress(20)


@given(
    st.lists(st.integers(1, 30), unique=True, max_size=15),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.integers(0, 3)), min_size=40, max_size=40),
)
def test_everything_that_matches_is_sent_once_and_in_order(
    positions: list[int], receive_max: int, steps: list[tuple[int, bool, int]]
) -> None:
    """Batches of any size, a connection that is congested at times, acknowledgements that come late."""
    log, last = sorted(positions), 30
    catching_up, delivery = behind(receive_max)
    sent: list[int] = []
    window: list[int] = []
    for size, congested, answers in [*steps, *[(4, False, 5)] * 40]:
        for asked in of(catching_up.ask(ONE), ReadBatch):
            found = [each for each in log if each >= asked.start][:size]
            end = found[-1] + 1 if len(found) == size else last + 1
            got, _ = catching_up.take(batch(*found, to=end, tail=last), congested)
            sent += [each.entry.position for each in of(got, Deliver)]
            window += [each.packet_id for each in of(got, Deliver)]
        for _ in range(min(answers, len(window))):
            assert delivery.puback(window.pop(0))
        assert len(window) <= receive_max
    assert sent == log
    assert delivery.live

"""Messages to a peer take one way at a time, and wait between two."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.links.path import SETTLE_US, STEADY_US, STRAIGHT, LinkPath


def test_a_link_that_is_up_is_used_and_others_are_waited_for() -> None:
    passage = LinkPath()
    assert passage.way(0) is None and not passage.reachable
    assert passage.look_again_us(0) is None
    passage.link_up(5)
    assert passage.way(5) == STRAIGHT and passage.reachable


def test_a_detour_is_used_while_the_link_is_away() -> None:
    passage = LinkPath()
    passage.detour = ("relay",)
    assert passage.way(0) == ("relay",) and passage.reachable


def test_nothing_goes_by_another_way_until_the_last_message_has_arrived() -> None:
    passage = LinkPath()
    passage.link_up(0)
    passage.sent(STRAIGHT, 10)
    passage.link_down()
    passage.detour = ("relay",)
    assert passage.way(11) is None
    assert passage.look_again_us(11) == 10 + SETTLE_US
    assert passage.way(10 + SETTLE_US) == ("relay",)


def test_a_returned_link_is_used_after_it_was_up_a_while() -> None:
    passage = LinkPath()
    passage.detour = ("relay",)
    passage.sent(("relay",), 0)
    passage.link_up(1_000_000)
    assert passage.way(1_000_000 + STEADY_US - 1) == ("relay",)
    assert passage.way(1_000_000 + STEADY_US) == STRAIGHT


def test_a_returned_link_is_used_at_once_when_the_detour_ends() -> None:
    passage = LinkPath()
    passage.detour = ("relay",)
    passage.link_up(0)
    passage.detour = ()
    assert passage.way(1) == STRAIGHT


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("up", "down", "send", "r", "s", "none")),
        st.sampled_from((1, SETTLE_US // 2, SETTLE_US, STEADY_US)),
    ),
    max_size=40,
)


@given(STEPS)
def test_two_messages_on_different_ways_are_never_close(steps: list[tuple[str, int]]) -> None:
    passage, now, up = LinkPath(), 0, False
    sent: list[tuple[int, tuple[str, ...]]] = []
    for what, later in steps:
        now += later
        if what == "up" and not up:
            up = True
            passage.link_up(now)
        elif what == "down":
            up = False
            passage.link_down()
        elif what in ("r", "s", "none"):
            passage.detour = () if what == "none" else (what,)
        elif what == "send" and (way := passage.way(now)) is not None:
            assert up if way == STRAIGHT else way == passage.detour
            passage.sent(way, now)
            sent.append((now, way))
        due = passage.look_again_us(now)
        assert due is None or passage.way(max(due, now)) is not None
    for (before, one), (after, other) in pairwise(sent):
        assert one == other or after - before >= SETTLE_US

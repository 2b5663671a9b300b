"""History at QoS 0: what a ring keeps, and that at the seam nothing is left out, repeated or overtaken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.quality.recalling import TRIES, Ring, Seam
from tocsin.model.quality import EVERYTHING, Flow

FLOW = Flow("t", "c", 10, "east")
NEWER = Flow("t", "c", 20, "west")


def filled(count: int, depth: int | None = None, lifespan_us: int | None = None) -> Ring[int]:
    ring: Ring[int] = Ring()
    ring.offer(depth, lifespan_us)
    for number in range(1, count + 1):
        ring.add(number, 10, number)
    return ring


def test_a_ring_has_as_many_messages_as_are_offered() -> None:
    assert filled(5).last(5) == [5] and filled(5, 3).last(5) == [3, 4, 5]
    assert filled(5, EVERYTHING).last(5) == [1, 2, 3, 4, 5]
    shorter = filled(5, 4)
    shorter.offer(2, None)
    assert shorter.last(5) == [4, 5] and shorter.bytes == 20 and shorter.missing(5) == 0


def test_what_is_older_than_its_lifespan_is_kept_no_longer() -> None:
    ring = filled(5, 5, lifespan_us=3)
    assert ring.last(6) == [4, 5] and ring.bytes == 20 and ring.last(8) == []


def test_a_ring_knows_what_it_had_no_room_for() -> None:
    ring = filled(5, 4)
    ring.fit(20)
    assert ring.last(5) == [4, 5] and ring.missing(5) == 2
    ring.add(6, 10, 6)
    assert ring.missing(6) == 1
    ring.add(7, 10, 7)
    assert ring.missing(7) == 0, "as many as are offered are there again"
    fading = filled(5, 4, lifespan_us=10)
    fading.fit(20)
    assert fading.missing(12) == 2 and fading.missing(13) == 0, "they would be too old by now"


def test_live_messages_wait_for_history_and_follow_it() -> None:
    seam: Seam[int] = Seam()
    assert not seam.take(FLOW, 4, 4, 1) and not seam.take(FLOW, 5, 5, 1)
    seam.part("east", [(FLOW, 2), (FLOW, 3)], {})
    seam.part("east", [(FLOW, 4)], {FLOW: 4})
    assert seam.close("east") == ([2, 3, 4], [5])
    assert seam.take(FLOW, 6, 6, 1) and not seam.take(FLOW, 4, 4, 1)
    seam.part("east", [(FLOW, 1)], {})
    assert seam.close("east") == ([], []), "a broker answers once"


def test_a_gap_before_what_is_held_is_asked_for_again() -> None:
    seam: Seam[int] = Seam()
    seam.take(FLOW, 7, 7, 1)
    seam.part("east", [(FLOW, 4)], {FLOW: 4})
    assert seam.close("east") is None, "5 and 6 went out before there was a way here"
    seam.part("east", [(FLOW, 6)], {FLOW: 6})
    assert seam.close("east") == ([6], [7])


def test_a_gap_that_stays_holds_nothing_up_for_ever() -> None:
    seam: Seam[int] = Seam()
    seam.take(FLOW, 7, 7, 1)
    for _ in range(TRIES - 1):
        seam.part("east", [], {FLOW: 4})
        assert seam.close("east") is None
    seam.part("east", [], {FLOW: 4})
    assert seam.close("east") == ([], [7])


def test_nothing_goes_on_after_what_is_newer_of_the_same_client() -> None:
    seam: Seam[int] = Seam()
    seam.part("west", [(NEWER, 9)], {NEWER: 1})
    assert seam.close("west") == ([9], [])
    seam.part("east", [(FLOW, 8)], {FLOW: 8})
    assert seam.close("east") == ([], []) and not seam.take(FLOW, 9, 9, 1)
    assert seam.take(NEWER, 2, 10, 1)


def test_who_does_not_answer_is_not_waited_for() -> None:
    seam: Seam[int] = Seam()
    seam.take(FLOW, 1, 1, 5)
    seam.take(NEWER, 1, 2, 5)
    assert seam.bytes == 10 and seam.give_up("east") == [1] and seam.bytes == 10
    assert seam.give_up("west") == [2] and seam.bytes == 0 and seam.take(NEWER, 2, 3, 5)


@given(
    published=st.integers(1, 60),
    asked=st.integers(0, 60),
    routed=st.integers(0, 60),
    depth=st.integers(1, 8),
    slow=st.integers(0, 20),
)
def test_whatever_the_order_nothing_is_missing_or_repeated(
    published: int, asked: int, routed: int, depth: int, slow: int
) -> None:
    """The ring answers at number ``asked``, live messages come from ``routed`` on, the answer ``slow`` numbers late."""
    seam: Seam[int] = Seam()
    ring: Ring[int] = Ring()
    ring.offer(depth, None)
    got: list[int] = []
    answer: tuple[list[int], int] | None = None
    due = asked + slow

    def close() -> None:
        nonlocal answer, due
        assert answer is not None
        history, last = answer
        seam.part("east", [(FLOW, each) for each in history], {FLOW: last})
        found = seam.close("east")
        if found is None:
            answer, due = (ring.last(0), number), number + slow
        else:
            got.extend([*found[0], *found[1]])
            answer, due = None, -1

    for number in range(published + 1):
        if number:
            ring.add(number, 1, 0)
            if number >= routed and seam.take(FLOW, number, number, 1):
                got.append(number)
        if number == asked:
            answer = ring.last(0), number
        if answer is not None and number >= due >= 0:
            close()
    assert got == sorted(set(got))
    if got and routed <= asked + slow:  # what comes later, the flow's origin sends again
        assert got == list(range(got[0], got[-1] + 1))

"""Which requests were taken is known, and is written down in pages of a bounded ring."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.feeds.keys import NAME_BYTES, Keys, RequestPage


def test_a_request_is_unknown_then_tried_then_taken() -> None:
    keys = Keys()
    assert (keys.taken("r"), keys.behind("r")) == (False, None)
    keys.tries("r", 0, 1)
    assert (keys.taken("r"), keys.behind("r")) == (False, 0)
    keys.took("r")
    assert (keys.taken("r"), keys.behind("r")) == (True, None)


def test_a_request_that_is_tried_again_may_be_behind_its_first_position() -> None:
    keys = Keys()
    keys.tries("r", 5, 1)
    keys.tries("r", 9, 2)
    assert keys.behind("r") == 5


def test_a_request_that_was_refused_is_as_if_it_never_was() -> None:
    keys = Keys()
    keys.tries("r", 5, 1)
    keys.refused("r")
    assert keys.behind("r") is None and keys.idle


def test_the_log_is_needed_behind_what_was_tried_and_no_page_has() -> None:
    keys = Keys()
    assert keys.settle(7) == ([], 7)
    keys.tries("a", 3, 1)
    keys.tries("b", 5, 1)
    assert keys.settle(7)[1] == 3
    keys.took("a")
    pages, floor = keys.settle(7)
    assert (len(pages), floor) == (1, 5)


def test_a_page_that_has_grown_while_it_was_written_is_written_again() -> None:
    keys = Keys()
    keys.took("a")
    ((page,), _) = keys.settle(0)
    keys.took("b")
    keys.wrote(page)
    ((again,), _) = keys.settle(0)
    assert len(again.names) == 2 * NAME_BYTES
    keys.wrote(again)
    assert keys.idle


def test_an_unanswered_request_is_given_up_after_a_look_and_its_deadline() -> None:
    keys = Keys()
    keys.tries("r", 5, 10)
    assert not keys.doubts(10) and keys.doubts(11)
    keys.give_up(11)
    assert keys.behind("r") is None


@given(
    st.lists(st.integers(0, 40), max_size=120),
    st.integers(2, 5),
    st.integers(1, 4),
    st.sets(st.integers(0, 120)),
)
def test_the_newest_are_known_also_to_whoever_starts_with_the_cells(
    requests: list[int], ring: int, page_keys: int, written_after: set[int]
) -> None:
    keys, cells = Keys(ring, page_keys), dict[int, RequestPage]()
    order: list[str] = []  # the newest last, each once
    for step, number in enumerate(requests):
        if not keys.taken(str(number)):
            order = [*(each for each in order if each != str(number)), str(number)]
        keys.took(str(number))
        if step in written_after or step == len(requests) - 1:
            for page in keys.settle(0)[0]:
                cells[keys.cell(page)] = page
                keys.wrote(page)
    again = Keys(ring, page_keys)
    again.load(list(cells.values()))
    for known in (keys, again):
        assert all(known.taken(each) for each in order[-(ring - 1) * page_keys :])
        assert sum(known.taken(str(each)) for each in range(41)) <= ring * page_keys
    assert len(cells) <= ring

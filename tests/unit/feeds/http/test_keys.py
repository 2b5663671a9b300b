"""Which requests were taken is known, and is written down in pages of a bounded ring."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.feeds.http.intake import request_id, sender_id
from tocsin.feeds.http.keys import NAME_BYTES, Keys, RequestPage, name_of, sender_of


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
    assert keys.settle(7) == ({}, 7)
    keys.tries("a", 3, 1)
    keys.tries("b", 5, 1)
    assert keys.settle(7)[1] == 3
    keys.took("a")
    pages, floor = keys.settle(7)
    assert (len(pages), floor) == (1, 5)


def test_a_page_that_has_grown_while_it_was_written_is_written_again() -> None:
    keys = Keys()
    keys.took("a")
    page = keys.settle(0)[0][0]
    keys.took("b")
    keys.wrote(page)
    again = keys.settle(0)[0][0]
    assert len(again.names) == 2 * NAME_BYTES
    keys.wrote(again)
    assert keys.idle


def test_an_unanswered_request_is_given_up_after_a_look_and_its_deadline() -> None:
    keys = Keys()
    keys.tries("r", 5, 10)
    assert not keys.doubts(10) and keys.doubts(11)
    keys.give_up(11)
    assert keys.behind("r") is None


def request(user: str, number: int) -> str:
    return f"web.1.http.{sender_id(user)}{request_id(user, b'%d' % number, b'')}"


def before(user: str, number: int) -> str:
    """The same, as an earlier release named it."""
    return f"web.1.http.{request_id(user, b'%d' % number, b'')}"


def test_a_request_keeps_the_name_that_it_always_had() -> None:
    assert sender_of(request("anna", 1)) == sender_id("anna")
    assert name_of(request("anna", 1)) == name_of(before("anna", 1))
    assert sender_of(before("anna", 1)) == ""


def test_who_sends_much_forgets_its_own_requests_and_nobody_elses() -> None:
    keys = Keys(cells=6, page_keys=10)
    for number in range(20):
        keys.took(request("anna", number))
    for number in range(1_000):
        keys.took(request("mallory", number))
    assert all(keys.taken(request("anna", number)) for number in range(20))
    assert keys.taken(request("mallory", 999)) and not keys.taken(request("mallory", 900))
    for number in range(20):  # who comes late has a share too
        keys.took(request("ben", number))
    assert all(keys.taken(request(user, number)) for user in ("anna", "ben") for number in range(10, 20))


def test_who_tries_much_without_an_answer_pushes_out_its_own_tries() -> None:
    keys = Keys(tried_max=50)
    keys.tries(request("anna", 1), 5, 1)
    for number in range(200):
        keys.tries(request("mallory", number), 6 + number, 2)
    assert keys.behind(request("anna", 1)) == 5
    assert keys.behind(request("mallory", 0)) is None and keys.behind(request("mallory", 199)) is not None


def test_pages_of_an_earlier_release_are_known() -> None:
    keys = Keys(cells=3, page_keys=2)
    keys.load({cell: RequestPage(cell + 7, name_of(before("anna", cell))) for cell in range(2)})
    assert keys.taken(request("anna", 1)) and not keys.taken(request("anna", 3))
    keys.took(request("anna", 3))
    ((cell, page),) = keys.settle(0)[0].items()
    assert (cell, page.number, page.sender) == (2, 9, sender_id("anna"))


@given(
    st.lists(st.tuples(st.sampled_from(["anna", "ben", "cleo"]), st.integers(0, 20)), max_size=120),
    st.integers(3, 9),
    st.integers(1, 4),
    st.sets(st.integers(0, 120)),
)
def test_each_senders_newest_are_known_also_after_a_start(
    requests: list[tuple[str, int]], cells: int, page_keys: int, written_after: set[int]
) -> None:
    keys, stored = Keys(cells, page_keys), dict[int, RequestPage]()
    order: dict[str, list[str]] = {}  # of each sender, the newest last, each once
    for step, (user, number) in enumerate(requests):
        asked = request(user, number)
        if not keys.taken(asked):
            order[user] = [*(each for each in order.get(user, ()) if each != asked), asked]
        keys.took(asked)
        if step in written_after or step == len(requests) - 1:
            for cell, page in keys.settle(0)[0].items():
                stored[cell] = page
                keys.wrote(page)
    again = Keys(cells, page_keys)
    again.load(stored)
    for known in (keys, again):
        share = (cells // max(1, len(order)) - 1) * page_keys
        for taken in order.values():
            assert all(known.taken(each) for each in taken[len(taken) - min(len(taken), share) :])
        assert sum(known.taken(each) for taken in order.values() for each in taken) <= cells * page_keys
    assert len(stored) <= cells and all(0 <= cell < cells for cell in stored)

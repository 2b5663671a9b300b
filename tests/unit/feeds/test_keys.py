"""What is remembered of requests with a key."""

from __future__ import annotations

from tocsin.feeds.keys import Keys


def test_a_request_is_unknown_then_in_doubt_then_taken() -> None:
    keys = Keys()
    assert (keys.taken("r"), keys.behind("r")) == (False, None)
    keys.doubt("r", 0)
    assert (keys.taken("r"), keys.behind("r")) == (False, 0)
    keys.took("r")
    assert (keys.taken("r"), keys.behind("r")) == (True, None)


def test_the_newest_are_remembered() -> None:
    keys = Keys(2)
    for request in ("a", "b"):
        keys.took(request)
    keys.took("a")
    keys.took("c")
    assert [keys.taken(each) for each in "abc"] == [True, False, True]

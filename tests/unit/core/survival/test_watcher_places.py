"""Places of watch connections: whoever takes all of them keeps nobody else out."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.survival.watcher_places import WatcherPlaces


def taken(places: WatcherPlaces[str], count: int, source: str, user: str = "") -> list[str]:
    """The connections of one party that are let in, of so many."""
    names = [f"{source}-{user}-{number}" for number in range(count)]
    return [each for each in names if places.comes(each, source, user)[0]]


def test_one_may_have_all_places_while_nobody_else_wants_one() -> None:
    assert len(taken(WatcherPlaces(20), 30, "10.0.0.1")) == 20


def test_a_newcomer_takes_the_oldest_place_of_the_largest_address() -> None:
    places: WatcherPlaces[str] = WatcherPlaces(20)
    mine = taken(places, 20, "10.0.0.1")
    assert places.comes("other", "10.0.0.2", "") == (True, mine[0])
    assert places.comes("again", "10.0.0.1", "") == (False, None)
    assert len(places) == 20


def test_one_user_at_many_addresses_keeps_no_other_user_out() -> None:
    places: WatcherPlaces[str] = WatcherPlaces(20)
    for number in range(20):
        taken(places, 1, f"10.0.0.{number}", "mallory")
    assert places.comes("a", "10.1.0.1", "alice") == (True, "10.0.0.0-mallory-0")


def test_of_one_address_users_share() -> None:
    places: WatcherPlaces[str] = WatcherPlaces(20)
    taken(places, 20, "10.0.0.1", "mallory")
    assert places.comes("a", "10.0.0.1", "alice") == (True, "10.0.0.1-mallory-0")


def test_of_one_user_addresses_share() -> None:
    places: WatcherPlaces[str] = WatcherPlaces(20)
    taken(places, 20, "10.0.0.1", "device")
    assert places.comes("a", "10.0.0.2", "device") == (True, "10.0.0.1-device-0")


def test_those_without_a_name_are_no_user() -> None:
    places: WatcherPlaces[str] = WatcherPlaces(20)
    for number in range(20):
        taken(places, 1, f"10.0.0.{number}")
    assert places.comes("a", "10.1.0.1", "") == (False, None)  # everybody has one


def test_a_newcomer_takes_no_more_from_others_than_its_share() -> None:
    places: WatcherPlaces[str] = WatcherPlaces(100)
    for number in range(100):
        taken(places, 1, f"10.0.1.{number}", "device")
    assert len(taken(places, 100, "10.0.0.1", "mallory")) == 10


def test_a_place_that_was_left_is_free() -> None:
    places: WatcherPlaces[str] = WatcherPlaces(2)
    taken(places, 2, "10.0.0.1")
    places.went("10.0.0.1--0")
    places.went("10.0.0.1--0")
    assert places.comes("a", "10.0.0.1", "") == (True, None)


def test_without_places_nobody_comes() -> None:
    assert WatcherPlaces[str](0).comes("a", "10.0.0.1", "") == (False, None)


PARTIES = st.tuples(st.sampled_from("xyz"), st.sampled_from(["", "a", "b"]))


@given(st.integers(0, 12), st.lists(st.tuples(st.booleans(), st.integers(0, 30), PARTIES), max_size=60))
def test_places_are_bounded_and_shared_within_an_address(
    places_max: int, steps: list[tuple[bool, int, tuple[str, str]]]
) -> None:
    places: WatcherPlaces[int] = WatcherPlaces(places_max)
    there: dict[int, tuple[str, str]] = {}
    for comes, watcher, party in steps:
        if not comes or watcher in there:
            places.went(watcher)
            there.pop(watcher, None)
            continue
        before = dict(there)
        let_in, gone = places.comes(watcher, *party)
        if gone is not None:
            assert let_in and len(before) == places_max
            del there[gone]
        if let_in:
            there[watcher] = party
        elif places_max:
            most = Counter(each for each in before.values() if each[0] == party[0])
            assert len(before) == places_max
            assert not most or max(most.values()) <= most[party] + 1
        assert len(places) == len(there) <= places_max

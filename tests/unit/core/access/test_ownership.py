"""Of two users with one client id one wins, whichever broker is asked."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.access.ownership import Claim, may_take, prevails

claims = st.builds(
    Claim,
    client=st.just("me"),
    owner=st.sampled_from(("", "alice", "mallory")),
    broker=st.sampled_from(("north-1", "south-1")),
    came_us=st.integers(0, 3),
    stored=st.booleans(),
    inside=st.booleans(),
)
ALICE = Claim("me", "alice", "north-1", 5)
MALLORY = Claim("me", "mallory", "south-1", 9)


@given(claims, claims)
def test_of_two_users_at_two_brokers_exactly_one_keeps_the_id(one: Claim, other: Claim) -> None:
    if one.broker == other.broker:
        return
    winners = prevails(one, other) + prevails(other, one)
    same = one.owner == other.owner
    assert winners == (0 if same else 1)


def test_what_belongs_to_nobody_everybody_may_have() -> None:
    assert may_take("", "alice")
    assert may_take("alice", "alice")
    assert not may_take("alice", "mallory")
    assert not may_take("alice", "")


def test_who_is_in_wins_against_who_knocks_though_its_clock_is_behind() -> None:
    late = msgspec.structs.replace(ALICE, inside=True, came_us=99)
    assert prevails(late, MALLORY)
    assert not prevails(MALLORY, late)


def test_a_stored_session_wins_over_a_client_admitted_without_the_store() -> None:
    inside = msgspec.structs.replace(MALLORY, inside=True, came_us=1)
    stored = msgspec.structs.replace(ALICE, stored=True)
    assert prevails(stored, inside)


def test_of_two_that_knock_the_earlier_one_wins() -> None:
    assert prevails(ALICE, MALLORY)
    assert not prevails(MALLORY, ALICE)


def test_a_client_without_a_user_owns_nothing() -> None:
    nobody = Claim("me", "", "south-1", 1, inside=True)
    assert prevails(ALICE, nobody)
    assert not prevails(nobody, ALICE)

"""The strongest publisher that is alive is heard, and nobody else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.quality import ownership
from tocsin.core.quality.judging import owns
from tocsin.core.quality.ownership import Owners
from tocsin.model.publication import Publication

KEY = ("ownership=exclusive", "t")
S = 1_000_000


def passes(owners: Owners, client: str, strength: int, at_us: int, lost: str = "") -> bool:
    return owners.passes(
        KEY, client, strength, at_us, patience_us=S, is_lost=lambda each: each in lost.split()
    )


def test_a_stronger_publisher_takes_over_and_a_weaker_does_not() -> None:
    owners = Owners()
    assert passes(owners, "weak", 1, 0)
    assert passes(owners, "strong", 2, 1) and not passes(owners, "weak", 1, 2)
    assert owners.owner(KEY) == "strong"


def test_of_equal_publishers_the_first_by_name_is_heard() -> None:
    owners = Owners()
    assert passes(owners, "b", 5, 0) and passes(owners, "a", 5, 1)
    assert not passes(owners, "b", 5, 2) and passes(owners, "a", 5, 3)


def test_a_silent_owner_gives_way_and_takes_over_again() -> None:
    owners = Owners()
    passes(owners, "strong", 2, 0)
    assert not passes(owners, "weak", 1, S - 1)
    assert passes(owners, "weak", 1, S) and passes(owners, "weak", 1, S + 1)
    assert passes(owners, "strong", 2, S + 2) and not passes(owners, "weak", 1, S + 3)


def test_an_owner_whose_lease_is_over_gives_way_at_once() -> None:
    owners = Owners()
    passes(owners, "strong", 2, 0)
    assert passes(owners, "weak", 1, 1, lost="strong")


def test_an_owner_may_become_weaker() -> None:
    owners = Owners()
    passes(owners, "a", 5, 0)
    assert passes(owners, "a", 1, 1) and passes(owners, "b", 3, 2) and not passes(owners, "a", 1, 3)


def test_what_is_remembered_is_bounded_and_forgotten() -> None:
    owners = Owners()
    for number in range(ownership.OWNERS_MAX + 5):
        owners.passes(("r", str(number)), "a", 0, 0, patience_us=None, is_lost=lambda each: False)
    assert len(owners) == ownership.OWNERS_MAX
    owners.forget("r")
    assert len(owners) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, S))))
def test_all_that_hear_the_same_decide_the_same(heard: list[tuple[str, int, int]]) -> None:
    one, other, now, passed = Owners(), Owners(), 0, ""
    for client, strength, after_us in heard:
        now += after_us
        first = passes(one, client, strength, now)
        assert passes(other, client, strength, now) == first == passes(other, client, strength, now)
        passed = client if first else passed
        assert one.owner(KEY) == passed


def test_a_message_says_how_strong_its_publisher_is() -> None:
    def message(client: str, *said: tuple[str, str]) -> Publication:
        return Publication("t", b"", 0, client, user_properties=said)

    owners, exclusive = Owners(), ("offer.ownership", "exclusive")
    assert owns(owners, "ownership=exclusive", message("a", exclusive, ("offer.strength", "5")), 0, 0)
    assert not owns(owners, "ownership=exclusive", message("b", exclusive), 4, 1)
    assert owns(owners, "ownership=exclusive", message("c", exclusive), 6, 2)
    assert owns(owners, "ownership=shared", message("b"), 0, 3), "all are heard"
    assert owns(owners, "ownership=exclusive", message(""), 0, 3), "nobody knows whose it is"


def test_in_a_log_a_lease_without_a_message_is_over() -> None:
    offered = {"$offer": "lease=2s,ownership=exclusive"}
    owners = Owners()
    for client, strength, at_us, passed in (("a", 9, 0, True), ("b", 1, S, False), ("b", 1, 2 * S, True)):
        message = Publication("t", b"", 1, client, keys=dict(offered))
        assert owns(owners, "ownership=exclusive", message, strength, at_us) is passed

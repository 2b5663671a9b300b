"""The lease: asked for, renewed by its revision, and over earlier for its owner than for the store."""

from __future__ import annotations

from tocsin.core.coordination.leader.lease import KEY, MARGIN, OWNER, Lease
from tocsin.core.machine import DeleteKey, PutKey
from tocsin.ports import Change

TTL_US = 2_000_000

ME = OWNER.seal(b"me")


def lease() -> Lease:
    return Lease("table", "me", TTL_US)


def test_a_lease_is_taken_only_if_free_and_renewed_only_if_ours() -> None:
    tested = lease()
    asked = tested.ask("r1", 100, renew=False)
    assert isinstance(asked, PutKey)
    assert (asked.key, asked.value, asked.revision, asked.ttl_us) == (KEY, ME, 0, TTL_US)
    assert tested.granted("r1", 5)
    again = tested.ask("r2", 200, renew=True)
    assert isinstance(again, PutKey) and again.revision == 5


def test_it_ends_by_our_clock_before_it_does_at_the_store() -> None:
    tested = lease()
    tested.ask("r1", 100, renew=False)
    tested.granted("r1", 5)
    assert tested.until_us == 100 + TTL_US - TTL_US // MARGIN
    assert tested.renew_us * 2 < TTL_US - TTL_US // MARGIN, "one renewal may be lost"


def test_an_answer_to_an_older_request_changes_nothing() -> None:
    tested = lease()
    tested.ask("r1", 100, renew=False)
    tested.ask("r2", 900, renew=False)
    assert not tested.granted("r1", 5) and tested.until_us == 0
    assert tested.granted("r2", 6) and not tested.granted("r2", 6)


def test_who_holds_it_is_what_the_table_says() -> None:
    tested = lease()
    holders = []
    for change in (
        Change("put", KEY, b"other", 3),
        Change("delete", KEY, revision=4),
        Change("put", KEY, ME, 7),
        Change("reset"),
    ):
        tested.watched(change)
        holders.append(tested.holder)
    assert holders == [b"other", None, ME, None]
    renewed = tested.ask("r1", 0, renew=True)
    assert isinstance(renewed, PutKey) and renewed.revision == 7, "also if the answer to it was lost"


def test_it_can_be_given_back() -> None:
    tested = lease()
    tested.ask("r1", 100, renew=False)
    tested.granted("r1", 5)
    assert tested.resign("r2") == DeleteKey(request="r2", table="table", key=KEY, revision=5)
    assert tested.until_us == 0

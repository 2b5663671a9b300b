"""Stored sessions are bounded in number and bytes, for the network and for each user."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.budgets.session_quota import FRESH_BYTES, NOTABLE, REPORT, REPORTED_MAX, SessionQuota

SECOND_US = 1_000_000


def test_the_networks_quota_counts_sessions_made_since_the_last_scan() -> None:
    quota = SessionQuota(5, 1 << 30, 100)
    quota.saw(3, 1_000)
    for client in ("a", "b"):
        assert quota.no_room("anna", 0) is None
        quota.serves(client, "anna", made=True)
    assert quota.no_room("ben", 0) == "5 sessions are stored already (limits.sessions_max)"
    assert (quota.stored, quota.refused) == ((5, 1_000 + 2 * FRESH_BYTES), 1)
    quota.saw(4, 1_000)
    assert quota.no_room("ben", 0) is None


def test_the_last_of_the_share_is_for_those_that_there_are() -> None:
    quota = SessionQuota(1_000, 100_000, 100)
    quota.saw(10, 79_999)
    assert quota.no_room("anna", 0) is None
    quota.saw(10, 80_000)
    assert quota.no_room("anna", 0) and quota.may_grow("anna")
    quota.saw(10, 90_000)
    assert not quota.may_grow("anna")


def test_one_user_leaves_room_for_others() -> None:
    quota = SessionQuota(10, 100_000, 50)
    for number in range(5):
        assert quota.no_room("mallory", 0) is None
        quota.serves(f"m{number}", "mallory", made=True)
    assert (
        quota.no_room("mallory", 0)
        == "this user has 5 stored sessions already (limits.sessions_user_percent)"
    )
    assert quota.no_room("anna", 0) is None
    quota.left("m0", 9 * SECOND_US)
    assert quota.no_room("mallory", 8 * SECOND_US)
    assert quota.no_room("mallory", 9 * SECOND_US) is None, "one has expired"
    quota.left("m1", 10 * SECOND_US)
    quota.serves("m1", "mallory", made=False)
    quota.over("m2")
    quota.wrote("m1", 40_000)
    assert quota.no_room("mallory", 20 * SECOND_US) and quota.may_grow("mallory"), "m1 came back"
    quota.wrote("m1", 45_000)
    assert not quota.may_grow("mallory") and quota.may_grow("anna")
    quota.wrote("m2", 45_000)  # of which nothing is known any more


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("serves", "found", "wrote", "left", "over", "time")),
            st.sampled_from(("a", "b", "c")),
            st.sampled_from(("anna", "ben")),
            st.integers(0, 50),
        )
    )
)
def test_what_is_counted_of_users_is_what_their_sessions_are(
    history: list[tuple[str, str, str, int]],
) -> None:
    quota, now_us = SessionQuota(100, 1 << 30, 100), 0
    held: dict[str, tuple[str, int, int | None]] = {}
    for what, client, user, number in history:
        if what == "serves":
            quota.serves(client, user, made=True)
            held[client] = (user, FRESH_BYTES, None)
        elif what == "found":
            quota.found(client, user, number, now_us + number if number % 2 else None)
            held.setdefault(client, (user, number, now_us + number if number % 2 else None))
        elif what == "wrote":
            quota.wrote(client, number)
            if client in held:
                held[client] = (held[client][0], number, held[client][2])
        elif what == "left":
            quota.left(client, now_us + number)
            if client in held:
                held[client] = (*held[client][:2], now_us + number)
        elif what == "over":
            quota.over(client)
            held.pop(client, None)
        else:
            now_us += number
            quota.no_room("anna", now_us)
            held = {c: each for c, each in held.items() if each[2] is None or each[2] > now_us}
        if what == "time":
            expected: dict[str, tuple[int, int]] = {}
            for owner, size, _ in held.values():
                count, total = expected.get(owner, (0, 0))
                expected[owner] = (count + 1, total + size)
            assert quota._users == expected


def test_a_users_sessions_at_other_brokers_count() -> None:
    here, there = SessionQuota(10, 100_000, 50), SessionQuota(10, 100_000, 50)
    for number in range(3):
        there.serves(f"m{number}", "mallory", 2_000, made=True)
    for number in range(3, 5):
        here.serves(f"m{number}", "mallory", made=True)
    assert here.no_room("mallory", 0) is None, "not heard yet"
    here.heard([there.report(0), {"mallory": (0, 39_000), "anna": (1, 1)}])
    assert here.of_user("mallory") == (5, 6_000 + 2 * FRESH_BYTES + 39_000)
    assert "this user has 5" in str(here.no_room("mallory", 0))
    assert not here.may_grow("mallory") and here.may_grow("anna")
    there.left("m0", 5)
    here.heard([there.report(5)])
    assert here.no_room("mallory", 5) is None, "one has expired there"
    here.heard([])
    assert here.of_user("mallory") == (2, 2 * FRESH_BYTES), "the other broker is down"


def test_a_report_names_the_users_with_the_most_of_their_quota() -> None:
    quota = SessionQuota(100 * NOTABLE, 1 << 40, 100)
    for user, sessions in (("few", 99), ("some", 100), ("many", 300)):
        for number in range(sessions):
            quota.serves(f"{user}{number}", user, made=True)
    assert quota.report(0).keys() == {"some", "many"}
    crowd = SessionQuota(REPORTED_MAX, 1 << 40, 1)
    for number in range(REPORTED_MAX + 10):
        crowd.serves(f"c{number}", f"user {number}", made=True)
    crowd.serves("c", "user 3", made=True)
    report = crowd.report(0)
    assert len(report) == REPORTED_MAX and report["user 3"][0] == 2
    assert REPORT.read(REPORT.write(report)) == report


def test_what_grew_here_counts_before_the_table_is_looked_at_again() -> None:
    quota = SessionQuota(100, 10_000, 100)
    quota.serves("a", "anna", made=True)
    assert quota.may_grow("bert")
    quota.wrote("a", 9_500)
    assert not quota.may_grow("bert") and quota.no_room("bert", 0) is not None
    quota.saw(1, 2_000)
    assert quota.may_grow("bert")

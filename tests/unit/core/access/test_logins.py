"""Whose password is checked next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.access.logins import Logins, LoginTurn

SECOND = 1_000_000


def ticket(logins: Logins, source: str, name: str, now_us: int = 0, *, local: bool = False) -> LoginTurn:
    found, turned, _ = logins.ask(source, name, now_us, local=local)
    assert found is not None and turned is None
    return found


def fail(logins: Logins, source: str, name: str, times: int, now_us: int = 0) -> None:
    for _ in range(times):
        ticket(logins, source, name, now_us, local=True)
        running = logins.next(now_us)
        assert running is not None
        logins.done(running, False, now_us)


def order(logins: Logins, now_us: int = 0) -> list[tuple[str, str]]:
    """Who is served, one after the other."""
    served: list[tuple[str, str]] = []
    while (each := logins.next(now_us)) is not None:
        served.append((each.source, each.name))
        logins.done(each, True, now_us)
    return served


def test_sources_take_turns_whatever_one_of_them_asks() -> None:
    logins = Logins(10)
    for number in range(50):
        ticket(logins, "flood", f"name-{number}")
    ticket(logins, "honest", "alice")
    assert ("honest", "alice") in order(logins)[:2]


def test_a_source_that_sent_wrong_passwords_comes_last() -> None:
    logins = Logins(10)
    fail(logins, "flood", "alice", 5)
    for number in range(20):
        ticket(logins, "flood", f"name-{number}")
    ticket(logins, "honest", "alice")
    ticket(logins, "honest", "bob")
    assert order(logins)[:2] == [("honest", "alice"), ("honest", "bob")]


def test_too_many_wrong_passwords_are_refused_unseen_until_they_are_forgiven() -> None:
    logins = Logins(10)
    fail(logins, "flood", "alice", 12)
    found, turned, _ = logins.ask("flood", "bob", 0)
    assert found is None and turned is not None
    assert "too many wrong passwords" in str(turned) and turned.after_s == 2
    assert logins.ask("flood", "bob", 2 * SECOND)[0] is not None


def test_a_proven_name_is_admitted_from_a_blocked_address_and_first() -> None:
    logins = Logins(10)
    logins.prove("device")
    fail(logins, "nat", "alice", 20)
    assert logins.ask("nat", "alice", 0)[0] is None
    ticket(logins, "nat", "device")
    ticket(logins, "nat", "other", local=True)
    assert order(logins)[0] == ("nat", "device")
    logins.unprove(["device"])
    assert logins.ask("nat", "device", 0)[0] is None


def test_this_machine_is_not_refused_and_names_with_failures_come_last_there() -> None:
    logins = Logins(10)
    fail(logins, "127.0.0.1", "bob", 100)
    ticket(logins, "127.0.0.1", "bob", local=True)
    ticket(logins, "127.0.0.1", "alice", local=True)
    assert order(logins) == [("127.0.0.1", "alice"), ("127.0.0.1", "bob")]


def test_guesses_of_one_password_wait_for_each_other() -> None:
    logins = Logins(10)
    first, second = ticket(logins, "here", "alice"), ticket(logins, "here", "alice")
    other = ticket(logins, "here", "bob")
    assert [logins.next(0), logins.next(0), logins.next(0)] == [first, other, None]
    logins.done(first, False, 0)
    assert logins.next(0) is second


def test_one_source_cannot_fill_the_queue() -> None:
    logins = Logins(10, waiting_max=40)
    taken = [logins.ask("flood", f"name-{number}", 0)[0] for number in range(10)]
    assert [each is not None for each in taken] == [True] * 4 + [False] * 6


def test_who_has_no_debt_takes_the_place_of_who_has() -> None:
    logins = Logins(10, waiting_max=20)
    for number in range(10):
        fail(logins, f"bad-{number}", "alice", 2)
        for name in ("x", "y"):
            ticket(logins, f"bad-{number}", name)
    found, _, gone = logins.ask("honest", "alice", 0)
    assert found is not None and len(gone) == 1 and gone[0].source.startswith("bad-")
    assert logins.waiting == 20
    assert order(logins)[0] == ("honest", "alice")
    assert gone[0] not in [logins.next(0)]


def test_whoever_gave_up_is_not_served() -> None:
    logins = Logins(10)
    gone = ticket(logins, "here", "alice")
    logins.forget(gone)
    logins.forget(gone)
    assert logins.next(0) is None and logins.waiting == 0


def test_debts_of_many_sources_are_bounded_and_the_largest_stay() -> None:
    logins = Logins(3, sources_max=20)
    fail(logins, "worst", "alice", 10)
    for number in range(200):
        fail(logins, f"source-{number}", "alice", 1)
    assert logins.ask("worst", "bob", 0)[0] is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ask", "next", "good", "bad", "forget"]),
            st.sampled_from("abc"),
            st.sampled_from("xyz"),
            st.integers(0, 3 * SECOND),
        ),
        max_size=60,
    )
)
def test_every_ticket_is_in_one_place(steps: list[tuple[str, str, str, int]]) -> None:
    logins = Logins(5, waiting_max=20)
    now, waiting, running = 0, dict[LoginTurn, None](), list[LoginTurn]()
    for step, source, name, later in steps:
        now += later
        if step == "ask":
            found, turned, gone = logins.ask(source, name, now)
            assert (found is None) != (turned is None)
            for each in gone:
                del waiting[each]
            if found is not None:
                waiting[found] = None
        elif step == "next":
            called = logins.next(now)
            busy = {(ticket.source, ticket.name) for ticket in running}
            if called is None:
                assert all((ticket.source, ticket.name) in busy for ticket in waiting)
            else:
                assert (called.source, called.name) not in busy
                del waiting[called]
                running.append(called)
        elif step == "forget" and waiting:
            each = next(iter(waiting))
            logins.forget(each)
            del waiting[each]
        elif running:
            logins.done(running.pop(0), step == "good", now)
        assert logins.waiting == len(waiting) <= 20

"""A publisher is alive while it gives signs within its lease, and each change is told once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.quality.leases import LEFT_MAX, Leases

S = 1_000_000


def told(leases: Leases, until_us: int, heard_us: int = 0) -> list[tuple[int, str, bool]]:
    """All changes up to then."""
    found = []
    while (due := leases.next_us) is not None and due <= until_us:
        found += [(due, key, alive) for key, alive in leases.due(due, lambda key: heard_us)]
    return found


def test_a_publisher_without_a_sign_for_a_lease_is_lost() -> None:
    leases = Leases()
    assert leases.hold("a", S, True, 0)
    assert not leases.hold("a", S, True, 0)
    assert not leases.sign("a", S // 2)
    assert told(leases, 10 * S) == [(3 * S // 2, "a", False)]
    assert leases.sign("a", 11 * S) and leases.is_alive("a")
    assert told(leases, 20 * S) == [(12 * S, "a", False)]


def test_whatever_a_connection_brings_is_an_automatic_sign() -> None:
    leases = Leases()
    leases.hold("a", S, False, 0)
    assert told(leases, 5 * S, heard_us=5 * S) == []
    (lost,) = told(leases, 20 * S, heard_us=5 * S)
    assert lost[1:] == ("a", False)
    (back,) = told(leases, 23 * S, heard_us=23 * S)
    assert back[1:] == ("a", True)


def test_a_manual_lease_needs_more_than_a_connection() -> None:
    leases = Leases()
    leases.hold("a", S, True, 0)
    assert told(leases, 5 * S, heard_us=5 * S) == [(S, "a", False)]


def test_a_lease_outlives_its_connection_and_goes_on_when_it_is_back() -> None:
    leases = Leases()
    leases.hold("a", S, False, 0)
    leases.leave("a", 0)
    assert not leases.sign("a", S // 2)
    assert leases.hold("a", S, False, S // 2), "it is back: that is news, with another epoch"
    assert told(leases, S, heard_us=S) == []
    leases.leave("a", S)
    ((_, key, alive),) = told(leases, 9 * S, heard_us=9 * S)
    assert (key, alive) == ("a", False) and len(leases) == 0


def test_who_takes_its_leave_is_not_lost() -> None:
    leases = Leases()
    leases.hold("a", S, True, 0)
    assert leases.drop("a") and not leases.drop("a")
    assert told(leases, 9 * S) == []


def test_leases_without_a_connection_are_bounded() -> None:
    leases = Leases()
    for number in range(LEFT_MAX + 2):
        leases.hold(str(number), 100 * S, True, number)
        leases.leave(str(number), 0)
    assert told(leases, S)[0][1:] == ("0", False)
    assert len(leases) <= LEFT_MAX + 1


@given(st.lists(st.tuples(st.sampled_from(["sign", "hold", "leave", "wait"]), st.integers(1, 3 * S))))
def test_it_agrees_with_a_plain_definition(steps: list[tuple[str, int]]) -> None:
    leases, lease_us = Leases(), S
    now, last, here, alive = 0, 0, False, False
    for step, after_us in steps:
        now += after_us
        for _, _, came in told(leases, now):
            alive = came
        if step == "hold":
            leases.hold("a", lease_us, True, now)
            last, here, alive = now, True, True
        elif step == "sign" and here:
            leases.sign("a", now)
            last, alive = now, True
        elif step == "leave":
            leases.leave("a", 0)
            here = False
        assert leases.is_alive("a") == (alive and now - last < lease_us)


def test_a_lease_begins_with_the_last_thing_that_the_connection_brought() -> None:
    leases = Leases()
    leases.hold("a", S, False, 0)
    leases.leave("a", 9 * S // 10)  # nobody has looked since the beginning
    assert told(leases, 10 * S) == [(19 * S // 10, "a", False)]

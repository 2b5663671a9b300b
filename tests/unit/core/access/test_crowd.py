"""A crowd is let in by turns: in order, the sick last, and nobody waits for ever."""

from __future__ import annotations

from tocsin.core.access.admission import FAULTS_MAX, FORGIVEN_US, REMEMBERED_MAX, SICK_SHARE, SLICE, Crowd


def names(number: int) -> tuple[str, ...]:
    return (f"c{number}",)


def test_few_clients_never_wait() -> None:
    crowd: Crowd[int] = Crowd()
    for _ in range(3):
        assert all(crowd.comes(number, names(number), 0) for number in range(SLICE))
        assert crowd.turn() == []


def test_a_crowd_is_let_in_by_turns_and_in_order() -> None:
    crowd: Crowd[int] = Crowd()
    at_once = [number for number in range(100) if crowd.comes(number, names(number), 0)]
    assert at_once == list(range(SLICE)) and len(crowd) == 100 - SLICE
    let_in = at_once
    while len(crowd):
        turn = crowd.turn()
        assert len(turn) <= SLICE
        assert not turn or not crowd.comes(1_000, (), 0) or not len(crowd), (
            "newcomers go to the end of the line"
        )
        let_in += turn
    assert [each for each in let_in if each < 1_000] == list(range(100))


def test_the_sick_come_last_and_do_come() -> None:
    crowd: Crowd[int] = Crowd()
    for _ in range(FAULTS_MAX):
        for number in range(0, 200, 2):
            crowd.fault(f"c{number}", 0)
    for number in range(SLICE):
        assert crowd.comes(-1, (), 1), number
    for number in range(200):
        crowd.comes(number, names(number), 1)
    turn = crowd.turn()
    assert sum(each % 2 == 0 for each in turn) == SICK_SHARE and len(turn) == SLICE
    order = [*turn, *(each for _ in range(10) for each in crowd.turn())]
    last_well = max(at for at, each in enumerate(order) if each % 2)
    assert sum(each % 2 == 0 for each in order[:last_well]) <= SICK_SHARE * 4
    assert sorted(order) == list(range(200))


def test_one_fault_is_nothing_and_old_ones_are_forgiven() -> None:
    crowd: Crowd[int] = Crowd()
    crowd.fault("c", 0)
    assert not crowd.is_sick(("c",), 0)
    for _ in range(FAULTS_MAX):
        crowd.fault("c", 0)
    assert crowd.is_sick(("other", "c"), FORGIVEN_US - 1)
    assert not crowd.is_sick(("c",), FORGIVEN_US)


def test_faults_are_bounded() -> None:
    crowd: Crowd[int] = Crowd()
    for number in range(REMEMBERED_MAX + 10):
        for _ in range(FAULTS_MAX):
            crowd.fault(f"c{number}", 0)
    assert not crowd.is_sick(("c0",), 0) and crowd.is_sick((f"c{REMEMBERED_MAX + 9}",), 0)

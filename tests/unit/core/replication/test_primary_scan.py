"""Whose positions differ from those that were given out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.replication.network import State
from tocsin.core.replication.primary import SCAN_SLICE, PositionScan
from tocsin.wire.internal.replication import Head, Positions

CLIENTS = st.sampled_from("abcd")
STEPS = st.lists(st.tuples(st.sampled_from(["move", "still", "go", "look", "give"]), CLIENTS), max_size=40)


def moved(state: State, client: str) -> None:
    before = state.at.get(client, Positions(0))
    state.heads[client], state.at[client] = Head(True), Positions(before.messages + 1)


@given(steps=STEPS)
def test_a_scan_finds_changed_positions_and_reports_their_current_value(
    steps: list[tuple[str, str]],
) -> None:
    state, told = State(), dict[str, Positions]()  # the model: what was given out
    scan = PositionScan(state)
    for what, client in steps:
        if what == "move":
            moved(state, client)
        elif what == "still" and client not in state.heads:
            state.heads[client] = Head(True)  # nothing is delivered to it by position
        elif what == "go" and client in state.heads:
            del state.heads[client]
            state.at.pop(client, None)
            told.pop(client, None)
            scan.forget(client)
        elif what == "look":
            assert scan.look(), "so few are one slice"
            differ = {each for each, where in state.at.items() if told.get(each) != where}
            assert set(scan.found) == differ
        elif what == "give":
            found = list(scan.found)
            given_out = scan.give_out()
            assert given_out == found and not scan.found
            told.update({each: state.at[each] for each in given_out})
        assert scan.told == told


def test_many_clients_are_scanned_in_slices_and_each_scan_restarts() -> None:
    state = State()
    for number in range(SCAN_SLICE + 1):
        moved(state, f"c{number}")
    scan = PositionScan(state)
    assert (scan.look(), scan.under_way) == (False, True)
    assert len(scan.found) == SCAN_SLICE
    assert (scan.look(), scan.under_way) == (True, False)
    assert len(scan.give_out()) == SCAN_SLICE + 1
    moved(state, "c0")
    assert not scan.look() and scan.look()
    assert list(scan.found) == ["c0"]


def test_nothing_is_remembered_where_there_is_no_backup() -> None:
    state = State()
    moved(state, "a")
    scan = PositionScan(state)
    scan.look()
    scan.give_out()
    scan.clear()
    assert scan.told == {} and scan.look()
    assert list(scan.found) == ["a"]

"""States are cut into parts and come together again, in any order, or not at all."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.parts import PART_MAX_BYTES, PARTS_MAX, Assembly, split


class Piece(msgspec.Struct, frozen=True):
    part: int
    parts: int
    items: tuple[int, ...] = ()


@given(st.lists(st.integers(1, PART_MAX_BYTES * 2), max_size=40))
def test_runs_keep_every_item_in_order_and_stay_within_the_bound(sizes: list[int]) -> None:
    runs = split(sizes, lambda size: size)
    assert [size for run in runs for size in run] == sizes
    for run in runs:
        assert sum(run) <= PART_MAX_BYTES or len(run) == 1


def test_nothing_is_still_one_run() -> None:
    assert split([], len) == [()]


@given(st.integers(1, 8), st.randoms(use_true_random=False))
def test_parts_come_together_in_any_order(parts: int, chance: object) -> None:
    pieces = [Piece(part, parts, (part,)) for part in range(parts)]
    shuffled = list(pieces)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assembly: Assembly[Piece] = Assembly()
    outcomes = [assembly.add("state", piece) for piece in shuffled]
    assert outcomes[:-1] == [None] * (parts - 1)
    assert list(outcomes[-1] or ()) == pieces


def test_a_part_of_another_state_drops_an_incomplete_one() -> None:
    assembly: Assembly[Piece] = Assembly()
    assert assembly.add("old", Piece(0, 2)) is None
    assert assembly.add("new", Piece(0, 2)) is None
    assert assembly.add("old", Piece(1, 2)) is None, "its other part was dropped"


def test_a_repeated_part_does_not_complete_a_state() -> None:
    assembly: Assembly[Piece] = Assembly()
    assert assembly.add("state", Piece(0, 2)) is None
    assert assembly.add("state", Piece(0, 2)) is None
    assert assembly.add("state", Piece(1, 2)) is not None


def test_impossible_parts_are_ignored() -> None:
    assembly: Assembly[Piece] = Assembly()
    for piece in (Piece(2, 2), Piece(-1, 2), Piece(0, PARTS_MAX + 1), Piece(0, 0)):
        assert assembly.add("state", piece) is None

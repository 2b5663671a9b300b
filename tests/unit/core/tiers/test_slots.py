"""Slots of topics, and moves of slots as bytes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.tiers.slots import NOBODY, SLOTS, Slots, slot_of
from tocsin.errors import Malformed
from tocsin.wire.internal.slots import SlotMoves

names = st.sampled_from(["", "hub-1", "hub-2", "a", "z"])
moves = st.dictionaries(st.integers(0, SLOTS - 1), st.tuples(names, names))


def test_a_topic_has_the_same_slot_in_every_process() -> None:
    topics = ["a", "a/b", "größe/1", ""]
    program = f"from tocsin.core.tiers.slots import slot_of; print([slot_of(t) for t in {topics!r}])"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str([slot_of(each) for each in topics])


def test_topics_spread_over_all_slots() -> None:
    counts = Counter(slot_of(f"site/{number}/load") for number in range(100 * SLOTS))
    assert len(counts) == SLOTS and max(counts.values()) < 200


@given(moves)
def test_moves_as_bytes_say_what_they_said(moved: dict[int, tuple[str, str]]) -> None:
    assert SlotMoves.of(moved).each() == moved


@given(moves, moves)
def test_later_moves_win(first: dict[int, tuple[str, str]], second: dict[int, tuple[str, str]]) -> None:
    assert Slots().after(first).after(second) == Slots().after({**first, **second})


def test_bytes_that_are_no_moves_are_refused() -> None:
    for wrong in (
        SlotMoves(("a",), b"\1", b"\0", b"\0"),  # half a slot
        SlotMoves(("a",), b"\1\0", b"\0", b""),  # no deputy
        SlotMoves(("a",), b"\1\0", b"\0", b"\7"),  # no such name
    ):
        with pytest.raises(Malformed, match="not moves of slots"):
            wrong.each()


def test_nobody_is_no_member() -> None:
    assert Slots().after({3: ("a", NOBODY)}).members == {"a"}

"""A state that was written down and read back goes on as if nothing had happened."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.coordination.histories import NORTH, batches
from tocsin.core.coordination import snapshot
from tocsin.core.coordination.state import State
from tocsin.errors import Malformed
from tocsin.wire.commands import Batch, Joined, Said


@settings(max_examples=200, deadline=None)
@given(batches, st.integers(0, 25))
def test_a_restored_state_says_what_the_original_says(history: list[Batch], cut: int) -> None:
    original = State()
    for batch in history[:cut]:
        original.apply(batch.at_us, batch.commands)
    restored = snapshot.restore(snapshot.take(original))
    assert snapshot.take(restored) == snapshot.take(original)
    for batch in history[cut:]:
        first, second = (
            original.apply(batch.at_us, batch.commands),
            restored.apply(batch.at_us, batch.commands),
        )
        assert (first.items, first.fresh, first.concerned) == (second.items, second.fresh, second.concerned)
        assert original.next_due_us() == restored.next_due_us()
    assert snapshot.take(restored) == snapshot.take(original)


def test_a_restored_state_goes_on_with_the_numbers_of_notices() -> None:
    original = State()
    original.follow(Batch(3, 0, 0, (Said("north", 7, 1, (Joined(NORTH),)),), (("north", 5),)))
    restored = snapshot.restore(snapshot.take(original))
    assert (restored.epoch, restored.members["north"].noticed, restored.commands) == (3, 5, 1)


def test_a_snapshot_is_cut_into_pieces_that_the_store_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PIECE_BYTES", 7)
    pieces = snapshot.take(State())
    assert len(pieces) > 1 and all(len(piece) <= 7 for piece in pieces)
    assert snapshot.take(snapshot.restore(pieces)) == pieces
    with pytest.raises(Malformed, match="not a snapshot"):
        snapshot.restore(pieces[:-1])

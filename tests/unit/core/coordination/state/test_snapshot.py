"""A state that was written down and read back goes on as if nothing had happened."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.coordination.histories import NORTH, batches
from tocsin.core.coordination.state import snapshot
from tocsin.core.coordination.state.state import State
from tocsin.errors import Malformed
from tocsin.model.versions import UNREADABLE
from tocsin.wire.internal import commands as parts
from tocsin.wire.internal.commands import Batch, BrokerCommand, Interests, Joined, Queries, Said, Streams


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


def crowded() -> State:
    """A stream with many publishers, a query with many streams, and a broker with many filters."""
    state = State()
    commands: list[BrokerCommand] = [Joined(NORTH), Queries((("q", "kind = 'lamp'"),))]
    commands += [Streams(f"client-{n}", 60, (("lamps", {"kind": "lamp"}),)) for n in range(40)]
    commands += [Streams("one", 60, ((f"lamps/{n}", {"kind": "lamp"}),)) for n in range(40)]
    commands.append(Interests(tuple(f"filter/{n}" for n in range(40))))
    state.apply(0, (Said("north", 7, 1, tuple(commands)),))
    return state


def test_a_snapshot_is_cut_into_pieces_that_the_store_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PIECE_BYTES", 300)
    monkeypatch.setattr(parts, "PART_MAX_BYTES", 200)
    pieces = snapshot.take(crowded())
    assert len(pieces) > 10 and all(len(piece) <= 600 for piece in pieces)
    assert snapshot.take(snapshot.restore(pieces)) == pieces
    for missing in (0, 5, len(pieces) - 1):
        with pytest.raises(Malformed, match=r"not a (piece of a )?snapshot"):
            snapshot.restore([*pieces[:missing], *pieces[missing + 1 :]])


def test_it_is_read_back_in_slices_that_are_bounded() -> None:
    pieces = snapshot.take(crowded())
    rebuilding, slices = snapshot.rebuild(pieces, 10), 0
    with pytest.raises(StopIteration) as done:
        while True:
            next(rebuilding)
            slices += 1
    assert slices >= (41 + 41 + 41 + 40) // 10, "clients, streams, the query's streams, filters"
    assert snapshot.take(done.value.value) == pieces


@given(st.binary(max_size=40))
def test_what_is_no_piece_is_refused(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        snapshot.restore([data])

"""A stamp is read as it was written; what is none is passed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.quality.stamps import STAMP, Stamp, is_stamped, stamp_of, stamp_text, without_stamp
from tocsin.model.quality import Flow

number = st.integers(0, 10**18)


@given(st.text(max_size=20), number, number, number, st.integers(0, 2**31 - 1), st.booleans())
def test_what_is_written_is_read(
    client: str, epoch: int, place: int, sent_us: int, strength: int, reliable: bool
) -> None:
    stamp = Stamp(Flow("a/b", client, epoch, "north-1"), place, sent_us, strength, reliable)
    said = [("x", "y"), (STAMP, stamp_text(stamp))]
    assert is_stamped(said) and stamp_of(said, "a/b") == stamp
    assert without_stamp(said) == [("x", "y")]


@pytest.mark.parametrize(
    "text", ["", "2 1 1 1 0 0 b c", "1 1 1 1 0 0 b", "1 x 1 1 0 0 b c", "1 -1 1 1 0 0 b c", "1 ² 1 1 0 0 b c"]
)
def test_what_is_no_stamp_is_none(text: str) -> None:
    assert stamp_of([(STAMP, text)], "t") is None
    assert stamp_of([], "t") is None and not is_stamped([("a", "b")])

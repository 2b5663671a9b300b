"""How far feeds are, as cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import Malformed
from tocsin.model.feeding import FeedCell, Intent, cell_key, decode_cell, encode_cell, floor

marks = st.dictionaries(st.text(max_size=8), st.integers(-1, 1 << 62), max_size=3)
intents = st.builds(Intent, marks, st.text(max_size=8), st.integers(0, 1 << 40))
cells = st.builds(FeedCell, st.integers(1, 9), marks, st.none() | intents)


@given(cells)
def test_a_cell_is_what_was_written(cell: FeedCell) -> None:
    assert decode_cell(encode_cell(cell)) == cell


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"version": "1", "marks": {}}'])
def test_what_is_no_cell_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_cell(data)


@given(st.lists(cells, max_size=5), st.integers(0, 1 << 40))
def test_nothing_behind_an_intent_is_below_the_floor(found: list[FeedCell], end: int) -> None:
    lowest = floor(found, end)
    assert lowest <= end
    for cell in found:
        assert cell.intent is None or lowest <= cell.intent.after + 1
    assert lowest == end or any(cell.intent and cell.intent.after + 1 == lowest for cell in found)


def test_names_of_feeds_have_one_cell_in_any_case() -> None:
    assert cell_key("Reports") == cell_key("REPORTS") == "feed.reports"

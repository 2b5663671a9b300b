"""Queries inside topic filters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.query import decode_filter, encode_filter


@given(st.text() | st.text("%2B35Ff+#/", max_size=12))
def test_an_encoded_query_has_no_wildcards_and_is_decoded_to_itself(text: str) -> None:
    encoded = encode_filter(text)
    assert "+" not in encoded
    assert "#" not in encoded
    assert decode_filter(encoded) == text


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Location/Room = '410'", "Location/Room = '410'"),
        ("a %2B 1 > 2", "a + 1 > 2"),
        ("a LIKE '%23%25'", "a LIKE '#%'"),
        ("a %2f b%2F%2b", "a / b/+"),
        ("a LIKE 'x%'", "a LIKE 'x%'"),
        ("a %20 100%", "a %20 100%"),
        ("%252B", "%2B"),
    ],
)
def test_four_escapes_are_decoded_and_nothing_else(written: str, meant: str) -> None:
    assert decode_filter(written) == meant

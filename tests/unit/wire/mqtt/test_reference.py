"""Server references as other servers may write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.wire.mqtt.reference import Server, server_of


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a.example:1883", ("a.example", 1883)),
        ("a.example", ("a.example", None)),
        ("10.0.0.1:8883 b.example:1", ("10.0.0.1", 8883)),
        ("[2001:db8::1]:1883", ("2001:db8::1", 1883)),
        ("[::1]", ("::1", None)),
        ("a:0 b:70000 c_d:1 :1 e.example:5", ("e.example", 5)),
        ("", None),
        (None, None),
        ("mqtt://a:1", None),
        ("999.1.1.1:1", None),
        ("[a:1", None),
    ],
)
def test_the_first_server_that_makes_sense_is_meant(written: str | None, meant: Server | None) -> None:
    assert server_of(written) == meant


@given(st.text(max_size=100))
def test_no_text_makes_it_fail(text: str) -> None:
    server = server_of(text)
    assert server is None or (server[0] and (server[1] is None or 0 < server[1] < 65_536))

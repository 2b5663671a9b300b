"""What addresses of brokers mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.client.address import Server, read_address
from tocsin.errors import AddressInvalid


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("example.org:1883", Server("example.org", 1883)),
        ("mqtt://example.org", Server("example.org", 1883)),
        ("mqtts://example.org", Server("example.org", 8883, "mqtts")),
        ("ws://example.org/mqtt", Server("example.org", 80, "ws")),
        ("wss://[::1]:4/mqtt/", Server("::1", 4, "wss")),
        ("mqtt://anna@host:1", Server("host", 1, "mqtt", "anna")),
        ("mqtt://anna:@host:1", Server("host", 1, "mqtt", "anna", "")),
        ("mqtts://a%40b:p%3A%2F@host", Server("host", 8883, "mqtts", "a@b", "p:/")),
        ("anna:x@host:1", Server("host", 1, "mqtt", "anna", "x")),
    ],
)
def test_an_address_says_where_how_and_as_whom(text: str, meant: Server) -> None:
    assert read_address(text) == meant


def test_the_scheme_that_is_not_said_is_the_callers() -> None:
    assert read_address("host:1", "mqtts").secure
    assert not read_address("mqtt://host:1", "mqtts").secure
    assert [read_address(f"{scheme}://host").web for scheme in ("mqtt", "ws", "wss")] == [False, True, True]


BAD_PLACES = ("", "host", ":1", "host:", "host:0", "host:65536", "host:x", "[::1", "a b:1")
BAD_URLS = ("http://host", "mqtt://", "mqtt://@", "ws://host/other")


@pytest.mark.parametrize("bad", [*BAD_PLACES, *BAD_URLS])
def test_what_is_no_address_is_refused_with_an_example(bad: str) -> None:
    with pytest.raises(AddressInvalid, match=r"is not an address.*such as 127\.0\.0\.1:1883"):
        read_address(bad)


def test_no_password_is_shown() -> None:
    assert "secret" not in repr(read_address("mqtt://anna:secret@host"))
    with pytest.raises(AddressInvalid) as refused:
        read_address("mqtt://anna:secret@host:0")
    assert "secret" not in str(refused.value)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        server = read_address(text)
    except AddressInvalid:
        return
    assert server.host and 0 < server.port < 65_536

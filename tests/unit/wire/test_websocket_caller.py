"""The client's side of WebSocket, against the server's side, and against servers that are none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.wire.websocket import (
    Broken,
    Close,
    Ping,
    Reader,
    Upgrade,
    answer,
    binary_frame,
    close_frame,
    pong_frame,
)
from tocsin.wire.websocket_caller import Caller, Granted, Item, masked

MAX_BYTES = 70_000
NONCE = bytes(range(16))
MASK = b"\x37\xfa\x21\x3d"

sizes = st.one_of(st.integers(0, 200), st.sampled_from([125, 126, 127, 65_535, 65_536, MAX_BYTES]))


def payload_of(size: int) -> bytes:
    return bytes(index % 251 for index in range(size))


def granted() -> tuple[Caller, bytes]:
    """A caller, and the response that a server gives it."""
    caller = Caller("::1", 8080, NONCE, MAX_BYTES)
    response = answer(caller.request.removesuffix(b"\r\n\r\n"))
    assert isinstance(response, Upgrade)
    return caller, response.response


def cut(caller: Caller, stream: bytes, size: int) -> list[Item]:
    return [item for at in range(0, len(stream), size) for item in caller.feed(stream[at : at + size])]


@settings(deadline=None)
@given(st.lists(sizes, max_size=3), st.integers(1, 9_000))
def test_however_it_is_cut_what_the_server_sends_arrives(story: list[int], size: int) -> None:
    caller, response = granted()
    sent = [payload_of(each) for each in story]
    ping = bytes((0x89, 2)) + b"hi"
    stream = response + b"".join(map(binary_frame, sent)) + pong_frame(b"x") + ping + close_frame(1000)
    first, *items = cut(caller, stream, size)
    assert first == Granted()
    assert b"".join(item for item in items if isinstance(item, bytes)) == b"".join(sent)
    assert [item for item in items if not isinstance(item, bytes)] == [Ping(b"hi"), Close()]
    assert caller.feed(binary_frame(b"late")) == []


@given(sizes)
def test_a_server_understands_what_is_masked(size: int) -> None:
    reader, payload = Reader(MAX_BYTES), payload_of(size)
    items = reader.feed(masked(binary_frame(payload), MASK))
    assert b"".join(item for item in items if isinstance(item, bytes)) == payload
    assert reader.feed(masked(close_frame(1000), MASK)) == [Close()]


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "answered 'HTTP/1.1 404 Not Found'"),
        (b"HTTP/1.1 101 Fine\r\nSec-WebSocket-Accept: guess\r\n\r\n", "did not prove"),
        (b"\x20\x02\x00\x00" + bytes(20_000), "no response to an upgrade"),
        (b"\r\n\r\n", "is there MQTT over WebSocket"),
    ],
)
def test_what_is_no_grant_is_said_in_words(response: bytes, words: str) -> None:
    caller = Caller("a", 80, NONCE, MAX_BYTES)
    (item,) = caller.feed(response)
    assert isinstance(item, Broken) and words in item.reason
    assert caller.feed(response) == []


def test_another_subprotocol_is_refused() -> None:
    caller, response = granted()
    (item,) = caller.feed(response.replace(b"Protocol: mqtt", b"Protocol: chat"))
    assert isinstance(item, Broken) and "subprotocol" in item.reason


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (masked(binary_frame(b"x"), MASK), "not masked"),
        (binary_frame(bytes(MAX_BYTES + 1)), "too large"),
        (b"\x81\x01x", "kind 1"),
        (b"\x83\x01x", "kind 3"),
    ],
)
def test_a_frame_that_breaks_the_rules_ends_it(frame: bytes, words: str) -> None:
    caller, response = granted()
    caller.feed(response)
    (item,) = caller.feed(frame)
    assert isinstance(item, Broken) and words in item.reason


@given(st.binary(max_size=300))
def test_no_bytes_make_it_fail(data: bytes) -> None:
    caller, response = granted()
    caller.feed(data)
    caller, response = granted()
    caller.feed(response)
    caller.feed(data)

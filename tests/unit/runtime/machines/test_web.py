"""The client's side of WebSocket, against a server's side, and against servers that are none."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from tocsin.runtime.machines.web import WebCall
from tocsin.wire.mqtt.websocket import FRAME_MARGIN_BYTES

PACKET_MAX_BYTES = 6_000

sizes = st.one_of(st.integers(0, 200), st.sampled_from([125, 126, 127, 65_535, 65_536]))


def payload_of(size: int) -> bytes:
    return bytes(index % 251 for index in range(size))


class Tcp(asyncio.Transport):
    """A socket that remembers what was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class Inner(asyncio.Protocol):
    """What calls over the WebSocket."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.heard = bytearray()
        self.ended: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, WebCall)
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = str(error)


class Call:
    """A call, with the server that it reaches."""

    def __init__(self, subprotocol: str = "mqtt") -> None:
        self.inner, self.tcp = Inner(), Tcp()
        self.web = WebCall(self.inner, "::1", 8080, PACKET_MAX_BYTES)
        self.server = ServerProtocol(subprotocols=[Subprotocol(subprotocol)], max_size=None)
        self.web.connection_made(self.tcp)

    def request(self) -> bytes:
        """What the server answers to the call's request."""
        self.server.receive_data(self.taken())
        (request,) = self.server.events_received()
        assert isinstance(request, Request) and request.path == "/mqtt"
        assert request.headers["Host"] == "[::1]:8080"
        self.server.send_response(self.server.accept(request))
        return b"".join(self.server.data_to_send())

    def taken(self) -> bytes:
        written, self.tcp.written = bytes(self.tcp.written), bytearray()
        return written


def opened() -> Call:
    call = Call()
    call.web.data_received(call.request())
    assert call.inner.transport is not None
    return call


@settings(deadline=None)
@given(st.lists(sizes, max_size=3), st.integers(1, 9_000))
def test_however_it_is_cut_what_the_server_sends_arrives(story: list[int], size: int) -> None:
    call = Call()
    stream, sent = call.request(), [payload_of(each) for each in story]
    for payload in sent:
        call.server.send_binary(payload)
    call.server.send_ping(b"hi")
    stream += b"".join(call.server.data_to_send())
    for at in range(0, len(stream), size):
        call.web.data_received(stream[at : at + size])
    assert call.inner.heard == b"".join(sent)
    assert call.inner.ended is None
    call.server.receive_data(call.taken())
    assert [bytes(frame.data) for frame in call.server.events_received()] == [b"hi"]  # type: ignore[union-attr]


@settings(deadline=None)
@given(sizes)
def test_a_server_understands_what_is_sent(size: int) -> None:
    call, payload = opened(), payload_of(size)
    call.web.write(payload)
    call.web.close()
    call.server.receive_data(call.taken())
    message, close = call.server.events_received()
    assert bytes(message.data) == payload  # type: ignore[union-attr]
    assert close.data == (1000).to_bytes(2)  # type: ignore[union-attr]
    assert call.tcp.closed


def test_a_server_that_closes_ends_the_call() -> None:
    call = opened()
    call.server.send_close(1000)
    call.web.data_received(b"".join(call.server.data_to_send()))
    assert call.inner.ended == "the server closed the WebSocket"
    call.web.data_received(b"late")
    assert call.inner.heard == b""


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "is there MQTT over WebSocket at /mqtt"),
        (b"HTTP/1.1 101 Fine\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: guess\r\n\r\n",
         "Sec-WebSocket-Accept"),
        (b"\x20\x02\x00\x00" + bytes(20_000), "no response to an upgrade"),
        (b"\r\n\r\n", "no response to an upgrade"),
    ],
    ids=["another status", "no proof", "another protocol", "nothing"],
)  # fmt: skip
def test_what_is_no_grant_is_said_in_words(response: bytes, words: str) -> None:
    call = Call()
    call.web.data_received(response)
    assert call.inner.ended is not None and words in call.inner.ended
    assert call.tcp.closed


def test_an_answer_that_never_ends_is_given_up() -> None:
    call = Call()
    for number in range(40):
        call.web.data_received(b"HTTP/1.1 101 Fine\r\n" if not number else b"X: " + b"y" * 997 + b"\r\n")
    assert call.inner.ended is not None and "too long" in call.inner.ended


def test_another_subprotocol_is_refused() -> None:
    call = Call()
    call.web.data_received(call.request().replace(b"Protocol: mqtt", b"Protocol: chat"))
    assert call.inner.ended is not None and "subprotocol" in call.inner.ended
    call = Call()
    call.web.data_received(call.request().replace(b"Sec-WebSocket-Protocol: mqtt\r\n", b""))
    assert call.inner.ended == "the server does not speak the subprotocol 'mqtt'"
    assert call.inner.transport is None


@pytest.mark.parametrize(
    "frame",
    [
        b"\x82\x81\x00\x00\x00\x00x",
        b"\x82\x7f" + (PACKET_MAX_BYTES + FRAME_MARGIN_BYTES + 1).to_bytes(8),
        b"\x83\x01x",
        b"\x80\x01x",
    ],
    ids=["masked", "too large", "unknown kind", "continuation of nothing"],
)
def test_a_frame_that_breaks_the_rules_ends_it(frame: bytes) -> None:
    call = opened()
    call.web.data_received(frame)
    assert call.inner.ended and call.tcp.closed


def test_text_from_the_server_is_not_for_us() -> None:
    call = opened()
    call.web.data_received(b"\x81\x01x")
    assert call.inner.ended == "the server sent text; MQTT comes in binary frames"


@given(st.binary(max_size=300))
def test_no_bytes_make_it_fail(data: bytes) -> None:
    Call().web.data_received(data)
    opened().web.data_received(data)

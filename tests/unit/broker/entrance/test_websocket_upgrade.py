"""The HTTP request that becomes a WebSocket, and those that do not."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator

import pytest
from mqtt5 import ConnAckPacket, ConnectPacket

from tests.unit.broker.harness import until
from tests.unit.broker.web import BINARY, HEADERS, WebDoor, WebPeer, frame
from tocsin.broker.entrance import websocket
from tocsin.config import Limits
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.websocket import ORIGIN_MAX

HELLO = encode(ConnectPacket("c", clean_start=True), V5)


@pytest.fixture
async def door() -> AsyncIterator[WebDoor]:
    async with WebDoor(Limits()) as opened:
        yield opened


@pytest.mark.mqtt("6.0.0-4")
@pytest.mark.mqtt311("6.0.0-4")
async def test_the_upgrade_is_answered_with_the_key_and_the_subprotocol(door: WebDoor) -> None:
    web = await door.raw()
    status, headers, _ = await web.request()
    magic = HEADERS["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    assert status == 101
    assert headers["sec-websocket-accept"] == base64.b64encode(hashlib.sha1(magic.encode()).digest()).decode()
    assert headers["sec-websocket-protocol"] == "mqtt"
    assert "sec-websocket-extensions" not in headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Connection": "keep-alive, Upgrade"},  # Firefox
        {"Sec-WebSocket-Protocol": "mqttv3.1, mqtt"},
        {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"},
        {"Origin": "https://elsewhere.example"},
    ],
    ids=lambda headers: next(iter(headers)),
)
async def test_what_browsers_add_is_welcome(door: WebDoor, headers: dict[str, str]) -> None:
    web = await door.raw()
    assert (await web.request(headers=headers))[0] == 101
    web.write(HELLO)
    await WebPeer(web, V5).receive(ConnAckPacket)


@pytest.mark.mqtt("6.0.0-3")
@pytest.mark.mqtt311("6.0.0-3")
@pytest.mark.parametrize(
    ("path", "headers", "status", "words"),
    [
        ("/chat", {}, 404, b"/mqtt"),
        ("/mqtt/", {}, 404, b"/mqtt"),
        ("/mqttx", {}, 404, b"/mqtt"),
        ("/mqtt", {"Sec-WebSocket-Protocol": None}, 400, b"subprotocol 'mqtt'"),
        ("/mqtt", {"Sec-WebSocket-Protocol": "MQTT, wamp"}, 400, b"subprotocol 'mqtt'"),
        ("/mqtt", {"Connection": "close"}, 426, b"WebSocket"),
        ("/mqtt", {"Connection": None, "Upgrade": None}, 426, b"WebSocket"),
        ("/mqtt", {"Upgrade": "h2c"}, 426, b"WebSocket"),
        ("/mqtt", {"Sec-WebSocket-Version": "12"}, 426, b"version 13"),
        ("/mqtt", {"Sec-WebSocket-Key": "short"}, 400, b"Sec-WebSocket-Key"),
    ],
)
async def test_a_request_that_cannot_be_mqtt_is_refused_in_words(
    door: WebDoor,
    channels: list[websocket.WebSocketTransport],
    path: str,
    headers: dict[str, str | None],
    status: int,
    words: bytes,
) -> None:
    web = await door.raw()
    answer, answer_headers, body = await web.request(path, headers)
    assert answer == status
    assert words in body
    assert (answer_headers.get("sec-websocket-version") == "13") is (status == 426)
    assert await web.closed() is None
    await until(channels[0].is_closing)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"POST /mqtt HTTP/1.1", b"405"), (b"GET /mqtt HTTP/1.0", b"505")],
)
async def test_another_method_or_version_is_refused(
    door: WebDoor, channels: list[websocket.WebSocketTransport], request_line: bytes, status: bytes
) -> None:
    web = await door.raw()
    web.writer.write(request_line + b"\r\n\r\n")
    assert (await web.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 " + status)
    await until(channels[0].is_closing)


@pytest.mark.parametrize(
    "garbage", [b"\x10\x0c\x00\x04MQTT\r\n\r\n", b"\r\n\r\n", b"GET /\xff\xfe HTTP/1.1\r\n\r\n"]
)
async def test_what_is_no_http_request_ends_the_connection(
    door: WebDoor, channels: list[websocket.WebSocketTransport], garbage: bytes
) -> None:
    web = await door.raw()
    web.writer.write(garbage)
    assert await web.closed() is None
    await until(channels[0].is_closing)


async def test_a_request_has_a_largest_size(
    door: WebDoor, channels: list[websocket.WebSocketTransport]
) -> None:
    web = await door.raw()
    web.writer.write(b"GET /mqtt HTTP/1.1\r\nX: " + b"x" * 40_000)
    assert await web.closed() is None
    await until(channels[0].is_closing)


async def test_a_socket_that_sends_nothing_is_closed_at_the_connect_deadline() -> None:
    async with WebDoor(Limits(connect_deadline_s=0.1)) as door:
        silent = await door.raw()
        assert await silent.closed() is None
        upgraded = await door.web()
        assert await upgraded.closed() == 1000


async def test_a_socket_counts_as_half_open_before_its_upgrade() -> None:
    async with WebDoor(Limits(half_open_max=1)) as door:
        first, second = await door.raw(), await door.raw()
        assert await first.closed() is None, "the oldest goes"
        assert (await second.request())[0] == 101


async def test_the_origin_is_handed_on_and_cut(
    door: WebDoor, channels: list[websocket.WebSocketTransport]
) -> None:
    await door.web(Origin="https://a.example" + "x" * 1_000)
    await door.web()
    assert channels[0].get_extra_info("origin").startswith("https://a.examplexxx")
    assert len(channels[0].get_extra_info("origin")) == ORIGIN_MAX
    assert channels[1].get_extra_info("origin") is None
    assert channels[1].get_extra_info("peername")[0] == "127.0.0.1"


async def test_frames_may_come_right_behind_the_request(door: WebDoor) -> None:
    web = await door.raw()
    lines = [f"{name}: {text}" for name, text in HEADERS.items()]
    request = "\r\n".join(["GET /mqtt HTTP/1.1", *lines, "", ""]).encode()
    web.writer.write(request + frame(BINARY, HELLO))
    await web.reader.readuntil(b"\r\n\r\n")
    await WebPeer(web, V5).receive(ConnAckPacket)

"""MQTT over WebSocket, over real sockets, with a client that can misbehave."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
    TopicFilter,
    Will,
)

from tests.unit.broker.harness import DEADLINE_S, until
from tests.unit.broker.web import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    WebDoor,
    WebPeer,
    frame,
)
from tocsin.broker.entrance import websocket
from tocsin.config import Limits
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version
from tocsin.wire.mqtt.websocket import FRAME_MARGIN_BYTES

HELLO = encode(ConnectPacket("c", clean_start=True), V5)


@pytest.fixture
async def door() -> AsyncIterator[WebDoor]:
    async with WebDoor(Limits()) as opened:
        yield opened


async def barrier(peer: WebPeer) -> None:
    """The broker has handled everything that this peer sent."""
    peer.send(PingReqPacket())
    await peer.receive(PingRespPacket)


# ── packets ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("4.2.0-1")
@pytest.mark.parametrize("version", [V5, V311])
async def test_a_message_travels_between_websocket_and_tcp_in_either_version(
    door: WebDoor, version: Version
) -> None:
    web, tcp = await door.web_peer("w", version=version), await door.peer("t")
    await web.subscribe(TopicFilter("a/#"))
    await tcp.subscribe(TopicFilter("a/#"))
    web.send(PublishPacket("a/1", b"from the web"))
    for peer in (web, tcp):
        assert (await peer.receive(PublishPacket)).payload == b"from the web"
    tcp.send(PublishPacket("a/2", b"from tcp"))
    for peer in (web, tcp):
        assert (await peer.receive(PublishPacket)).payload == b"from tcp"


@pytest.mark.parametrize("size", [1, 125, 126, 8_000, 8_192, 9_000, 65_535, 65_536, 1_000_000])
async def test_a_payload_of_any_size_goes_there_and_back(door: WebDoor, size: int) -> None:
    peer = await door.web_peer("c")
    await peer.subscribe(TopicFilter("a"))
    payload = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    peer.send(PublishPacket("a", payload))
    assert (await peer.receive(PublishPacket)).payload == payload


async def test_large_messages_reach_a_slow_websocket_reader_unchanged(
    door: WebDoor,
) -> None:
    """More than the kernel takes at once, in sizes that differ: no frame's header may be another's."""
    slow, publisher = await door.web_peer("s"), await door.peer("p")
    await slow.subscribe(TopicFilter("a"))
    slow.stop_reading()
    sizes = [9_000 + 100 * number for number in range(400)]
    for number, size in enumerate(sizes):
        publisher.send(PublishPacket("a", bytes([number % 256]) * size))
        if number % 16 == 0:
            await asyncio.sleep(0)
    publisher.send(PingReqPacket())
    await publisher.receive(PingRespPacket)
    slow.start_reading()
    for number, size in enumerate(sizes):
        assert (await slow.receive(PublishPacket)).payload == bytes([number % 256]) * size
    assert door.exchange.counts.dropped == 0


@pytest.mark.mqtt("6.0.0-2")
@pytest.mark.mqtt311("6.0.0-2")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
async def test_frames_and_fragments_may_cut_packets_anywhere(door: WebDoor, data: st.DataObject) -> None:
    payloads = data.draw(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
    packets = [PublishPacket("a", payload) for payload in payloads]
    stream = b"".join(encode(packet, V5) for packet in packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    ends = [*data.draw(st.lists(st.booleans(), min_size=len(cuts), max_size=len(cuts))), True]
    pings = data.draw(st.lists(st.booleans(), min_size=len(pieces), max_size=len(pieces)))
    peer = await door.web_peer("c")
    await peer.subscribe(TopicFilter("a"))
    fresh, expected_pongs = True, 0
    for piece, end, ping in zip(pieces, ends, pings, strict=True):
        if ping:  # control frames may come between fragments
            peer.web.writer.write(frame(PING, b"?"))
            expected_pongs += 1
        peer.web.writer.write(frame(BINARY if fresh else CONTINUATION, piece, fin=end))
        fresh = end
    heard, pongs = b"", 0
    while len(heard) < len(stream) or pongs < expected_pongs:
        kind, payload = await peer.web.next()
        if kind == PONG:
            pongs += 1
        else:
            heard += payload
    assert heard == stream, "a QoS 0 message without properties is forwarded as it came"
    peer.close()


@pytest.mark.mqtt("6.0.0-2")
@pytest.mark.mqtt311("6.0.0-2")
async def test_many_packets_may_share_a_frame(door: WebDoor) -> None:
    web = await door.web()
    web.write(HELLO + encode(PingReqPacket(), V5) * 3)
    peer = WebPeer(web, V5)
    await peer.receive(ConnAckPacket)
    for _ in range(3):
        await peer.receive(PingRespPacket)


# ── frames that break the rules ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("6.0.0-1")
@pytest.mark.mqtt311("6.0.0-1")
@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (frame(TEXT, b"hello"), 1003),
        (frame(CONTINUATION, b"x"), 1002),
        (frame(BINARY, b"", fin=False) + frame(BINARY, b""), 1002),
        (frame(BINARY, b"", fin=False) + frame(TEXT, b""), 1002),
        (frame(BINARY, b"x", reserved=4), 1002),  # compressed, as nobody agreed
        (frame(BINARY, b"x", masked=False), 1002),
        (frame(PING, b"x", fin=False), 1002),
        (frame(PING, b"x" * 126), 1002),
        (frame(0x3, b"x"), 1002),
        (frame(CLOSE, b"\x03"), 1002),
    ],
    ids=[
        "text", "continuation of nothing", "message within a message", "text within a message", "reserved bit",
        "not masked", "ping in fragments", "long ping", "unknown kind", "bad close",
    ],
)  # fmt: skip
async def test_a_frame_that_breaks_the_rules_closes_with_the_right_code(
    door: WebDoor, frames: bytes, code: int
) -> None:
    peer, watcher = await door.web_peer("bad"), await door.web_peer("watcher")
    peer.web.writer.write(frames)
    assert await peer.web.closed() == code
    await until(lambda: door.listener.clients == 1)
    await barrier(watcher)


@pytest.mark.parametrize("claimed", [1_024 + FRAME_MARGIN_BYTES + 1, 1 << 40, (1 << 63) - 1])
async def test_a_frame_over_the_limit_is_refused_by_its_header(claimed: int) -> None:
    async with WebDoor(Limits(packet_max_bytes=1_024)) as door:
        peer = await door.web_peer("big")
        peer.web.writer.write(bytes([0x80 | BINARY, 0x80 | 127]) + claimed.to_bytes(8))
        assert await peer.web.closed() == 1009
        await until(lambda: door.listener.clients == 0)


async def test_a_packet_over_the_limit_in_small_frames_is_refused_too() -> None:
    async with WebDoor(Limits(packet_max_bytes=1_024)) as door:
        peer = await door.web_peer("big")
        stream = encode(PublishPacket("a", b"x" * 2_000), V5)
        for start in range(0, len(stream), 100):
            peer.web.write(stream[start : start + 100])
        assert int((await peer.receive(DisconnectPacket)).reason_code) == 0x95
        assert await peer.web.closed() == 1000


async def test_an_error_of_ours_ends_one_connection(
    door: WebDoor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peer, watcher = await door.web_peer("c"), await door.web_peer("watcher")

    def broken(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(door.exchange, "publish", broken)
    monkeypatch.setattr(door.exchange, "publish_run", broken)
    peer.send(PublishPacket("a", b""))
    assert await peer.web.closed() == 1011
    await barrier(watcher)
    assert "broken on purpose" in "".join(capsys.readouterr())


# ── pings, back-pressure, the end ───────────────────────────────────────────────────────────────────────────


async def test_a_ping_is_answered_with_its_payload(door: WebDoor) -> None:
    web = await door.web()
    for payload in (b"", b"x" * 125):
        web.writer.write(frame(PING, payload))
        assert await web.next() == (PONG, payload)
    web.writer.write(frame(PONG, b"unasked"))
    web.writer.write(frame(PING, b"still here"))
    assert await web.next() == (PONG, b"still here")


async def test_a_subscriber_that_does_not_read_loses_messages_and_nobody_else_does(
    channels: list[websocket.WebSocketTransport],
) -> None:
    limit = 1 << 16
    async with WebDoor(Limits(outbound_max_bytes=limit)) as door:
        stuck, reading = await door.web_peer("stuck"), await door.web_peer("reading")
        publisher = await door.peer("p")
        for subscriber in (stuck, reading):
            await subscriber.subscribe(TopicFilter("a"))
        stuck.stop_reading()
        payload, count = b"x" * 50_000, 400  # 20 MB: more than the kernel's buffers and ours together
        for _ in range(count):
            publisher.send(PublishPacket("a", payload))
            assert (await reading.receive(PublishPacket)).payload == payload
            assert channels[0].get_write_buffer_size() <= 2 * limit
        assert door.exchange.counts.dropped > 0
        for _ in range(20_000):  # and the answers to its pings do not pile up either
            stuck.web.writer.write(frame(PING, b"x" * 125))
        stuck.send(PublishPacket("a", b"behind the pings"))
        while (await reading.receive(PublishPacket)).payload != b"behind the pings":
            pass
        assert channels[0].get_write_buffer_size() <= 2 * limit
        stuck.start_reading()
        stuck.web.writer.write(frame(PING, b"last"))
        kind, heard = BINARY, b""
        while (kind, heard) != (PONG, b"last"):
            kind, heard = await stuck.web.next()
        stuck.send(PingReqPacket())
        while (await stuck.web.next())[1] != encode(PingRespPacket(), V5):
            pass


async def test_a_client_that_closes_is_answered_and_its_will_published(door: WebDoor) -> None:
    watcher = await door.web_peer("watcher")
    await watcher.subscribe(TopicFilter("gone"))
    web = await door.web()
    web.write(encode(ConnectPacket("c", will=Will("gone", payload=b"x")), V5))
    await WebPeer(web, V5).receive(ConnAckPacket)
    web.writer.write(frame(CLOSE, (1001).to_bytes(2)))
    assert await web.closed() == 1001, "with its own code"
    assert (await watcher.receive(PublishPacket)).topic == "gone"


async def test_a_client_that_vanishes_has_its_will_published(door: WebDoor) -> None:
    watcher = await door.web_peer("watcher")
    await watcher.subscribe(TopicFilter("gone"))
    web = await door.web()
    web.write(encode(ConnectPacket("c", will=Will("gone", payload=b"x")), V5))
    await WebPeer(web, V5).receive(ConnAckPacket)
    web.transport.abort()
    assert (await watcher.receive(PublishPacket)).topic == "gone"


async def test_goodbye_in_mqtt_ends_the_websocket_in_order(door: WebDoor) -> None:
    peer = await door.web_peer("c")
    peer.send(DisconnectPacket())
    assert await peer.web.closed() == 1000
    assert door.listener.clients == 0


async def test_a_second_connection_with_the_same_client_id_takes_over(door: WebDoor) -> None:
    first = await door.web_peer("same")
    second = await door.peer("same")
    assert int((await first.receive(DisconnectPacket)).reason_code) == 0x8E
    assert await first.web.closed() == 1000
    second.send(PingReqPacket())
    await second.receive(PingRespPacket)


async def test_a_client_that_does_not_answer_close_is_cut_off(
    door: WebDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_DEADLINE_S", 0.05)
    peer = await door.web_peer("c")
    peer.send(DisconnectPacket())
    kind, _ = await peer.web.next()
    assert kind == CLOSE
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await peer.web.next()


async def test_stopping_tells_the_clients_and_ends_sockets_that_are_not_upgraded(
    door: WebDoor, channels: list[websocket.WebSocketTransport]
) -> None:
    client, silent = await door.web_peer("c"), await door.raw()
    await until(lambda: len(channels) == 2)
    door.server.close()
    await door.listener.close()
    assert int((await client.receive(DisconnectPacket)).reason_code) == 0x8B
    assert await client.web.closed() == 1000
    assert await silent.closed() is None
    with pytest.raises(OSError):
        await door.raw()


# ── TLS ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def certificate(
    tmp_path_factory: pytest.TempPathFactory, debian_program: Callable[[str, str], str]
) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    made, key = directory / "certificate.pem", directory / "key.pem"
    subprocess.run(
        [
            debian_program("openssl", "openssl"), "req", "-x509", "-nodes", "-days", "1",
            "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(key), "-out", str(made),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return made, key


async def test_messages_travel_over_tls(certificate: tuple[Path, Path]) -> None:
    made, key = certificate
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made, key)
    client = ssl.create_default_context(cafile=str(made))
    async with WebDoor(Limits(), context=server) as door:
        web, tcp = await door.web_peer("w", context=client), await door.peer("t")
        await web.subscribe(TopicFilter("a"))
        sizes = [10, 20_000, 300_000, 30, 900_000]
        for size in sizes:
            tcp.send(PublishPacket("a", b"x" * size))
        assert [len((await web.receive(PublishPacket)).payload) for _ in sizes] == sizes
        web.send(DisconnectPacket())
        assert await web.web.closed() == 1000

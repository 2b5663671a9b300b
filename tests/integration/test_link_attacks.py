"""Attacks on the links of a real network: whoever listens on a dead broker's port, or knocks at one, gets nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, PublishPacket, SubAckPacket, SubscribePacket, TopicFilter

from tests.integration.running import up
from tests.integration.test_elsewhere import address, link_address
from tests.unit.broker.harness import Peer
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.runtime.security.authority import Authority
from tocsin.runtime.security.credentials import PeerTls, credentials_of
from tocsin.wire.mqtt.connect import V5

BROKERS = json.dumps([{"id": each, "cluster": "north"} for each in ("north-1", "north-2")])
STEP_S = 60.0
SECRET = b"the plan is secret"
# Long enough for an attacker: a broker that ends is started again after half a second, and its port is ours by then.
OPTIONS = ("--set", f"brokers={BROKERS}", "--set", "recovery.promote_after_ms=600000")


@pytest.fixture(scope="module")
def network() -> Iterator[dict[str, Any]]:
    with up(*OPTIONS, level="error") as line:
        yield line


def certificates(network: dict[str, Any]) -> Path:
    return Path(network["state"]) / "certs"


class Eavesdropper:
    """Listens where a broker was, and keeps what it is told."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.calls = 0
        self.told = bytearray()
        self._server: asyncio.Server | None = None

    async def take(self, at: tuple[str, int]) -> None:
        """Have the port, as soon as it is free."""
        async with asyncio.timeout(STEP_S):
            while True:
                try:
                    self._server = await asyncio.start_server(self._hear, *at, ssl=self.context)
                    return
                except OSError:
                    await asyncio.sleep(0)

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        try:
            while data := await asyncio.wait_for(reader.read(65_536), 3):
                self.told += data
                writer.write(b"\x20\x03\x00\x00\x00")  # a CONNACK, should that have been a CONNECT
        except (OSError, TimeoutError):
            pass
        finally:
            writer.close()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()


@pytest.mark.parametrize("secured", [False, True])
async def test_an_impostor_on_a_dead_brokers_port_learns_nothing(
    network: dict[str, Any], secured: bool, tmp_path: Path
) -> None:
    context = None
    if secured:  # a certificate with the right name, of an authority that is nobody's
        own = PeerTls(Authority.open_or_make(tmp_path / "own").ensure("north-2", role="broker"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own._credentials.certificate_path)
    listener = Eavesdropper(context)
    topic = f"secret/{secured}"
    async with asyncio.timeout(2 * STEP_S):
        subscriber = AsyncClient([Server(*address(network, "north-2"))], client_id=f"s-{secured}")
        async with AsyncClient([Server(*address(network, "north-1"))]) as publisher, subscriber:
            inbox = await subscriber.subscribe(topic)
            heard = asyncio.create_task(anext(aiter(inbox)))
            while not heard.done():  # so that there is a link
                await publisher.publish(topic, SECRET)
                await asyncio.sleep(0.05)
            pid = await pid_of(network, "broker/north-2")
            os.kill(pid, signal.SIGKILL)
            await listener.take(link_address(network, "north-2"))
            while not (listener.calls if not secured else listener.calls or await tried(network)):
                await publisher.publish(topic, SECRET)
                await asyncio.sleep(0.02)
            for _ in range(50):
                await publisher.publish(topic, SECRET)
                await asyncio.sleep(0.02)
        await listener.close()
    for word in (SECRET, b"$link", b"secret", b"cluster"):
        assert word not in bytes(listener.told)
    if not secured:
        assert listener.told[:1] == b"\x16"  # a TLS ClientHello, and nothing after it
    await back(network)


async def tried(network: dict[str, Any]) -> bool:
    """A handshake that fails is not seen by a program; give it some time."""
    await asyncio.sleep(2)
    return True


async def pid_of(network: dict[str, Any], name: str) -> int:
    import psutil

    parent = psutil.Process(network["pids"]["broker/north-1"]).parent()
    assert parent is not None
    broker = name.partition("/")[2]
    for each in parent.children():
        if each.cmdline()[-1:] == [broker]:
            return int(each.pid)
    raise AssertionError(f"{name} does not run")


async def back(network: dict[str, Any]) -> None:
    """Wait until the broker that was killed serves its clients, and its link is up again."""
    async with asyncio.timeout(2 * STEP_S):
        while True:
            try:
                async with (
                    AsyncClient([Server(*address(network, "north-2"))]) as subscriber,
                    AsyncClient([Server(*address(network, "north-1"))]) as publisher,
                ):
                    inbox = await subscriber.subscribe("back")
                    heard = asyncio.create_task(anext(aiter(inbox)))
                    async with asyncio.timeout(10):
                        while not heard.done():
                            await publisher.publish("back", b"?")
                            await asyncio.sleep(0.1)
                    return
            except Exception:  # not yet
                await asyncio.sleep(0.5)


async def test_the_plain_port_has_no_links(network: dict[str, Any]) -> None:
    async with asyncio.timeout(STEP_S):
        peer = Peer(*await asyncio.open_connection(*address(network, "north-1")), V5)
        said = [("broker", "north-2"), ("cluster", "north")]
        peer.send(
            ConnectPacket(
                "$link/north-2", username="$link", password=b"x", clean_start=True, user_properties=said
            )
        )
        assert (
            int((await peer.receive(ConnAckPacket)).reason_code) == 0
        )  # a client like any other: on this machine
        peer.send(SubscribePacket(1, [TopicFilter("forged/#")]))
        await peer.receive(SubAckPacket)
        peer.send(PublishPacket("$near/words", b"forged"), PublishPacket("$carried", b"forged"))
        peer.send(PublishPacket("$one/forged/x", b"forged"), PublishPacket("forged/x", b"plain"))
        assert (await peer.receive(PublishPacket)).payload == b"plain"
        peer.close()


async def knock(network: dict[str, Any], context: ssl.SSLContext, client_id: str) -> int | None:
    """The answer to a CONNECT at the listener for links; None if there is none."""
    try:
        reader, writer = await asyncio.open_connection(*link_address(network, "north-1"), ssl=context)
        peer = Peer(reader, writer, V5)
        peer.send(ConnectPacket(client_id, clean_start=True, user_properties=[("cluster", "north")]))
        try:
            return int((await peer.receive(ConnAckPacket)).reason_code)
        finally:
            writer.transport.abort()
    except (ssl.SSLError, ConnectionError):
        return None


async def test_the_link_door_admits_only_brokers_under_their_own_name(
    network: dict[str, Any], tmp_path: Path
) -> None:
    stranger = PeerTls(Authority.open_or_make(tmp_path / "other").ensure("north-2", role="broker"))
    stranger_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger_context.check_hostname, stranger_context.verify_mode = False, ssl.CERT_NONE
    stranger_context.load_cert_chain(stranger._credentials.certificate_path)
    own = {
        role: PeerTls(credentials_of(certificates(network), role, name)).client
        for role, name in (("broker", "north-2"), ("feeder", "feeder"), ("operator", "operator"))
    }
    async with asyncio.timeout(STEP_S):
        assert await knock(network, stranger_context, "$link/north-2") is None
        assert await knock(network, own["feeder"], "$link/north-2") is None
        assert await knock(network, own["operator"], "$link/operator") is None
        assert await knock(network, own["broker"], "$link/north-1") == 0x85
        assert await knock(network, own["broker"], "$link/north-2") == 0

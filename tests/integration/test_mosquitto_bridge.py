"""A real mosquitto, bridged to a broker of ours with mosquitto's default settings, in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, PublishPacket, TopicFilter

from tests.unit.broker.harness import Door, Peer
from tocsin.config import Limits
from tocsin.core.session.bridging import state_topic
from tocsin.store.servers.embedded import free_ports
from tocsin.wire.mqtt.connect import V5

DEADLINE_S = 30.0
NAME = "far"  # the bridge's client id at our broker


@pytest.fixture
def mosquitto(debian_program: Callable[[str, str], str]) -> str:
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    return shutil.which("mosquitto", path=places) or debian_program("mosquitto", "mosquitto")


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with Door(Limits()) as opened:
        yield opened


@contextlib.asynccontextmanager
async def bridged(program: str, home: Path, port: int, version: str) -> AsyncIterator[int]:
    """A mosquitto that is bridged to a port, and its own port."""
    (own,) = free_ports("127.0.0.1", 1)
    lines = [
        f"listener {own} 127.0.0.1",
        "allow_anonymous true",
        f"user {pwd.getpwuid(os.geteuid()).pw_name}",
        "connection bridge",
        f"address 127.0.0.1:{port}",
        f"remote_clientid {NAME}",
        f"bridge_protocol_version {version}",
        "restart_timeout 1",
        "topic # both 1",
    ]
    path = home / "mosquitto.conf"
    path.write_text("\n".join(lines) + "\n")
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(program, "-c", str(path), stdout=quiet, stderr=quiet)
    try:
        yield own
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def client(port: int, client_id: str) -> Peer:
    """A client of mosquitto, which may be about to start."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                peer = Peer(*await asyncio.open_connection("127.0.0.1", port), V5)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            peer.send(ConnectPacket(client_id, clean_start=True))
            await peer.receive(ConnAckPacket)
            return peer


async def heard(peer: Peer, payload: bytes) -> PublishPacket:
    """The next message, which is this one."""
    async with asyncio.timeout(DEADLINE_S):
        packet = await peer.receive(PublishPacket)
    assert packet.payload == payload
    return packet


def numbers(name: str) -> Iterator[bytes]:
    return (f"{name} {number}".encode() for number in range(20))


@pytest.mark.parametrize("version", ["mqttv311", "mqttv50", "mqttv31"])
async def test_a_mosquitto_bridge_carries_messages_both_ways_once(
    mosquitto: str, door: Door, tmp_path: Path, version: str
) -> None:
    here = await door.peer("here")
    await here.subscribe(TopicFilter("a/#"), TopicFilter(state_topic(NAME)))
    async with bridged(mosquitto, tmp_path, door.port, version) as far_port:
        await heard(here, b"1")  # the bridge says that it is connected
        far = await client(far_port, "away")
        await far.subscribe(TopicFilter("a/#"))
        for payload in numbers("ours"):
            here.send(PublishPacket("a/ours", payload))
            await heard(here, payload)
            await heard(far, payload)
        for payload in numbers("theirs"):
            far.send(PublishPacket("a/theirs", payload))
            await heard(far, payload)
            await heard(here, payload)
        far.send(PublishPacket("a/kept", b"kept", retain=True))
        await heard(far, b"kept")
        await heard(here, b"kept")
        far.writer.transport.abort()
    await heard(here, b"0")  # a killed bridge leaves a word of that, and nothing came twice
    late = await door.peer("late")
    await late.subscribe(TopicFilter("a/kept"), TopicFilter(state_topic(NAME)))
    kept = [await late.receive(PublishPacket), await late.receive(PublishPacket)]
    assert {each.payload for each in kept} == {b"kept", b"0"}
    assert all(each.retain for each in kept)


async def test_a_bridge_that_was_cut_off_comes_back_and_carries_on(
    mosquitto: str, door: Door, tmp_path: Path
) -> None:
    here = await door.peer("here")
    await here.subscribe(TopicFilter(state_topic(NAME)), TopicFilter("a/#"))
    async with bridged(mosquitto, tmp_path, door.port, "mqttv311") as far_port:
        await heard(here, b"1")
        far = await client(far_port, "away")
        await far.subscribe(TopicFilter("a/#"))
        transport = door.parts.clients.present[NAME]._transport
        assert transport is not None
        transport.abort()
        await heard(here, b"0")
        await heard(here, b"1")
        far.send(PublishPacket("a/again", b"again"))
        await heard(far, b"again")
        await heard(here, b"again")
        far.writer.transport.abort()

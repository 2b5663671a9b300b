"""Clients that a coordinator's door passes on, on real sockets: whose address counts, and who may pass clients on."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, DisconnectPacket, PublishPacket, TopicFilter

from tests.unit.broker.harness import Door, Peer, coordinator_tls, security_of
from tocsin.broker.entrance.passed_on import PassedOnClient
from tocsin.config import Limits
from tocsin.core.access.admission import NOT_AUTHORIZED
from tocsin.model.network import Scheme
from tocsin.wire.mqtt.connect import V5, V311, Version
from tocsin.wire.proxy_header import PassedOn, write_header


async def passed_on(door: Door, client: PassedOn, version: Version = V5) -> Peer:
    """A client, as a coordinator passes it on."""
    context = coordinator_tls().client
    reader, writer = await asyncio.open_connection("127.0.0.1", door.link_port, ssl=context)
    peer = Peer(reader, writer, version)
    door.look_after(peer)
    writer.write(write_header(client))
    peer.send(ConnectPacket("passed", clean_start=True))
    return peer


@pytest.mark.parametrize("version", [V5, V311])
async def test_passed_on_client_is_served_like_any_other(door: Door, version: Version) -> None:
    peer = await passed_on(door, PassedOn("127.0.0.7", 4_711), version)
    assert int((await peer.receive(ConnAckPacket)).reason_code) == 0
    await peer.subscribe(TopicFilter("a/#"))
    publisher = await door.peer("p")
    publisher.send(PublishPacket("a/b", b"heard"))
    assert (await peer.receive(PublishPacket)).payload == b"heard"
    assert door.link_listener.links == 0, "it is no link"
    (origin,) = [each for each in door.listener.register.origins.values() if each.passed_on]
    assert (origin.address, origin.scheme) == ("127.0.0.7", "mqtt")


async def test_passed_on_client_of_a_stopping_broker_is_sent_nowhere(door: Door) -> None:
    door.refuges = {Scheme.MQTT: "elsewhere:1883"}
    follows, passed = await door.peer("follows"), await passed_on(door, PassedOn("127.0.0.7", 4_711))
    await passed.receive(ConnAckPacket)
    await door.listener.close()
    assert (await follows.receive(DisconnectPacket)).server_reference == "elsewhere:1883"
    goodbye = await passed.receive(DisconnectPacket)
    assert (goodbye.server_reference, int(goodbye.reason_code)) == (None, 0x8B)


async def test_address_of_the_client_counts_and_not_the_coordinators() -> None:
    async with Door(Limits(connection_rate=1)) as door:
        stranger = await passed_on(door, PassedOn("192.0.2.7", 1))
        assert int((await stranger.receive(ConnAckPacket)).reason_code) == NOT_AUTHORIZED
        near = await passed_on(door, PassedOn("127.0.0.1", 1))
        assert int((await near.receive(ConnAckPacket)).reason_code) == 0
        for _ in range(9):  # ten a burst; the first came before
            await passed_on(door, PassedOn("192.0.2.7", 1))
        assert await (await passed_on(door, PassedOn("192.0.2.7", 1))).closed()


async def test_header_of_a_broker_or_a_client_is_not_believed(door: Door) -> None:
    header = write_header(PassedOn("127.0.0.1", 1))
    for port, context in ((door.link_port, security_of("south-1").tls.client), (door.port, None)):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        peer = Peer(reader, writer, V5)
        door.look_after(peer)
        writer.write(header)
        with pytest.raises((ConnectionError, AssertionError)):
            await peer.receive(ConnAckPacket)


async def test_coordinator_without_a_header_is_refused(door: Door) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.link_port, ssl=coordinator_tls().client)
    peer = Peer(reader, writer, V5)
    door.look_after(peer)
    peer.send(ConnectPacket("passed", clean_start=True))
    assert await peer.closed()


class FarTransport(asyncio.Transport):
    """A connection of a coordinator on another machine."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("192.0.2.1", 1) if name == "peername" else default


async def test_loopback_client_of_another_machine_is_not_of_this_one() -> None:
    client = PassedOnClient(lambda: (_ for _ in ()).throw(AssertionError), FarTransport())
    client._client = PassedOn("127.0.0.1", 7, tls=True)
    assert client.get_extra_info("peername") == ("", 7)
    client._client = msgspec.structs.replace(client._client, address="192.0.2.9")
    assert client.get_extra_info("peername") == ("192.0.2.9", 7)
    client._deadline.cancel()

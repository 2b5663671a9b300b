"""A connection that is over is freed at once: a crowd that comes and goes leaves nothing to the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from mqtt5 import ConnectPacket, DisconnectPacket, PingReqPacket, PingRespPacket, TopicFilter

from tests.unit.broker.harness import Door, Peer, until
from tests.unit.broker.talk import ZERO, publish
from tocsin.broker.connection.connection import Connection
from tocsin.broker.connection.publish import ClientPublisher
from tocsin.broker.delivery.client_delivery import DurableDelivery


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def parts() -> int:
    """How many connections there are, and parts of them."""
    kinds = (Connection, ClientPublisher, DurableDelivery)
    return sum(type(each) in kinds for each in gc.get_objects())


async def silent(peer: Peer) -> None:
    pass


async def subscribing(peer: Peer) -> None:
    await peer.subscribe(TopicFilter("a/#"))


async def publishing(peer: Peer) -> None:
    await publish(peer, "b", b"1", ZERO)
    peer.send(PingReqPacket())
    await peer.first(PingRespPacket)


@pytest.mark.parametrize("says_goodbye", [True, False])
@pytest.mark.parametrize("expiry_s", [0, 60])
async def test_a_connection_that_is_over_is_freed_at_once(
    door: Door, uncollected: None, expiry_s: int, says_goodbye: bool
) -> None:
    before = parts()
    for does in (silent, subscribing, publishing):  # a session that lasts is new first, and then resumed
        connect = ConnectPacket("c", clean_start=not expiry_s, session_expiry_interval=expiry_s)
        peer = await door.peer(connect=connect)
        await does(peer)
        if says_goodbye:
            peer.send(DisconnectPacket())
            assert await peer.closed()
        peer.close()
        await until(lambda: not door.listener.clients)
    await until(lambda: parts() == before)

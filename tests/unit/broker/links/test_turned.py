"""A broker that cannot be dialled dials, and is reached over that connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, DisconnectPacket, PublishPacket, TopicFilter

from tests.unit.broker.harness import Door, Peer, until
from tocsin.config import Limits
from tocsin.model.network import BrokerInfo, Role, Route, Scope

HUB, EDGE = "cloud-1", "north-1"
NOWHERE_PORT = 9  # nobody listens there
TO_EDGE = Route(Scope.ORIGIN, EDGE, "a")


class Pair:
    """A hub, and an edge broker that it cannot dial."""

    def __init__(self, hub: Door, edge: Door) -> None:
        self.hub, self.edge = hub, edge
        self.at_hub = hub.info(HUB, "cloud", Role.ROUTING)
        self.at_edge = msgspec.structs.replace(edge.info(EDGE, "north"), port=NOWHERE_PORT)

    def route(self) -> None:
        """The hub has messages for the edge; the edge has none for the hub."""
        self.hub.exchange.change_routes((TO_EDGE,), (), (self.at_edge,))

    def dial(self, at: BrokerInfo | None = None) -> None:
        self.edge.exchange.change_routes((), (), (at or self.at_hub,), {HUB})

    @property
    def up(self) -> bool:
        return EDGE in self.hub.exchange.links and self.hub.exchange.links[EDGE].up

    async def subscriber(self) -> Peer:
        peer = await self.edge.peer("subscriber")
        await peer.subscribe(TopicFilter("a"))
        return peer

    async def publish(self, *payloads: bytes) -> None:
        publisher = await self.hub.peer("publisher")
        publisher.send(*(PublishPacket("a", payload) for payload in payloads))


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(Door(Limits(), broker=HUB, cluster="cloud"))
        edge = await stack.enter_async_context(Door(Limits(), broker=EDGE, cluster="north", outward=True))
        yield Pair(hub, edge)


@pytest.mark.parametrize("first", ["route", "dial"])
async def test_messages_come_over_the_connection_that_the_edge_has_dialled(pair: Pair, first: str) -> None:
    heard = await pair.subscriber()
    for act in (pair.route, pair.dial) if first == "route" else (pair.dial, pair.route):
        act()
        await asyncio.sleep(0.05)
    await until(lambda: pair.up)
    await pair.publish(*(b"%d" % number for number in range(50)))
    assert [(await heard.receive(PublishPacket)).payload for _ in range(50)] == [
        b"%d" % number for number in range(50)
    ]


async def test_a_turned_connection_that_breaks_is_made_again(pair: Pair) -> None:
    heard = await pair.subscriber()
    pair.dial()
    pair.route()
    await until(lambda: pair.up)
    pair.edge.link_listener.end_all()
    await until(lambda: not pair.up)
    await until(lambda: pair.up)
    await pair.publish(b"again")
    assert (await heard.receive(PublishPacket)).payload == b"again"


async def test_an_authority_that_goes_ends_links_to_outward_peers(pair: Pair) -> None:
    """The peer has shown its certificate when it dialled, and may have lost its key to somebody since."""
    pair.dial()
    await until(lambda: EDGE in pair.hub.parts.turned.waiting)
    pair.hub.link_listener.end_all()
    await until(lambda: not pair.hub.parts.turned.waiting)
    pair.route()
    await until(lambda: pair.up)
    pair.hub.exchange.peers.dial_again()
    assert not pair.up
    await until(lambda: pair.up)


async def test_an_edge_that_moves_on_leaves_nothing_behind(pair: Pair) -> None:
    """The hub's link is closed: the edge's connection waits for the next one."""
    pair.dial()
    pair.route()
    await until(lambda: pair.up)
    pair.hub.exchange.peers.links[EDGE].close()
    await until(lambda: pair.edge.link_listener.links == 0)
    await until(lambda: EDGE in pair.hub.parts.turned.waiting)


async def test_a_peer_that_turns_must_say_that_it_listens(pair: Pair) -> None:
    said = [("cluster", "north"), ("turn", "1")]
    peer = await pair.hub.link(
        EDGE, "north", connect=ConnectPacket(f"$link/{EDGE}", clean_start=True, user_properties=said)
    )
    peer.send(PublishPacket("a", b"x"))
    assert int((await peer.receive(DisconnectPacket)).reason_code) == 0x82


async def test_nobody_turns_a_connection_in_the_name_of_another(pair: Pair) -> None:
    said = [("cluster", "north"), ("turn", "1")]
    connect = ConnectPacket("$link/south-1", clean_start=True, user_properties=said)
    peer = await pair.hub.link(EDGE, "north", connect=connect, accepted=False)
    assert int((await peer.receive(ConnAckPacket)).reason_code) == 0x85

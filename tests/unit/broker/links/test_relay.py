"""Messages go around a link that is cut, over other brokers: once, in order, and back when the link is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest
from mqtt5 import PublishPacket, TopicFilter

from tests.unit.broker.harness import Door, Peer, until
from tocsin.broker.links.link import Link
from tocsin.config import Limits
from tocsin.core.links import path as passage
from tocsin.model.network import BrokerInfo, Route, Scope
from tocsin.wire.internal.relayed import TOPIC, RelayHeader, header_of, wrap
from tocsin.wire.mqtt.codec import Decoder
from tocsin.wire.mqtt.connect import V5

ORIGIN, FIRST, SECOND, END, FAR = "north-1", "north-2", "west-1", "south-1", "south-2"
NOWHERE_PORT = 9  # nobody listens there


class Net:
    """Five brokers; the link from the first to the last but one leads nowhere."""

    def __init__(self, doors: dict[str, Door]) -> None:
        self.doors = doors
        self.infos = {name: door.info(name, name.partition("-")[0]) for name, door in doors.items()}
        self.cut = msgspec.structs.replace(self.infos[END], port=NOWHERE_PORT)

    def route(self, broker: str, *routes: Route, peers: tuple[BrokerInfo, ...]) -> None:
        self.doors[broker].exchange.change_routes(routes, (), peers)

    def link(self, broker: str, peer: str) -> Link:
        return self.doors[broker].exchange.links[peer]

    def statistics(self, broker: str) -> dict[str, int]:
        return self.doors[broker].exchange.statistics()


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    async with AsyncExitStack() as stack:
        doors = {
            name: await stack.enter_async_context(Door(Limits(), broker=name, cluster=name.partition("-")[0]))
            for name in (ORIGIN, FIRST, SECOND, END, FAR)
        }
        yield Net(doors)


async def subscriber(net: Net, broker: str, *filters: str) -> Peer:
    peer = await net.doors[broker].peer(f"at {broker}")
    await peer.subscribe(*(TopicFilter(each) for each in filters or ("#",)))
    return peer


async def payloads(peer: Peer, count: int) -> list[bytes]:
    return [(await peer.receive(PublishPacket)).payload for _ in range(count)]


TO_END = Route(Scope.ORIGIN, END, "a/#")


async def test_a_relay_delivers_to_the_clients_that_the_link_would_reach(net: Net) -> None:
    heard = await subscriber(net, END)
    bystander = await subscriber(net, FIRST)
    publisher = await net.doors[ORIGIN].peer("publisher")
    net.route(ORIGIN, TO_END, peers=(net.cut, net.infos[FIRST]))
    net.route(FIRST, peers=(net.infos[END],))
    publisher.send(PublishPacket("a/1", b"held"))
    await until(lambda: net.statistics(ORIGIN)["published"] == 1)
    net.doors[ORIGIN].exchange.relays.change({END: (FIRST,)})
    publisher.send(*(PublishPacket("a/1", b"%d" % number) for number in range(50)))
    publisher.send(PublishPacket("a/2", b"last", user_properties=[("k", "v")]))
    assert await payloads(heard, 52) == [b"held", *(b"%d" % number for number in range(50)), b"last"]
    assert net.statistics(FIRST)["carried"] == 52 and net.statistics(ORIGIN)["sent_around"] == 52
    assert net.statistics(ORIGIN)["dropped"] == net.statistics(FIRST)["dropped"] == 0
    publisher.send(PublishPacket("b", b"not for there"))
    local = await net.doors[FIRST].peer("another")
    local.send(PublishPacket("c", b"own"))
    assert await payloads(bystander, 1) == [b"own"]


async def test_the_last_broker_forwards_foreign_messages_along_its_routes(
    net: Net,
) -> None:
    """As a routing broker does with what comes over a link: not into the cluster that the message came from."""
    far = await subscriber(net, FAR)
    near = await subscriber(net, FIRST, "a/#")
    net.route(
        END,
        Route(Scope.TRANSIT, FAR, "a/#"),
        Route(Scope.TRANSIT, FIRST, "a/#"),
        peers=(net.infos[FAR], net.infos[FIRST]),
    )
    net.route(ORIGIN, TO_END, peers=(net.cut, net.infos[SECOND]))
    net.route(SECOND, peers=(net.infos[END],))
    net.doors[ORIGIN].exchange.relays.change({END: (SECOND,)})
    publisher = await net.doors[ORIGIN].peer("publisher")
    publisher.send(PublishPacket("a/1", b"x"))
    assert await payloads(far, 1) == [b"x"]
    local = await net.doors[FIRST].peer("another")
    local.send(PublishPacket("a/2", b"own"))
    assert await payloads(near, 1) == [b"own"]  # the other one, from its own cluster, never came by this way


async def test_two_relays_pass_messages_on(net: Net) -> None:
    heard = await subscriber(net, END)
    net.route(ORIGIN, TO_END, peers=(net.cut, net.infos[FIRST]))
    net.route(FIRST, peers=(net.infos[SECOND],))
    net.route(SECOND, peers=(net.infos[END],))
    net.doors[ORIGIN].exchange.relays.change({END: (FIRST, SECOND)})
    publisher = await net.doors[ORIGIN].peer("publisher")
    publisher.send(*(PublishPacket("a/1", b"%d" % number) for number in range(10)))
    assert await payloads(heard, 10) == [b"%d" % number for number in range(10)]
    assert net.statistics(FIRST)["carried"] == net.statistics(SECOND)["carried"] == 10


async def test_a_relay_holds_messages_until_it_hears_of_the_detour(net: Net) -> None:
    heard = await subscriber(net, END)
    net.route(ORIGIN, TO_END, peers=(net.cut, net.infos[FIRST]))
    net.doors[ORIGIN].exchange.relays.change({END: (FIRST,)})
    publisher = await net.doors[ORIGIN].peer("publisher")
    publisher.send(PublishPacket("a/1", b"early"))
    await until(lambda: net.statistics(FIRST)["carried"] == 1)
    net.route(FIRST, peers=(net.infos[END],))
    assert await payloads(heard, 1) == [b"early"]


async def test_when_the_link_is_back_messages_take_it_in_order(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passage, "STEADY_US", 50_000)
    monkeypatch.setattr(passage, "SETTLE_US", 100_000)
    heard = await subscriber(net, END)
    net.route(ORIGIN, TO_END, peers=(net.cut, net.infos[FIRST]))
    net.route(FIRST, peers=(net.infos[END],))
    net.doors[ORIGIN].exchange.relays.change({END: (FIRST,)})
    publisher = await net.doors[ORIGIN].peer("publisher")
    publisher.send(PublishPacket("a/1", b"0"))
    assert await payloads(heard, 1) == [b"0"]
    net.route(ORIGIN, peers=(net.infos[END], net.infos[FIRST]))  # it is somewhere else now: a new link
    await until(lambda: net.link(ORIGIN, END).up)
    for number in range(1, 40):
        publisher.send(PublishPacket("a/1", b"%d" % number))
        await asyncio.sleep(0.01)
    assert await payloads(heard, 39) == [b"%d" % number for number in range(1, 40)]
    around = net.statistics(ORIGIN)["sent_around"]
    assert 1 <= around < 40
    net.doors[ORIGIN].exchange.relays.change({})
    publisher.send(PublishPacket("a/1", b"straight"))
    assert await payloads(heard, 1) == [b"straight"]
    assert net.statistics(ORIGIN)["sent_around"] == around


async def test_what_cannot_be_carried_is_dropped_and_counted_and_harms_nobody(net: Net) -> None:
    exchange = net.doors[END].exchange
    heard = await subscriber(net, END)
    inner = wrap(RelayHeader("north", (), 1), b"")  # carried in what is carried
    for packet in (
        PublishPacket(TOPIC, b"x"),
        PublishPacket(TOPIC, b"x", correlation_data=b"\xff"),
        *(item for item in Decoder(1 << 20, version=V5).feed(wrap(RelayHeader("north", (), 1), inner))),
        *(item for item in Decoder(1 << 20, version=V5).feed(wrap(RelayHeader("north", (), 1), b"\xf0\x00"))),
    ):
        assert isinstance(packet, PublishPacket)
        exchange.relay("north", TOPIC, packet)
    assert net.statistics(END)["dropped"] == 4
    local = await net.doors[END].peer("another")
    local.send(PublishPacket("c", b"own"))
    assert await payloads(heard, 1) == [b"own"]


async def test_no_client_can_have_anything_carried(net: Net) -> None:
    net.route(ORIGIN, peers=(net.infos[END],))
    forger = await net.doors[ORIGIN].peer("forger")
    frame = wrap(RelayHeader("north", (END,), 1), b"")
    (packet,) = Decoder(1 << 20, version=V5).feed(frame)
    assert isinstance(packet, PublishPacket) and header_of(packet).path == (END,)
    forger.send(packet, PublishPacket("a", b"x"))
    await until(lambda: net.statistics(ORIGIN)["published"] == 1)
    assert net.statistics(ORIGIN)["carried"] == 0

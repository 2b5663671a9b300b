"""Groups and QoS 0: each message goes to one member, here or over one link, and nobody can forge the mark."""

from __future__ import annotations

import asyncio
import itertools
from typing import cast

from mqtt5 import PublishPacket, TopicFilter

from tests.unit.broker.harness import DEADLINE_S, Door, Peer
from tests.unit.broker.talk import nothing_more
from tocsin.broker.client import Client
from tocsin.broker.forwarding.fanout import NOWHERE, OutletSet
from tocsin.broker.links.link import Link
from tocsin.broker.shared.qos0 import GROUP_PROPERTY, Shares
from tocsin.config import Limits
from tocsin.core.forwarding.table import Share, Subscription
from tocsin.core.forwarding.tallies import Tallies
from tocsin.model.network import BrokerInfo, Role, Route, Scope
from tocsin.model.publication import Publication
from tocsin.wire.mqtt.connect import V5, Version

NAME = "$share/g/a/#"


def info(door: Door, broker: str, cluster: str) -> BrokerInfo:
    return door.info(broker, cluster)


async def route(door: Door, scope: Scope, *peers: BrokerInfo, name: str = NAME) -> None:
    """Have routes to these peers, and links that are up."""
    door.exchange.change_routes([Route(scope, peer.id, name) for peer in peers], (), peers)
    async with asyncio.timeout(DEADLINE_S):
        while not all(link.up for link in door.exchange.links.values()):
            await asyncio.sleep(0.005)


async def member(door: Door, client: str) -> Peer:
    peer = await door.peer(client)
    await peer.subscribe(TopicFilter(NAME))
    return peer


async def test_a_member_here_comes_before_one_elsewhere() -> None:
    async with Door(Limits()) as here, Door(Limits()) as there:
        await route(here, Scope.ORIGIN, info(there, "there", "north"))
        far, publisher = await member(there, "far"), await here.peer("p")
        publisher.send(PublishPacket("a/x", b"1"))
        assert (await far.receive(PublishPacket)).payload == b"1"
        near = await member(here, "near")
        publisher.send(PublishPacket("a/x", b"2"), PublishPacket("a/x", b"3"))
        assert [(await near.receive(PublishPacket)).payload for _ in range(2)] == [b"2", b"3"]
        await nothing_more(far)


async def test_one_peer_gets_it_of_our_own_cluster_if_there_is_one() -> None:
    async with Door(Limits()) as here, Door(Limits()) as near, Door(Limits()) as far:
        await route(here, Scope.ORIGIN, info(far, "far", "south"), info(near, "near", "north"))
        ours, theirs, publisher = await member(near, "n"), await member(far, "f"), await here.peer("p")
        for number in range(3):
            publisher.send(PublishPacket("a/x", b"%d" % number))
            assert (await ours.receive(PublishPacket)).payload == b"%d" % number
        await nothing_more(theirs)


async def test_peers_of_one_cluster_take_turns() -> None:
    async with Door(Limits()) as here, Door(Limits()) as one, Door(Limits()) as other:
        await route(here, Scope.ORIGIN, info(one, "one", "north"), info(other, "other", "north"))
        peers, publisher = [await member(one, "1"), await member(other, "2")], await here.peer("p")
        for number in range(4):
            publisher.send(PublishPacket("a/x", b"%d" % number))
        for peer in peers:
            assert len({(await peer.receive(PublishPacket)).payload for _ in range(2)}) == 2
            await nothing_more(peer)


async def test_a_routing_broker_passes_it_to_one_peer_further_on() -> None:
    async with Door(Limits()) as origin, Door(Limits()) as hub, Door(Limits()) as edge:
        await route(origin, Scope.ORIGIN, info(hub, "hub", "south"))
        await route(hub, Scope.TRANSIT, info(edge, "edge", "south"))
        far, publisher = await member(edge, "far"), await origin.peer("p")
        message = PublishPacket("a/x", b"1", user_properties=[("mine", "own")], content_type="text")
        publisher.send(message)
        got = await far.receive(PublishPacket)
        assert (got.payload, got.user_properties, got.content_type) == (b"1", [("mine", "own")], "text")


async def test_a_message_without_room_for_the_mark_is_dropped_alone() -> None:
    async with Door(Limits()) as here, Door(Limits()) as there:
        await route(here, Scope.ORIGIN, info(there, "there", "north"))
        far, publisher = await member(there, "far"), await here.peer("p")
        publisher.send(PublishPacket("a/x", b"1", user_properties=[("k", "v")] * 1_000))
        publisher.send(PublishPacket("a/x", b"2"))
        assert (await far.receive(PublishPacket)).payload == b"2"
        assert here.exchange.counts.dropped == 1


async def test_what_comes_over_a_link_without_the_mark_concerns_no_group() -> None:
    async with Door(Limits()) as here, Door(Limits()) as there:
        await route(here, Scope.ORIGIN, info(there, "there", "north"), name="a/#")
        grouped, plain, publisher = await member(there, "g"), await there.peer("s"), await here.peer("p")
        await plain.subscribe(TopicFilter("a/#"))
        publisher.send(PublishPacket("a/x", b"1"), PublishPacket("a/x", b"2", user_properties=[("k", "v")]))
        assert [(await plain.receive(PublishPacket)).payload for _ in range(2)] == [b"1", b"2"]
        await nothing_more(grouped)


async def test_what_comes_with_the_mark_concerns_nobody_else() -> None:
    async with Door(Limits()) as here, Door(Limits()) as there:
        await route(here, Scope.ORIGIN, info(there, "there", "north"))
        grouped, plain, publisher = await member(there, "g"), await there.peer("s"), await here.peer("p")
        await plain.subscribe(TopicFilter("a/#"))
        publisher.send(PublishPacket("a/x", b"1"))
        assert (await grouped.receive(PublishPacket)).payload == b"1"
        await nothing_more(plain)


async def test_a_mark_from_a_client_is_a_property_like_any_other(door: Door) -> None:
    grouped, plain, publisher = await member(door, "g"), await door.peer("s"), await door.peer("p")
    await plain.subscribe(TopicFilter("a/#"))
    forged = [(GROUP_PROPERTY, NAME)]
    publisher.send(PublishPacket("$one/a/x", b"0", user_properties=forged))  # nobody's to publish to
    publisher.send(PublishPacket("a/x", b"1", user_properties=forged))
    for peer in (grouped, plain):
        assert (await peer.receive(PublishPacket)).user_properties == forged


async def test_a_marked_message_for_a_group_that_is_gone_is_counted(door: Door) -> None:
    link = await door.link("x", "south")
    link.send(PublishPacket("$one/a/x", b"1", user_properties=[(GROUP_PROPERTY, NAME)]))
    link.send(PublishPacket("$one/a/x", b"1"))
    await nothing_more(link)
    assert door.exchange.statistics()["dropped"] == 2


async def test_messages_about_the_broker_go_to_one_member_here(door: Door) -> None:
    peers = [await door.peer("1"), await door.peer("2")]
    for peer in peers:
        await peer.subscribe(TopicFilter("$share/g/$SYS/#"))
    door.exchange.publish_own(Publication("$SYS/broker/uptime", b"1 seconds", 0, "", retain=True))
    first = await peers[0].receive(PublishPacket)
    assert first.payload == b"1 seconds"
    await nothing_more(peers[1])


async def test_the_broker_tells_its_first_and_its_last_member_of_a_group(door: Door) -> None:
    one, other = await member(door, "1"), await member(door, "2")
    assert door.interests == [((NAME,), ())]
    one.close()
    other.close()
    async with asyncio.timeout(DEADLINE_S):
        while len(door.interests) < 2:
            await asyncio.sleep(0.005)
    assert door.interests[1:] == [((), (NAME,))]


# ── whose turn it is ─────────────────────────────────────────────────────────────────────────────────────────


class Taker:
    """A member that is full, or not."""

    version: Version = V5
    send_max_bytes = 1 << 20
    descriptor = NOWHERE

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.group = OutletSet(self)

    @property
    def outlet(self) -> Taker:
        return self

    def aliased(self, frame: bytes) -> bytes:
        return frame

    def deliver(self, data: bytes, messages: int) -> None:
        raise AssertionError("frames are queued")

    def spill(self, data: bytes) -> None:
        raise AssertionError("frames are queued")


class Way:
    """A link that leads somewhere, or not."""

    def __init__(self, broker: str, cluster: str, *, up: bool = True) -> None:
        self.info = BrokerInfo(broker, cluster, Role.EDGE, "127.0.0.1", 1)
        self.reachable = up


def given(takers: list[Taker], links: dict[str, Way], count: int) -> list[object]:
    """Who gets so many messages, one after the other."""
    got: list[object] = []
    lost: list[int] = []
    shares = Shares(
        "north",
        cast(dict[str, Link], links),
        lambda outlets, frame, excluded: got.extend(outlets),
        lost.append,
    )
    members = tuple((cast(Client, taker), Subscription()) for taker in takers)
    share = Share(NAME, members, (tuple(links), ()), ((), ()), itertools.count(), Tallies().tally(()))
    for _ in range(count):
        shares.give([share], PublishPacket("a/x", b""))
    assert len(got) + sum(lost) == count
    return got


def test_members_take_turns_and_one_that_is_full_is_passed_over() -> None:
    first, full, third = Taker(), Taker(full=True), Taker()
    assert given([first, full, third], {}, 6) == [first, third, third, first, third, third]


def test_if_all_are_full_another_broker_gets_it() -> None:
    there = Way("there", "south")
    assert given([Taker(full=True)], {"there": there}, 1) == [there]


def test_if_all_members_are_full_the_last_one_drops_the_message() -> None:
    full = Taker(full=True)
    assert given([full], {}, 1) == [full]


def test_a_broker_that_is_there_comes_before_one_that_is_not() -> None:
    gone, there = Way("gone", "north", up=False), Way("there", "south")
    assert given([], {"gone": gone, "there": there}, 2) == [there, there]
    assert given([], {"gone": gone}, 1) == [gone]


def test_nobody_at_all_is_counted() -> None:
    assert given([], {}, 2) == []

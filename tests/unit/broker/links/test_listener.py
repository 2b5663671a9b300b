"""The listener for links, on real sockets and with real certificates: who comes in, and what for."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
    SubscribePacket,
    TopicFilter,
)
from structlog.testing import capture_logs

from tests.unit.broker.harness import DEADLINE_S, NETWORK, Door, Peer, security_of, until
from tests.unit.broker.talk import nothing_more
from tocsin.broker.links import listener as link_listener
from tocsin.broker.links.link import Link, LinkSecurity
from tocsin.broker.links.listener import LinkListener
from tocsin.broker.links.probes import Probes
from tocsin.broker.links.turned import TurnedConnections
from tocsin.config import Limits
from tocsin.core.links import incoming as incoming_link
from tocsin.core.links.signals import Ending
from tocsin.model.network import BrokerInfo, Role, Route, Scope
from tocsin.model.versions import Levels
from tocsin.runtime.security import credentials
from tocsin.runtime.security.authority import Authority
from tocsin.runtime.security.credentials import PeerTls
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, Version


class Heard:
    """Takes what links bring."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    def relay(self, cluster: str, topic: str, packet: PublishPacket, peer: str = "") -> None:
        self.topics.append(topic)

    def relay_run(self, cluster: str, run: object) -> None:
        self.topics.append("run")

    def flush(self) -> None:
        """Nothing waits here."""


async def refused(door: Door, context: ssl.SSLContext) -> bool:
    """Whether the door wants nothing to do with this caller."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.link_port, ssl=context)
    except (ssl.SSLError, ConnectionError):
        return True
    try:
        writer.write(b"\x10\x00")
        async with asyncio.timeout(DEADLINE_S):
            return await reader.read(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True
    finally:
        writer.transport.abort()


async def test_messages_come_over_a_link(door: Door) -> None:
    subscriber = await door.peer("s")
    await subscriber.subscribe(TopicFilter("a/#"))
    link = await door.link("south-1", "south")
    link.send(PublishPacket("a/x", b"1"), PublishPacket("a/x", b"2"), PublishPacket("a/y", b"3"))
    assert [(await subscriber.receive(PublishPacket)).payload for _ in range(3)] == [b"1", b"2", b"3"]
    assert door.link_listener.links == 1
    link.close()
    await until(lambda: door.link_listener.links == 0)


async def test_a_ping_is_answered_behind_what_came_before_it(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who moves a slot takes the answer for: what I have sent is on its way to its ends."""
    subscriber = await door.peer("s")
    await subscriber.subscribe(TopicFilter("a/#"))
    link = await door.link("south-1", "south")
    waited: list[bool] = []

    def answer(packet: Packet, version: Version) -> bytes:
        waited.append(bool(door.exchange.outbox._active))
        return encode(packet, version)

    monkeypatch.setattr(link_listener, "encode", answer)
    link.send(PublishPacket("a/x", b"1"), PingReqPacket())
    await link.receive(PingRespPacket)
    assert waited == [False]


async def test_a_certificate_of_another_authority_is_no_link(door: Door, tmp_path: Path) -> None:
    other = Authority.open_or_make(tmp_path / "other", NETWORK).ensure("south-1", role="broker")
    assert await refused(door, PeerTls(other).client)
    assert door.link_listener.links == 0


@pytest.mark.parametrize(("network", "role"), [("net", "feeder"), ("net", "operator"), ("another", "broker")])
async def test_a_certificate_that_is_no_brokers_of_this_network_is_no_link(network: str, role: str) -> None:
    async with Door(Limits()) as door:
        assert isinstance(door.security.tls, PeerTls)
        directory = door.security.tls._credentials.ca_path.parent  # the same authority
        found = Authority.open_or_make(directory, network).issue(f"x-{network}", role=role)
        assert await refused(door, PeerTls(found).client)
        assert door.link_listener.refused == 1


async def test_nobody_is_a_link_without_a_certificate(door: Door) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    assert await refused(door, context)
    assert door.link_listener.links == 0


async def test_nobody_is_a_link_without_tls(door: Door) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.link_port)
    peer = Peer(reader, writer, V5)
    peer.send(ConnectPacket("$link/x", clean_start=True, user_properties=[("cluster", "south")]))
    async with asyncio.timeout(DEADLINE_S):
        assert (await reader.read(100))[:1] != b"\x20"
    peer.close()
    await until(lambda: door.link_listener.refused == 1)


async def test_strangers_do_not_fill_the_log() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with capture_logs() as lines:
        async with Door(Limits()) as door:
            for _ in range(4):
                assert await refused(door, context)
            await until(lambda: door.link_listener.refused == 4)
    told = [each["log_level"] for each in lines if each["event"] == "no TLS with who wanted to be a link"]
    assert told == ["info", "debug", "debug", "debug"]


async def test_a_broker_does_not_speak_for_another(door: Door) -> None:
    said = [("cluster", "south")]
    connect = ConnectPacket("$link/south-2", clean_start=True, user_properties=said)
    link = await door.link("south-1", "south", connect=connect, accepted=False)
    assert int((await link.receive(ConnAckPacket)).reason_code) == 0x85
    assert await link.closed()


async def test_a_broker_with_no_common_level_is_refused_and_others_are_served(door: Door) -> None:
    said = [("cluster", "south"), ("levels", "7-9")]
    connect = ConnectPacket("$link/south-1", clean_start=True, user_properties=said)
    link = await door.link("south-1", "south", connect=connect, accepted=False)
    answer = await link.receive(ConnAckPacket)
    assert int(answer.reason_code) == 0x84
    assert "upgrade the older one" in (answer.reason_str or "")
    assert await link.closed()
    assert door.link_listener.links == 0
    await door.link("south-2", "south")
    assert door.link_listener.links == 1


async def test_a_link_subscribes_to_nothing(door: Door) -> None:
    link = await door.link("south-1", "south")
    link.send(SubscribePacket(1, [TopicFilter("#"), TopicFilter("$SYS/#")]))
    assert int((await link.receive(DisconnectPacket)).reason_code) == 0x82
    assert await link.closed()


async def test_a_link_says_nothing_on_the_servers_own_topics(door: Door) -> None:
    subscriber = await door.peer("s")
    await subscriber.subscribe(TopicFilter("$SYS/forged"), TopicFilter("$meta/#"), TopicFilter("a"))
    link = await door.link("south-1", "south")
    link.send(PublishPacket("$SYS/forged", b"1"), PublishPacket("$meta/a", b"1"), PublishPacket("a", b"2"))
    assert (await subscriber.receive(PublishPacket)).payload == b"2"
    await nothing_more(subscriber)


async def test_the_next_link_of_a_peer_ends_the_one_before(door: Door) -> None:
    before = await door.link("south-1", "south")
    await door.link("south-1", "south")
    assert int((await before.receive(DisconnectPacket)).reason_code) == 0x8E
    assert door.link_listener.links == 1


async def test_what_is_garbage_ends_that_link_only(door: Door) -> None:
    good, bad = await door.link("south-1", "south"), await door.link("south-2", "south")
    bad.writer.write(b"\xff\xff\xff\xff\xff\xff")
    await bad.receive(DisconnectPacket)
    await until(lambda: door.link_listener.links == 1)
    await nothing_more(good)


async def test_handshakes_that_do_not_end_make_room(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_listener, "HANDSHAKES_MAX", 3)
    silent = [await asyncio.open_connection("127.0.0.1", door.link_port) for _ in range(5)]
    await until(lambda: door.link_listener.refused == 2)
    await door.link("south-1", "south")
    for _, writer in silent:
        writer.close()


async def test_links_are_bounded(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    await door.link("south-1", "south")
    monkeypatch.setattr(link_listener, "LINKS_MAX", 1)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await door.link("south-2", "south")


# ── the dialling side ───────────────────────────────────────────────────────────────────────────────────────


class Unwatched:
    """Nobody wants to know how a link is."""

    def link_known(self, peer: str) -> None: ...

    def link_ended(self, peer: str, ending: Ending) -> None: ...

    def link_measured(self, peer: str, round_trip_us: int) -> None: ...


def dial(info: BrokerInfo, security: LinkSecurity | None = None) -> Link:
    own = BrokerInfo("north-1", "north", Role.EDGE, "127.0.0.1", 1)
    link = Link(
        own,
        info,
        security or security_of("north-1"),
        outbound_max_bytes=1 << 20,
        dropped=lambda messages: None,
        watcher=Unwatched(),
    )
    link.open()
    return link


async def test_who_dials_a_broker_of_another_time_hears_why_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incoming_link, "speaks", lambda: Levels(7, 9))
    async with Door(Limits(), broker="south-1", cluster="south") as door:
        with capture_logs() as logs:
            link = dial(BrokerInfo("south-1", "south", Role.EDGE, "127.0.0.1", door.link_port))
            await until(lambda: "upgrade the older one" in link.problem)
            link.close()
        assert not link.up and door.link_listener.links == 0
        assert [each["event"] for each in logs if each["log_level"] == "error"] == ["link is refused"]


async def test_whoever_listens_with_another_certificate_of_the_network_hears_nothing() -> None:
    """A broker's key was stolen, or a broker listens where another was: it is not the one that is meant."""
    async with Door(Limits(), broker="south-2", cluster="south") as door:
        heard = Heard()
        door.link_listener.receiver = heard
        link = dial(BrokerInfo("south-1", "south", Role.EDGE, "127.0.0.1", door.link_port))
        link.deliver(b"\x30\x06\x00\x01a\x00xy", 1)
        await until(lambda: link.tried)
        assert "broker south-2 listens there, and not broker south-1" in link.problem
        assert door.link_listener.links == 0 and heard.topics == []
        link.close()


async def test_whoever_listens_in_plain_hears_no_word_of_ours() -> None:
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(65_536))
        writer.write(b"\x20\x03\x00\x00\x00")  # a CONNACK
        heard.extend(await reader.read(65_536))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = dial(BrokerInfo("south-1", "south", Role.EDGE, "127.0.0.1", port))
    link.deliver(b"\x30\x0c\x00\x01a\x00topsecret", 1)
    await until(lambda: link.tried)
    assert not link.up and heard[:1] == b"\x16"  # a TLS ClientHello
    for word in (b"$link", b"topsecret", b"north"):
        assert word not in heard
    link.close()
    server.close()


async def test_a_listener_with_a_foreign_certificate_hears_nothing_from_us(tmp_path: Path) -> None:
    other = PeerTls(Authority.open_or_make(tmp_path, NETWORK).ensure("south-1", role="broker"))
    other.server.verify_mode = other._current.verify_mode = ssl.CERT_NONE
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(65_536))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0, ssl=other.server)
    link = dial(BrokerInfo("south-1", "south", Role.EDGE, "127.0.0.1", server.sockets[0].getsockname()[1]))
    link.deliver(b"\x30\x0c\x00\x01a\x00topsecret", 1)
    await until(lambda: link.tried)
    assert not link.up and "certificate is not believed" in link.problem and not heard
    link.close()
    server.close()


async def test_a_standby_in_anothers_place_shows_its_own_certificate() -> None:
    async with Door(Limits(), broker="spare", cluster="south") as spare, Door(Limits()) as door:
        place = spare.info("south-1", "south")
        assert place.certificate_name == "spare"
        subscriber = await spare.peer("s")
        await subscriber.subscribe(TopicFilter("a"))
        door.exchange.change_routes([Route(Scope.ORIGIN, "south-1", "a")], (), [place])
        publisher = await door.peer("p")
        publisher.send(PublishPacket("a", b"1"))
        assert (await subscriber.receive(PublishPacket)).payload == b"1"


# ── certificates that change ────────────────────────────────────────────────────────────────────────────────


async def test_new_certificates_are_loaded_and_a_removed_authority_ends_its_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "LOOK_S", 0.01)
    authority = Authority.open_or_make(tmp_path, NETWORK)
    tls = {name: PeerTls(authority.ensure(name, role="broker")) for name in ("a", "b")}
    heard, dialled_again = Heard(), asyncio.Event()
    door = LinkListener(
        LinkSecurity(NETWORK, tls["a"]),
        Limits(),
        heard,
        lambda peer, topic, payload: None,
        lambda transport: asyncio.Protocol(),
        TurnedConnections(),
        dialled_again.set,
    )
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    info = BrokerInfo("a", "south", Role.EDGE, *listening.getsockname())
    door.open(listening)
    link = dial(info, LinkSecurity(NETWORK, tls["b"]))
    # Our own name is north-1 in CONNECT; the certificate says b.
    await until(lambda: link.tried)
    assert not link.up
    link.close()
    own = BrokerInfo("b", "south", Role.EDGE, "127.0.0.1", 1)
    link = Link(
        own,
        info,
        LinkSecurity(NETWORK, tls["b"]),
        outbound_max_bytes=1 << 20,
        dropped=lambda messages: None,
        watcher=Unwatched(),
    )
    link.open()
    await until(lambda: link.up)
    authority.renew()
    await until(lambda: len(tls["a"].believed) == 2)
    tls["b"].reload()
    authority.reissue()
    tls["b"].reload()
    assert link.up and door.links == 1 and not dialled_again.is_set()
    before = door._links["b", ""]
    authority.retire()
    await until(lambda: len(tls["a"].believed) == 1)
    tls["b"].reload()
    await until(lambda: link.up and door.links == 1 and door._links["b", ""] is not before)
    assert dialled_again.is_set()
    link.close()
    await door.close()


# ── probes ───────────────────────────────────────────────────────────────────────────────────────────────────


def probing(broker: str) -> ConnectPacket:
    said = [("cluster", "south"), (incoming_link.PROPERTY_PROBE, "1")]
    return ConnectPacket(f"$link/{broker}", clean_start=True, user_properties=said)


async def test_a_probe_measures_the_way_here_and_leaves_the_link_alone(door: Door) -> None:
    link = await door.link("south-1", "south")
    own = BrokerInfo("south-1", "south", Role.STANDBY, "127.0.0.1", 1)
    here = BrokerInfo("north-1", "north", Role.EDGE, "127.0.0.1", door.link_port)
    probes = Probes(own, security_of("south-1"))
    probes.want((here,))
    await until(lambda: here.id in probes.known()[0])
    delay_us, kbit_s = probes.known()[0][here.id]
    assert delay_us > 0 and kbit_s > 0
    probes.close()
    assert door.link_listener.links == 1
    assert (door.link_listener.probes, door.link_listener.probed_bytes) == (1, probes.machine.sent_bytes)
    link.close()


async def test_a_peer_may_not_measure_all_the_time(door: Door) -> None:
    for _ in range(link_listener.PROBES_BURST):
        await door.link("south-1", "south", connect=probing("south-1"))
    refused = await door.link("south-1", "south", connect=probing("south-1"), accepted=False)
    assert int((await refused.receive(ConnAckPacket)).reason_code) == 0x9F
    await door.link("south-2", "south", connect=probing("south-2"))
    assert door.link_listener.probes == link_listener.PROBES_BURST + 1


async def test_what_a_probe_brings_goes_to_nobody(door: Door) -> None:
    subscriber = await door.peer("s")
    await subscriber.subscribe(TopicFilter("#"), TopicFilter("$probe"))
    probe = await door.link("south-1", "south", connect=probing("south-1"))
    probe.send(PublishPacket("$probe", b"x"), PublishPacket("$probe", b"y"))
    await until(lambda: door.link_listener.probed_bytes == 2)
    await nothing_more(subscriber)


# ── extra connections ────────────────────────────────────────────────────────────────────────────────────────


def extra(which: str) -> ConnectPacket:
    said = [("cluster", "south"), (incoming_link.PROPERTY_EXTRA, which)]
    return ConnectPacket("$link/south-1", clean_start=True, user_properties=said)


async def test_an_extra_connection_ends_no_link_and_brings_messages(door: Door) -> None:
    subscriber = await door.peer("s")
    await subscriber.subscribe(TopicFilter("a/#"))
    link = await door.link("south-1", "south")
    twin = await door.link("south-1", "south", connect=extra("twin"))
    assert door.link_listener.links == 1
    for each in (link, twin):
        each.send(PublishPacket("a/x", b"1"))
        assert (await subscriber.receive(PublishPacket)).payload == b"1"


async def test_an_extra_connection_ends_its_own_one_before(door: Door) -> None:
    first = await door.link("south-1", "south", connect=extra("twin"))
    await door.link("south-1", "south", connect=extra("twin"))
    assert int((await first.receive(DisconnectPacket)).reason_code) == 0x8E
    assert await first.closed()


async def test_a_peer_has_no_more_extra_connections_than_a_bound(door: Door) -> None:
    link = await door.link("south-1", "south")
    for which in ("straight", "twin"):
        await door.link("south-1", "south", connect=extra(which))
    third = await door.link("south-1", "south", connect=extra("third"))
    assert await third.closed()
    link.send(PublishPacket("a/x", b"1"))
    assert door.link_listener.links == 1

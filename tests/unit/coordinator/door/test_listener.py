"""The coordinator's door on real sockets, in front of a real broker: redirects, the proxy, HTTP, and bounds."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, PublishPacket, TopicFilter

from tests.unit.broker.harness import DEADLINE_S, NETWORK, Peer, coordinator_tls, security_of, until
from tests.unit.broker.harness import Door as Broker
from tocsin.config import Limits
from tocsin.coordinator.door import listener as door_listener
from tocsin.coordinator.door.listener import DoorListener
from tocsin.coordinator.door.proxy import Proxy
from tocsin.core.coordination.state.backups import Backups, Vacancy
from tocsin.core.door.choice import Directory
from tocsin.core.door.door import Door
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.runtime.machines.clock import now_us
from tocsin.runtime.machines.listening import listen_on
from tocsin.runtime.security.tls import client_context
from tocsin.wire.mqtt.connect import V5, V311, Version

DEAD = BrokerInfo("a-dead", "north", Role.EDGE, "127.0.0.1", 1, (Entrance(Scheme.MQTT, "127.0.0.1:1"),))


class Known:
    """What a coordinator knows."""

    is_ready = True

    def __init__(self, *brokers: BrokerInfo) -> None:
        self.brokers = brokers
        self.lost: dict[str, Vacancy] = {}

    def directory(self) -> Directory:
        return Directory(self.brokers, plan={"a-dead": Backups("north-1")}, vacancies=self.lost, loads={})


class Entry:
    """A door in front of one broker."""

    def __init__(
        self,
        broker: Broker,
        *others: BrokerInfo,
        limits: Limits | None = None,
        connections_max: int = 100,
    ) -> None:
        info = broker.info("north-1", "north")
        entrance = Entrance(Scheme.MQTT, f"127.0.0.1:{broker.port}")
        self.known = Known(msgspec.structs.replace(info, entrances=(entrance,)), *others)
        self.door = Door("auto")
        silent = lambda name: self.door.silent(name, now_us())  # noqa: E731
        proxy = Proxy(NETWORK, coordinator_tls(), silent)
        view: Any = self.known
        # Over TLS the door shows the certificate of a broker here; who it is does not matter.
        security: Any = security_of("north-1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = security.tls._credentials.certificate_path
        context.load_cert_chain(pair)
        self.listener = DoorListener(self.door, view, proxy, limits or Limits(), connections_max, context)
        self.port = self.tls_port = 0

    async def __aenter__(self) -> Entry:
        listening = listen_on("127.0.0.1", 0, "the door", "door.port")
        self.port = listening.getsockname()[1]
        secure = listen_on("127.0.0.1", 0, "the door", "door.tls_port")
        self.tls_port = secure.getsockname()[1]
        self.listener.open({"port": listening, "tls_port": secure})
        return self

    async def __aexit__(self, *how: object) -> None:
        await self.listener.close()
        for _ in range(5):
            await asyncio.sleep(0)

    async def knock(self, client_id: str, version: Version = V5, **said: Any) -> tuple[Peer, ConnAckPacket]:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port), version)
        peer.send(ConnectPacket(client_id, clean_start=True, **said))
        return peer, await peer.receive(ConnAckPacket)

    async def get(self, target: str) -> tuple[int, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        async with asyncio.timeout(DEADLINE_S):
            answer = await reader.read()
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(Limits()) as running:
        yield running


async def test_client_is_redirected_then_passed_on(broker: Broker) -> None:
    async with Entry(broker) as entry:
        peer, answer = await entry.knock("c")
        assert (int(answer.reason_code), answer.server_reference) == (0x9C, f"127.0.0.1:{broker.port}")
        assert await peer.closed()
        peer.close()
        again, welcome = await entry.knock("c")
        assert int(welcome.reason_code) == 0
        assert broker.listener.clients == entry.listener.clients == 1
        again.close()
        await until(lambda: entry.listener.clients == 0)
        await until(lambda: broker.listener.clients == 0)


async def test_older_client_speaks_through_the_door_both_ways(broker: Broker) -> None:
    async with Entry(broker) as entry:
        peer, welcome = await entry.knock("c", V311)
        assert int(welcome.reason_code) == 0
        await peer.subscribe(TopicFilter("a/#"))
        large = bytes(500_000)  # more than either side holds
        publisher = await broker.peer("p")
        publisher.send(PublishPacket("a/b", large))
        assert (await peer.receive(PublishPacket)).payload == large
        peer.send(PublishPacket("a/c", b"back"))
        assert (await peer.receive(PublishPacket)).payload == b"back"
        peer.close()


async def test_dead_broker_is_passed_over_for_its_backup(broker: Broker) -> None:
    async with Entry(broker, DEAD) as entry:
        said = [("home.v", "1"), ("home", "a-dead"), ("stay", "yes")]
        peer, welcome = await entry.knock("c", user_properties=said)
        assert int(welcome.reason_code) == 0
        assert broker.listener.clients == 1
        peer.close()


async def test_client_of_a_broker_that_ends_is_cut_off() -> None:
    async with Broker(Limits()) as broker, Entry(broker) as entry:
        peer, _ = await entry.knock("c", V311)
        await broker.listener.close()
        assert await peer.closed()
        peer.close()
        refused, answer = await entry.knock("c", V311)
        assert int(answer.reason_code) == 0x88  # server unavailable
        refused.close()


async def test_client_over_tls_is_passed_on_and_stays_over_tls(broker: Broker) -> None:
    async with Entry(broker) as entry:
        context = client_context(insecure=True)
        reader, writer = await asyncio.open_connection("127.0.0.1", entry.tls_port, ssl=context)
        peer = Peer(reader, writer, V5)
        peer.send(ConnectPacket("c", clean_start=True))
        answer = await peer.receive(ConnAckPacket)  # no redirect: the broker has no entrance with TLS
        assert int(answer.reason_code) == 0
        (origin,) = broker.listener.register.origins.values()
        assert (origin.scheme, origin.passed_on) == (Scheme.MQTTS, True)
        peer.close()


async def test_look_up_says_which_broker_and_why(broker: Broker) -> None:
    async with Entry(broker) as entry:
        entry.known.lost = {"a-dead": Vacancy("north-1", 1, DEAD)}
        status, found = await entry.get("/v1/broker?client=c&home=127.0.0.1:1&wants=a/%23")
        assert (status, found["broker"], found["addresses"]) == (200, "north-1", [f"127.0.0.1:{broker.port}"])
        assert found["reason"] == "it stands in for the client's home a-dead, which is lost"
        _, all_of_them = await entry.get("/v1/brokers")
        assert [each["broker"] for each in all_of_them["brokers"]] == ["north-1"]
        assert all_of_them["lost"] == [{"broker": "a-dead", "cluster": "north", "stands_in": "north-1"}]
        assert (await entry.get("/healthz"))[0] == 200
        entry.known.is_ready = False
        assert (await entry.get("/healthz"))[0] == 503


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/v1/broker?scheme=gopher", 400),
        ("/v1/broker?colour=red", 400),
        ("/v1/broker?scheme=wss", 503),
        ("/long", 431),
        ("/nothing", 404),
        ("//[", 400),
        ("http://[::1/v1/broker", 400),
    ],
)
async def test_bad_requests_get_an_answer_in_words(broker: Broker, target: str, status: int) -> None:
    async with Entry(broker) as entry:
        found, answer = await entry.get(target.replace("long", "x" * 20_000))
        assert (found, bool(answer["error"])) == (status, True)


@pytest.mark.parametrize("said", [b"\x10\xff\xff\xff\x7f", b"\x10\x02\x00\x00", b"\x16\x03\x01\x02", b"POST"])
async def test_garbage_costs_nobody_anything(broker: Broker, said: bytes) -> None:
    async with Entry(broker, limits=Limits(connect_deadline_s=0.1)) as entry:
        reader, writer = await asyncio.open_connection("127.0.0.1", entry.port)
        writer.write(said)
        async with asyncio.timeout(DEADLINE_S):
            while await reader.read(1_000):
                pass
        writer.close()
        assert entry.listener.waiting.held_bytes == 0
        assert (await entry.get("/healthz"))[0] == 200


async def test_silent_connections_keep_nobody_out(broker: Broker) -> None:
    async with Entry(broker, limits=Limits(half_open_max=5), connections_max=10) as entry:
        silent = [await asyncio.open_connection("127.0.0.1", entry.port) for _ in range(12)]
        assert (await entry.get("/healthz"))[0] == 200
        peer, welcome = await entry.knock("c", V311)
        assert int(welcome.reason_code) == 0
        async with asyncio.timeout(DEADLINE_S):
            assert await silent[0][0].read() == b""  # the oldest had to go
        for _, writer in silent:
            writer.close()
        peer.close()


async def test_handshakes_that_never_end_keep_nobody_out(broker: Broker) -> None:
    async with Entry(broker, limits=Limits(half_open_max=5), connections_max=10) as entry:
        silent = [await asyncio.open_connection("127.0.0.1", entry.tls_port) for _ in range(12)]
        peer, welcome = await entry.knock("c", V311)
        assert int(welcome.reason_code) == 0
        async with asyncio.timeout(DEADLINE_S):
            assert await silent[0][0].read() == b""
        for _, writer in silent:
            writer.close()
        peer.close()


async def test_packets_that_are_never_finished_keep_nobody_out(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_listener, "HELD_MAX_BYTES", 1_000)
    async with Entry(broker) as entry:
        reader, writer = await asyncio.open_connection("127.0.0.1", entry.port)
        writer.write(b"\x10\x80\x80\x02" + bytes(996))
        await until(lambda: entry.listener.waiting.held_bytes == 1_000)
        peer, welcome = await entry.knock("c", V311)
        assert int(welcome.reason_code) == 0
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.read() == b""
        assert entry.listener.waiting.held_bytes == 0
        writer.close()
        peer.close()


async def test_full_door_still_tells_clients_their_broker(broker: Broker) -> None:
    async with Entry(broker, connections_max=1) as entry:
        first, welcome = await entry.knock("c", V311)
        second, refused = await entry.knock("d", V311)
        third, redirected = await entry.knock("e")
        answers = [int(each.reason_code) for each in (welcome, refused, redirected)]
        assert answers == [0, 0x88, 0x9C]
        assert (await entry.get("/healthz"))[0] == 200
        first.close()
        await until(lambda: entry.listener.clients == 0)
        late, welcome = await entry.knock("f", V311)
        assert int(welcome.reason_code) == 0
        for peer in (second, third, late):
            peer.close()

"""Offers and requests between clients of two clusters: what matches is delivered, what does not is told both ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from mqtt5 import (
    DisconnectPacket,
    PingReqPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tests.integration.peers import Connect, Peers
from tests.integration.running import DEADLINE_S, Heard, until, up
from tests.unit.broker.harness import Peer
from tocsin.client import Client, Durability, Offer, QualityInvalid, Request
from tocsin.client.blocking import Subscription
from tocsin.errors import DeadlineExceeded
from tocsin.model.quality import EVERYTHING

SOON_S = 1.0  # in which a message that is not to come would have come


@pytest.fixture(scope="module")
def network() -> Iterator[dict[str, Any]]:
    with up(level="error") as line:
        yield line


@pytest.fixture
async def connect(network: dict[str, Any]) -> Any:
    peers = Peers({each["id"]: (each["host"], each["port"]) for each in network["brokers"]})
    yield peers.connect
    await peers.close()


def url(network: dict[str, Any], broker: str) -> str:
    found = next(each for each in network["brokers"] if each["id"] == broker)
    return f"mqtt://{found['host']}:{found['port']}"


def first(sensor: Client, topic: str, wanted: Subscription, value: object = -1) -> None:
    """Return when a message gets to a subscription: at QoS 0 a SUBACK waits for no other broker."""
    for _ in range(100):
        sensor.publish(topic, value)
        with contextlib.suppress(DeadlineExceeded):
            wanted.get(0.2)
            return
    pytest.fail(f"nothing came on {topic}")


async def subscribe(peer: Peer, *names: str, qos: int = 0, **properties: str) -> list[int]:
    packet = SubscribePacket(1, [TopicFilter(name, max_qos=QoS(qos)) for name in names])
    packet.user_properties.extend((f"request.{key}", value) for key, value in properties.items())
    peer.send(packet)
    return [int(code) for code in (await peer.first(SubAckPacket)).reason_codes]


async def nothing(peer: Peer) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SOON_S):
            raise AssertionError(f"unexpected: {await peer.first(PublishPacket)}")


@pytest.mark.parametrize("qos", [0, 1])
def test_only_what_satisfies_a_predicate_over_fields_is_delivered(network: dict[str, Any], qos: int) -> None:
    topic = f"where/{qos}"
    with (
        Client(url(network, "south-1")) as reader,
        Client(url(network, "north-1")) as sensor,
        reader.subscribe(topic, qos=qos, request=Request(where="reading.temp > 30")) as hot,
        reader.subscribe(f"{topic}/+", qos=qos) as others,
    ):
        first(sensor, topic, hot, {"reading": {"temp": 99}})
        first(sensor, f"{topic}/early", others)
        for temp in (20, 31, 5, 40):
            sensor.publish(topic, {"reading": {"temp": temp}}, qos=qos)
        sensor.publish(f"{topic}/end", b"end", qos=qos)
        while others.get(DEADLINE_S).payload != b"end":
            pass
        got: list[int] = []
        while 40 not in got:
            got.append(hot.get(DEADLINE_S).json()["reading"]["temp"])
        assert [temp for temp in got if temp != 99] == [31, 40]
        with pytest.raises(DeadlineExceeded):
            hot.get(0.2)


async def test_what_is_read_from_the_log_later_is_judged_alike(connect: Connect) -> None:
    reader = await connect("south-1", "later", 600)
    assert await subscribe(reader, "later/#", qos=1, where="n > 2") == [1]
    reader.writer.transport.abort()
    sensor = await connect("north-1", "later-sensor")
    for number in range(5):
        sensor.send(
            PublishPacket("later/a", b'{"n": %d}' % number, qos=QoS.AT_LEAST_ONCE, packet_id=number + 1)
        )
    await asyncio.sleep(SOON_S / 2)
    back = await connect("south-2", "later", 600)
    got = [(await back.first(PublishPacket)).payload for _ in range(2)]
    assert got == [b'{"n": 3}', b'{"n": 4}']
    await nothing(back)


async def test_a_mismatch_is_granted_and_told_both_ends(connect: Connect) -> None:
    sensor, reader = await connect("north-1", "slow"), await connect("south-1", "impatient")
    assert await subscribe(sensor, "$qos/incompatible/#") == [0] == await subscribe(reader, "$qos/+/#")
    said = PublishPacket("pump/7", b"0", user_properties=[("offer.deadline", "500ms")])
    sensor.send(said)
    await asyncio.sleep(SOON_S / 2)
    assert await subscribe(reader, "pump/+", deadline="100ms") == [0]
    news = await reader.first(PublishPacket)
    assert news.topic == "$qos/incompatible/pump/7"
    assert json.loads(news.payload) == {
        "v": 1,
        "policy": "deadline",
        "offered": "500ms",
        "requested": "100ms",
        "peer": "",
    }
    told = await sensor.first(PublishPacket)
    assert told.topic == news.topic and json.loads(told.payload)["peer"] == "impatient"
    sensor.send(PublishPacket("pump/7", b"1"))
    await nothing(reader)
    sensor.send(PublishPacket("pump/7", b"2", user_properties=[("offer.deadline", "50ms")]))
    await asyncio.sleep(SOON_S / 2)
    sensor.send(PublishPacket("pump/7", b"3"))
    async with asyncio.timeout(DEADLINE_S):
        while (await reader.first(PublishPacket)).payload != b"3":
            pass


# What is offered, what is requested, and what is offered later; the policy, and both values as they are told.
POLICIES = [
    ("reliability=best-effort", "reliability=reliable", "reliability=reliable", "best-effort", "reliable"),
    (
        "durability=volatile",
        "durability=transient-local",
        "durability=transient",
        "volatile",
        "transient-local",
    ),
    ("deadline=20s", "deadline=10s", "deadline=10s", "20s", "10s"),
    ("budget=50ms", "budget=10ms", "budget=10ms", "50ms", "10ms"),
    ("lease=1m", "lease=30s", "lease=20s", "1m", "30s"),
    (
        "liveliness=automatic,lease=1m",
        "liveliness=manual,lease=1m",
        "liveliness=manual,lease=1m",
        "automatic",
        "manual",
    ),
    ("ownership=shared", "ownership=exclusive", "ownership=exclusive", "shared", "exclusive"),
]


@pytest.mark.parametrize(
    ("weak", "requested", "enough", "offers", "requests"),
    POLICIES,
    ids=[each[1].partition("=")[0] for each in POLICIES],
)
async def test_each_policy_tells_both_ends_and_is_met_by_a_change(
    connect: Connect, weak: str, requested: str, enough: str, offers: str, requests: str
) -> None:
    policy = requested.partition("=")[0]
    topic, news = f"rxo/{policy}", f"$qos/incompatible/rxo/{policy}"
    sensor, reader = await connect("north-1", f"rxo-{policy}"), await connect("south-1", f"rxo-r-{policy}")
    assert await subscribe(sensor, "$qos/incompatible/#") == [0]
    assert await subscribe(reader, "$qos/incompatible/#", f"$qos/{requested}/{topic}") == [0, 0]

    def publish(offered: str, payload: bytes) -> None:
        said = [(f"offer.{name}", value) for name, _, value in (p.partition("=") for p in offered.split(","))]
        sensor.send(PublishPacket(topic, payload, user_properties=said))

    publish(weak, b"weak")
    for peer, other in ((reader, ""), (sensor, f"rxo-r-{policy}")):
        async with asyncio.timeout(DEADLINE_S):
            told = await peer.first(PublishPacket)
        assert told.topic == news and json.loads(bytes(told.payload or b"")) == {
            "v": 1,
            "policy": policy,
            "offered": offers,
            "requested": requests,
            "peer": other,
        }
    got = asyncio.ensure_future(reader.first(PublishPacket))
    async with asyncio.timeout(DEADLINE_S):
        while not got.done():
            publish(enough, b"enough")
            await asyncio.wait((got,), timeout=0.1)
    assert (got.result().topic, got.result().payload) == (topic, b"enough"), "nothing came before"


@pytest.mark.slow  # a broker is killed: the rest of the module shares a network
async def test_each_policy_is_judged_alike_after_the_publishers_broker_is_lost() -> None:
    """Both ends of each pair stay as they were, and a subscriber's broker may be the one that is lost."""
    with up(level="error") as line:
        peers = Peers({each["id"]: (each["host"], each["port"]) for each in line["brokers"]})
        reader = await peers.connect("south-1", "judge", 600)
        wanted = [
            f"$qos/{requested}/{kind}/{number}"
            for number, (_, requested, *_) in enumerate(POLICIES)
            for kind in ("meets", "lacks")
        ]
        assert await subscribe(reader, *wanted) == [0] * len(wanted)
        sensor = await peers.connect("north-1", "judged")
        await _only_what_meets(sensor, reader, b"before")
        os.kill(line["pids"]["broker/north-1"], signal.SIGKILL)
        await _only_what_meets(await peers.connect("north-2", "judged"), reader, b"moved")
        os.kill(line["pids"]["broker/south-1"], signal.SIGKILL)
        reader = await peers.connect("south-2", "judge", 600)
        sensor = await peers.connect("north-2", "again")
        await _only_what_meets(sensor, reader, b"after")
        await peers.close()


async def _only_what_meets(sensor: Peer, reader: Peer, payload: bytes) -> None:
    """Publish on the topics of all pairs until each that matches has brought a message."""
    due = {f"meets/{number}" for number in range(len(POLICIES))}
    got: set[str] = set()

    async def read() -> None:
        while not due <= got:
            packet = await reader.first(PublishPacket)
            if packet.payload == payload:
                got.add(packet.topic)

    reading = asyncio.ensure_future(read())
    async with asyncio.timeout(DEADLINE_S):
        while not reading.done():
            for number, (weak, _, enough, *_) in enumerate(POLICIES):
                for kind, offered in (("lacks", weak), ("meets", enough)):
                    said = [
                        (f"offer.{name}", value)
                        for name, _, value in (each.partition("=") for each in offered.split(","))
                    ]
                    sensor.send(PublishPacket(f"{kind}/{number}", payload, user_properties=said))
            await asyncio.wait((reading,), timeout=0.2)
    await reading
    assert got == due


async def test_a_strict_request_is_refused_with_the_policy(connect: Connect) -> None:
    sensor, reader = await connect("north-1", "strict-sensor"), await connect("south-1", "strict-reader")
    sensor.send(PublishPacket("strict/1", b"0", user_properties=[("offer.ownership", "exclusive")]))
    await asyncio.sleep(SOON_S / 2)
    packet = SubscribePacket(1, [TopicFilter("$qos/ownership=shared,strict=yes/strict/#")])
    reader.send(packet)
    answer = await reader.first(SubAckPacket)
    assert [int(code) for code in answer.reason_codes] == [0x83]
    assert answer.reason_str == "strict/1 offers ownership exclusive; shared is requested"


async def test_requests_that_cannot_be_read_are_refused_by_name(connect: Connect) -> None:
    reader = await connect("south-1", "wrong")
    reader.send(SubscribePacket(1, [TopicFilter("$qos/deadline=soon/a"), TopicFilter("a", max_qos=QoS(0))]))
    answer = await reader.first(SubAckPacket)
    assert [int(code) for code in answer.reason_codes] == [0x8F, 0]
    assert answer.reason_str is not None and "deadline is a whole number" in answer.reason_str
    assert await subscribe(reader, "a", "$share/g/a", separation="1s", colour="red") == [0x83, 0x83]
    assert await subscribe(reader, "$share/g/a", "$streams/a = 1", separation="1s") == [0x8F, 0x8F]
    with pytest.raises(QualityInvalid, match="there is no policy 'colour'"):
        Client("mqtt://127.0.0.1:1").subscribe("a", request="colour=red")


@pytest.mark.parametrize("qos", [0, 1])
def test_separation_gives_the_first_and_then_the_last_of_each_period(
    network: dict[str, Any], qos: int
) -> None:
    with (
        Client(url(network, "south-1")) as reader,
        Client(url(network, "north-1")) as sensor,
        reader.subscribe(f"fast/{qos}", qos=1, request=Request(separation_us=400_000)) as slow,
    ):
        first(sensor, f"fast/{qos}", slow)
        for number in range(100):
            sensor.publish(f"fast/{qos}", number, qos=qos)
        got: list[int] = []
        while 99 not in got:
            got.append(slow.get(DEADLINE_S).json())
        assert [number for number in got if number >= 0] == sorted({number for number in got if number >= 0})
        assert len(got) < 100


def test_a_31_client_asks_by_the_filter_alone(
    network: dict[str, Any], debian_program: Callable[[str, str], str]
) -> None:
    program = debian_program("mosquitto_sub", "mosquitto-clients")
    host, _, port = url(network, "south-2").removeprefix("mqtt://").partition(":")
    name = "$qos/where=temp > 30,partition=hall-*/old/#"
    sub = Heard([program, "-h", host, "-p", port, "-V", "mqttv311", "-v", "-t", name])
    with Client(url(network, "north-1")) as sensor:
        time.sleep(SOON_S)  # mosquitto_sub does not say when it is subscribed
        for topic, hall, temp in (("old/1", "hall-1", 31), ("old/2", "yard", 32), ("old/1", "hall-1", 3)):
            sensor.publish(topic, {"temp": temp}, qos=1, offer=Offer(partition=(hall,)))
        sensor.publish("old/3", {"temp": 99}, qos=1, offer="partition=hall-9")
        until(lambda: len(sub.lines) >= 2, lambda: None, "both messages")
        assert sub.lines == ['old/1 {"temp":31}', 'old/3 {"temp":99}']
        sub.stop()


def test_a_query_may_have_a_request(network: dict[str, Any]) -> None:
    with Client(url(network, "north-1")) as sensor:
        sensor.stream("kinds/a", kind="quick").publish("1", qos=1)

    async def ask() -> None:
        peers = Peers({each["id"]: (each["host"], each["port"]) for each in network["brokers"]})
        reader, writer = await peers.connect("south-1", "asks"), await peers.connect("north-1", "says")
        assert await subscribe(reader, "$query/kind = 'quick'", where="n = 2") == [0]
        properties = [("meta.kind", "quick")]
        for number in range(4):
            writer.send(PublishPacket("kinds/b", b'{"n": %d}' % number, user_properties=properties))
        assert (await reader.first(PublishPacket)).payload == b'{"n": 2}'
        await peers.close()

    asyncio.run(ask())


async def test_a_missed_deadline_is_told_publisher_and_subscriber(connect: Connect) -> None:
    sensor, reader = await connect("north-1", "beats"), await connect("south-1", "listens")
    assert await subscribe(sensor, "$qos/offered-deadline/#") == [0]
    assert await subscribe(reader, "$qos/requested-deadline/+") == [0]
    sensor.send(PublishPacket("beat", b"0", user_properties=[("offer.deadline", "200ms")]))
    assert await subscribe(reader, "beat", deadline="300ms") == [0]
    told = await sensor.first(PublishPacket)
    assert told.topic == "$qos/offered-deadline/beat"
    assert json.loads(told.payload)["deadline"] == "200ms" and json.loads(told.payload)["total"] >= 1
    while (news := await reader.first(PublishPacket)).topic == "beat":
        pass
    assert news.topic == "$qos/requested-deadline/beat"
    first, again = json.loads(news.payload), json.loads((await reader.first(PublishPacket)).payload)
    assert first["deadline"] == "300ms" and again["total"] == first["total"] + again["change"]


async def test_who_keeps_a_deadline_hears_nothing(connect: Connect) -> None:
    sensor, reader = await connect("north-1", "steady"), await connect("south-1", "calm")
    assert await subscribe(sensor, "$qos/#") == [0] == await subscribe(reader, "$qos/#")
    sensor.send(PublishPacket("steady", b"0", user_properties=[("offer.deadline", "20s")]))
    assert await subscribe(reader, "steady", deadline="20s") == [0]
    for qos in (0, 1):
        packet = PublishPacket("steady", b"1", qos=QoS(qos), packet_id=qos or None)
        sensor.send(packet)
    got: list[bytes] = []
    while got.count(b"1") < 2:  # the first one may have been too early for the reader
        got.append((await reader.first(PublishPacket)).payload)
    await nothing(reader)


async def alive_counts(reader: Peer) -> tuple[int, int]:
    """The next word of who is alive."""
    while not (news := await reader.first(PublishPacket)).topic.startswith("$qos/liveliness/"):
        pass
    said = json.loads(news.payload)
    return said["alive"], said["not_alive"]


async def test_a_subscriber_is_told_who_is_alive_and_who_is_not(connect: Connect) -> None:
    reader, sensor = await connect("south-1", "worries"), await connect("north-1", "mortal")
    assert await subscribe(reader, "$qos/liveliness/#") == [0]
    sensor.send(PublishPacket("life", b"0", user_properties=[("offer.lease", "400ms")]))
    assert await subscribe(reader, "life", lease="1s") == [0]
    assert await alive_counts(reader) == (1, 0)
    for _ in range(4):  # its connection says that it is alive
        await asyncio.sleep(0.2)
        sensor.send(PingReqPacket())
    sensor.writer.transport.abort()
    assert await alive_counts(reader) == (0, 1)
    again = await connect("north-2", "mortal")
    again.send(PublishPacket("life", b"1", user_properties=[("offer.lease", "400ms")]))
    assert await alive_counts(reader) == (1, 0)
    again.send(DisconnectPacket())
    assert await alive_counts(reader) == (0, 0)


async def test_a_manual_lease_needs_messages_or_assertions(connect: Connect) -> None:
    reader, sensor = await connect("south-1", "expects"), await connect("north-1", "speaks")
    assert await subscribe(reader, "$qos/liveliness/#") == [0]
    said = [("offer.lease", "500ms"), ("offer.liveliness", "manual")]
    sensor.send(PublishPacket("manual", b"0", user_properties=said))
    assert await subscribe(reader, "manual", liveliness="manual", lease="1s") == [0]
    assert await alive_counts(reader) == (1, 0)
    for _ in range(6):
        await asyncio.sleep(0.2)
        sensor.send(PublishPacket("$assert/manual", b""))
    pings = asyncio.create_task(beat(sensor))
    assert await alive_counts(reader) == (0, 1)
    sensor.send(PublishPacket("manual", b"1"))
    assert await alive_counts(reader) == (1, 0)
    pings.cancel()


async def beat(peer: Peer) -> None:
    """Say nothing but that the connection is there."""
    while True:
        peer.send(PingReqPacket())
        await asyncio.sleep(0.1)


async def test_a_lease_goes_on_at_the_broker_to_which_a_client_moves(connect: Connect) -> None:
    reader, sensor = await connect("south-1", "patient"), await connect("north-1", "moves", 600)
    assert await subscribe(reader, "$qos/liveliness/#") == [0]
    said = PublishPacket("moving", b"0", user_properties=[("offer.lease", "1s")])
    sensor.send(said)
    assert await subscribe(reader, "moving", lease="1s") == [0]
    assert await alive_counts(reader) == (1, 0)
    sensor.writer.transport.abort()
    moved = await connect("north-2", "moves", 600)  # it publishes nothing there
    pings = asyncio.create_task(beat(moved))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3 * SOON_S):
            raise AssertionError(f"it is told {await alive_counts(reader)}")
    pings.cancel()


@pytest.mark.parametrize("qos", [0, 1])
async def test_only_the_strongest_publisher_that_is_alive_is_heard(connect: Connect, qos: int) -> None:
    topic = f"owned/{qos}"
    reader = await connect("south-1", f"one-at-a-time-{qos}")
    weak, strong = await connect("north-1", f"spare-{qos}"), await connect("north-2", f"chief-{qos}")
    numbers = iter(range(1, 1_000))

    def say(peer: Peer, payload: bytes, strength: int) -> None:
        said = [
            ("offer.ownership", "exclusive"),
            ("offer.strength", str(strength)),
            ("offer.deadline", "300ms"),
        ]
        packet_id = next(numbers) if qos else None
        peer.send(PublishPacket(topic, payload, qos=QoS(qos), packet_id=packet_id, user_properties=said))

    say(weak, b"early", 1)
    assert await subscribe(reader, topic, qos=qos, ownership="exclusive", deadline="1s") == [qos]
    heard: list[bytes] = []

    async def until_heard(wanted: bytes) -> None:
        """Return when this is heard and nothing else, though both may speak."""
        async with asyncio.timeout(DEADLINE_S):
            while heard[-20:] != [wanted] * 20:
                packet = await reader.first(PublishPacket)
                if int(packet.qos):
                    reader.send(PubAckPacket(packet.packet_id or 0))
                assert not any(key == "$flow" for key, _ in packet.user_properties)
                heard.append(bytes(packet.payload or b""))

    async def speak(peer: Peer, payload: bytes, strength: int) -> None:
        while True:
            say(peer, payload, strength)
            await asyncio.sleep(0.02)

    tasks = [asyncio.create_task(speak(weak, b"weak", 1)), asyncio.create_task(speak(strong, b"strong", 2))]
    await until_heard(b"strong")
    tasks[1].cancel()  # its deadline is missed, and nobody has to be asked
    await until_heard(b"weak")
    tasks.append(asyncio.create_task(speak(strong, b"strong", 2)))
    await until_heard(b"strong")
    for task in tasks:
        task.cancel()


async def test_messages_over_their_budget_are_delivered_and_told(connect: Connect) -> None:
    reader, sensor = await connect("south-1", "hurried"), await connect("north-1", "far")
    assert await subscribe(reader, "$qos/late/#") == [0]
    said = [("offer.budget", "1us")]
    sensor.send(PublishPacket("far", b"0", user_properties=said))
    assert await subscribe(reader, "far", budget="1us") == [0]
    await asyncio.sleep(SOON_S / 2)
    sensor.send(PublishPacket("far", b"1", user_properties=said))
    news: list[PublishPacket] = []
    heard: set[bytes] = set()
    while not news or b"1" not in heard:  # on a busy machine the first message may come too
        packet = await reader.first(PublishPacket)
        if packet.topic == "$qos/late/far":
            news.append(packet)
        else:
            heard.add(bytes(packet.payload))
    told = json.loads(news[0].payload)
    assert told["budget"] == "1us" and told["total"] == told["change"] == 1 and told["longest"].endswith("us")


def test_a_new_subscription_gets_the_last_messages_and_then_what_comes(network: dict[str, Any]) -> None:
    with Client(url(network, "north-1")) as sensor, Client(url(network, "south-1")) as reader:
        for number in range(10):
            sensor.publish(f"past/{number % 2}", number, qos=1)
        request = Request(durability=Durability.PERSISTENT, history=3)
        with reader.subscribe("past/+", qos=1, request=request) as late:
            for number in range(10, 14):
                sensor.publish(f"past/{number % 2}", number, qos=1)
            got = [late.get(DEADLINE_S).json()]
            while got[-1] != 13:
                got.append(late.get(DEADLINE_S).json())
            # History follows SUBACK, so that some of those that come may be among the last three already.
            assert got == list(range(got[0], 14)) and 4 <= got[0] <= 8
            with pytest.raises(DeadlineExceeded):
                late.get(0.3)


def publish_all(sensor: Client, topic: str, numbers: range) -> None:
    for number in numbers:
        sensor.publish(topic, number, qos=2)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_history_and_live_messages_meet_without_a_gap_or_a_repeat(network: dict[str, Any], qos: int) -> None:
    topic, count = f"seam/{qos}", 400
    with Client(url(network, "north-2")) as sensor, Client(url(network, "south-2")) as reader:
        for number in range(count // 2):
            sensor.publish(topic, number, qos=1 + (number % 2))
        request = Request(durability=Durability.TRANSIENT, history=EVERYTHING)
        with (
            reader.subscribe("other", qos=qos),
            ThreadPoolExecutor() as pool,
            reader.subscribe(topic, qos=qos, request=request) as late,
        ):
            rest = pool.submit(publish_all, sensor, topic, range(count // 2, count))
            assert [late.get(DEADLINE_S).json() for _ in range(count)] == list(range(count))
            rest.result()
            with pytest.raises(DeadlineExceeded):
                late.get(0.3)


@pytest.mark.parametrize("reader_at", ["north-2", "south-2"])
def test_messages_at_qos_0_have_a_history_if_their_stream_offers_it(
    network: dict[str, Any], reader_at: str
) -> None:
    topic, count = f"ring/{reader_at}", 600
    offer = Offer(durability=Durability.TRANSIENT_LOCAL, history=5)
    request = Request(durability=Durability.TRANSIENT_LOCAL, history=3)
    with Client(url(network, "north-2")) as sensor, Client(url(network, reader_at)) as reader:

        def publish(numbers: range) -> None:
            for number in numbers:
                sensor.publish(topic, number, offer=offer)

        publish(range(count // 2))
        with ThreadPoolExecutor() as pool:
            rest = pool.submit(publish, range(count // 2, count))
            with reader.subscribe(topic, request=request) as late:
                first = late.get(DEADLINE_S).json()
                got = [first, *(late.get(DEADLINE_S).json() for _ in range(count - 1 - first))]
                assert got == list(range(first, count)) and first >= count // 2 - 3
                rest.result()
        with reader.subscribe(topic, request=request) as later:
            assert [later.get(DEADLINE_S).json() for _ in range(3)] == [count - 3, count - 2, count - 1]
            with pytest.raises(DeadlineExceeded):
                later.get(0.3)


@pytest.mark.parametrize("durability", [Durability.TRANSIENT_LOCAL, Durability.TRANSIENT])
def test_only_transient_history_outlives_its_publisher(
    network: dict[str, Any], durability: Durability
) -> None:
    topic = f"outlive/{durability.value}"
    with Client(url(network, "south-1")) as reader:
        request = Request(durability=durability)
        with Client(url(network, "north-1")) as sensor:
            sensor.publish(topic, 7, offer=Offer(durability=durability))
            with reader.subscribe(topic, request=request) as here:
                assert here.get(DEADLINE_S).json() == 7
        with reader.subscribe(topic, request=request) as late:
            if durability is Durability.TRANSIENT:
                assert late.get(DEADLINE_S).json() == 7
            with pytest.raises(DeadlineExceeded):
                late.get(SOON_S)


async def test_history_that_is_cut_short_is_told(connect: Connect) -> None:
    pump, reader = await connect("north-1", "ring-pump"), await connect("south-1", "ring-reader")
    said = [("offer.durability", "transient-local"), ("offer.history", "all")]
    assert await subscribe(pump, "ring/cut") == [0]
    for _ in range(20):
        pump.send(PublishPacket("ring/cut", bytes(100_000), user_properties=said))
    for _ in range(20):
        await pump.first(PublishPacket)  # so that its broker has them all
    assert await subscribe(reader, "$qos/history/#") == [0]
    assert await subscribe(reader, "$qos/durability=transient-local,history=all/ring/cut") == [0]
    seen = 0
    while (packet := await reader.first(PublishPacket)).topic == "ring/cut":
        seen += 1
    assert packet.topic == "$qos/history/ring/cut"
    told = json.loads(bytes(packet.payload or b""))
    assert told["missing"] >= 20 - 1_048_576 // 100_000


async def test_messages_at_qos_0_are_never_persistent(connect: Connect) -> None:
    pump, reader = await connect("north-1", "ring-pump"), await connect("south-1", "ring-reader")
    assert await subscribe(reader, "$qos/incompatible/#") == [0]
    said = [("offer.durability", "persistent")]
    pump.send(PublishPacket("ring/persistent", b"1", user_properties=said))
    assert await subscribe(reader, "$qos/durability=persistent/ring/persistent") == [0]
    news = asyncio.ensure_future(reader.first(PublishPacket))
    async with asyncio.timeout(DEADLINE_S):
        while not news.done():  # at QoS 0 a SUBACK waits for no other broker
            pump.send(PublishPacket("ring/persistent", b"2", user_properties=said))
            await asyncio.wait((news,), timeout=0.1)
    told = news.result()
    assert told.topic == "$qos/incompatible/ring/persistent"
    assert json.loads(bytes(told.payload or b""))["offered"] == "transient"

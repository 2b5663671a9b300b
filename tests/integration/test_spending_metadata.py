"""Clients that only spend what others have to keep: metadata, descriptions, queries and sessions. Nobody else pays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    PubAckPacket,
    PublishPacket,
    PubRecPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tests.integration.peers import Connect
from tests.integration.running import up
from tests.unit.broker.harness import Peer
from tocsin.wire.mqtt.connect import V5, V311, Version

ONE, TWO = QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE
QUOTA_EXCEEDED = 0x97
TOPICS = 20
COUNTED_S = 30.0  # for brokers to tell each other how many sessions they have
BROKERS = '[{"id":"north-1","cluster":"north"},{"id":"north-2","cluster":"north"}]'


@pytest.fixture(scope="module")
def ready() -> Iterator[dict[str, Any]]:
    settings = (
        f"brokers={BROKERS}",
        "limits.streams_per_client=200",
        f"coordinator.streams_max_bytes={4 << 20}",  # so that one user may have 2 MiB
        f"coordinator.told_burst_bytes={2 << 20}",
        f"coordinator.told_rate_bytes={256 << 10}",
        "limits.sessions_max=60",  # so that one user may have 30
        f"shares.sessions_bytes={8 << 20}",  # and 4 MiB
    )
    with up(*(word for each in settings for word in ("--set", each))) as told:
        yield told


def described(size: int) -> bytes:
    """A description of some 60 keys, of about that size."""
    return json.dumps({f"key{number:02}": "v" * (size // 60 - 10) for number in range(60)}).encode()


async def test_others_cannot_make_a_session_unstorable(connect: Connect) -> None:
    victim = await connect("north-1", "victim", expiry_s=300)
    attacker = await connect("north-2", "attacker")
    for number in range(TOPICS):
        victim.send(PublishPacket(f"victim/{number}", b"1", qos=ONE, packet_id=1))
        assert int((await victim.first(PubAckPacket)).reason_code) == 0
    for number in range(TOPICS):
        attacker.send(PublishPacket(f"$meta/victim/{number}", described(60_000), qos=ONE, packet_id=1))
        refused = await attacker.first(PubAckPacket)
        assert int(refused.reason_code) == QUOTA_EXCEEDED
        attacker.send(PublishPacket(f"$meta/victim/{number}", described(3_900), qos=ONE, packet_id=1))
        assert int((await attacker.first(PubAckPacket)).reason_code) == 0
    victim.send(SubscribePacket(1, [TopicFilter("news")]))
    assert [int(code) for code in (await victim.first(SubAckPacket)).reason_codes] == [2]
    victim.send(PublishPacket("victim/0", b"2", qos=TWO, packet_id=7))
    assert int((await victim.first(PubRecPacket)).reason_code) == 0


async def test_a_client_cannot_make_its_own_session_unstorable(connect: Connect) -> None:
    client = await connect("north-1", "subscriber", expiry_s=300)
    long = "f" * 1_000
    codes: list[int] = []
    for number in range(10):
        client.send(SubscribePacket(1, [TopicFilter(f"{number}/{each:03}/{long}") for each in range(50)]))
        answer = await client.first(SubAckPacket)
        codes += map(int, answer.reason_codes)
    assert set(codes) == {2, QUOTA_EXCEEDED}
    assert "bytes together" in (answer.reason_str or "")
    client.send(PublishPacket("a", b"", qos=TWO, packet_id=7))
    assert int((await client.first(PubRecPacket)).reason_code) == 0


def stored(ready: dict[str, Any], name: str) -> int:
    """The bytes of a log or table of the store, on disk."""
    directories = Path(ready["state"]).glob(f"nats/**/{name}/msgs")
    return sum(file.stat().st_size for each in directories for file in each.glob("*.blk"))


async def test_a_one_byte_message_costs_little_whatever_its_streams_metadata(
    ready: dict[str, Any], connect: Connect
) -> None:
    away = await connect("north-2", "away", expiry_s=3_600)
    away.send(SubscribePacket(1, [TopicFilter("$query/key00 = 'wanted'", max_qos=ONE)]))
    assert [int(code) for code in (await away.first(SubAckPacket)).reason_codes] == [1]
    away.close()
    sensor = await connect("north-1", "sensor")

    async def publish(topic: str, payload: bytes) -> None:
        sensor.send(PublishPacket(topic, payload, qos=ONE, packet_id=1))
        assert int((await sensor.first(PubAckPacket)).reason_code) == 0

    await publish("$meta/sensor/1", described(3_900))
    before = stored(ready, "tocsin-messages")
    for _ in range(100):
        await publish("sensor/1", b"1")
    await publish("$meta/sensor/1", b'{"key00": "wanted"}')
    await publish("sensor/1", b"2")
    await publish("$meta/sensor/1", b'{"key00": "no"}')
    await publish("sensor/1", b"3")
    grown = stored(ready, "tocsin-messages") - before
    assert grown < 100 * 400 + 3 * 5_000, "the metadata are there once, not with each message"
    back = await connect("north-1", "away", expiry_s=3_600)
    assert (await back.first(PublishPacket)).payload == b"2", "judged by what was said when it was published"


async def test_descriptions_of_topics_that_nobody_publishes_on_are_bounded(connect: Connect) -> None:
    many = described(3_900).replace(b"{", b'{"$permanent": true, ', 1)
    taken = 0
    for number in range(3):
        attacker = await connect("north-1", f"describer-{number}")
        codes: list[int] = []
        while not codes or codes[-1] == 0:
            topic = f"$meta/nowhere/{number}/{len(codes)}"
            attacker.send(PublishPacket(topic, many, qos=ONE, packet_id=1))
            codes.append(int((await attacker.first(PubAckPacket)).reason_code))
        assert codes[-1] == QUOTA_EXCEEDED
        taken += len(codes) - 1
    assert 0 < taken * 3_900 < 2 << 20, "one user's share, for all of its clients together"
    for number in range(taken):
        attacker.send(PublishPacket(f"$meta/nowhere/0/{number}", b"", qos=ONE, packet_id=1))
        assert int((await attacker.first(PubAckPacket)).reason_code) == 0, "what takes away is never refused"
    for number in range(201):
        attacker.send(PublishPacket(f"$meta/few/{number}", b'{"a": 1}', qos=ONE, packet_id=1))
        code = int((await attacker.first(PubAckPacket)).reason_code)
    assert code == QUOTA_EXCEEDED, "limits.streams_per_client counts what a client describes"


async def test_queries_with_large_answers_cost_whoever_asks_them(
    ready: dict[str, Any], connect: Connect
) -> None:
    publisher = await connect("north-1", "publisher")
    for number in range(100):
        said = b'{"kind": "sensor", "words": "%b"}' % (b"w" * 900)
        publisher.send(PublishPacket(f"$meta/sensors/{number}", said, qos=ONE, packet_id=1))
        assert int((await publisher.first(PubAckPacket)).reason_code) == 0
        publisher.send(PublishPacket(f"sensors/{number}", b"1", qos=ONE, packet_id=1))
        assert int((await publisher.first(PubAckPacket)).reason_code) == 0
    asker = await connect("north-2", "asker")
    before = stored(ready, "tocsin-commands")
    for _ in range(200):
        asker.send(SubscribePacket(1, [TopicFilter("$streams/kind = 'sensor'")]))
        answer = await asker.first(SubAckPacket)
        if int(answer.reason_codes[0]) == QUOTA_EXCEEDED:
            break
        asker.send(UnsubscribePacket(2, ["$streams/kind = 'sensor'"]))
        await asker.first(UnsubAckPacket)
    assert int(answer.reason_codes[0]) == QUOTA_EXCEEDED
    assert "try again in" in (answer.reason_str or "")
    assert stored(ready, "tocsin-commands") - before < 32 << 20


async def connack(ready: dict[str, Any], client: str, version: Version = V5, at: int = 0) -> Peer:
    """A client that was answered, however that was."""
    broker = ready["brokers"][at]
    peer = Peer(*await asyncio.open_connection(broker["host"], broker["port"]), version)
    peer.send(
        ConnectPacket(client, clean_start=False, session_expiry_interval=300)
        if version == V5
        else ConnectPacket(client, clean_start=False)
    )
    return peer


async def test_stored_sessions_are_bounded_in_bytes_and_number_and_others_go_on(
    ready: dict[str, Any], connect: Connect
) -> None:
    filters = [TopicFilter(f"{each:03}/" + "f" * 1_000) for each in range(240)]
    grown = 0
    peers: list[Peer] = []
    while True:  # until sessions may not grow any more
        peer = await connack(ready, f"large-{grown}")
        peers.append(peer)
        if int((await peer.receive(ConnAckPacket)).reason_code) == QUOTA_EXCEEDED:
            break
        for start in range(0, 240, 60):
            peer.send(SubscribePacket(1, filters[start : start + 60]))
            await peer.first(SubAckPacket)
        grown += 1
    assert 10 < grown < 20, "four fifths of a user's half of the share"
    again = await connack(ready, "large-0")
    answer = await again.receive(ConnAckPacket)
    assert int(answer.reason_code) == 0 and answer.session_present, "what is stored is not refused"
    old = await connack(ready, "old", V311)
    assert int((await old.receive(ConnAckPacket)).reason_code) == 0x88, "return code 3, server unavailable"
    async with asyncio.timeout(COUNTED_S):  # the other broker has none of them, and counts them too
        number = 0
        while True:
            number += 1
            peers.append(elsewhere := await connack(ready, f"elsewhere-{number}", at=1))
            answer = await elsewhere.receive(ConnAckPacket)
            if int(answer.reason_code) == QUOTA_EXCEEDED:
                break
            await asyncio.sleep(0.5)
    assert "this user" in (answer.reason_str or "")
    passing = await connect("north-1", "passing")  # without a session
    passing.send(PublishPacket("$meta/any/thing", b'{"a": 1}', qos=ONE, packet_id=1))
    assert int((await passing.first(PubAckPacket)).reason_code) == 0, "coordinators go on"
    for each in (*peers, again, old):
        each.close()

"""Topics and filters as long as they may be, also of letters that are six bytes in a subject: stored and delivered."""

from __future__ import annotations

import asyncio
import json

from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tests.integration.running import up
from tests.integration.test_elsewhere import address
from tests.unit.broker.harness import Peer
from tocsin.wire.mqtt.connect import V5, V311, Version

BROKERS = json.dumps([{"id": "north-1", "cluster": "north"}])
LETTERS: dict[Version, str] = {V5: "é", V311: "ü"}


async def test_the_longest_topics_are_delivered_also_to_a_session_that_was_away() -> None:
    with up("--set", f"brokers={BROKERS}") as network:

        async def come(client_id: str, version: Version) -> Peer:
            peer = Peer(*await asyncio.open_connection(*address(network, "north-1")), version)
            expiry = 600 if version == V5 else 0
            peer.send(ConnectPacket(client_id, clean_start=False, session_expiry_interval=expiry))
            assert int((await peer.receive(ConnAckPacket)).reason_code) == 0
            return peer

        for version, letter in LETTERS.items():
            topics = [
                letter * 512,
                f"{version}" * 1_024,
                f"{letter}/" * 16 + letter * 488,
                f"short/{version}",
            ]
            filters = [TopicFilter(each, max_qos=QoS.AT_LEAST_ONCE) for each in topics]
            reader = await come(f"reader-{version}", version)
            reader.send(SubscribePacket(1, filters))
            assert [int(code) for code in (await reader.receive(SubAckPacket)).reason_codes] == [1] * len(
                filters
            )
            reader.close()
            writer = await come(f"writer-{version}", version)
            for number, topic in enumerate(topics, 1):
                qos = QoS.AT_LEAST_ONCE
                writer.send(PublishPacket(topic, b"x", qos=qos, packet_id=number, retain=True))
                assert int((await writer.receive(PubAckPacket)).reason_code) == 0
            reader = await come(f"reader-{version}", version)
            async with asyncio.timeout(30):
                found = [(await reader.receive(PublishPacket)).topic for _ in filters]
            assert found == topics
            newcomer = await come(f"newcomer-{version}", version)
            newcomer.send(SubscribePacket(1, [TopicFilter(topics[0], max_qos=QoS.AT_LEAST_ONCE)]))
            async with asyncio.timeout(30):
                assert (await newcomer.first(PublishPacket)).topic == topics[0]
            for peer in (reader, writer, newcomer):
                peer.close()

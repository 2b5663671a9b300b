"""Frames made by hand against the codec: the same packet, read back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt5 import PublishPacket, QoS

from tocsin.errors import Unencodable
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5, V311, Version
from tocsin.wire.mqtt.frames import forward_frame, publish_frame

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
topics = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=300
)
payloads = st.binary(max_size=200) | st.sampled_from([bytes(n) for n in (16_300, 16_380, 16_384, 70_000)])
versions: st.SearchStrategy[Version] = st.sampled_from([V311, V5])


def read(frame: bytes, version: Version) -> PublishPacket:
    (packet,) = Decoder(1 << 20, role="client", version=version).feed(frame)
    assert isinstance(packet, PublishPacket)
    return packet


@settings(deadline=None)
@given(topics, payloads, versions, st.booleans())
def test_a_frame_is_what_the_codec_writes(topic: str, payload: bytes, version: Version, retain: bool) -> None:
    packet = PublishPacket(topic, payload, retain=retain)
    frame = publish_frame(topic, payload, version, retain=retain)
    assert frame == encode(packet, version) == publish_frame(topic, payload, version, retain=retain)
    assert read(frame, version) == packet


@settings(deadline=None)
@given(
    packet=st.builds(
        PublishPacket,
        topics,
        payloads,
        qos=st.just(QoS.AT_LEAST_ONCE),
        packet_id=st.just(7),
        duplicate=st.booleans(),
        retain=st.booleans(),
        payload_format_indicator=st.integers(0, 1),
        message_expiry_interval=st.none() | st.integers(0, 100),
        content_type=st.none() | text,
        response_topic=st.none() | topics,
        correlation_data=st.none() | st.binary(max_size=10),
        topic_alias=st.none() | st.just(3),
        user_properties=st.lists(st.tuples(text, text), max_size=3),
    ),
    version=versions,
    retain=st.booleans(),
    ids=st.lists(st.integers(1, 1_000), max_size=2),
    waited_s=st.integers(0, 150),
)
def test_what_is_forwarded_keeps_its_payload_and_properties_and_nothing_else(
    packet: PublishPacket, version: Version, retain: bool, ids: list[int], waited_s: int
) -> None:
    frame = forward_frame(packet, version, retain=retain, subscription_ids=ids, waited_s=waited_s)
    expected = PublishPacket(packet.topic, packet.payload, retain=retain)
    if version == V5:
        expiry_s = packet.message_expiry_interval
        expected = PublishPacket(
            packet.topic,
            packet.payload,
            retain=retain,
            payload_format_indicator=packet.payload_format_indicator,
            message_expiry_interval=None if expiry_s is None else max(0, expiry_s - waited_s),
            content_type=packet.content_type,
            response_topic=packet.response_topic,
            correlation_data=packet.correlation_data,
            subscription_ids=ids,
            user_properties=packet.user_properties,
        )
    assert read(frame, version) == expected


def test_more_topics_than_are_remembered_change_nothing() -> None:
    for number in range(10_000):
        topic = f"t/{number % 5_000}"
        assert publish_frame(topic, b"x", V5) == PublishPacket(topic, b"x").write()


@pytest.mark.parametrize("topic", ["", "\0", "\ud800", "a" * 65_536])
def test_a_topic_that_cannot_be_said_is_unencodable(topic: str) -> None:
    for version in (V311, V5):
        with pytest.raises(Unencodable, match="PUBLISH"):
            publish_frame(topic, b"", version)

"""A publication keeps what a packet said."""

from __future__ import annotations

import pytest
from mqtt5 import PublishPacket, QoS

from tocsin.errors import Malformed
from tocsin.model.publication import Publication, decode_publication, encode_publication

PACKET = PublishPacket(
    "a/b",
    b"payload",
    qos=QoS.AT_LEAST_ONCE,
    packet_id=7,
    retain=True,
    payload_format_indicator=1,
    message_expiry_interval=60,
    content_type="text",
    response_topic="r",
    correlation_data=b"c",
    user_properties=[("k", "v"), ("k", "w")],
)


def test_a_packet_survives_the_log() -> None:
    kept = decode_publication(encode_publication(Publication.of(PACKET, "a/b", "me")))
    assert kept == Publication.of(PACKET, "a/b", "me")
    sent = kept.packet(qos=1, packet_id=9, duplicate=True, retain=True, subscription_ids=(3,), waited_s=20)
    assert (sent.topic, sent.payload, int(sent.qos), sent.packet_id) == ("a/b", b"payload", 1, 9)
    assert (sent.duplicate, sent.retain, sent.subscription_ids) == (True, True, [3])
    assert sent.message_expiry_interval == 40
    assert (sent.content_type, sent.response_topic, sent.correlation_data) == ("text", "r", b"c")
    assert sent.user_properties == [("k", "v"), ("k", "w")]


def test_expiry_counts_from_when_it_was_taken() -> None:
    kept = Publication.of(PACKET, "a/b", "me")
    assert not kept.expired(59.9)
    assert kept.expired(60)
    assert not Publication("a", b"", 1, "me").expired(10**9)


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x91\xa1a", b"\x80"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed, match="not a stored message"):
        decode_publication(data)

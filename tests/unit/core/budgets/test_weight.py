"""The weight of a message has all that is in its packet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PublishPacket, Will

from tocsin.core.budgets.budget import weight_of, weight_of_publication
from tocsin.core.retained.kept import size_of
from tocsin.model.publication import Publication
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5

TEXTS = st.text("abc", max_size=300)
FRAME_BYTES = 60  # of a packet: lengths, flags and the numbers of properties


@given(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, st.lists(st.tuples(TEXTS, TEXTS), max_size=5))
def test_a_message_weighs_at_least_what_its_packet_has(
    topic: str, payload: str, kind: str, response: str, correlation: str, said: list[tuple[str, str]]
) -> None:
    packet = PublishPacket(
        topic + "t",
        payload.encode(),
        content_type=kind or None,
        response_topic=response or None,
        correlation_data=correlation.encode() or None,
        user_properties=said,
    )
    will = Will(
        topic=packet.topic,
        payload=packet.payload,
        content_type=packet.content_type,
        response_topic=packet.response_topic,
        correlation_data=packet.correlation_data,
        user_properties=said,
    )
    publication = Publication.of(packet, packet.topic, "client")
    weight = weight_of(packet)
    assert len(encode(packet, V5)) - FRAME_BYTES <= weight
    assert weight == weight_of(will) == weight_of_publication(publication)
    assert weight_of(packet, "another") == weight - len(packet.topic) + len("another")
    assert size_of(publication) > weight or not payload

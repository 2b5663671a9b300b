"""Every packet that a client may send can be stored: as a record of the log, and as a retained message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt5 import PubAckPacket, PublishPacket, QoS

from tests.unit.broker.harness import Door
from tocsin.config import Limits
from tocsin.core.retained.kept import KEPT, Kept
from tocsin.core.session.limits import SessionLimits
from tocsin.errors import Refused
from tocsin.model.publication import Publication, encode_publication
from tocsin.model.said import INLINE_MAX_BYTES
from tocsin.ports import PACKET_MAX_BYTES, PAYLOAD_MAX_BYTES, Record
from tocsin.store.nats.connection import HEADER_MAX_BYTES
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version

CLIENT = "c" * SessionLimits().client_id_max_bytes
NAME = "n" * 63  # of a broker and its cluster, the longest
TEXTS = st.one_of(
    st.text(max_size=40),
    st.integers(1, 60_000).map(lambda size: "t" * size),
    st.integers(1, 15_000).map(lambda size: "\N{CYCLONE}" * size),
)


@st.composite
def packets(draw: st.DrawFn) -> tuple[PublishPacket, Version, str]:
    """The largest legal PUBLISH with these properties, its version and its topic."""
    version: Version = draw(st.sampled_from((V5, V311)))
    topic = "t" * draw(st.integers(1, Limits().topic_max_bytes))
    qos = draw(st.sampled_from((QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE)))
    said: dict[str, object] = {"qos": qos, "packet_id": 1, "retain": draw(st.booleans())}
    written = topic
    if version == V5:
        pair = draw(st.tuples(TEXTS, TEXTS))
        most = 900_000 // (len(pair[0].encode()) + len(pair[1].encode()) + 5)
        said["user_properties"] = [pair] * draw(st.integers(0, min(most, 20_000)))
        said["correlation_data"] = b"c" * draw(st.sampled_from((0, 1, 65_000)))
        said["response_topic"] = draw(st.sampled_from((None, "r" * 1_000)))
        said["message_expiry_interval"] = draw(st.sampled_from((None, 1 << 31)))
        if draw(st.booleans()):
            said["topic_alias"], written = 1, ""  # the topic was said before
    bare = len(encode(PublishPacket(written, b"", **said), version))  # type: ignore[arg-type]
    payload = b"x" * max(0, PACKET_MAX_BYTES - bare - 2)  # the length takes two bytes more
    while len(encode(PublishPacket(written, payload, **said), version)) < PACKET_MAX_BYTES:  # type: ignore[arg-type]
        payload += b"x"
    return PublishPacket(written, payload, **said), version, topic  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(packets())
def test_the_largest_packet_fits_a_record_and_the_retained_table(
    made: tuple[PublishPacket, Version, str],
) -> None:
    packet, version, topic = made
    assert len(encode(packet, version)) == PACKET_MAX_BYTES
    keys = {"k": "v" * INLINE_MAX_BYTES}
    publication = Publication.of(packet, topic, CLIENT, broker=NAME, cluster=NAME, keys=keys)  # type: ignore[arg-type]
    assert len(encode_publication(publication)) + HEADER_MAX_BYTES <= PAYLOAD_MAX_BYTES
    assert len(KEPT.write(Kept(publication, 1e9, 1 << 53))) + HEADER_MAX_BYTES <= PAYLOAD_MAX_BYTES


@pytest.mark.parametrize("version", [V5, V311])
async def test_the_largest_packet_is_stored_and_acknowledged(version: Version) -> None:
    async with Door(Limits()) as door:
        peer = await door.peer("publisher", version=version)
        bare = len(encode(PublishPacket("a", b"", qos=QoS.AT_LEAST_ONCE, packet_id=1), version))
        payload = b"x" * (PACKET_MAX_BYTES - bare - 2)
        peer.send(PublishPacket("a", payload, qos=QoS.AT_LEAST_ONCE, packet_id=1))
        assert int((await peer.receive(PubAckPacket)).reason_code) == 0
        assert door.parts.message_log.newest == 1


@pytest.mark.parametrize(("version", "code"), [(V5, 0x97), (V311, 0)])
async def test_what_the_store_refuses_for_its_size_is_refused_for_good(version: Version, code: int) -> None:
    """A client that is disconnected for it would send it again, for ever."""

    class Small:
        def __init__(self, log: object) -> None:
            self._log = log

        def __getattr__(self, name: str) -> object:
            return getattr(self._log, name)

        async def append(self, records: list[Record], **_: object) -> tuple[int, ...]:
            raise Refused("append", "too large for this server")

    async with Door(Limits()) as door:
        message_log = door.parts.message_log
        message_log._log = Small(message_log._log)  # type: ignore[assignment]
        peer = await door.peer("publisher", version=version)
        peer.send(PublishPacket("a", b"x" * 1_000, qos=QoS.AT_LEAST_ONCE, packet_id=1))
        assert int((await peer.receive(PubAckPacket)).reason_code) == code

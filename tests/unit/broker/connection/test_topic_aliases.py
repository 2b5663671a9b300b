"""Topics told by number: the message stays the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PingRespPacket, PublishPacket, QoS

from tocsin.broker.connection.topic_aliases import ALIASES_MAX, Aliases
from tocsin.wire.codec import Decoder, encode
from tocsin.wire.connect import V5

topics = st.sampled_from(["a", "a/b", "é/" + "x" * 200, "c"])
packets = st.builds(
    lambda topic, payload, qos, user: PublishPacket(
        topic,
        payload,
        qos=QoS.EXACTLY_ONCE if qos == 2 else QoS.AT_LEAST_ONCE if qos else QoS.AT_MOST_ONCE,
        packet_id=7 if qos else None,
        user_properties=user,
    ),
    topics,
    st.binary(max_size=300),
    st.integers(0, 2),
    st.lists(st.tuples(st.text("kv", max_size=3), st.text("kv", max_size=40)), max_size=3),
)


@given(st.lists(packets, max_size=12), st.integers(0, 3))
def test_a_client_that_keeps_the_numbers_reads_what_was_sent(sent: list[PublishPacket], most: int) -> None:
    aliases = Aliases(most)
    decoder = Decoder(1 << 20, role="client", version=V5)
    known: dict[int, str] = {}
    for packet in sent:
        (read,) = decoder.feed(aliases.of(encode(packet, V5)))
        assert isinstance(read, PublishPacket)
        if read.topic_alias is not None:
            assert 1 <= read.topic_alias <= most
            known[read.topic_alias] = read.topic or known[read.topic_alias]
        topic = read.topic if read.topic_alias is None else known[read.topic_alias]
        assert (topic, read.payload, read.packet_id) == (packet.topic, packet.payload, packet.packet_id)
        assert read.user_properties == packet.user_properties
    assert len(known) <= most


def test_other_packets_and_clients_that_take_none_are_left_alone() -> None:
    frame = encode(PingRespPacket(), V5)
    assert Aliases(5).of(frame) is frame
    publish = encode(PublishPacket("a", b""), V5)
    assert Aliases(0).of(publish) is publish
    assert not Aliases(0)


def test_no_client_makes_us_remember_more_than_a_few_topics() -> None:
    aliases = Aliases(65_535)
    frames = [encode(PublishPacket(f"topic/{number}", b""), V5) for number in range(ALIASES_MAX + 1)]
    assert aliases.of(frames[-2]) != frames[-2]
    for frame in frames[:-2]:
        aliases.of(frame)
    assert aliases.of(frames[-1]) == frames[-1]

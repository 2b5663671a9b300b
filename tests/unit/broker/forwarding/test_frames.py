"""The frames of one message for many clients."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PublishPacket

from tocsin.broker.forwarding.frames import Frames
from tocsin.core.delivery.grant import Grant
from tocsin.model.publication import Publication
from tocsin.wire.codec import Decoder
from tocsin.wire.connect import V5, V311, Version

publications = st.builds(
    Publication,
    st.sampled_from(["a", "a/b"]),
    st.binary(max_size=200),
    st.integers(0, 2),
    st.just("me"),
    expiry_s=st.none() | st.integers(10, 100),
    content_type=st.none() | st.just("text"),
    user_properties=st.sampled_from([(), (("k", "v"),)]),
)
grants = st.builds(Grant, st.integers(0, 2), st.sampled_from([(), (3, 4)]), st.booleans())


@given(publications, grants, st.sampled_from([V5, V311]))
def test_a_frame_says_what_was_published_and_granted(
    publication: Publication, granted: Grant, version: Version
) -> None:
    packet_id = 9 if granted.qos else 0
    frames = Frames(publication, 2.5)
    frame = frames.of(version, granted, packet_id)
    assert frames.of(version, granted, packet_id) is frame, "made once"
    (read,) = Decoder(1 << 20, role="client", version=version).feed(frame)
    assert isinstance(read, PublishPacket)
    assert (read.topic, read.payload) == (publication.topic, publication.payload)
    assert (int(read.qos), read.retain, read.packet_id or 0) == (granted.qos, granted.retain, packet_id)
    if version == V5:
        assert tuple(read.subscription_ids) == granted.identifiers
        assert tuple(read.user_properties) == publication.user_properties
        assert read.content_type == publication.content_type
        left_s = None if publication.expiry_s is None else publication.expiry_s - 2
        assert read.message_expiry_interval == left_s

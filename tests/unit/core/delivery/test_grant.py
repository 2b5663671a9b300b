"""At which QoS a client gets a message, and the frame in which it does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PublishPacket

from tocsin.core.delivery.grant import Frames, Grant, grant
from tocsin.core.forwarding.table import Subscription
from tocsin.model.publication import Publication
from tocsin.wire.mqtt.codec import Decoder
from tocsin.wire.mqtt.connect import V5, V311, Version

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


def message(qos: int = 2, *, client: str = "sender", retain: bool = False) -> Publication:
    return Publication("a", b"", qos, client, retain)


def test_nobody_gets_what_nothing_matches() -> None:
    assert grant([], message(), 1, "me") is None


def test_overlapping_subscriptions_give_one_copy_at_the_highest_qos_with_all_identifiers() -> None:
    both = [Subscription(identifier=3), Subscription(qos=1, identifier=4), Subscription(qos=0)]
    assert grant(both, message(), 1, "me") == Grant(1, (3, 4), False)


def test_no_message_is_raised_above_the_qos_of_its_publisher() -> None:
    assert grant([Subscription(qos=2)], message(1), 1, "me") == Grant(1, (), False)


def test_a_message_from_before_the_subscription_is_not_for_it() -> None:
    assert grant([Subscription(qos=1, since=7)], message(), 7, "me") is None
    assert grant([Subscription(qos=1, since=7)], message(), 8, "me") is not None
    older = [Subscription(qos=2, since=7), Subscription(qos=1, since=3)]
    assert grant(older, message(), 5, "me") == Grant(1, (), False)


def test_a_client_that_wants_none_of_its_own_gets_the_others() -> None:
    own = [Subscription(qos=2, no_local=True), Subscription(qos=0)]
    assert grant(own, message(client="me"), 1, "me") == Grant(0, (), False)
    assert grant(own, message(client="you"), 1, "me") == Grant(2, (), False)


def test_the_retain_flag_stays_for_a_subscription_that_asks_for_it() -> None:
    asks = [Subscription(qos=1), Subscription(qos=1, retain_as_published=True)]
    assert grant(asks, message(retain=True), 1, "me") == Grant(1, (), True)
    assert grant(asks, message(retain=False), 1, "me") == Grant(1, (), False)
    assert grant(asks[:1], message(retain=True), 1, "me") == Grant(1, (), False)


subscriptions = st.builds(
    Subscription,
    no_local=st.booleans(),
    identifier=st.none() | st.integers(1, 3),
    qos=st.integers(0, 2),
    retain_as_published=st.booleans(),
    since=st.integers(0, 3),
)


@given(st.lists(subscriptions, max_size=4), st.integers(0, 2), st.integers(1, 4), st.booleans())
def test_a_grant_is_the_best_that_each_subscription_alone_gives(
    found: list[Subscription], qos: int, position: int, own: bool
) -> None:
    client = "sender" if own else "me"
    alone = [one for each in found if (one := grant([each], message(qos), position, client)) is not None]
    together = grant(found, message(qos), position, client)
    if not alone:
        assert together is None
    else:
        assert together is not None
        assert together.qos == max(each.qos for each in alone)
        assert together.identifiers == tuple(name for each in alone for name in each.identifiers)


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

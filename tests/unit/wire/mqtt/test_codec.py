"""Both versions, both roles: what is encoded is decoded, however the bytes are cut, and nothing else gets through."""

from __future__ import annotations

import tracemalloc
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt5 import (
    AuthPacket,
    AuthReasonCode,
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
    DisconnectPacket,
    DisconnectReasonCode,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PubAckReasonCode,
    PubCompPacket,
    PubCompReasonCode,
    PublishPacket,
    PubRecPacket,
    PubRecReasonCode,
    PubRelPacket,
    PubRelReasonCode,
    QoS,
    RetainHandling,
    SubAckPacket,
    SubAckReasonCode,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubAckReasonCode,
    UnsubscribePacket,
    Will,
)

from tocsin.errors import Malformed, PacketTooLarge, WireError
from tocsin.wire.mqtt.codec import Decoder, Role, encode
from tocsin.wire.mqtt.connect import V5, V311, Version

LIMIT = 1 << 16
FOREVER_S = 0xFFFF_FFFF


def members(kind: Any) -> st.SearchStrategy[Any]:
    """The values of one of the wheel's enumerations, which cannot be iterated."""
    return st.sampled_from([getattr(kind, name) for name in dir(kind) if name.isupper()])


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
blob = st.binary(max_size=40)
level = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/+#"), max_size=5)
topic = st.lists(level, min_size=1, max_size=4).map("/".join).filter(bool)
pattern = st.lists(level | st.just("+"), min_size=1, max_size=3).map("/".join).filter(bool)
filters = pattern | pattern.map(lambda each: each + "/#") | st.just("#")
packet_id = st.integers(1, 65_535)
u16 = st.integers(0, 65_535)
u32 = st.integers(0, FOREVER_S)
users = st.lists(st.tuples(text, text), max_size=3)
subscription_id = st.integers(1, (1 << 28) - 1)

message_properties = {
    "payload_format_indicator": st.integers(0, 1),
    "message_expiry_interval": maybe(u32),
    "content_type": maybe(text),
    "response_topic": maybe(topic),
    "correlation_data": maybe(blob),
    "user_properties": users,
}
wills = {
    V5: st.builds(
        Will,
        topic,
        payload=blob,
        qos=members(QoS),
        retain=st.booleans(),
        will_delay_interval=u32,
        **message_properties,
    ),
    V311: st.builds(Will, topic, payload=blob, qos=members(QoS), retain=st.booleans()),
}


@st.composite
def publishes(draw: st.DrawFn, version: Version, role: Role) -> PublishPacket:
    qos = draw(members(QoS))
    acknowledged = qos != QoS.AT_MOST_ONCE
    fields: dict[str, Any] = {}
    if version == V5 and draw(st.booleans()):
        fields = {name: draw(strategy) for name, strategy in message_properties.items()}
        fields["topic_alias"] = draw(maybe(st.integers(1, 65_535)))
        if role == "client":
            fields["subscription_ids"] = draw(st.lists(subscription_id, max_size=2))
    name = "" if fields.get("topic_alias") and draw(st.booleans()) else draw(topic)
    return PublishPacket(
        name,
        draw(blob | st.integers(100, 20_000).map(bytes)),
        qos=qos,
        retain=draw(st.booleans()),
        packet_id=draw(packet_id) if acknowledged else None,
        duplicate=acknowledged and draw(st.booleans()),
        **fields,
    )


@st.composite
def connects(draw: st.DrawFn, version: Version) -> ConnectPacket:
    clean = draw(st.booleans())
    username = draw(maybe(text))
    fields: dict[str, Any] = {"session_expiry_interval": 0 if clean else FOREVER_S}
    if version == V5:
        method = draw(maybe(text))
        fields = {
            "session_expiry_interval": draw(u32),
            "authentication_method": method,
            "authentication_data": draw(maybe(blob)) if method is not None else None,
            "request_problem_info": draw(st.booleans()),
            "request_response_info": draw(st.booleans()),
            "receive_max": draw(st.integers(1, 65_535)),
            "topic_alias_max": draw(u16),
            "max_packet_size": draw(maybe(st.integers(1, FOREVER_S))),
            "user_properties": draw(users),
        }
    return ConnectPacket(
        draw(text),
        username=username,
        password=draw(maybe(blob)) if version == V5 or username is not None else None,
        clean_start=clean,
        will=draw(maybe(wills[version])),
        keep_alive=draw(u16),
        **fields,
    )


def acknowledgements(version: Version) -> list[st.SearchStrategy[Packet]]:
    kinds: list[tuple[Any, Any]] = [
        (PubAckPacket, PubAckReasonCode),
        (PubRecPacket, PubRecReasonCode),
        (PubRelPacket, PubRelReasonCode),
        (PubCompPacket, PubCompReasonCode),
    ]
    if version == V311:
        return [st.builds(kind, packet_id) for kind, _ in kinds]
    return [
        st.builds(kind, packet_id, reason_code=members(code), reason_str=maybe(text), user_properties=users)
        for kind, code in kinds
    ]


def to_server(version: Version) -> st.SearchStrategy[Packet]:
    """Every packet that a client sends after CONNECT."""
    if version == V311:
        wanted = st.builds(TopicFilter, filters, max_qos=members(QoS), retain_as_published=st.just(False))
        rest: list[st.SearchStrategy[Packet]] = [
            st.builds(SubscribePacket, packet_id, st.lists(wanted, min_size=1, max_size=3)),
            st.builds(UnsubscribePacket, packet_id, st.lists(filters, min_size=1, max_size=3)),
            st.builds(DisconnectPacket),
        ]
    else:
        wanted = st.builds(
            TopicFilter,
            filters,
            max_qos=members(QoS),
            no_local=st.booleans(),
            retain_as_published=st.booleans(),
            retain_handling=members(RetainHandling),
        )
        rest = [
            st.builds(
                SubscribePacket,
                packet_id,
                st.lists(wanted, min_size=1, max_size=3),
                subscription_id=maybe(subscription_id),
                user_properties=users,
            ),
            st.builds(
                UnsubscribePacket, packet_id, st.lists(filters, min_size=1, max_size=3), user_properties=users
            ),
            *disconnects_and_auths,
        ]
    return st.one_of(
        publishes(version, "server"), *acknowledgements(version), st.builds(PingReqPacket), *rest
    )


disconnects_and_auths: list[st.SearchStrategy[Packet]] = [
    st.builds(
        DisconnectPacket,
        reason_code=members(DisconnectReasonCode),
        session_expiry_interval=maybe(u32),
        server_reference=maybe(text),
        reason_str=maybe(text),
        user_properties=users,
    ),
    st.builds(
        AuthPacket,
        reason_code=members(AuthReasonCode),
        authentication_method=maybe(text),
        authentication_data=maybe(blob),
        reason_str=maybe(text),
        user_properties=users,
    ),
]


@st.composite
def connacks(draw: st.DrawFn) -> ConnAckPacket:
    return ConnAckPacket(
        session_present=draw(st.booleans()),
        reason_code=draw(members(ConnAckReasonCode)),
        session_expiry_interval=draw(maybe(u32)),
        assigned_client_id=draw(maybe(text)),
        server_keep_alive=draw(maybe(u16)),
        authentication_method=draw(maybe(text)),
        authentication_data=draw(maybe(blob)),
        response_info=draw(maybe(text)),
        server_reference=draw(maybe(text)),
        reason_str=draw(maybe(text)),
        receive_max=draw(st.integers(1, 65_535)),
        topic_alias_max=draw(u16),
        max_qos=draw(members(QoS)),
        retain_available=draw(st.booleans()),
        max_packet_size=draw(maybe(st.integers(1, FOREVER_S))),
        wildcard_subscription_available=draw(st.booleans()),
        subscription_id_available=draw(st.booleans()),
        shared_subscription_available=draw(st.booleans()),
        user_properties=draw(users),
    )


def to_client(version: Version) -> st.SearchStrategy[Packet]:
    """Every packet that a server sends."""
    if version == V311:
        granted = [
            SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE,
            SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE,
            SubAckReasonCode.GRANTED_QOS_EXACTLY_ONCE,
            SubAckReasonCode.UNSPECIFIED_ERROR,
        ]
        said = [
            ConnAckReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
            ConnAckReasonCode.CLIENT_ID_NOT_VALID,
            ConnAckReasonCode.SERVER_UNAVAILABLE,
            ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD,
            ConnAckReasonCode.NOT_AUTHORIZED,
        ]
        rest: list[st.SearchStrategy[Packet]] = [
            st.builds(ConnAckPacket, session_present=st.booleans()),
            st.builds(ConnAckPacket, reason_code=st.sampled_from(said)),
            st.builds(SubAckPacket, packet_id, st.lists(st.sampled_from(granted), min_size=1, max_size=3)),
            st.builds(UnsubAckPacket, packet_id, st.just([])),
        ]
    else:
        more: dict[str, Any] = {"reason_str": maybe(text), "user_properties": users}
        listed: list[st.SearchStrategy[Packet]] = [
            st.builds(kind, packet_id, st.lists(members(code), min_size=1, max_size=3), **more)
            for kind, code in ((SubAckPacket, SubAckReasonCode), (UnsubAckPacket, UnsubAckReasonCode))
        ]
        rest = [connacks(), *listed, *disconnects_and_auths]
    return st.one_of(
        publishes(version, "client"), *acknowledgements(version), st.builds(PingRespPacket), *rest
    )


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Version, Role, list[Packet]]:
    """What one side of a connection hears."""
    version: Version = draw(st.sampled_from([V311, V5]))
    role: Role = draw(st.sampled_from(["server", "client"]))
    if role == "client":
        return version, role, draw(st.lists(to_client(version), min_size=1, max_size=5))
    return version, role, [draw(connects(version)), *draw(st.lists(to_server(version), max_size=5))]


def decoder_for(version: Version, role: Role, limit: int = LIMIT) -> Decoder:
    return Decoder(limit, role=role, version=version if role == "client" else None)


def spoken(version: Version, packets: list[Packet]) -> bytes:
    return b"".join(encode(packet, version) for packet in packets)


def shown(items: list[Packet | WireError]) -> list[object]:
    """Items that can be compared: errors by kind and words."""
    return [(type(item), str(item)) if isinstance(item, WireError) else item for item in items]


@settings(deadline=None)
@given(conversations())
def test_what_is_encoded_is_decoded(conversation: tuple[Version, Role, list[Packet]]) -> None:
    version, role, packets = conversation
    decoder = decoder_for(version, role)
    assert decoder.feed(spoken(version, packets)) == packets
    assert decoder.version == version
    assert decoder.held_bytes == 0


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks = []
    for size in sizes:
        chunks.append(data[:size])
        data = data[size:]
    return [*chunks, data]


@settings(deadline=None)
@given(conversations(), st.binary(max_size=8), st.lists(st.integers(0, 30), max_size=12))
def test_how_the_bytes_are_cut_changes_nothing(
    conversation: tuple[Version, Role, list[Packet]], tail: bytes, sizes: list[int]
) -> None:
    version, role, packets = conversation
    data = spoken(version, packets) + tail
    whole = decoder_for(version, role).feed(data)
    pieces, bytewise = decoder_for(version, role), decoder_for(version, role)
    assert shown([item for chunk in cut(data, sizes) for item in pieces.feed(chunk)]) == shown(whole)
    head = data[:300]
    one_by_one = [item for at in range(len(head)) for item in bytewise.feed(head[at : at + 1])]
    assert shown(one_by_one) == shown(decoder_for(version, role).feed(head))


@settings(deadline=None)
@given(
    conversations(),
    st.binary(max_size=8),
    st.lists(st.integers(0, 30), max_size=12),
    st.integers(1, 4),
    st.booleans(),
)
def test_how_many_are_taken_at_once_changes_nothing(
    conversation: tuple[Version, Role, list[Packet]], tail: bytes, sizes: list[int], most: int, waits: bool
) -> None:
    version, role, packets = conversation
    data = spoken(version, packets) + tail
    decoder, found = decoder_for(version, role), list[Packet | WireError]()
    for chunk in cut(data, sizes):
        if waits:
            decoder.put(chunk)
        items = decoder.feed(b"" if waits else chunk, most)
        assert len(items) <= most + 1  # an error may come with the last
        found += items
    while decoder.more:
        found += decoder.feed(b"", most)
    assert shown(found) == shown(decoder_for(version, role).feed(data))


@settings(deadline=None)
@given(conversations(), st.data())
def test_bytes_that_were_changed_give_packets_or_one_last_wire_error(
    conversation: tuple[Version, Role, list[Packet]], data: st.DataObject
) -> None:
    version, role, packets = conversation
    mutable = bytearray(spoken(version, packets))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutable) - 1))
        if data.draw(st.booleans()):
            mutable[at] = data.draw(st.integers(0, 255))
        else:
            mutable[at : at + 1] = data.draw(st.binary(max_size=3))
        if not mutable:
            return
    check_behaviour(decoder_for(version, role), bytes(mutable))


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from([V311, V5]), st.sampled_from(["server", "client"]))
def test_random_bytes_give_packets_or_one_last_wire_error(data: bytes, version: Version, role: Role) -> None:
    check_behaviour(decoder_for(version, role), data)
    if role == "server":
        decoder = Decoder(LIMIT)
        decoder.feed(encode(ConnectPacket("c"), version))
        check_behaviour(decoder, data)


def check_behaviour(decoder: Decoder, data: bytes) -> None:
    items = decoder.feed(data)
    assert not any(isinstance(item, WireError) for item in items[:-1])
    assert decoder.held_bytes <= min(len(data), decoder.max_packet_bytes)
    if items and isinstance(items[-1], WireError):
        assert str(items[-1])
        assert decoder.feed(data) == []
        assert decoder.held_bytes == 0


@given(conversations())
@settings(max_examples=30, deadline=None)
def test_a_packet_over_the_limit_is_refused_by_its_first_bytes(
    conversation: tuple[Version, Role, list[Packet]],
) -> None:
    version, role, packets = conversation
    frames = [encode(packet, version) for packet in packets]
    largest = max(map(len, frames))
    at = next(index for index, frame in enumerate(frames) if len(frame) == largest)
    decoder = decoder_for(version, role, largest - 1)
    assert decoder.feed(b"".join(frames[:at])) == packets[:at]
    header = frames[at][: 2 if largest < 130 else 3 if largest < 16_387 else 4]
    (error,) = decoder.feed(header)
    assert isinstance(error, PacketTooLarge)
    assert (error.size, error.limit, error.reason_code) == (largest, largest - 1, 0x95)


def test_a_large_packet_in_small_pieces_takes_little_more_memory_than_itself() -> None:
    size = 1 << 20
    frame = encode(PublishPacket("a", bytes(size)), V5)
    decoder = Decoder(size + 100, role="client", version=V5)
    tracemalloc.start()
    try:
        items = [item for at in range(0, len(frame), 7) for item in decoder.feed(frame[at : at + 7])]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert items == [PublishPacket("a", bytes(size))]
    assert peak < 4 * size  # held, grown, joined and sliced


def test_the_limit_can_be_raised_on_the_way() -> None:
    decoder = Decoder(100)
    decoder.feed(encode(ConnectPacket("c"), V5))
    decoder.max_packet_bytes = 1_000
    packet = PublishPacket("a", bytes(500))
    assert decoder.feed(encode(packet, V5)) == [packet]


def test_more_topics_than_are_remembered_change_nothing() -> None:
    decoder = Decoder(LIMIT, role="client", version=V5)
    packets: list[Packet] = [PublishPacket(f"t/{number % 5_000}", b"x") for number in range(10_000)]
    assert decoder.feed(spoken(V5, packets)) == packets


def test_an_error_keeps_nothing_of_the_bytes() -> None:
    """A client that sends large nonsense again and again must not make us keep it until garbage is collected."""
    wrong = encode(ConnectPacket("c", will=Will(topic="t", payload=b"x" * 60_000)), V5)
    flags = wrong.index(b"MQTT\x05") + 5
    (error,) = Decoder(1 << 20).feed(wrong[:flags] + bytes([wrong[flags] | 0x18]) + wrong[flags + 1 :])
    assert isinstance(error, Malformed) and "QoS" in str(error)
    assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)

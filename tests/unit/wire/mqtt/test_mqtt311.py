"""MQTT 3.1.1 byte by byte, and what of MQTT 5 it can and cannot say."""

from __future__ import annotations

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
    DisconnectPacket,
    DisconnectReasonCode,
    Packet,
    PublishPacket,
    QoS,
    RetainHandling,
    SubAckPacket,
    SubAckReasonCode,
    SubscribePacket,
    UnsubAckPacket,
    UnsubAckReasonCode,
    UnsubscribePacket,
    Will,
)

from tocsin.errors import Malformed, ProtocolViolation, WireError
from tocsin.wire.mqtt.mqtt311 import FOREVER_S, decode, encode

CONNECT = (
    b"\x10\x20\x00\x04MQTT\x04\xee\x00\x0a"  # user, password, will at QoS 1 to be retained, clean session; 10 s
    b"\x00\x02id\x00\x04will\x00\x03msg\x00\x01u\x00\x02pw"
)


def test_a_connect_with_everything() -> None:
    packet = ConnectPacket(
        "id",
        username="u",
        password=b"pw",
        clean_start=True,
        keep_alive=10,
        will=Will("will", payload=b"msg", qos=QoS.AT_LEAST_ONCE, retain=True),
    )
    assert decode(CONNECT, 2) == packet
    assert encode(packet) == CONNECT


def test_without_clean_session_the_session_is_kept_for_ever() -> None:
    packet = decode(b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x00\x00\x01c", 2)
    assert isinstance(packet, ConnectPacket)
    assert packet.clean_start is False
    assert packet.session_expiry_interval == FOREVER_S


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (ConnAckReasonCode.SUCCESS, 0),
        (ConnAckReasonCode.UNSUPPORTED_PROTOCOL_VERSION, 1),
        (ConnAckReasonCode.CLIENT_ID_NOT_VALID, 2),
        (ConnAckReasonCode.SERVER_BUSY, 3),
        (ConnAckReasonCode.USE_ANOTHER_SERVER, 3),
        (ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD, 4),
        (ConnAckReasonCode.NOT_AUTHORIZED, 5),
        (ConnAckReasonCode.BANNED, 5),
    ],
)
def test_a_connack_has_six_return_codes(reason: ConnAckReasonCode, code: int) -> None:
    present = code == 0
    assert encode(ConnAckPacket(reason_code=reason, session_present=True)) == bytes((0x20, 2, present, code))


def test_a_suback_says_granted_or_failure() -> None:
    codes = [
        SubAckReasonCode.GRANTED_QOS_EXACTLY_ONCE,
        SubAckReasonCode.TOPIC_FILTER_INVALID,
        SubAckReasonCode.QUOTA_EXCEEDED,
    ]
    assert encode(SubAckPacket(1, codes, reason_str="why")) == b"\x90\x05\x00\x01\x02\x80\x80"


def test_what_version_3_has_no_words_for_is_left_out() -> None:
    moved = DisconnectPacket(reason_code=DisconnectReasonCode.SERVER_MOVED, server_reference="b:1")
    assert encode(moved) == b"\xe0\x00"
    message = PublishPacket("a", b"x", user_properties=[("k", "v")], content_type="t", topic_alias=3)
    assert encode(message) == b"\x30\x04\x00\x01ax"
    assert encode(UnsubAckPacket(1, [UnsubAckReasonCode.NO_SUBSCRIPTION_EXISTED])) == b"\xb0\x02\x00\x01"


def test_a_filter_that_is_not_valid_can_still_be_read() -> None:
    packet = decode(b"\x82\x0b\x00\x01\x00\x02a#\x01\x00\x01b\x00", 2)
    assert isinstance(packet, SubscribePacket)
    first, second = packet.topic_filters
    assert (first.pattern, first.max_qos, second.pattern) == ("a#", QoS.AT_LEAST_ONCE, "b")
    assert (first.no_local, first.retain_as_published) == (False, False)
    assert first.retain_handling == RetainHandling.SEND_ALWAYS
    gone = decode(b"\xa2\x06\x00\x01\x00\x02+a", 2)
    assert isinstance(gone, UnsubscribePacket)
    assert gone.patterns == ["+a"]


BROKEN: list[tuple[bytes, type[WireError], str]] = [
    (CONNECT + b"x", Malformed, "1 bytes follow the end of the CONNECT"),
    (CONNECT[:-1], Malformed, "the password should have 2 bytes"),
    (CONNECT[:9] + b"\xef" + CONNECT[10:], Malformed, "reserved bit"),
    (CONNECT[:9] + b"\x6e" + CONNECT[10:], Malformed, "a password without a user name"),
    (CONNECT.replace(b"will", b"wi/#"), ProtocolViolation, "the will's topic"),
    (b"\x20\x02\x02\x00", Malformed, "acknowledge flags"),
    (b"\x20\x02\x00\x06", Malformed, "return code 6 is reserved"),
    (b"\x20\x01\x00", Malformed, "the return code is missing"),
    (b"\x90\x03\x00\x01\x03", Malformed, "0x03 is reserved"),
    (b"\x90\x02\x00\x01", ProtocolViolation, "at least one return code"),
    (b"\xb0\x03\x00\x01\x00", Malformed, "follow the end of the UNSUBACK"),
    (b"\xc0\x01\x00", Malformed, "follow the end of the PINGREQ"),
]


@pytest.mark.parametrize(("frame", "kind", "words"), BROKEN)
def test_a_broken_packet_is_named(frame: bytes, kind: type[WireError], words: str) -> None:
    with pytest.raises(kind) as caught:
        decode(frame, 2)
    assert words in str(caught.value)


@pytest.mark.parametrize("packet", [PublishPacket("a", bytes(1 << 16)), PublishPacket("é" * 100, b"")])
def test_long_packets_have_long_lengths(packet: Packet) -> None:
    frame = encode(packet)
    assert decode(frame, 4 if len(frame) > 16_384 else 3) == packet

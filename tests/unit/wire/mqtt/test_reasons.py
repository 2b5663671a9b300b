"""What a peer's reason codes say, in words."""

from __future__ import annotations

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    DisconnectPacket,
    DisconnectReasonCode,
    PubAckPacket,
    PubAckReasonCode,
    PubCompPacket,
    PubRecPacket,
    SubAckPacket,
    SubAckReasonCode,
)

from tocsin.wire.mqtt.reasons import Reasoned, reason_of, refusal_of

GRANTED = SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("packet", "words"),
    [
        (ConnAckPacket(reason_code=ConnAckReasonCode.NOT_AUTHORIZED), "not authorized"),
        (PubAckPacket(1, reason_code=PubAckReasonCode.QUOTA_EXCEEDED, reason_str="too many"), "too many"),
        (SubAckPacket(1, [SubAckReasonCode.QUOTA_EXCEEDED]), "quota exceeded"),
        (DisconnectPacket(reason_code=DisconnectReasonCode.SERVER_SHUTTING_DOWN), "server shutting down"),
    ],
)
def test_a_refusal_uses_the_peers_words_or_the_standards_name(packet: Reasoned, words: str) -> None:
    assert refusal_of(packet) == reason_of(packet) == words


@pytest.mark.parametrize(
    "packet",
    [
        ConnAckPacket(),
        DisconnectPacket(reason_str="bye"),
        PubAckPacket(1, reason_code=PubAckReasonCode.NO_MATCHING_SUBSCRIBERS, reason_str="nobody"),
        PubRecPacket(1),
        PubCompPacket(1),
        SubAckPacket(1, [GRANTED]),
    ],
)
def test_what_is_no_refusal_has_no_words_of_one(packet: Reasoned) -> None:
    assert refusal_of(packet) is None

"""What CONNECT has in common in all versions."""

from __future__ import annotations

import pytest

from tocsin.errors import Malformed, ProtocolViolation, UnsupportedVersion
from tocsin.wire.mqtt.connect import (
    BRIDGE_BIT,
    V5,
    V31,
    V311,
    check_connect_flags,
    check_will_topic,
    level_of,
    version_of,
)


@pytest.mark.parametrize(
    ("name", "level", "version"), [(b"MQIsdp", V31, V311), (b"MQTT", V311, V311), (b"MQTT", V5, V5)]
)
def test_the_version_is_the_protocol_level(name: bytes, level: int, version: int) -> None:
    found, bridges = level_of(b"\x10\x0a" + len(name).to_bytes(2, "big") + name + bytes((level,)), 2)
    assert (found, version_of(found), bridges) == (level, version, False)


@pytest.mark.parametrize(("name", "level"), [(b"MQIsdp", V31), (b"MQTT", V311)])
def test_the_highest_bit_of_an_old_level_marks_a_bridge(name: bytes, level: int) -> None:
    assert level_of(len(name).to_bytes(2, "big") + name + bytes((level | BRIDGE_BIT,)), 0) == (level, True)


@pytest.mark.parametrize(
    ("name", "level"),
    [(b"MQIsdp", 4), (b"MQTT", 3), (b"MQTT", 6), (b"MQTT", 0x85), (b"mqtt", 4), (b"", 5), (b"\xff" * 99, 5)],
)
def test_another_version_is_named_in_the_error(name: bytes, level: int) -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        level_of(len(name).to_bytes(2, "big") + name + bytes((level,)), 0)
    assert caught.value.level == level
    assert len(caught.value.name) <= 16
    assert "use MQTT 5, 3.1.1 or 3.1 (levels 5, 4, 3)" in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x04MQT", b"\x00\x04MQTT"])
def test_a_connect_that_ends_before_its_level_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        level_of(body, 0)


def test_flags_are_legal_or_malformed() -> None:
    legal = {flags for flags in range(256) if is_legal(flags)}
    assert legal == {
        credentials | clean | will
        for credentials in (0x00, 0x40, 0x80, 0xC0)
        for clean in (0x00, 0x02)
        for will in (0x00, 0x04, 0x0C, 0x14, 0x24, 0x2C, 0x34)
    }


def is_legal(flags: int) -> bool:
    try:
        check_connect_flags(flags)
    except Malformed:
        return False
    return True


@pytest.mark.parametrize("topic", ["", "a/#", "+"])
def test_a_will_goes_to_a_topic_that_can_be_published_to(topic: str) -> None:
    with pytest.raises(ProtocolViolation, match="the will's topic") as caught:
        check_will_topic(topic)
    assert caught.value.reason_code == 0x90

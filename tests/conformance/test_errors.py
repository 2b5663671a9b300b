"""Chapter 4.13: whatever a client does wrong, it is told so if it can be, closed, and nobody else notices."""

from __future__ import annotations

import pytest
from mqtt5 import PublishPacket, TopicFilter

from tests.conformance.speech import BOTH, MALFORMED, PROTOCOL_ERROR, fate, properties, said
from tests.unit.broker.harness import Door
from tests.unit.broker.talk import ZERO, frame, text
from tocsin.wire.mqtt.connect import Version

ID = b"\0\7"


@pytest.mark.mqtt("4.13.1-1", "4.13.2-1")
@pytest.mark.mqtt311("4.8.0-1", "4.8.0-2")
@BOTH
async def test_a_mistake_ends_the_connection_of_who_made_it_and_no_other(
    door: Door, version: Version
) -> None:
    subscriber, publisher = await door.peer("s", version=version), await door.peer("p", version=version)
    await subscriber.subscribe(TopicFilter("#", max_qos=ZERO))
    none = properties(version)
    mistakes = {
        b"\x00\x00": MALFORMED,  # a packet type that does not exist
        b"\x20\x02\x00\x00": PROTOCOL_ERROR,  # CONNACK, which only servers send
        b"\x90\x03" + ID + b"\0": PROTOCOL_ERROR,  # SUBACK
        b"\xb0\x02" + ID: PROTOCOL_ERROR,  # UNSUBACK
        b"\xd0\x00": PROTOCOL_ERROR,  # PINGRESP
        b"\xc0\x01\x00": MALFORMED,  # a PINGREQ with something in it
        frame(0x82, ID, none, text("a")): MALFORMED,  # a filter without its options
        frame(0x30, b"\0\5ab"): MALFORMED,  # a topic that runs past the end
        frame(0x32, text("a")): MALFORMED,  # no packet id
        b"\x30\xff\xff\xff\xff": MALFORMED,  # a length of five bytes
        b"\x30\xff\xff\xff\x7f": 0x95,  # 256 MiB to come
    }
    for number, (data, code) in enumerate(mistakes.items()):
        assert await fate(door, data, version) == said(code, version), data
        publisher.send(PublishPacket("a", b"%d" % number))
        assert (await subscriber.receive(PublishPacket)).payload == b"%d" % number

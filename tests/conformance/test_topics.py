"""Chapter 4.7: topic names and filters."""

from __future__ import annotations

import pytest
from mqtt5 import PublishPacket, TopicFilter

from tests.conformance.speech import BOTH, fate, properties, said
from tests.unit.broker.harness import Door
from tests.unit.broker.talk import ZERO, frame, nothing_more, text
from tocsin.broker.sys_topics import SysTopics
from tocsin.config import Limits
from tocsin.wire.mqtt.connect import Version


@pytest.mark.mqtt("4.7.1-1", "4.7.1-2", "3.3.2-3", "4.7.3-4", "4.7.0-1")
@pytest.mark.mqtt311("4.7.1-2", "4.7.1-3", "4.7.3-4")
@BOTH
@pytest.mark.parametrize(
    ("topic_filter", "matching", "others"),
    [
        ("sport/tennis/#", ["sport/tennis", "sport/tennis/1", "sport/tennis/1/2"], ["sport", "sport/tenni"]),
        ("sport/+", ["sport/", "sport/a"], ["sport", "sport/a/b"]),
        ("+", ["a"], ["/a", "a/"]),
        ("+/+", ["/a", "a/", "a/b"], ["a", "a/b/c"]),
        ("/+", ["/a", "/"], ["a", "a/b"]),
        ("+/b/#", ["a/b", "a/b/c", "/b"], ["b", "a/c"]),
        ("a//b", ["a//b"], ["a/b", "a///b"]),
        ("Ä/ö ", ["Ä/ö "], ["ä/ö ", "Ä/ö", "A\u0308/ö "]),
        ("#", ["a", "/", "a/b/c"], []),
    ],
)
async def test_a_filter_matches_these_topics_and_not_those(
    door: Door, version: Version, topic_filter: str, matching: list[str], others: list[str]
) -> None:
    subscriber, publisher = await door.peer("s", version=version), await door.peer("p", version=version)
    await subscriber.subscribe(TopicFilter(topic_filter, max_qos=ZERO))
    publisher.send(*(PublishPacket(topic, b"x") for topic in (*others, *matching)))
    assert [(await subscriber.receive(PublishPacket)).topic for _ in matching] == matching


@pytest.mark.mqtt("4.7.2-1")
@pytest.mark.mqtt311("4.7.2-1")
@BOTH
async def test_a_leading_wildcard_does_not_match_the_servers_own_topics(door: Door, version: Version) -> None:
    one, other = await door.peer("1", version=version), await door.peer("2", version=version)
    await one.subscribe(TopicFilter("#", max_qos=ZERO), TopicFilter("+/broker/id", max_qos=ZERO))
    await other.subscribe(TopicFilter("$SYS/broker/id", max_qos=ZERO))
    SysTopics(door.parts).say()
    assert (await other.receive(PublishPacket)).topic == "$SYS/broker/id"
    await nothing_more(one)


@pytest.mark.mqtt("4.7.3-3")
@pytest.mark.mqtt311("4.7.3-3")
@BOTH
async def test_a_topic_is_as_long_as_the_settings_allow(version: Version) -> None:
    longest = "a" * 65_535
    async with Door(Limits(topic_max_bytes=65_535)) as door:
        subscriber, publisher = await door.peer("s", version=version), await door.peer("p", version=version)
        await subscriber.subscribe(TopicFilter(longest, max_qos=ZERO))
        publisher.send(PublishPacket(longest, b"x"))
        assert (await subscriber.receive(PublishPacket)).topic == longest
    async with Door(Limits()) as door:
        packet = frame(0x30, text("a" * 1_025), properties(version))
        assert await fate(door, packet, version) == said(0x90, version)

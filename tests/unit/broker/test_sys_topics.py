"""What a broker says about itself under $SYS."""

from __future__ import annotations

import re
from pathlib import Path

from mqtt5 import PublishPacket, QoS, TopicFilter

from tests.unit.broker.harness import Door, Peer
from tests.unit.broker.pipeline import NEAR, Pipeline
from tocsin.broker.sys_topics import MOSQUITTOS_RETAINED, ROOT, SysTopics
from tocsin.config import Limits
from tocsin.store.memory.store import MemoryServer, MemoryStore


async def heard(peer: Peer, count: int) -> dict[str, str]:
    packets = [await peer.receive(PublishPacket) for _ in range(count)]
    return {packet.topic: packet.payload.decode() for packet in packets}


async def test_figures_are_given_to_who_asks_and_then_only_when_they_change(door: Door) -> None:
    figures = SysTopics(door.parts)
    figures.say()
    peer = await door.peer("c")
    await peer.subscribe(TopicFilter("$SYS/broker/clients/+"))
    first = await heard(peer, 5)
    assert first["$SYS/broker/clients/connected"] == "0"
    figures.say()
    changed = await heard(peer, 2)
    assert changed == {"$SYS/broker/clients/connected": "1", "$SYS/broker/clients/maximum": "1"}


async def test_figures_are_not_counted_as_retained_messages_and_no_wildcard_brings_them(door: Door) -> None:
    figures = SysTopics(door.parts)
    figures.say()
    assert len(door.parts.retained) == 0
    assert list(door.parts.retained.matching("#")) == []
    (version,) = door.parts.retained.matching("$SYS/broker/version")
    assert version.publication.payload.startswith(b"tocsin version ")


def topics(door: Door) -> set[str]:
    SysTopics(door.parts).say()
    retained = door.parts.retained
    return {each.publication.topic.removeprefix(ROOT) for each in retained.matching(f"{ROOT}#")}


async def test_topics_are_paths_without_blanks(door: Door) -> None:
    assert {topic for topic in topics(door) if not re.fullmatch(r"[a-z0-9_-]+(/[a-z0-9_-]+)*", topic)} == {
        MOSQUITTOS_RETAINED
    }


async def test_every_topic_is_in_the_reference(door: Door) -> None:
    page = (Path(__file__).parents[3] / "docs/reference/mqtt.md").read_text("utf-8")
    listed = {topic for topic in topics(door) if not topic.startswith(("replication/", "budget/"))}
    assert {topic for topic in listed if f"`{topic}`" not in page} == set()


async def test_groups_with_members_here_are_counted(door: Door) -> None:
    peer = await door.peer("c")
    await peer.subscribe(TopicFilter("$share/g/a"), TopicFilter("$share/h/a"))
    SysTopics(door.parts).say()
    (groups,) = door.parts.retained.matching("$SYS/broker/shared_subscriptions/count")
    assert groups.publication.payload == b"2"


async def test_channel_metrics_show_cells_held_notice_position_and_results_sent() -> None:
    pipeline = Pipeline(MemoryStore(MemoryServer()))
    await pipeline.define(NEAR)
    async with (
        pipeline.serve(),
        Door(Limits(), store=pipeline.store, broker="north-1") as door,
    ):
        peers = [await door.peer(client) for client in ("a", "b")]
        for peer in peers:
            await peer.subscribe(TopicFilter("$channel/Near/alice", max_qos=QoS.AT_LEAST_ONCE))
        pipeline.fails = 1  # so that the notice is there, and cannot be dispatched for a while
        await pipeline.tick({("Near", ("alice",)): [{"n": 1}, {"n": 2}]})
        figures = SysTopics(door.parts)

        async def said() -> dict[str, str]:
            await door.parts.channels.results.look()
            figures.say()
            found = door.parts.retained.matching("$SYS/broker/channels/#")
            return {
                each.publication.topic.removeprefix(
                    "$SYS/broker/channels/"
                ): each.publication.payload.decode()
                for each in found
            }

        before = await said()
        assert before["notices/behind"] == "1" and before["results/sent"] == "0"
        for peer in peers:
            await peer.receive(PublishPacket)
            await peer.receive(PublishPacket)
        assert await said() == {
            "count": "1",
            "held": "1",
            "sessions": "2",
            "standby": "0",
            "notices/behind": "0",
            "results/read": "2",
            "results/sent": "4",
            "cache/bytes": "0",
            "cache/hits": "0",
            "cache/misses": "0",
        }

"""What a broker says about itself under $SYS."""

from __future__ import annotations

from mqtt5 import PublishPacket, TopicFilter

from tests.unit.broker.door import Door, Peer
from tocsin.broker.figures import Figures


async def heard(peer: Peer, count: int) -> dict[str, str]:
    packets = [await peer.receive(PublishPacket) for _ in range(count)]
    return {packet.topic: packet.payload.decode() for packet in packets}


async def test_figures_are_given_to_who_asks_and_then_only_when_they_change(door: Door) -> None:
    figures = Figures(door.exchange, door.listener)
    figures.say()
    peer = await door.peer("c")
    await peer.subscribe(TopicFilter("$SYS/broker/clients/+"))
    first = await heard(peer, 3)
    assert first["$SYS/broker/clients/connected"] == "0"
    figures.say()
    changed = await heard(peer, 2)
    assert changed == {"$SYS/broker/clients/connected": "1", "$SYS/broker/clients/maximum": "1"}


async def test_figures_are_not_counted_as_retained_messages_and_no_wildcard_brings_them(door: Door) -> None:
    figures = Figures(door.exchange, door.listener)
    figures.say()
    assert len(door.exchange.durability.retained) == 0
    assert list(door.exchange.durability.retained.matching("#")) == []
    (version,) = door.exchange.durability.retained.matching("$SYS/broker/version")
    assert version.publication.payload.startswith(b"tocsin version ")


async def test_groups_with_members_here_are_counted(door: Door) -> None:
    peer = await door.peer("c")
    await peer.subscribe(TopicFilter("$share/g/a"), TopicFilter("$share/h/a"))
    Figures(door.exchange, door.listener).say()
    (groups,) = door.exchange.durability.retained.matching("$SYS/broker/shared_subscriptions/count")
    assert groups.publication.payload == b"2"

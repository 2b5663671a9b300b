"""What comes before the CONNACK is kept in order, up to a bound."""

from __future__ import annotations

from mqtt5 import Packet, PingReqPacket, PublishPacket, SubscribePacket, TopicFilter, UnsubscribePacket

from tocsin.core.session.early import Early


def test_packets_are_taken_once_in_the_order_in_which_they_came() -> None:
    early = Early(1_000)
    packets: list[Packet] = [PingReqPacket(), PublishPacket("a", b"x"), PingReqPacket()]
    assert all(early.keep(packet) for packet in packets)
    assert early.take() == packets
    assert early.take() == []


def test_contents_and_numbers_count_against_the_bound() -> None:
    assert not Early(1_000).keep(PublishPacket("a", bytes(1_000)))
    assert not Early(1_000).keep(PublishPacket("a", b"", user_properties=[("k" * 500, "v" * 500)]))
    assert not Early(1_000).keep(SubscribePacket(1, [TopicFilter("a")] * 20))
    assert not Early(1_000).keep(UnsubscribePacket(1, ["a"] * 20))
    pings = Early(1_000)
    assert 10 < sum(pings.keep(PingReqPacket()) for _ in range(100)) < 20

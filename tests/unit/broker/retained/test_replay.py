"""Retained messages reach a new subscriber in order, as fast as it takes them and no faster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PublishPacket

from tocsin.broker.client import Recipient
from tocsin.broker.links.link import NO_MAXIMUM
from tocsin.broker.retained import replay
from tocsin.broker.retained.replay import Replay
from tocsin.core.delivery.grant import Grant
from tocsin.core.delivery.machine import ClientDelivery
from tocsin.core.delivery.signals import Began, Subscribed
from tocsin.core.forwarding.table import Subscription
from tocsin.core.retained.kept import Kept
from tocsin.model.publication import Publication
from tocsin.wire.mqtt.codec import Decoder
from tocsin.wire.mqtt.connect import V5, Version


class Taker:
    version: Version = V5

    def __init__(self, send_max_bytes: int = NO_MAXIMUM) -> None:
        self.send_max_bytes = send_max_bytes
        self.writes: list[int] = []  # bytes of each
        self.packets: list[PublishPacket] = []
        self.machine = ClientDelivery()
        self.machine.handle(Began(receive_max=2, prefix="x", session=None, revision=0, tail=0), 0)
        self.machine.handle(Subscribed(topic_filter="#", subscription=Subscription(qos=1)), 0)
        self.turns: list[Callable[[], None]] = []  # that are to come
        self.known = True
        self.replay = Replay(cast(Recipient, self), self.machine, self, self.turns.append)
        self._decoder = Decoder(1 << 24, role="client", version=V5)

    def queue(self, *frames: bytes) -> None:
        self.writes.append(sum(map(len, frames)))
        for packet in self._decoder.feed(b"".join(frames)):
            assert isinstance(packet, PublishPacket), packet
            self.packets.append(packet)

    def await_settled(self, waiting: Replay, name: str) -> None:
        if self.known:
            waiting.begin(name)

    def fetch(self, topics: Sequence[str], done: Callable[[Collection[str]], None]) -> None:
        raise AssertionError("nothing here is a stub")

    def add(self, *kept: tuple[Kept, Grant | None], name: str = "#") -> None:
        """As if these were what the copy has."""
        self.replay.add(name, lambda after: behind(kept, after))

    def run(self) -> int:
        """All turns that there are; how many."""
        count = 0
        while self.turns:
            self.turns.pop(0)()
            count += 1
        return count

    @property
    def topics(self) -> list[str]:
        return [packet.topic for packet in self.packets]


def behind(
    kept: Sequence[tuple[Kept, Grant | None]], after: str | None
) -> Iterator[tuple[Kept, Grant | None]]:
    topics = [each.publication.topic for each, _ in kept]
    return iter(kept[0 if after is None else topics.index(after) + 1 :])


def kept(topic: str, qos: int = 0, size: int = 1) -> tuple[Kept, Grant]:
    return Kept(Publication(topic, b"x" * size, qos, "p", retain=True), 0.0), Grant(qos, (), True)


def test_many_small_messages_are_one_write() -> None:
    taker = Taker()
    taker.add(*(kept(str(number)) for number in range(100)))
    assert taker.topics == [str(number) for number in range(100)]
    assert len(taker.writes) == 1
    assert all(packet.retain for packet in taker.packets)


def test_a_large_replay_is_several_writes_to_notice_a_slow_client() -> None:
    taker = Taker()
    taker.add(*(kept(str(number), size=replay.CHUNK_BYTES // 2) for number in range(8)))
    taker.run()
    assert len(taker.packets) == 8
    assert len(taker.writes) > 2
    assert max(taker.writes) <= 2 * replay.CHUNK_BYTES


def test_a_congested_client_gets_the_rest_when_it_takes_more() -> None:
    taker = Taker()
    taker.machine.congested = True
    taker.add(kept("a"), kept("b"))
    assert taker.topics == []
    taker.machine.congested = False
    taker.replay.more()
    assert taker.topics == ["a", "b"]


def test_above_qos_0_the_window_is_the_bound_and_order_is_kept() -> None:
    taker = Taker()
    taker.add(kept("a", 1), kept("b", 0), kept("c", 1), kept("d", 1), kept("e", 0))
    assert taker.topics == ["a", "b", "c"], "two may be unacknowledged"
    assert [packet.packet_id is None for packet in taker.packets] == [False, True, False]


@given(st.lists(st.integers(1, 60), max_size=20), st.integers(20, 60))
def test_what_a_client_does_not_take_for_its_size_is_left_out(sizes: list[int], most: int) -> None:
    taker = Taker(most)
    taker.add(*(kept(f"{number:03}", 0, size) for number, size in enumerate(sizes)))
    # One byte each for type, length, and no properties; two for the length of a topic of three.
    assert taker.topics == [f"{n:03}" for n, size in enumerate(sizes) if size + 8 <= most]


def test_a_message_that_is_too_large_takes_no_room_in_the_window() -> None:
    taker = Taker(30)
    taker.add(kept("a", 1, 100), kept("b", 1, 100), kept("c", 1), kept("d", 1))
    assert taker.topics == ["c", "d"]


def test_one_turn_takes_a_page_and_others_have_theirs() -> None:
    taker = Taker()
    taker.add(*(kept(str(number), size=replay.PAGE_BYTES // 4) for number in range(12)))
    assert 4 <= len(taker.packets) <= 5
    assert taker.run() >= 2
    assert taker.topics == [str(number) for number in range(12)]


def test_a_client_that_takes_no_more_gets_no_further_page() -> None:
    taker = Taker()
    taker.add(*(kept(str(number), size=replay.PAGE_BYTES) for number in range(9)))
    taker.machine.congested = True
    taker.run()
    assert len(taker.packets) == 1
    taker.machine.congested = False
    taker.replay.more()
    taker.run()
    assert len(taker.packets) == 9


def test_resubscribing_to_a_filter_restarts_its_replay_in_place() -> None:
    taker = Taker()
    many = [kept(str(number), 1) for number in range(5)]
    for _ in range(1_000):
        taker.add(*many)
    assert len(taker.replay) == 1
    assert taker.topics == ["0", "1"], "two may be unacknowledged, and no more are sent"


def test_an_unsubscription_ends_it() -> None:
    taker = Taker()
    taker.machine.congested = True
    taker.add(kept("a"), name="a")
    taker.add(kept("b"), name="b")
    taker.replay.cancel("a")
    taker.machine.congested = False
    taker.replay.more()
    assert taker.topics == ["b"]


def test_everything_waits_until_the_copy_is_complete() -> None:
    taker = Taker()
    taker.known = False
    taker.add(kept("a"))
    taker.replay.more()
    assert taker.topics == []
    taker.replay.begin("#")
    assert taker.topics == ["a"]


def test_a_filter_that_was_given_up_meanwhile_does_not_begin() -> None:
    taker = Taker()
    taker.known = False
    taker.add(kept("a"))
    assert len(taker.replay) == 1
    taker.replay.cancel("#")
    taker.replay.begin("#")
    assert taker.topics == [] and not taker.replay


def test_skipped_messages_do_not_use_up_a_clients_turn() -> None:
    taker = Taker()
    others = [(kept(f"{number:06}")[0], None) for number in range(3 * replay.VISITS_MAX)]
    taker.add(*others, kept("last"))
    assert taker.topics == []
    assert taker.run() == 3
    assert taker.topics == ["last"]

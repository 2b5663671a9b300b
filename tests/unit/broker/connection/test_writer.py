"""What leaves a connection: at once while it can, waiting while it may, dropped and counted beyond that."""

from __future__ import annotations

import asyncio
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PingRespPacket, PublishPacket, QoS

from tests.unit.broker.harness import exchange_of
from tocsin.broker.client import ClientConnection
from tocsin.broker.connection.writer import ALIASES_MAX, ANSWERS_BYTES, FLOOR_BYTES, Aliases, ClientWriter
from tocsin.broker.forwarding.fanout import NOWHERE, Outbox
from tocsin.broker.links.link import Link
from tocsin.core.budgets.budget import Kind, Refusal
from tocsin.model.network import BrokerInfo
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5

MOST = 10
FRAME = encode(PublishPacket("a/long/topic", b"x"), V5)
topics = st.sampled_from(["a", "a/b", "é/" + "x" * 200, "c"])
packets = st.builds(
    lambda topic, payload, qos, user: PublishPacket(
        topic,
        payload,
        qos=QoS.EXACTLY_ONCE if qos == 2 else QoS.AT_LEAST_ONCE if qos else QoS.AT_MOST_ONCE,
        packet_id=7 if qos else None,
        user_properties=user,
    ),
    topics,
    st.binary(max_size=300),
    st.integers(0, 2),
    st.lists(st.tuples(st.text("kv", max_size=3), st.text("kv", max_size=40)), max_size=3),
)


class Wire:
    """A transport that makes other bytes of what it is given, so that nothing is written past it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.waiting = 0
        self.closing = False
        self.broken = False

    def get_extra_info(self, name: str) -> object:
        return "TLS" if name == "ssl_object" else None

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.broken = True


class Flow(ClientWriter):
    """A writer that is connected, and its owner: it notes what was lost."""

    def __init__(self, wire: Wire, most: int = MOST) -> None:
        self.outbox = Outbox(lambda act: None)
        exchange = exchange_of(self.outbox, _no_link)
        self.counts, self.account, self.losses = exchange.counts, exchange.budget.account(None), 0
        super().__init__(cast(ClientConnection, self), exchange, self.account, most)
        self.begin(cast(asyncio.Transport, wire))

    def missed(self) -> None:
        self.losses += 1

    def unread(self, refusal: Refusal) -> None:
        self.sever()


def _no_link(info: BrokerInfo) -> Link:
    raise AssertionError("nothing is routed here")


def test_deliveries_use_the_transport_if_direct_writes_are_not_allowed() -> None:
    wire = Wire()
    flow = Flow(wire)
    assert flow.descriptor == NOWHERE
    flow.deliver(b"one", 1)
    assert wire.written == [b"one"] and not flow.full


def test_a_congested_client_gets_what_has_room_and_loses_the_rest() -> None:
    wire = Wire()
    flow = Flow(wire)
    flow.pause()
    wire.waiting = MOST
    flow.deliver(b"fits", 1)
    wire.waiting = MOST + 1
    assert flow.full
    flow.deliver(b"does not", 3)
    assert (wire.written, flow.counts.dropped, flow.losses) == ([b"fits"], 3, 1)
    flow.resume()
    flow.deliver(b"fits again", 1)
    assert wire.written == [b"fits", b"fits again"]


def test_nothing_is_sent_to_a_client_that_goes_or_is_gone() -> None:
    wire = Wire()
    flow = Flow(wire)
    wire.closing = True
    flow.deliver(b"one", 1)
    flow.spill(b"two")
    flow.end()
    flow.deliver(b"three", 1)
    flow.spill(b"four")
    flow.sever()
    assert wire.written == [] and not wire.broken and flow.full and flow.counts.dropped == 0


def test_a_severed_connection_is_broken_at_once() -> None:
    wire = Wire()
    Flow(wire).sever()
    assert wire.broken


def test_topic_aliases_are_sent_unless_the_client_is_congested() -> None:
    flow = Flow(Wire())
    assert (flow.takes_aliases, flow.aliased(FRAME)) == (False, FRAME)
    flow.bound(100, 1)
    assert (flow.takes_aliases, flow.send_max_bytes) == (True, 100)
    first, second = flow.aliased(FRAME), flow.aliased(FRAME)
    assert len(second) < len(FRAME) < len(first)
    flow.pause()
    assert flow.aliased(FRAME) == FRAME


def test_queued_frames_go_with_the_others_of_the_tick() -> None:
    wire = Wire()
    flow = Flow(wire)
    flow.queue(b"one", b"two")
    assert wire.written == []
    flow.outbox.flush()
    assert wire.written == [b"onetwo"]


def test_what_is_owed_to_a_client_is_not_dropped_and_counts() -> None:
    wire = Wire()
    flow = Flow(wire)
    flow.pause()
    wire.waiting = FLOOR_BYTES + 1
    assert flow.full
    flow.queue(b"owed")
    flow.outbox.flush()
    flow.outbox.flush()  # the next one brings nothing that is owed
    flow.deliver(b"not owed", 1)
    assert (wire.written, flow.counts.dropped) == ([b"owed"], 1)
    assert flow.account.used(Kind.OUTBOUND) == FLOOR_BYTES + 1
    flow.resume()
    assert flow.account.used(Kind.OUTBOUND) == 0


def test_answers_are_not_dropped_and_are_counted_until_the_client_reads() -> None:
    wire = Wire()
    flow = Flow(wire)
    assert flow.answer(b"at once") and flow.answers_waiting == 0
    flow.pause()
    wire.waiting = 1 << 30
    assert flow.answer(b"later"), "it may leave some unread"
    assert (wire.written, flow.answers_waiting) == ([b"at once", b"later"], 5)
    assert wire.broken  # a gigabyte is beyond any budget
    assert not flow.answer(b"x" * ANSWERS_BYTES)
    flow.resume()
    assert flow.answers_waiting == 0


def test_a_full_budget_drops_messages_of_clients_that_are_behind() -> None:
    wire = Wire()
    flow = Flow(wire, most=1 << 30)
    flow.pause()
    wire.waiting = FLOOR_BYTES + 1
    flow.deliver(b"goes", 1)
    flow.account.charge(Kind.OUTBOUND, flow.account.room(Kind.OUTBOUND))
    flow.deliver(b"does not", 1)
    wire.waiting = FLOOR_BYTES
    flow.deliver(b"within the floor", 1)
    assert (wire.written, flow.counts.dropped) == ([b"goes", b"within the floor"], 1)


def test_what_the_kernel_took_shows_that_a_client_reads() -> None:
    wire = Wire()
    flow = Flow(wire, most=1 << 30)
    flow.pause()
    wire.waiting = 100
    flow.deliver(b"x" * 100, 1)
    before = flow.count()
    wire.waiting = 40
    assert flow.count() == before + 60


@given(st.lists(packets, max_size=12), st.integers(0, 3))
def test_a_client_that_keeps_the_numbers_reads_what_was_sent(sent: list[PublishPacket], most: int) -> None:
    aliases = Aliases(most)
    decoder = Decoder(1 << 20, role="client", version=V5)
    known: dict[int, str] = {}
    for packet in sent:
        (read,) = decoder.feed(aliases.of(encode(packet, V5)))
        assert isinstance(read, PublishPacket)
        if read.topic_alias is not None:
            assert 1 <= read.topic_alias <= most
            known[read.topic_alias] = read.topic or known[read.topic_alias]
        topic = read.topic if read.topic_alias is None else known[read.topic_alias]
        assert (topic, read.payload, read.packet_id) == (packet.topic, packet.payload, packet.packet_id)
        assert read.user_properties == packet.user_properties
    assert len(known) <= most


def test_other_packets_and_clients_that_take_none_are_left_alone() -> None:
    frame = encode(PingRespPacket(), V5)
    assert Aliases(5).of(frame) is frame
    publish = encode(PublishPacket("a", b""), V5)
    assert Aliases(0).of(publish) is publish
    assert not Aliases(0)


def test_no_client_makes_us_remember_more_than_a_few_topics() -> None:
    aliases = Aliases(65_535)
    frames = [encode(PublishPacket(f"topic/{number}", b""), V5) for number in range(ALIASES_MAX + 1)]
    assert aliases.of(frames[-2]) != frames[-2]
    for frame in frames[:-2]:
        aliases.of(frame)
    assert aliases.of(frames[-1]) == frames[-1]

"""Whatever bytes a client sends, in whatever pieces: it is served, told why not, or closed; and nobody else notices.

One broker serves all examples of a test, as it would in life, together with a witness that goes on exchanging messages.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mqtt5 import (
    AuthPacket,
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingReqPacket,
    PubAckPacket,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    QoS,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
    Will,
)
from structlog.testing import capture_logs

from tests.unit.broker.harness import DEADLINE_S, Door, Peer
from tests.unit.broker.talk import ONE, nothing_more, publish, receive
from tocsin.config import Limits
from tocsin.errors import WireError
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5, V311, Version

EXAMPLES, MANY_EXAMPLES = 150, 3_000
OLDER = b"\x20\x02\x00\x01"  # what a client of an older version is told
LIMITS = Limits(packet_max_bytes=4_096, receive_max=5, subscriptions_per_client=4, topic_alias_max=2)

topics = st.sampled_from(["a", "a/b", "a//", "$SYS/x", "x" * 300, "ä"])
ids = st.integers(1, 6)
qos = st.sampled_from([QoS.AT_MOST_ONCE, QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE])
versions: st.SearchStrategy[Version] = st.sampled_from([V5, V311])


def message(topic: str, payload: bytes, level: QoS, packet_id: int, **flags: bool) -> PublishPacket:
    above = level != QoS.AT_MOST_ONCE
    duplicate = flags["duplicate"] and above
    return PublishPacket(
        topic,
        payload,
        qos=level,
        packet_id=packet_id if above else None,
        retain=flags["retain"],
        duplicate=duplicate,
    )


connects = st.builds(
    ConnectPacket,
    st.sampled_from(["", "fuzz", "other", "$link/x", "f" * 300]),
    clean_start=st.booleans(),
    keep_alive=st.sampled_from([0, 60]),
    will=st.none() | st.just(Will("a", payload=b"gone", retain=True)),
    username=st.none() | st.sampled_from(["anna", "$link"]),
    session_expiry_interval=st.sampled_from([0, 100]),
    max_packet_size=st.none() | st.integers(1, 100),
    receive_max=st.integers(1, 3),
    topic_alias_max=st.integers(0, 2),
)
packets: st.SearchStrategy[Packet] = st.one_of(
    st.builds(
        message, topics, st.binary(max_size=40), qos, ids, retain=st.booleans(), duplicate=st.booleans()
    ),
    st.builds(
        PublishPacket,
        topics,
        st.binary(max_size=20),
        topic_alias=st.integers(1, 3),
        user_properties=st.lists(st.just(("k", "v")), max_size=3),
        message_expiry_interval=st.none() | st.integers(0, 5),
    ),
    st.builds(
        SubscribePacket,
        ids,
        st.lists(
            st.builds(
                TopicFilter,
                st.sampled_from(["a", "#", "+/b", "$SYS/#", "a/#"]),
                max_qos=qos,
                no_local=st.booleans(),
            ),
            min_size=1,
            max_size=6,
        ),
        subscription_id=st.none() | st.integers(1, 300),
    ),
    st.builds(UnsubscribePacket, ids, st.lists(st.sampled_from(["a", "#", "b"]), min_size=1, max_size=3)),
    st.builds(PubAckPacket, ids),
    st.builds(PubRecPacket, ids),
    st.builds(PubRelPacket, ids),
    st.builds(PubCompPacket, ids),
    st.just(PingReqPacket()),
    st.builds(DisconnectPacket, session_expiry_interval=st.none() | st.integers(0, 5)),
    connects,
    st.just(AuthPacket()),
)
mutations = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "repeat", "insert"]), st.integers(0, 1 << 16), st.binary(max_size=6)
    ),
    max_size=3,
)
cuts = st.lists(st.integers(0, 1 << 16), max_size=6)


def written(story: list[Packet], version: Version) -> bytes:
    """The packets of a story that this version can say."""
    data = b""
    for packet in story:
        if version == V5 or not isinstance(packet, AuthPacket):
            data += encode(packet, version)
    return data


def mutated(data: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    for kind, place, extra in changes:
        at = place % (len(data) + 1)
        if kind == "flip" and at < len(data):
            data = data[:at] + bytes((data[at] ^ (1 << place % 8),)) + data[at + 1 :]
        elif kind == "cut":
            data = data[:at] + data[at + 1 + len(extra) :]
        elif kind == "repeat":
            data = data[:at] + data[max(0, at - 8) :]
        else:
            data = data[:at] + extra + data[at:]
    return data


class Scene:
    """A broker, a witness who talks to himself through it, and everything that went wrong."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._door: Door
        self._witness: Peer
        self._problems: list[str] = []
        self._count = itertools.count()

    def __enter__(self) -> Scene:
        self._runner.__enter__()
        self._runner.run(self._open())
        return self

    def __exit__(self, *details: Any) -> None:
        self._runner.run(self._door.__aexit__(None, None, None))
        self._runner.__exit__(*details)

    async def _open(self) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: self._problems.append(
                f"{context.get('message')}: {context.get('exception')!r}"
            )
        )
        self._door = await Door(LIMITS).__aenter__()
        self._witness = await self._door.peer("witness")
        await self._witness.subscribe(TopicFilter("witness/#", max_qos=ONE))

    def play(self, data: bytes, pieces: list[int], version: Version, *, greets: bool) -> None:
        """Send these bytes, behind a good CONNECT or not, and look at what came of it."""
        with capture_logs() as log:
            said, closed = self._runner.run(self._send(data, pieces, version, greets=greets))
        bad = [line for line in log if line["log_level"] in ("warning", "error", "critical")]
        assert not bad and not self._problems, (bad, self._problems)
        self._judge(data, version, said, closed, greets=greets)

    async def _send(
        self, data: bytes, pieces: list[int], version: Version, *, greets: bool
    ) -> tuple[bytes, bool]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._door.port)
        if greets:
            writer.write(encode(ConnectPacket("fuzz", clean_start=True), version))
        places = sorted({place % (len(data) + 1) for place in pieces} | {0, len(data)})
        for start, end in itertools.pairwise(places):
            writer.write(data[start:end])
            await asyncio.sleep(0)
        said = b""
        for _ in range(3):  # each time round, the broker has read what came before
            number = b"%d" % next(self._count)
            await publish(self._witness, "witness/x", number)
            assert (await receive(self._witness)).payload == number
            await nothing_more(self._witness)
        closed = False
        while not closed:
            try:
                async with asyncio.timeout(0.001):
                    chunk = await reader.read(65_536)
            except TimeoutError:
                break
            except ConnectionError:
                closed = True
                break
            said, closed = said + chunk, not chunk
        writer.transport.abort()
        async with asyncio.timeout(DEADLINE_S):
            while self._door.listener.clients > 1:  # so that the next one does not meet this one
                await asyncio.sleep(0)
        return said, closed

    def _judge(self, data: bytes, version: Version, said: bytes, closed: bool, *, greets: bool) -> None:
        decoder = Decoder(LIMITS.packet_max_bytes)
        items = decoder.feed(
            (encode(ConnectPacket("fuzz", clean_start=True), version) if greets else b"") + data
        )
        wrong = any(isinstance(item, WireError) for item in items)
        assert closed or not wrong, "bytes that are no packet end the connection"
        if not said:
            assert closed or not items, "a packet is answered, or the connection closed"
            return
        nearest: Version = V311 if said == OLDER else V5  # in which an unknown version is told so
        spoken = decoder.version or nearest
        heard = Decoder(1 << 20, role="client", version=spoken).feed(said)
        assert not any(isinstance(item, WireError) for item in heard), (said, heard)
        welcome, last = heard[0], heard[-1]
        assert isinstance(welcome, ConnAckPacket), heard
        if int(welcome.reason_code):
            assert heard == [welcome] and closed
        leaves = any(isinstance(item, DisconnectPacket) for item in items)
        if closed and not int(welcome.reason_code) and decoder.version == V5 and not leaves:
            assert isinstance(last, DisconnectPacket), heard
            assert int(last.reason_code) >= 0x80


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with Scene() as opened:
        yield opened


def quick(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


Story = list[Packet]
Changes = list[tuple[str, int, bytes]]


def check_mutated(scene: Scene, version: Version, story: Story, changes: Changes, pieces: list[int]) -> None:
    scene.play(mutated(written(story, version), changes), pieces, version, greets=True)


def check_from_the_beginning(
    scene: Scene, version: Version, connect: ConnectPacket, story: Story, changes: Changes, pieces: list[int]
) -> None:
    scene.play(mutated(written([connect, *story], version), changes), pieces, version, greets=False)


stories = st.lists(packets, max_size=6)


@quick(EXAMPLES)
@given(versions, stories, mutations, cuts)
def test_a_client_that_is_in_may_send_anything(
    scene: Scene, version: Version, story: Story, changes: Changes, pieces: list[int]
) -> None:
    check_mutated(scene, version, story, changes, pieces)


@quick(EXAMPLES)
@given(versions, connects, stories, mutations, cuts)
def test_a_client_may_begin_with_anything(
    scene: Scene, version: Version, connect: ConnectPacket, story: Story, changes: Changes, pieces: list[int]
) -> None:
    check_from_the_beginning(scene, version, connect, story, changes, pieces)


@quick(EXAMPLES)
@given(versions, st.binary(max_size=200), cuts, st.booleans())
def test_a_client_may_send_bytes_without_any_sense(
    scene: Scene, version: Version, data: bytes, pieces: list[int], greets: bool
) -> None:
    scene.play(data, pieces, version, greets=greets)


@pytest.mark.slow
@quick(MANY_EXAMPLES)
@given(versions, stories, mutations, cuts)
def test_many_more_clients_that_are_in(
    scene: Scene, version: Version, story: Story, changes: Changes, pieces: list[int]
) -> None:
    check_mutated(scene, version, story, changes, pieces)


@pytest.mark.slow
@quick(MANY_EXAMPLES)
@given(versions, connects, stories, mutations, cuts)
def test_many_more_that_begin_with_anything(
    scene: Scene, version: Version, connect: ConnectPacket, story: Story, changes: Changes, pieces: list[int]
) -> None:
    check_from_the_beginning(scene, version, connect, story, changes, pieces)

"""Asking for results over real sockets: the newest, those since a position, refusals and bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from mqtt5 import (
    ConnectPacket,
    DisconnectPacket,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
)

from tests.unit.broker.channels.test_channels import subscribed
from tests.unit.broker.harness import Door, Peer, until
from tests.unit.broker.pipeline import NEAR, WIDE, Pipeline
from tests.unit.broker.talk import ONE, ZERO
from tocsin.broker.channels import pulls as pulls_module
from tocsin.broker.channels import results as results_module
from tocsin.config import Limits
from tocsin.model.results import k_of
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311

FOR_ALICE, FOR_BOB = ("Near", ("alice",)), ("Near", ("bob",))
HELD = {"north-1"}


@pytest.fixture(params=["files", "bus"])
async def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pipeline[MemoryStore]]:
    made = Pipeline(MemoryStore(MemoryServer()), tmp_path if request.param == "files" else None)
    await made.define(NEAR, WIDE)
    async with made.serve():
        yield made


@pytest.fixture
async def door(pipeline: Pipeline[MemoryStore]) -> AsyncIterator[Door]:
    async with Door(Limits(), store=pipeline.store, broker="north-1", results=pipeline.files()) as opened:
        yield opened


async def tick(pipeline: Pipeline[MemoryStore], alice: Sequence[Any], bob: Sequence[Any] = ()) -> None:
    """Results for both, though nobody is subscribed: some broker held them."""
    held = {k_of(*FOR_ALICE): HELD, k_of(*FOR_BOB): HELD}
    await pipeline.tick({FOR_ALICE: list(alice), FOR_BOB: list(bob)}, held=held)


def n(*values: int) -> list[dict[str, int]]:
    return [{"n": value} for value in values]


def ask(peer: Peer, asked: dict[str, Any], topic: str = "$results/Near/alice", qos: QoS = ZERO) -> None:
    peer.send(
        PublishPacket(
            topic,
            json.dumps(asked).encode(),
            qos=qos,
            packet_id=7 if int(qos) else None,
            response_topic="answers/me",
            correlation_data=b"42",
        )
    )


async def answer(peer: Peer) -> tuple[list[int], dict[str, Any]]:
    """The numbers of the results, and the last message."""
    found: list[int] = []
    while True:
        packet = await peer.first(PublishPacket)
        assert (packet.topic, packet.correlation_data, int(packet.qos)) == ("answers/me", b"42", 0)
        said = json.loads(packet.payload)
        if dict(packet.user_properties)["type"] == "tocsin.channel.results":
            return found, said
        found.append(said["n"])


async def test_the_newest_results_come_oldest_first(door: Door, pipeline: Pipeline[MemoryStore]) -> None:
    peer = await door.peer("a")
    for number in range(0, 12, 2):
        await tick(pipeline, n(number, number + 1), n(100 + number))
    ask(peer, {"newest": 5})
    found, last = await answer(peer)
    assert found == [7, 8, 9, 10, 11] and last["count"] == 5
    ask(peer, {})
    assert (await answer(peer))[0] == list(range(2, 12))


async def test_a_client_goes_on_where_the_last_answer_ended(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer("a")
    for number in range(0, 9, 3):
        await tick(pipeline, n(number, number + 1, number + 2), n(100))
    since, found, more = 0, list[int](), True
    while more:
        ask(peer, {"since": since, "limit": 4})
        some, last = await answer(peer)
        found += some
        since, more = last["next"], last["more"]
    assert found == list(range(9))
    ask(peer, {"since": since})
    assert (await answer(peer))[0] == []
    await tick(pipeline, n(9))
    ask(peer, {"since": since})
    assert (await answer(peer))[0] == [9]


async def test_a_pushed_result_states_the_position_to_ask_from(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer("a")
    await subscribed(peer)
    await tick(pipeline, n(1, 2, 3))
    first = await peer.first(PublishPacket)
    peer.send(PubAckPacket(first.packet_id or 0))
    position = int(dict(first.user_properties)["position"])
    other = await door.peer("b")
    ask(other, {"since": position})
    assert (await answer(other))[0] == [2, 3]


async def test_a_large_answer_is_cut_by_bytes(
    door: Door, pipeline: Pipeline[MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_module, "BATCH_BYTES", 250)
    peer = await door.peer("a")
    await tick(pipeline, [{"n": number, "text": "x" * 80} for number in range(6)])
    ask(peer, {"since": 0})
    found, last = await answer(peer)
    assert found == [0, 1, 2] and last["more"]
    ask(peer, {"since": last["next"]})
    assert (await answer(peer))[0] == [3, 4, 5]


@pytest.mark.parametrize(
    ("topic", "asked", "code", "words"),
    [
        ("$results/Nowhere/alice", {}, 0x90, "there is no channel 'Nowhere'"),
        ("$results/Near", {}, 0x90, "Near(user STRING)"),
        ("$results/Near/alice", {"newest": 0}, 0x99, "1 to 1000"),
    ],
)
async def test_a_question_that_cannot_be_answered_is_refused(
    door: Door, topic: str, asked: dict[str, Any], code: int, words: str
) -> None:
    peer = await door.peer("a")
    ask(peer, asked, topic, ONE)
    assert int((await peer.first(PubAckPacket)).reason_code) == code
    found, last = await answer(peer)
    assert (found, last["code"]) == ([], code) and words in last["error"]


async def test_a_question_at_qos_1_is_acknowledged(door: Door, pipeline: Pipeline[MemoryStore]) -> None:
    peer = await door.peer("a")
    await tick(pipeline, n(1))
    ask(peer, {}, qos=ONE)
    assert int((await peer.first(PubAckPacket)).reason_code) == 0
    assert (await answer(peer))[0] == [1]


async def test_an_old_client_names_the_reply_topic_in_the_payload(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer("old", version=V311)
    await tick(pipeline, n(1, 2))
    peer.send(PublishPacket("$results/Near/alice", b'{"newest": 1, "reply": "r"}'))
    first, last = await peer.first(PublishPacket), await peer.first(PublishPacket)
    assert (first.topic, json.loads(first.payload)) == ("r", {"n": 2})
    assert json.loads(last.payload)["count"] == 1


class Busy:
    """Results that are not read before they are allowed to."""

    def __init__(self, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
        results = door.parts.durable.channels.results
        self.go = asyncio.Event()
        self._newest = results.newest
        monkeypatch.setattr(results, "newest", self.newest)

    async def newest(self, k: str, channel: str, limit: int) -> results_module.ResultBatch:
        await self.go.wait()
        return await self._newest(k, channel, limit)


async def test_a_client_with_too_many_questions_is_refused_some(
    door: Door, pipeline: Pipeline[MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await door.peer("a")
    busy = Busy(door, monkeypatch)
    for _ in range(12):
        ask(peer, {})
    await until(lambda: door.parts.durable.pulls.refused == 4)
    busy.go.set()
    said = [(await answer(peer))[1] for _ in range(12)]
    assert sum("count" in each for each in said) == 8
    assert {each["code"] for each in said if "code" in each} == {0x97}


async def test_an_answer_that_takes_too_long_is_given_up(
    door: Door, pipeline: Pipeline[MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulls_module, "ANSWER_S", 0.05)
    busy = Busy(door, monkeypatch)
    peer = await door.peer("a")
    for _ in range(5):  # one more than are read at once
        ask(peer, {})
    for _ in range(5):
        assert "took longer than" in (await answer(peer))[1]["error"]
    busy.go.set()
    ask(peer, {})
    assert (await answer(peer))[1]["count"] == 0


async def test_nothing_is_sent_that_is_larger_than_the_client_takes(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer("a", connect=ConnectPacket("a", clean_start=True, max_packet_size=60))
    await tick(pipeline, n(1))
    ask(peer, {})
    await until(lambda: door.parts.durable.pulls.answered == 1)
    ask(peer, {"newest": 0})
    peer.send(PingReqPacket())
    await peer.receive(PingRespPacket)


async def test_a_question_whose_answer_would_repeat_too_much_is_refused(
    door: Door, pipeline: Pipeline[MemoryStore]
) -> None:
    peer = await door.peer("a")
    for said in ({"response_topic": "r" * 2_000}, {"response_topic": "r", "correlation_data": bytes(2_000)}):
        peer.send(PublishPacket("$results/Near/alice", b"", qos=ONE, packet_id=7, **said))
        assert int((await peer.receive(PubAckPacket)).reason_code) == 0x97


async def test_nothing_is_left_of_a_client_that_asks_and_goes(door: Door) -> None:
    peer = await door.peer("a")
    asked = PublishPacket("$results/Near/alice", b"", response_topic="r")
    peer.writer.write(encode(asked, V5) + encode(DisconnectPacket(), V5))
    assert await peer.closed()
    assert len(door.parts.durable.pulls._questions) == 0

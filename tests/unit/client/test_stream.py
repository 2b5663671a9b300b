"""Streams, queries and sets, packet by packet, against a scripted broker on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mqtt5 import (
    ConnAckPacket,
    PubAckPacket,
    PubAckReasonCode,
    PublishPacket,
    UnsubAckPacket,
    UnsubAckReasonCode,
    UnsubscribePacket,
)

from tests.unit.broker.harness import until
from tests.unit.client.scripted import DEADLINE_S, Caller, Scripted
from tocsin.client import AsyncClient, Changed, Joined, Left, Set
from tocsin.client.stream import Stream
from tocsin.core.streams.listing import encode_set, encode_turn
from tocsin.errors import (
    BrokerUnreachable,
    Malformed,
    MetadataInvalid,
    PublishRefused,
    QueryInvalid,
)
from tocsin.model.stream import Metadata

ROOM = 'Room = "410"'
AT = f"$streams/{ROOM}"


class Talk:
    """A client, and the broker's end of its connection."""

    def __init__(self, server: Scripted, client: AsyncClient, caller: Caller) -> None:
        self.server = server
        self.client = client
        self.caller = caller

    async def again(self, *, resumed: bool = False) -> Caller:
        """Break the connection, and accept the next."""
        self.caller.hang_up()
        self.caller = await self.server.accepted(ConnAckPacket(session_present=resumed))
        await until(lambda: self.client.connected)
        return self.caller


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    async with Scripted() as server:
        client = AsyncClient(server.url, inbox_max=4, deadline_s=DEADLINE_S)
        async with asyncio.TaskGroup() as tasks:
            connecting = tasks.create_task(client.connect())
            caller = await server.accepted()
        await connecting
        yield Talk(server, client, caller)
        await client.close()


def meta(packet: PublishPacket) -> tuple[str, Any, int]:
    return packet.topic, json.loads(packet.payload or b'""'), int(packet.qos)


# ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_text_metadata_travels_with_the_first_message_and_only_with_that(talk: Talk) -> None:
    stream = talk.client.stream("a", Room="410", unit=None)
    await stream.publish(21.5)
    await stream.publish(22)
    first, second = [await talk.caller.receive(PublishPacket) for _ in range(2)]
    assert (first.topic, first.payload) == ("a", b"21.5")
    assert first.user_properties == [("meta.Room", "410"), ("meta.unit", "")]
    assert (second.payload, second.user_properties) == (b"22", [])
    assert stream.metadata == {"Room": "410"}


async def test_the_priority_of_a_stream_is_said_with_each_message(talk: Talk) -> None:
    stream = talk.client.stream("a", Room="410")
    stream.priority = "critical"
    await stream.publish(21.5)
    await stream.publish(22)
    first, second = [await talk.caller.receive(PublishPacket) for _ in range(2)]
    assert first.user_properties == [("priority", "critical"), ("meta.Room", "410")]
    assert second.user_properties == [("priority", "critical")]
    stream.priority = 11
    with pytest.raises(ValueError, match="0 to 9"):
        await stream.publish(23)


async def test_other_metadata_goes_before_its_message_and_is_waited_for(talk: Talk) -> None:
    stream = talk.client.stream("a", {"Location/Floor": 4}, Room="410")
    publishing = asyncio.create_task(stream.publish("x"))
    assert meta(await talk.caller.take()) == ("$meta/a", {"Location/Floor": 4, "Room": "410"}, 1)
    message = await talk.caller.receive(PublishPacket)
    assert (message.topic, message.payload, message.user_properties) == ("a", b"x", [])
    await publishing


async def test_a_permanent_stream_says_so(talk: Talk) -> None:
    stream = talk.client.stream("a", permanent=True, qos=1)
    publishing = asyncio.create_task(stream.publish("x"))
    assert (await talk.caller.take()).user_properties == [("meta.$permanent", "true")]
    await publishing
    describing = asyncio.create_task(stream.describe({"$permanent": False}))
    assert meta(await talk.caller.take()) == ("$meta/a", {"$permanent": False}, 1)
    await describing


async def test_a_refused_description_raises_and_is_not_repeated(talk: Talk) -> None:
    stream = talk.client.stream("a")
    describing = asyncio.create_task(stream.describe(Room="410"))
    packet = await talk.caller.receive(PublishPacket)
    refused = PubAckReasonCode.PAYLOAD_FORMAT_INVALID
    talk.caller.send(PubAckPacket(packet.packet_id or 0, reason_code=refused, reason_str="not so"))
    with pytest.raises(PublishRefused, match=r"'\$meta/a': not so"):
        await describing
    caller = await talk.again()
    publishing = asyncio.create_task(talk.client.stream("b", qos=1).publish("b"))
    assert (await caller.take()).topic == "b"
    await publishing


async def test_forgetting_sends_an_empty_description(talk: Talk) -> None:
    stream = talk.client.stream("a", Room="410")
    forgetting = asyncio.create_task(stream.forget())
    packet = await talk.caller.take()
    assert (packet.topic, packet.payload) == ("$meta/a", b"")
    await forgetting
    assert stream.metadata == {}


@pytest.mark.parametrize("resumed", [False, True])
async def test_what_was_said_is_said_again_where_the_session_is_lost(talk: Talk, resumed: bool) -> None:
    await said(talk, talk.client.stream("a"), Room="410", old="x")
    await said(talk, talk.client.stream("a"), Room="411", old=None)
    talk.client.stream("never published", Room="1")
    caller = await talk.again(resumed=resumed)
    if not resumed:
        assert meta(await caller.take()) == ("$meta/a", {"Room": "411"}, 1)
    flushing = asyncio.create_task(talk.client.flush())
    asked = await caller.receive(UnsubscribePacket)
    caller.send(UnsubAckPacket(asked.packet_id, [UnsubAckReasonCode.NO_SUBSCRIPTION_EXISTED]))
    await flushing


async def said(talk: Talk, stream: Stream, **changes: str | None) -> None:
    describing = asyncio.create_task(stream.describe(**changes))
    await talk.caller.take()
    await describing


async def test_metadata_of_an_unsent_message_goes_with_the_next(talk: Talk) -> None:
    stream = talk.client.stream("a", Room="410")
    talk.caller.hang_up()
    call = await talk.server.call()
    with pytest.raises(BrokerUnreachable):
        await stream.publish("lost")
    await call.accept()
    await until(lambda: talk.client.connected)
    await stream.publish("x")
    packet = await call.receive(PublishPacket)
    assert (packet.payload, packet.user_properties) == (b"x", [("meta.Room", "410")])


async def test_metadata_that_makes_no_sense_is_refused_before_it_is_sent(talk: Talk) -> None:
    with pytest.raises(MetadataInvalid, match="'topic' is set by the system"):
        talk.client.stream("a", topic="b")
    with pytest.raises(MetadataInvalid, match="is a list"):
        await talk.client.stream("a").publish("x", rooms=["410"])


# ── queries ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_query_is_escaped_and_gets_what_carries_its_identifier(talk: Talk) -> None:
    asking = asyncio.create_task(talk.client.query("a LIKE 'x%' AND b + 1 > 2", qos=1).open())
    asked = await talk.caller.grant()
    assert [each.pattern for each in asked.topic_filters] == ["$query/a LIKE 'x%25' AND b %2B 1 > 2"]
    assert int(asked.topic_filters[0].max_qos) == 1 and asked.subscription_id is not None
    found = await asking
    talk.caller.send(
        PublishPacket("elsewhere", b"", subscription_ids=[asked.subscription_id + 1]),
        PublishPacket("room/410", b"21", subscription_ids=[asked.subscription_id]),
    )
    message = await found.get(DEADLINE_S)
    assert (message.topic, message.text, message.metadata) == ("room/410", "21", None)


async def test_a_query_with_streams_gives_each_message_the_metadata_of_its_moment(talk: Talk) -> None:
    asking = asyncio.create_task(talk.client.query(ROOM, with_streams=True).open())
    first = await talk.caller.grant(PublishPacket(AT, encode_set({"a": {"Room": "410"}})[0]))
    second = await talk.caller.grant()
    assert [each.topic_filters[0].pattern for each in (first, second)] == [AT, f"$query/{ROOM}"]
    found = await asking
    identifiers = [second.subscription_id or 0]
    talk.caller.send(
        PublishPacket("a", b"1", subscription_ids=identifiers),
        PublishPacket(AT, encode_turn("changed", "a", {"Room": "410", "n": 2})),
        PublishPacket("a", b"2", subscription_ids=identifiers),
        PublishPacket("b", b"3", subscription_ids=identifiers),
    )
    heard = [await found.get(DEADLINE_S) for _ in range(3)]
    told = [message.metadata for message in heard]
    assert told == [{"Room": "410"}, {"Room": "410", "n": 2}, None]
    assert dict(found.streams) == {"a": {"Room": "410", "n": 2}}


def test_a_query_that_cannot_be_read_is_refused_here() -> None:
    client = AsyncClient()
    for ask in (client.query, client.streams):
        with pytest.raises(QueryInvalid, match=r"\^"):
            ask("Room = ")


# ── sets ────────────────────────────────────────────────────────────────────────────────────────────────────


def turn(word: Any, topic: str, metadata: Metadata) -> PublishPacket:
    return PublishPacket(AT, encode_turn(word, topic, metadata))


async def test_a_set_is_told_and_then_its_changes(talk: Talk) -> None:
    asking = asyncio.create_task(talk.client.streams(ROOM).open())
    await talk.caller.grant(PublishPacket(AT, encode_set({"a": {"n": 1}})[0]))
    found = await asking
    talk.caller.send(turn("joined", "b", {}), turn("changed", "b", {"n": 2}), turn("left", "a", {"n": 1}))
    heard = [await found.get(DEADLINE_S) for _ in range(4)]
    assert heard == [Set({"a": {"n": 1}}), Joined("b", {}), Changed("b", {"n": 2}), Left("a", {"n": 1})]
    assert dict(found.streams) == {"b": {"n": 2}}


@pytest.mark.parametrize("resumed", [False, True])
async def test_over_a_break_only_differences_are_told(talk: Talk, resumed: bool) -> None:
    asking = asyncio.create_task(talk.client.streams(ROOM).open())
    await talk.caller.grant(PublishPacket(AT, encode_set({"a": {}, "b": {}})[0]))
    found = await asking
    assert await found.get(DEADLINE_S) == Set({"a": {}, "b": {}})
    talk.caller.send(PublishPacket(AT, b'{"streams": [{"topic": "x"}], "more": true}'))
    caller = await talk.again(resumed=resumed)
    await caller.grant(PublishPacket(AT, encode_set({"b": {}, "c": {}})[0]))
    assert [await found.get(DEADLINE_S) for _ in range(2)] == [Left("a", {}), Joined("c", {})]


async def test_what_a_query_knows_of_streams_is_that_of_the_connection(talk: Talk) -> None:
    asking = asyncio.create_task(talk.client.query(ROOM, with_streams=True).open())
    await talk.caller.grant(PublishPacket(AT, b'{"streams": [{"topic": "x"}], "more": true}'))
    await talk.caller.grant()
    found = await asking
    caller = await talk.again()
    await caller.grant(PublishPacket(AT, encode_set({"a": {}})[0]))
    await until(lambda: bool(found.streams))
    assert dict(found.streams) == {"a": {}}


async def test_a_reader_that_is_too_far_behind_gets_the_set_anew(talk: Talk) -> None:
    asking = asyncio.create_task(talk.client.streams(ROOM).open())
    await talk.caller.grant(PublishPacket(AT, encode_set({})[0]))
    found = await asking
    talk.caller.send(*(turn("joined", f"{number}", {}) for number in range(10)))
    await until(lambda: len(found.streams) == 10)
    told = await found.get(DEADLINE_S)
    assert isinstance(told, Set) and len(told.streams) >= 4
    known = dict(told.streams)
    while len(known) < 10:
        change = await found.get(DEADLINE_S)
        assert isinstance(change, Joined)
        known[change.topic] = change.metadata
    assert found.dropped > 0


@pytest.mark.parametrize("with_streams", [False, True])
async def test_a_notice_that_cannot_be_read_ends_the_subscription_in_words(
    talk: Talk, with_streams: bool
) -> None:
    found = talk.client.query(ROOM, with_streams=True) if with_streams else talk.client.streams(ROOM)
    asking = asyncio.create_task(found.open())
    await talk.caller.grant(PublishPacket(AT, b"nonsense"))
    if with_streams:
        await talk.caller.grant()
    await asking
    with pytest.raises(Malformed, match="not a notice about streams"):
        await found.get(DEADLINE_S)

"""Groups that share a channel's results, over real sockets and the store in memory: what clients, and the pipeline,
can see."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mqtt5 import (
    ConnAckPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tests.unit.broker.harness import DEADLINE_S, Door, Peer, until
from tests.unit.broker.pipeline import NEAR, Pipeline
from tests.unit.broker.talk import ONE, TWO, ZERO, gather, lasting, nothing_more, receive
from tocsin.config import Limits
from tocsin.core.shared.stored_group import ResultsSource, decode_group, group_key
from tocsin.model.catalogue import Parameter
from tocsin.model.results import k_of
from tocsin.store.memory.store import MemoryServer, MemoryStore

ALICE = "$channel/Near/alice"
SHARED = f"$share/g/{ALICE}"
FOR_ALICE = ("Near", ("alice",))
K = k_of("Near", ("alice",))


@pytest.fixture(params=["files", "bus"])
async def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pipeline[MemoryStore]]:
    if request.param == "files":
        pytest.importorskip("pyarrow", reason="the extra spark is not installed")
    made = Pipeline(MemoryStore(MemoryServer()), tmp_path if request.param == "files" else None)
    await made.define(NEAR)
    async with made.serve():
        yield made


def door_of(pipeline: Pipeline[MemoryStore], broker: str) -> Door:
    return Door(Limits(), store=pipeline.store, broker=broker, results=pipeline.files())


@asynccontextmanager
async def two_doors(pipeline: Pipeline[MemoryStore]) -> AsyncIterator[tuple[Door, Door]]:
    async with door_of(pipeline, "one") as one, door_of(pipeline, "two") as two:
        yield one, two


async def subscribe(peer: Peer, name: str = SHARED, qos: QoS = ONE) -> int:
    peer.send(SubscribePacket(1, [TopicFilter(name, max_qos=qos)]))
    return int((await peer.first(SubAckPacket)).reason_codes[0])


async def unsubscribe(peer: Peer, name: str = SHARED) -> None:
    peer.send(UnsubscribePacket(2, [name]))
    assert int((await peer.first(UnsubAckPacket)).reason_codes[0]) == 0


async def members(*where: tuple[Door, str], qos: QoS = ONE) -> list[Peer]:
    peers = [await door.peer(connect=lasting(client, clean=True)) for door, client in where]
    for peer in peers:
        assert await subscribe(peer, qos=qos) == min(1, int(qos))
    return peers


def n(*values: int) -> list[dict[str, Any]]:
    return [{"n": value} for value in values]


async def shared(peers: list[Peer], count: int) -> list[tuple[int, int]]:
    """The next results that any of these get: (who, what)."""
    return [(who, json.loads(payload)["n"]) for who, payload in await gather(peers, count)]


async def holders(pipeline: Pipeline[MemoryStore]) -> set[str]:
    return (await pipeline.held()).get(K, set())


async def until_held_by(pipeline: Pipeline[MemoryStore], *brokers: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await holders(pipeline) != set(brokers):
            await asyncio.sleep(0.01)


# ── one broker ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("qos", [ZERO, ONE, TWO])
async def test_each_result_goes_to_one_member_in_turn(pipeline: Pipeline[MemoryStore], qos: QoS) -> None:
    async with door_of(pipeline, "one") as door:
        peers = await members((door, "a"), (door, "b"), (door, "c"), qos=qos)
        await pipeline.tick({FOR_ALICE: n(*range(9))}, priority=lambda payload: payload["n"])
        got = await shared(peers, 9)
        assert sorted(what for _, what in got) == list(range(9))
        assert set(Counter(who for who, _ in got).values()) == {3}
        for peer in peers:
            await nothing_more(peer)


async def test_a_result_of_a_group_looks_like_any_other(pipeline: Pipeline[MemoryStore]) -> None:
    async with door_of(pipeline, "one") as door:
        (member,) = await members((door, "a"))
        alone = await door.peer("b")
        assert await subscribe(alone, ALICE) == 1
        await pipeline.tick({FOR_ALICE: n(1)}, priority=8)
        one, other = await receive(member), await receive(alone)
        assert (one.topic, one.payload, one.content_type) == (ALICE, other.payload, other.content_type)
        assert one.user_properties == other.user_properties and int(one.qos) == 1


async def test_what_a_member_leaves_goes_to_another(pipeline: Pipeline[MemoryStore]) -> None:
    async with door_of(pipeline, "one") as door:
        one, other = await members((door, "a"), (door, "b"))
        await pipeline.tick({FOR_ALICE: n(1, 2)})
        assert (await one.receive(PublishPacket)).payload
        await receive(other)
        one.close()
        assert (await receive(other)).qos == ONE
        await nothing_more(other)


async def test_results_wait_while_all_members_are_away(pipeline: Pipeline[MemoryStore]) -> None:
    async with door_of(pipeline, "one") as door:
        (member,) = await members((door, "a"))
        member.close()
        await until(lambda: not door.listener.clients)
        await pipeline.tick({FOR_ALICE: n(1, 2)})
        await pipeline.tick({FOR_ALICE: n(3)})
        member = await door.peer(connect=lasting("a"))
        assert [json.loads((await receive(member)).payload)["n"] for _ in range(3)] == [1, 2, 3]


async def test_the_last_member_lets_go_of_the_backend_subscription(pipeline: Pipeline[MemoryStore]) -> None:
    async with door_of(pipeline, "one") as door:
        one, other = await members((door, "a"), (door, "b"))
        await unsubscribe(one)
        assert await holders(pipeline) == {"one"}
        await unsubscribe(other)
        await until_held_by(pipeline)
        assert door.parts.channels.backend.machine.sessions == {}


async def test_a_group_that_ended_begins_behind_what_it_had(pipeline: Pipeline[MemoryStore]) -> None:
    async with door_of(pipeline, "one") as door:
        (member,) = await members((door, "a"))
        await pipeline.tick({FOR_ALICE: n(1)})
        await receive(member)
        await unsubscribe(member)
        await pipeline.tick({FOR_ALICE: n(2)}, held={K: {"one"}})
        assert await subscribe(member) == 1
        await pipeline.tick({FOR_ALICE: n(3)})
        assert json.loads((await receive(member)).payload) == {"n": 3}
        await nothing_more(member)


async def test_two_groups_each_get_every_result(pipeline: Pipeline[MemoryStore]) -> None:
    async with door_of(pipeline, "one") as door:
        one, other = await door.peer("a"), await door.peer("b")
        assert await subscribe(one, f"$share/g/{ALICE}") == 1
        assert await subscribe(other, "$share/h/$channel/near?user=alice") == 1
        await pipeline.tick({FOR_ALICE: n(1)})
        assert (await receive(one)).topic == ALICE
        assert (await receive(other)).topic == "$channel/near?user=alice"
        assert sorted(door.parts.held()) == [
            ("$share/g/" + ALICE, 1),
            ("$share/h/$channel/near?user=alice", 1),
        ]


async def test_results_of_ten_megabytes_go_to_one_member_each(pipeline: Pipeline[MemoryStore]) -> None:
    large = [{"n": number, "text": "x" * 10_000_000} for number in range(3)]
    async with door_of(pipeline, "one") as door:
        peers = await members((door, "a"), (door, "b"))
        await pipeline.tick({FOR_ALICE: large})
        assert sorted(what for _, what in await shared(peers, 3)) == [0, 1, 2]


async def test_a_channel_altered_gives_its_group_the_new_results(pipeline: Pipeline[MemoryStore]) -> None:
    five, altered = (
        ("Near", ("5",)),
        msgspec.structs.replace(NEAR, parameters=(Parameter("user", "DOUBLE"),), version=2),
    )
    async with door_of(pipeline, "one") as door:
        member = await door.peer("a")
        assert await subscribe(member, "$share/g/$channel/Near/5") == 1
        await pipeline.tick({five: n(1)})
        await receive(member)
        await pipeline.define(altered)
        name = "$share/g/$channel/Near/5"
        await until(
            lambda: door.parts.groups.local[name].source.followed == ResultsSource("Near", (5.0,), "one")
        )
        assert set(await pipeline.held()) == {k_of("Near", (5.0,))}
        await pipeline.tick({("Near", (5.0,)): n(2)})
        assert json.loads((await receive(member)).payload) == {"n": 2}


async def test_a_dropped_channel_brings_results_again_when_it_is_back(
    pipeline: Pipeline[MemoryStore],
) -> None:
    async with door_of(pipeline, "one") as door:
        (member,) = await members((door, "a"))
        table = await pipeline.store.table(pipeline.places.catalogue)
        await table.delete("channel.near")
        await until_held_by(pipeline)
        assert await subscribe(await door.peer("late")) == 0x8F
        await pipeline.define(NEAR)
        await until_held_by(pipeline, "one")
        await pipeline.tick({FOR_ALICE: n(1)})
        assert json.loads((await receive(member)).payload) == {"n": 1}


# ── two brokers ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_group_at_two_brokers_is_counted_once(pipeline: Pipeline[MemoryStore]) -> None:
    async with two_doors(pipeline) as (one, two):
        peers = await members((one, "a"), (two, "b"), (two, "c"))
        assert await holders(pipeline) == {"one"}
        for tick in range(10):
            await pipeline.tick({FOR_ALICE: n(*range(4 * tick, 4 * tick + 4))})
        got = await shared(peers, 40)
        assert sorted(what for _, what in got) == list(range(40))
        assert {who for who, _ in got} == {0, 1, 2}
        for number in range(3):
            mine = [what for who, what in got if who == number]
            assert mine == sorted(mine), "each gets its part in order"


async def test_another_broker_holds_when_the_holder_has_no_member(pipeline: Pipeline[MemoryStore]) -> None:
    async with two_doors(pipeline) as (one, two):
        first, second = await members((one, "a"), (two, "b"))
        await unsubscribe(first)
        await until_held_by(pipeline, "two")
        cell = await one.parts.groups.table.get(group_key(SHARED))
        assert cell is not None and decode_group(cell.value).source == ResultsSource(
            "Near", ("alice",), "two"
        )
        await pipeline.tick({FOR_ALICE: n(1)})
        assert json.loads((await receive(second)).payload) == {"n": 1}


async def test_a_member_moves_with_the_results_that_it_has(pipeline: Pipeline[MemoryStore]) -> None:
    async with two_doors(pipeline) as (one, two):
        (member,) = await members((one, "a"))
        await pipeline.tick({FOR_ALICE: n(1)})
        sent = await member.receive(PublishPacket)
        moved = await two.peer(connect=lasting("a"), accepted=False)
        assert (await moved.receive(ConnAckPacket)).session_present
        repeat = await moved.receive(PublishPacket)
        assert (repeat.packet_id, repeat.payload, repeat.duplicate) == (sent.packet_id, sent.payload, True)
        moved.send(PubAckPacket(repeat.packet_id or 0))
        await until_held_by(pipeline, "two")
        await pipeline.tick({FOR_ALICE: n(2)})
        assert json.loads((await receive(moved)).payload) == {"n": 2}


async def test_a_broker_that_starts_keeps_what_its_groups_share(pipeline: Pipeline[MemoryStore]) -> None:
    async with door_of(pipeline, "one") as door:
        (member,) = await members((door, "a"))
        member.close()
        await until(lambda: not door.listener.clients)
    async with door_of(pipeline, "one") as door:
        machine = door.parts.channels.backend.machine
        await until(lambda: machine._cells.known)
        assert list(machine.sessions) == [SHARED] and await holders(pipeline) == {"one"}
        await pipeline.tick({FOR_ALICE: n(1)})
        member = await door.peer(connect=lasting("a"))
        assert json.loads((await receive(member)).payload) == {"n": 1}

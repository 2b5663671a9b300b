"""Groups that end and are made anew, over real sockets and the store in memory: they have no message in common."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from mqtt5 import QoS, TopicFilter

from tests.unit.broker.harness import DEADLINE_S, Door, until
from tests.unit.broker.talk import lasting, nothing_more, publish, receive
from tocsin.broker.shared import groups
from tocsin.config import Limits
from tocsin.errors import StoreUnavailable
from tocsin.ports import Begun, Entry, Reached
from tocsin.store.memory.store import MemoryLog, MemorySelection, MemoryServer, MemoryStore

ONE, TWO = QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE
NAME = "$share/g/a"


async def group_is_over(door: Door) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await door.parts.groups.table.keys("group."):
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_a_lagging_broker_creates_a_group_without_its_predecessors_messages(
    qos: QoS, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, held = MemoryServer(), asyncio.Event()
    behind = MemoryStore(server)
    items = MemorySelection.items

    async def late(selection: MemorySelection) -> AsyncGenerator[Entry | Begun | Reached, None]:
        async for item in items(selection):
            if selection._log._store is behind and not isinstance(item, Begun):
                await held.wait()
            yield item

    monkeypatch.setattr(MemorySelection, "items", late)
    async with (
        Door(Limits(), store=behind, broker="one") as one,
        Door(Limits(), store=MemoryStore(server), broker="two") as two,
    ):
        first, publisher = await two.peer("first"), await two.peer("p")
        await first.subscribe(TopicFilter(NAME, max_qos=qos))
        await publish(publisher, "a", b"the first's", qos)
        assert (await receive(first)).payload == b"the first's"
        first.close()
        await group_is_over(two)
        second = await one.peer("second")
        await second.subscribe(TopicFilter(NAME, max_qos=qos))
        assert one.parts.message_log.tail == 0, "it has seen nothing of the log"
        await publish(publisher, "a", b"the second's", qos)
        held.set()
        assert (await receive(second)).payload == b"the second's"
        await nothing_more(second)


async def test_nobody_is_a_member_before_the_log_says_where_it_ends(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    last = MemoryLog.last

    async def unwilling(log: MemoryLog, subject: str | None = None, *, fresh: bool = False) -> int:
        nonlocal asked
        asked += 1
        if asked <= 2:
            raise StoreUnavailable("last", "no leader")
        return await last(log, subject, fresh=fresh)

    monkeypatch.setattr(MemoryLog, "last", unwilling)
    member = await door.peer("m")
    await member.subscribe(TopicFilter(NAME, max_qos=ONE))
    assert asked == 3
    await publish(await door.peer("p"), "a", b"x")
    assert (await receive(member)).payload == b"x"


@pytest.mark.parametrize("lasts", [False, True])
async def test_a_member_of_an_ended_group_is_disconnected_and_may_return(door: Door, lasts: bool) -> None:
    connect = lasting("m", clean=True) if lasts else None
    member, publisher = await door.peer("m", connect=connect), await door.peer("p")
    await member.subscribe(TopicFilter(NAME, max_qos=ONE))
    groups = door.parts.groups
    (key,) = await groups.table.keys("group.")
    await groups.table.delete(key)
    assert await member.closed()
    await until(lambda: not len(groups))
    back = await door.peer("m", connect=lasting("m") if lasts else None)
    if not lasts:
        await back.subscribe(TopicFilter(NAME, max_qos=ONE))
    await publish(publisher, "a", b"x")
    assert (await receive(back)).payload == b"x"


async def lives_written(door: Door, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows with every incarnation that the broker writes; refreshed without rest from now on."""
    written: list[str] = []
    table = door.parts.groups.table
    put = table.put

    async def noted(key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        if key.startswith("life."):
            written.append(key)
        return await put(key, value, ttl_s=ttl_s)

    monkeypatch.setattr(table, "put", noted)
    return written


async def test_a_broker_refreshes_its_life_only_while_it_has_members_of_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "REFRESH_S", 0.01)
    async with Door(Limits()) as door:
        written = await lives_written(door, monkeypatch)
        await asyncio.sleep(0.1)
        assert written == [], "nobody is in a group"
        member = await door.peer("m")
        await member.subscribe(TopicFilter(NAME, max_qos=ONE))
        assert written, "the incarnation is there before anybody is a member at it"
        before = len(written)
        await until(lambda: len(written) > before + 2)
        member.close()
        await group_is_over(door)
        await until(lambda: len(door.parts.groups) == 0)
        await asyncio.sleep(0.05)
        after = len(written)
        await asyncio.sleep(0.1)
        assert len(written) == after


async def test_a_member_counts_although_its_brokers_life_cell_had_expired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = MemoryServer()
    async with (
        Door(Limits(), store=MemoryStore(server), broker="one") as one,
        Door(Limits(), store=MemoryStore(server), broker="two") as two,
    ):
        groups_of_two = two.parts.groups
        await groups_of_two.table.delete("life.two")  # as if it had expired
        monkeypatch.setattr(groups_of_two, "_written_s", -1e9)
        other = await one.peer("other")
        await other.subscribe(TopicFilter(NAME, max_qos=ONE))
        member = await two.peer("member")
        await member.subscribe(TopicFilter(NAME, max_qos=ONE))
        other.close()
        publisher = await one.peer("p")
        await publish(publisher, "a", b"told")
        assert (await receive(member)).payload == b"told"
        await until(lambda: one.parts.groups.alive(groups_of_two.incarnation))

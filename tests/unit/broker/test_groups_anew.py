"""Groups that end and are made anew, over real sockets and the store in memory: they have no message in common."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from mqtt5 import QoS, TopicFilter

from tests.unit.broker.door import DEADLINE_S, Door, until
from tests.unit.broker.talk import lasting, nothing_more, publish, receive
from tocsin.config import Limits
from tocsin.errors import StoreUnavailable
from tocsin.ports import Entry
from tocsin.store.memory import MemoryLog, MemoryServer, MemoryStore

ONE, TWO = QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE
NAME = "$share/g/a"


async def group_is_over(door: Door) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await door.exchange.durability.groups.table.keys("group."):
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_a_group_that_a_broker_makes_that_is_behind_gets_nothing_that_the_last_one_had(
    qos: QoS, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, held = MemoryServer(), asyncio.Event()
    behind = MemoryStore(server)
    follow = MemoryLog.follow

    async def late(log: MemoryLog, subject: str, start: int) -> AsyncIterator[Entry]:
        async for entry in follow(log, subject, start):
            if log._store is behind:
                await held.wait()
            yield entry

    monkeypatch.setattr(MemoryLog, "follow", late)
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
        assert one.exchange.durability.journal.tail == 0, "it has seen nothing of the log"
        await publish(publisher, "a", b"the second's", qos)
        held.set()
        assert (await receive(second)).payload == b"the second's"
        await nothing_more(second)


async def test_nobody_is_a_member_before_the_log_says_where_it_ends(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    last = MemoryLog.last

    async def unwilling(log: MemoryLog, subject: str | None = None) -> int:
        nonlocal asked
        asked += 1
        if asked <= 2:
            raise StoreUnavailable("last", "no leader")
        return await last(log, subject)

    monkeypatch.setattr(MemoryLog, "last", unwilling)
    member = await door.peer("m")
    await member.subscribe(TopicFilter(NAME, max_qos=ONE))
    assert asked == 3
    await publish(await door.peer("p"), "a", b"x")
    assert (await receive(member)).payload == b"x"


@pytest.mark.parametrize("lasts", [False, True])
async def test_a_member_whose_group_is_over_loses_its_connection_and_may_come_back(
    door: Door, lasts: bool
) -> None:
    connect = lasting("m", clean=True) if lasts else None
    member, publisher = await door.peer("m", connect=connect), await door.peer("p")
    await member.subscribe(TopicFilter(NAME, max_qos=ONE))
    groups = door.exchange.durability.groups
    (key,) = await groups.table.keys("group.")
    await groups.table.delete(key)
    assert await member.closed()
    await until(lambda: not len(groups))
    back = await door.peer("m", connect=lasting("m") if lasts else None)
    if not lasts:
        await back.subscribe(TopicFilter(NAME, max_qos=ONE))
    await publish(publisher, "a", b"x")
    assert (await receive(back)).payload == b"x"

"""Brokers tell each other how many sessions of a user they count."""

from __future__ import annotations

import asyncio

import pytest

from tocsin.broker.delivery import session_census
from tocsin.broker.delivery.session_census import IDLE_TURNS, KEPT_S, PREFIX, SessionCensus
from tocsin.core.budgets.session_quota import REPORT, SessionQuota
from tocsin.ports import Table, TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore


class HandClock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.us = 1_700_000_000_000_000

    def now_us(self) -> int:
        return self.us


async def test_a_user_is_counted_at_all_brokers_until_one_is_down() -> None:
    clock = HandClock()
    store = MemoryStore(MemoryServer(clock))
    table = await store.table(TableSpec("n-network"))
    quotas = [SessionQuota(10, 1 << 20, 50) for _ in range(3)]
    brokers = [SessionCensus(table, quota, broker=f"b-{number}") for number, quota in enumerate(quotas)]
    for number in range(5):
        quotas[number % 2].serves(f"c{number}", "mallory", made=True)
    for _ in range(2):
        for broker in brokers:
            await broker.exchange(table)
    assert [quota.of_user("mallory")[0] for quota in quotas] == [5, 5, 5]
    assert all(quota.no_room("mallory", 0) for quota in quotas)
    assert not any(quota.no_room("anna", 0) for quota in quotas)
    quotas[1].over("c1")
    quotas[1].over("c3")
    await brokers[1].exchange(table)
    assert await table.keys(PREFIX) == (f"{PREFIX}b-0",), "nothing is left to report"
    await brokers[2].exchange(table)
    assert quotas[2].of_user("mallory")[0] == 3
    clock.us += int(KEPT_S * 1e6) + 1
    await brokers[2].exchange(table)
    assert quotas[2].of_user("mallory")[0] == 0, "the broker that has them is down"


async def test_a_broker_without_sessions_looks_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_census, "EVERY_S", 0.0)
    store = MemoryStore(MemoryServer(HandClock()))
    sessions, table = await store.table(TableSpec("s")), await store.table(TableSpec("n-network"))
    quota = SessionQuota(10, 1 << 20, 50)
    looks, turns = 0, 0

    class Counted(SessionCensus):
        async def exchange(self, table: Table) -> None:
            nonlocal looks
            looks += 1

    async def run(count: int) -> int:
        """Looks in so many turns."""
        nonlocal looks, turns
        looks = turns = 0

        async def sleep(_: float) -> None:
            nonlocal turns
            turns += 1
            if turns == count:
                raise asyncio.CancelledError

        monkeypatch.setattr(asyncio, "sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await Counted(sessions, quota, broker="here").run(table)
        return looks

    assert await run(2 * IDLE_TURNS) == 2
    quota.serves("c", "mallory", made=True)
    assert await run(2 * IDLE_TURNS) == 2 * IDLE_TURNS


async def test_a_report_that_cannot_be_read_is_left_out() -> None:
    store = MemoryStore(MemoryServer(HandClock()))
    table = await store.table(TableSpec("n-network"))
    quota = SessionQuota(10, 1 << 20, 50)
    await table.put(f"{PREFIX}old", b"\x01?")
    await table.put(f"{PREFIX}newer", bytes((REPORT.newest + 1,)))
    await table.put(f"{PREFIX}good", REPORT.write({"mallory": (4, 400)}))
    await SessionCensus(table, quota, broker="here").exchange(table)
    assert quota.of_user("mallory") == (4, 400)

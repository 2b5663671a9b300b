"""How far back stored sessions need results."""

from __future__ import annotations

from typing import Any

from tocsin.core.delivery.stored_session import FOREVER_S, StoredSession, encode_session, session_key
from tocsin.core.delivery.window import Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.core.shared.stored_group import (
    Claim,
    Member,
    ResultsSource,
    StoredGroup,
    encode_group,
    group_key,
)
from tocsin.model.results import NOTICES, result_position
from tocsin.ports import Log, LogSpec, Record, Table, TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.store.retention import retention_floor

CHANNEL = {"$channel/Near/alice": Subscription(qos=1)}


async def opened() -> tuple[Table, Table, Log]:
    store = MemoryStore(MemoryServer())
    log = await store.log(LogSpec(f"t-{NOTICES}", (f"t.{NOTICES}",)))
    for number in range(9):
        await log.append([Record(f"t.{NOTICES}", b"", str(number))])
    return await store.table(TableSpec("t-sessions")), await store.table(TableSpec("t-groups")), log


async def put(
    table: Table,
    client: str,
    results: Progress | None,
    subscriptions: dict[str, Subscription] = CHANNEL,
    critical: Progress | None = None,
) -> None:
    session = StoredSession(
        client,
        uid=client,
        expiry_s=FOREVER_S,
        subscriptions=subscriptions,
        results=results,
        critical=critical,
    )
    await table.put(session_key(client), encode_session(session))


async def test_without_sessions_nothing_is_needed() -> None:
    assert await retention_floor(*await opened()) == 10


async def test_the_oldest_that_any_session_has_not_settled_is_the_floor() -> None:
    table, groups, log = await opened()
    await put(table, "level", Progress(result_position(10, 0)))
    assert await retention_floor(table, groups, log) == 10
    await put(table, "behind", Progress(result_position(8, 3)))
    assert await retention_floor(table, groups, log) == 8
    await put(
        table, "unsettled", Progress(result_position(9, 0), (result_position(4, 7), result_position(6, 0)))
    )
    assert await retention_floor(table, groups, log) == 4
    for number in range(40):
        await put(table, f"more-{number}", Progress(result_position(5 + number % 4, 0)))
    assert await retention_floor(table, groups, log) == 4


async def test_critical_results_are_needed_by_themselves() -> None:
    table, groups, log = await opened()
    await put(table, "a", Progress(result_position(8, 0)), critical=Progress(result_position(9, 0)))
    assert await retention_floor(table, groups, log) == 8
    await put(
        table,
        "b",
        Progress(result_position(9, 0)),
        critical=Progress(result_position(9, 0), (result_position(5, 1),)),
    )
    assert await retention_floor(table, groups, log) == 5


async def test_sessions_that_get_no_results_need_none() -> None:
    table, groups, log = await opened()
    await put(table, "never", None)
    await put(
        table, "at QoS 0", Progress(result_position(2, 0)), {"$channel/Near/alice": Subscription(qos=0)}
    )
    await put(table, "unsubscribed", Progress(result_position(2, 0)), {"a": Subscription(qos=1)})
    await table.put("unreadable", b"\xff")
    assert await retention_floor(table, groups, log) == 10


async def test_a_group_needs_what_it_has_not_settled() -> None:
    table, groups, log = await opened()
    near = ResultsSource("Near", ("alice",), "b")

    async def put_group(name: str, next_: int, **more: Any) -> None:
        group = StoredGroup(name, next_, {"c": Member("s", 1, "", 60, 99)}, **more)
        await groups.put(group_key(name), encode_group(group))

    await groups.put("life.b", b"of a broker")
    await put_group("of messages", 3)
    await put_group("not begun", 0, source=near)
    assert await retention_floor(table, groups, log) == 10
    await put_group("behind", result_position(8, 1), source=near)
    assert await retention_floor(table, groups, log) == 8
    await put_group("given back", result_position(9, 0), source=near, free={result_position(7, 3): ()})
    assert await retention_floor(table, groups, log) == 7
    await put_group(
        "claimed", result_position(9, 0), source=near, claims={"c": (Claim(result_position(6, 0), 1, 1),)}
    )
    assert await retention_floor(table, groups, log) == 6

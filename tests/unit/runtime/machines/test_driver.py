"""The driver carries out what a machine asks for, on a real loop and the in-memory store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tocsin.core.machine import (
    Append,
    CancelTimer,
    DeleteKey,
    Effect,
    Event,
    Followed,
    FollowLog,
    GetKey,
    Listen,
    PutKey,
    ReadLog,
    Received,
    Say,
    Send,
    SetTimer,
    Started,
    Stop,
    StopListening,
    Stored,
    StoreFailed,
    TimerFired,
    TrimLog,
    Watched,
    WatchTable,
)
from tocsin.errors import Conflict
from tocsin.ports import Cell, LogSpec, Page, Record, TableSpec
from tocsin.runtime.machines.driver import Driver, bus_subject
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.internal.control import Refresh

DEADLINE_S = 10.0


class Script:
    """A machine that answers each event by a function, and remembers the events."""

    def __init__(self, answer: Callable[[Event], list[Effect]]) -> None:
        self.answer = answer
        self.events: list[Event] = []
        self.started = asyncio.Event()

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        self.events.append(event)
        self.started.set()
        return self.answer(event)


async def run_script(answer: Callable[[Event], list[Effect]]) -> list[Event]:
    """Run a machine on a fresh store until it stops."""
    store = MemoryStore(MemoryServer())
    log = await store.log(LogSpec("log", ("log.>",)))
    table = await store.table(TableSpec("table"))
    machine = Script(answer)
    driver = Driver(machine, "me", store, network="n", logs={"log": log}, tables={"table": table})
    async with asyncio.timeout(DEADLINE_S):
        await driver.run()
    await store.close()
    return machine.events


async def test_a_machine_talks_to_itself_over_the_bus() -> None:
    def answer(event: Event) -> list[Effect]:
        match event:
            case Started():
                return [Send(to="me", message=Refresh("b", 5), cause="story")]
            case Received(sender="me", message=Refresh("b", 5), cause="story"):
                return [Stop(reason="heard")]
        return []

    events = await run_script(answer)
    assert isinstance(events[-1], Received)


async def test_timers_fire_by_name_and_a_replaced_or_cancelled_one_does_not() -> None:
    def answer(event: Event) -> list[Effect]:
        match event:
            case Started():
                return [
                    SetTimer(name="gone", delay_us=1_000),
                    CancelTimer(name="gone"),
                    CancelTimer(name="never set"),
                    SetTimer(name="kept", delay_us=1_000_000_000),
                    SetTimer(name="kept", delay_us=5_000),
                ]
            case TimerFired(name="kept"):
                return [Stop(reason="done")]
        return []

    events = await run_script(answer)
    assert [event.name for event in events if isinstance(event, TimerFired)] == ["kept"]


async def test_store_requests_come_back_under_their_names() -> None:
    record = Record("log.a", b"one", "id-1")

    def answer(event: Event) -> list[Effect]:
        match event:
            case Started():
                return [Append(request="append", log="log", records=(record,))]
            case Stored(request="append", value=positions):
                assert positions == (1,)
                return [ReadLog(request="read", log="log", subject="log.a", start=0, limit=10)]
            case Stored(request="read", value=Page() as page):
                assert [entry.payload for entry in page.entries] == [b"one"]
                return [PutKey(request="put", table="table", key="k", value=b"v", revision=0)]
            case Stored(request="put"):
                return [PutKey(request="again", table="table", key="k", value=b"w", revision=0)]
            case StoreFailed(request="again", error=Conflict()):
                return [GetKey(request="get", table="table", key="k")]
            case Stored(request="get", value=Cell(value=b"v")):
                return [DeleteKey(request="delete", table="table", key="k")]
            case Stored(request="delete"):
                return [Stop(reason="done")]
        raise AssertionError(event)

    await run_script(answer)


async def test_logs_are_followed_and_tables_watched() -> None:
    seen: list[str] = []

    def answer(event: Event) -> list[Effect]:
        match event:
            case Started():
                return [
                    FollowLog(log="log", subject="log.>", start=0),
                    WatchTable(table="table"),
                    Append(request="append", log="log", records=(Record("log.a", b"one", "id-1"),)),
                    PutKey(request="put", table="table", key="k", value=b"v"),
                ]
            case Followed(log="log", entry=entry):
                seen.append(entry.payload.decode())
            case Watched(table="table", change=change) if change.kind == "put":
                seen.append(change.key)
        return [Stop(reason="done")] if len(seen) == 2 else []

    await run_script(answer)
    assert sorted(seen) == ["k", "one"]


async def test_a_machine_with_a_bug_ends_the_run_with_it() -> None:
    def answer(event: Event) -> list[Effect]:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        await run_script(answer)


async def test_effects_of_its_own_go_to_the_process() -> None:
    class Special(Effect, frozen=True, kw_only=True):
        pass

    own: list[Effect] = []
    store = MemoryStore(MemoryServer())
    machine = Script(lambda event: [Special(), Say(text="hello"), Stop(reason="done")])
    await Driver(machine, "me", store, network="n", own=own.append).run()
    assert own == [Special()]


async def test_what_is_no_control_message_is_counted_and_ignored() -> None:
    store = MemoryStore(MemoryServer())

    def answer(event: Event) -> list[Effect]:
        return [Stop(reason="done")] if isinstance(event, Received) else []

    machine = Script(answer)
    driver = Driver(machine, "me", store, network="n")
    running = asyncio.create_task(driver.run())
    async with asyncio.timeout(DEADLINE_S):
        await machine.started.wait()
        await store.bus.publish(bus_subject("n", "me"), b"\xff garbage")
        driver.post(Received(sender="x", message=Refresh("b", 1)))
        await running
    assert [type(event) for event in machine.events] == [Started, Received]


async def test_cancelling_the_run_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    store = MemoryStore(MemoryServer())
    machine = Script(lambda event: [SetTimer(name="t", delay_us=10_000_000)])
    running = asyncio.create_task(Driver(machine, "me", store, network="n").run())
    async with asyncio.timeout(DEADLINE_S):
        await machine.started.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()
    assert asyncio.all_tasks() == before


async def test_a_machine_hears_addresses_that_it_shares_with_others_while_it_listens() -> None:
    store = MemoryStore(MemoryServer())
    heard: list[tuple[str, int]] = []

    class Member:
        def __init__(self, name: str, deaf_after: int) -> None:
            self.name = name
            self.deaf_after = deaf_after

        def handle(self, event: Event, now_us: int) -> list[Effect]:
            match event:
                case Started():
                    return [Listen(address="all")]
                case Received(message=Refresh(incarnation=number)):
                    heard.append((self.name, number))
                    if number >= self.deaf_after:
                        return [StopListening(address="all")]
            return []

    class Speaker:
        number = 0

        def handle(self, event: Event, now_us: int) -> list[Effect]:
            if any(number >= 20 for _, number in heard):
                return [Stop(reason="heard")]
            self.number += len({name for name, _ in heard}) == 2  # both of them listen by now
            say = Send(to="all", message=Refresh("b", self.number))
            return [say, SetTimer(name="more", delay_us=1_000)]

    members = [
        Driver(Member(name, deaf_after), name, store, network="n")
        for name, deaf_after in (("one", 3), ("two", 99))
    ]
    async with asyncio.timeout(DEADLINE_S):
        running = [asyncio.create_task(driver.run()) for driver in members]
        await Driver(Speaker(), "speaker", store, network="n").run()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert 3 <= max(number for name, number in heard if name == "one") < 10, "what was under way may come"
    await store.close()


async def test_a_follow_goes_on_behind_what_was_trimmed() -> None:
    records = tuple(Record("log.a", bytes([number]), str(number)) for number in range(5))

    def answer(event: Event) -> list[Effect]:
        match event:
            case Started():
                return [Append(request="append", log="log", records=records)]
            case Stored(request="append"):
                return [TrimLog(request="trim", log="log", before=3)]
            case Stored(request="trim", value=2):
                return [FollowLog(log="log", subject="log.>", start=1)]
            case Followed(entry=entry) if entry.position == 5:
                return [Stop(reason="all there")]
        return []

    events = await run_script(answer)
    assert [event.entry.position for event in events if isinstance(event, Followed)] == [3, 4, 5]

"""The shell hands in events one at a time, carries out the kernel's effects, and tells its owner of a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    GetKey,
    IllegalEvent,
    Machine,
    PutKey,
    Say,
    SetTimer,
    Started,
    Stop,
    Stored,
    TimerFired,
)
from tocsin.errors import StoreUnavailable
from tocsin.ports import Cell, TableSpec
from tocsin.runtime.machines.shell import PendingCallbacks, Shell
from tocsin.runtime.machines.tasks import Ending, Tasks
from tocsin.store.memory.store import MemoryServer, MemoryStore

BEGIN = Started(incarnation=1, cause="begin")
DEADLINE_S = 10.0


class Script:
    """A machine that answers each event by a function, and remembers the events."""

    def __init__(self, answer: Callable[[Event], list[Effect]]) -> None:
        self.answer = answer
        self.events: list[Event] = []

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        self.events.append(event)
        return self.answer(event)


def shell_of(machine: Machine, failed: Callable[[BaseException], None], **options: Any) -> Shell:
    """A shell whose owner has no effects of its own."""
    made = Shell(machine, lambda effect: made.carry_out(effect), failed, **options)
    return made


@pytest.fixture
async def alarms() -> AsyncIterator[list[BaseException]]:
    """What the loop's exception handler is told."""
    heard: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: heard.append(context["exception"]))
    yield heard
    loop.set_exception_handler(None)


def unfailing(error: BaseException) -> None:
    raise error


async def test_an_event_posted_by_an_effect_waits_for_its_turn() -> None:
    order: list[str] = []

    def own(effect: Effect) -> None:
        assert isinstance(effect, Say)
        order.append(effect.text)
        if effect.text == "first":
            shell.post(TimerFired(name="inner"))

    machine = Script(
        lambda event: [Say(text="first"), Say(text="second")] if event is BEGIN else [Say(text="inner")]
    )
    shell = Shell(machine, own, unfailing)
    shell.post(BEGIN)
    assert order == ["first", "second", "inner"]


async def test_a_timer_fires_with_its_cause_and_a_cancelled_one_does_not() -> None:
    fired = asyncio.Event()

    def answer(event: Event) -> list[Effect]:
        if event is BEGIN:
            return [
                SetTimer(name="off", delay_us=1_000, cause="story"),
                SetTimer(name="on", delay_us=60_000_000, cause="replaced"),
                SetTimer(name="on", delay_us=2_000, cause="story"),
                CancelTimer(name="off"),
                CancelTimer(name="never set"),
            ]
        fired.set()
        return []

    machine = Script(answer)
    shell_of(machine, unfailing).post(BEGIN)
    async with asyncio.timeout(DEADLINE_S):
        await fired.wait()
    assert machine.events[1:] == [TimerFired(name="on", cause="story")]


async def test_a_timer_without_delay_fires_in_the_next_turn_of_the_loop() -> None:
    machine = Script(lambda event: [SetTimer(name="soon", delay_us=0)] if event is BEGIN else [])
    shell_of(machine, unfailing).post(BEGIN)
    await asyncio.sleep(0)
    assert machine.events[1:] == [TimerFired(name="soon")]


async def test_a_timer_of_a_microsecond_does_not_fire_before_its_time() -> None:
    machine = Script(lambda event: [SetTimer(name="soon", delay_us=1)] if event is BEGIN else [])
    shell, before = shell_of(machine, unfailing), asyncio.get_running_loop().time()
    shell.post(BEGIN)
    assert shell._timers is not None
    timer = shell._timers["soon"]
    assert isinstance(timer, asyncio.TimerHandle) and timer.when() > before
    shell.close_timers()


async def test_a_closed_shell_fires_no_timer_and_runs_no_task() -> None:
    machine = Script(lambda event: [SetTimer(name="soon", delay_us=1)] if event is BEGIN else [])
    shell = shell_of(machine, unfailing)
    shell.post(BEGIN)
    task = shell.spawn(asyncio.sleep(DEADLINE_S))
    await shell.wait_closed()
    await asyncio.sleep(0)
    assert task.cancelled()
    assert machine.events == [BEGIN]


async def test_the_store_answers_under_the_name_of_the_request() -> None:
    store = MemoryStore(MemoryServer())
    table = await store.table(TableSpec("table"))
    done = asyncio.Event()

    def answer(event: Event) -> list[Effect]:
        match event:
            case Started():
                return [PutKey(request="write", table="table", key="k", value=b"v", revision=0, cause="x")]
            case Stored(request="write", value=revision, cause="x"):
                assert revision == 1
                return [GetKey(request="read", table="table", key="k")]
            case Stored(request="read", value=Cell(value=b"v")):
                done.set()
        return []

    shell_of(Script(answer), unfailing, tables={"table": table}).post(BEGIN)
    async with asyncio.timeout(DEADLINE_S):
        await done.wait()
    await store.close()


async def test_the_owner_sees_timers_and_outcomes_first_if_it_asks_to() -> None:
    seen: list[Event] = []
    machine = Script(lambda event: [SetTimer(name="soon", delay_us=0)])
    shell_of(machine, unfailing, answer=seen.append).post(BEGIN)
    await asyncio.sleep(0)
    assert seen == [TimerFired(name="soon")]
    assert machine.events == [BEGIN]


async def test_a_line_of_log_has_its_cause_and_what_the_owner_adds() -> None:
    shell = shell_of(Script(lambda event: []), unfailing)
    with capture_logs() as lines:
        shell.say(Say(text="words", level="warning", facts={"a": 1}, cause="story"), subscriber="c")
    assert lines == [{"event": "words", "log_level": "warning", "a": 1, "cause": "story", "subscriber": "c"}]


async def test_a_bug_of_the_machine_is_heard_and_the_owner_is_told(alarms: list[BaseException]) -> None:
    told: list[BaseException] = []
    bug = IllegalEvent("Script", "new", "Started")

    def answer(event: Event) -> list[Effect]:
        if event is BEGIN:
            raise bug
        return []

    machine = Script(answer)
    shell = shell_of(machine, told.append)
    shell.post(BEGIN)
    assert alarms == told == [bug]
    shell.post(TimerFired(name="later"))  # so that the owner can still end the machine in order
    assert machine.events[1:] == [TimerFired(name="later")]


async def test_an_effect_that_nobody_knows_is_a_bug(alarms: list[BaseException]) -> None:
    ending = Ending()
    shell_of(Script(lambda event: [Stop(reason="why not")]), ending.fail).post(BEGIN)
    assert len(alarms) == 1
    with pytest.raises(AssertionError, match="no way to carry out"):
        await ending.wait()


async def test_a_task_that_fails_is_heard_and_ends_what_runs_the_part(alarms: list[BaseException]) -> None:
    async def failing() -> None:
        raise ZeroDivisionError

    ending = Ending()
    tasks = Tasks("a part", ending.fail)
    tasks.spawn(failing())
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ZeroDivisionError):
            await ending.wait()
    assert [type(each) for each in alarms] == [ZeroDivisionError]
    assert not tasks


async def test_an_operating_error_that_escapes_is_logged_and_ends_the_part_too(
    alarms: list[BaseException],
) -> None:
    async def failing() -> None:
        raise StoreUnavailable("read", "gone")

    ending = Ending()
    with capture_logs() as lines:
        Tasks("a part", ending.fail).spawn(failing())
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(StoreUnavailable):
                await ending.wait()
    assert [(each["event"], each["part"]) for each in lines] == [("a part failed", "a part")]
    assert alarms == []


async def test_the_first_failure_counts_and_a_part_that_was_stopped_cannot_fail() -> None:
    failed, stopped = Ending(), Ending()
    failed.fail(KeyError("first"))
    failed.fail(KeyError("second"))
    stopped.stop()
    stopped.fail(KeyError("late"))
    with pytest.raises(KeyError, match="first"):
        await failed.wait()
    await stopped.wait()


async def test_a_drain_lets_tasks_end_and_closing_cancels_them() -> None:
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append("work")

    tasks = Tasks("a part", unfailing)
    tasks.spawn(work())
    await tasks.drain(DEADLINE_S)
    assert done == ["work"]
    long = tasks.spawn(asyncio.sleep(DEADLINE_S))
    await tasks.wait_closed()
    assert long.cancelled()


def test_what_tickets_stand_for_is_done_in_their_order_and_once() -> None:
    tickets, done = PendingCallbacks(), list[str]()
    first = tickets.give(lambda: done.append("first"))
    second = tickets.give(lambda: done.append("second"))
    assert not done
    tickets.redeem((second, first))
    assert done == ["second", "first"]
    with pytest.raises(KeyError):
        tickets.redeem((first,))
    assert done == ["second", "first"]


def test_what_is_done_may_ask_for_more() -> None:
    tickets, given = PendingCallbacks(), list[int]()
    given.append(tickets.give(lambda: given.append(tickets.give(lambda: given.clear()))))
    tickets.redeem(tuple(given))
    assert len(given) == 2 and given[0] != given[1]
    tickets.redeem(given[1:])
    assert not given

"""An alarm rings once, when the first thing is due."""

from __future__ import annotations

import asyncio

from tocsin.broker.quality.alarm import Alarm
from tocsin.runtime.machines.clock import now_us


async def test_the_first_thing_that_is_due_counts() -> None:
    rung: list[int] = []
    alarm = Alarm(lambda: rung.append(1))
    alarm.set(None)
    alarm.set_in(3_600)
    alarm.set(None, now_us())
    alarm.set_in(3_600)
    async with asyncio.timeout(10):
        while not rung:
            await asyncio.sleep(0)
    assert rung == [1]


async def test_a_closed_alarm_is_silent() -> None:
    rung: list[int] = []
    alarm = Alarm(lambda: rung.append(1))
    alarm.set(now_us())
    alarm.close()
    alarm.set(now_us())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not rung

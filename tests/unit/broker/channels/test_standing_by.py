"""Notices of results are read from when somebody at the broker wants some."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.unit.broker.harness import until
from tocsin.broker.channels import results
from tocsin.broker.channels.result_reader import ResultSource
from tocsin.broker.channels.results import Results
from tocsin.model.results import Execution, Notice, ResultFile, encode_notice, result_position
from tocsin.ports import LogSpec, Record
from tocsin.store.memory.store import MemoryServer, MemoryStore

SUBJECT = "net.notices"


class Source:
    """Says which notices it was asked for, and has nothing."""

    def __init__(self) -> None:
        self.ticks: list[int] = []

    def warm(self) -> None: ...

    def rows(self, notice: Notice, *rest: Any) -> None:
        self.ticks.append(notice.tick)

    async def some(self, *rest: Any) -> list[Any]:
        return []


def record(tick: int) -> Record:
    notice = Notice(tick, 0, (Execution("near", tick, 1),), (ResultFile("north-1", "file", 1),), 0, 1)
    return Record(SUBJECT, encode_notice(notice), f"tick-{tick}")


async def test_no_notice_is_read_before_somebody_wants_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "STAND_BY_S", 0.0)
    store, source = MemoryStore(MemoryServer()), Source()
    log = await store.log(LogSpec("notices", (SUBJECT,)))
    here = Results(log, SUBJECT, cast(ResultSource, source), "north-1", unseen=lambda notice: ())
    await here.open()
    following = asyncio.create_task(here.follow(lambda *rest: None))
    (first,) = await log.append([record(1)])
    await until(lambda: here.tail == result_position(first + 1, 0) - 1)
    assert source.ticks == [] and here.done == here.tail
    here.expected()
    tail = here.tail
    (second,) = await log.append([record(2)])
    assert here.tail == tail, "what comes from now on is dispatched"
    await until(lambda: here.done == result_position(second + 1, 0) - 1)
    assert source.ticks == [2]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await store.close()

"""Standby cells are asked for a few at a time, and what cancels out is never asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from tests.unit.broker.harness import until
from tocsin.broker.channels import standby_cells as module
from tocsin.broker.channels.backend_subscriptions import BackendSubscriptions
from tocsin.broker.channels.standby_cells import AT_ONCE, StandbyCellWriter


class Recorded:
    """What is asked of the holdings."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...], bool]] = []
        self.waiting: list[asyncio.Future[None]] = []
        self.warmed_before: list[int] = []  # requests that were made by then

    def warm(self) -> None:
        self.warmed_before.append(len(self.asked))

    def stand_by(self, primary: str, names: tuple[str, ...]) -> asyncio.Future[None]:
        self.asked.append((primary, names, True))
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    def stand_down(self, primary: str, names: tuple[str, ...]) -> None:
        self.asked.append((primary, names, False))


@asynccontextmanager
async def running(standing_by: StandbyCellWriter) -> AsyncIterator[None]:
    task = asyncio.create_task(standing_by.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0)


async def test_the_next_are_asked_for_when_the_last_are_stored() -> None:
    backend = Recorded()
    standing_by = StandbyCellWriter(cast(BackendSubscriptions, backend), warm=backend.warm)
    names = tuple(map(str, range(2 * AT_ONCE + 1)))
    standing_by.prepare("p", names)
    assert len(standing_by) == len(names)
    async with running(standing_by):
        for lot in range(3):
            await until(lambda lot=lot: len(backend.asked) == lot + 1)  # type: ignore[misc]
            assert len(backend.asked[lot][1]) <= AT_ONCE
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(backend.asked) == lot + 1
            backend.waiting[lot].set_result(None)
    assert [name for _, lot, _ in backend.asked for name in lot] == list(names)


async def test_a_store_in_trouble_does_not_stop_it_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STORED_S", 0.01)
    backend = Recorded()
    standing_by = StandbyCellWriter(cast(BackendSubscriptions, backend), warm=backend.warm)
    standing_by.prepare("p", tuple(map(str, range(AT_ONCE + 1))))
    async with running(standing_by):
        await until(lambda: len(backend.asked) == 2)


async def test_a_cell_that_is_given_up_before_its_turn_is_never_requested() -> None:
    backend = Recorded()
    standing_by = StandbyCellWriter(cast(BackendSubscriptions, backend), warm=backend.warm)
    standing_by.prepare("p", ("a", "b"))
    standing_by.prepare("q", ("a",))
    standing_by.unprepare("p", ("a",))
    standing_by.unprepare("r", ("c",))
    standing_by.prepare("r", ("c",))
    standing_by.unprepare("s", ("d",))
    async with running(standing_by):
        await until(lambda: len(backend.asked) == 3)
    assert sorted(backend.asked) == [("p", ("b",), True), ("q", ("a",), True), ("s", ("d",), False)]


async def test_a_backup_gets_ready_to_read_results_before_any_takeover() -> None:
    backend = Recorded()
    standing_by = StandbyCellWriter(cast(BackendSubscriptions, backend), warm=backend.warm)
    standing_by.unprepare("p", ("a",))
    async with running(standing_by):
        await until(lambda: len(backend.asked) == 1)
        assert backend.warmed_before == [], "nobody's results are expected"
        standing_by.prepare("p", ("b",))
        await until(lambda: len(backend.asked) == 2)
    assert backend.warmed_before == [1]

"""What is kept: results and notices that a session may need, records that are not in their dataset."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

for package in ("pyspark", "deltalake", "sqlglot"):
    pytest.importorskip(package, reason="install the extra tocsin[spark]")

import pyarrow as pa  # noqa: E402

from tests.unit.pipeline.shops import PLACES, Workshop  # noqa: E402
from tocsin.model.feeding import FeedCell, Intent, cell_key, encode_cell, table_spec  # noqa: E402
from tocsin.model.results import encode_notice  # noqa: E402
from tocsin.pipeline.ingest import retention as module  # noqa: E402
from tocsin.pipeline.ingest.retention import Housekeeping  # noqa: E402
from tocsin.pipeline.storage.parts import IN, TaskOutput, parts_of, write_part  # noqa: E402
from tocsin.ports import Record, TableSpec  # noqa: E402

KEEP_S = 3_600.0


class House:
    """A workshop whose results are an hour old by the flick of a hand."""

    def __init__(self, work: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work = work
        self._floor = 0
        self.late_us = 0

        async def floor(sessions: Any, groups: Any, notices: Any) -> int:
            return self._floor

        monkeypatch.setattr(module, "retention_floor", floor)

    async def open(self) -> None:
        store = self.work.store
        self.notices = await store.log(PLACES.notices)
        self.feeds = await store.log(PLACES.feeds)
        self.feeders = await store.table(table_spec("net"))
        self.keeping = Housekeeping(
            self.work.definitions,
            feeds=self.feeds,
            feeders=self.feeders,
            notices=self.notices,
            subject=PLACES.notices_subject,
            sessions=await store.table(TableSpec("net-sessions")),
            groups=await store.table(TableSpec("net-groups")),
            keep_s=KEEP_S,
            threads=self.work.threads,
            clock=lambda: self.now_us + self.late_us,
        )

    async def commit(self, count: int) -> None:
        """Ticks 1 … count, each with a result, told."""
        results = self.work.definitions.results
        for tick in range(1, count + 1):
            row = [["Near"], [1], ["k"], [["x"]], [0], ["{}"], [None]]
            batch = pa.record_batch([pa.array(c, f.type) for c, f in zip(row, IN, strict=True)], schema=IN)
            parts = parts_of([write_part(TaskOutput(str(results.root), tick, "run", 1), 0, 0, [batch])])
            (notice,) = results.commit(tick, parts, at_us=1).notices()
            await self.notices.append([Record(PLACES.notices_subject, encode_notice(notice), notice.id)])
        self.work.progress.note_tick(count)
        self.now_us = (await self.notices.read(PLACES.notices_subject, 0)).entries[-1].at_us

    async def kept(self) -> tuple[list[int], int]:
        """Positions of notices, and files of results."""
        page = await self.notices.read(PLACES.notices_subject, 0)
        return [entry.position for entry in page.entries], len(self.work.definitions.results.snapshot().files)

    async def tidy(self, floor: int, late_s: float) -> None:
        self._floor, self.late_us = floor, int(late_s * 1e6)
        await self.keeping.tidy(look=True)


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    work = Workshop(tmp_path)
    await work.open()
    made = House(work, monkeypatch)
    await made.open()
    yield made
    work.close()


async def test_what_is_young_stays(house: House) -> None:
    await house.commit(4)
    house.now_us = 2_000_000
    await house.tidy(floor=99, late_s=0)
    assert await house.kept() == ([1, 2, 3, 4], 4)


async def test_what_a_session_may_need_stays_however_old_it_is(house: House) -> None:
    await house.commit(5)
    await house.tidy(floor=3, late_s=2 * KEEP_S)
    assert await house.kept() == ([3, 4, 5], 3)


async def test_what_a_channel_has_not_read_stays_and_its_notices_go(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.commit(5)
    monkeypatch.setattr(house.work.definitions, "unread_tick", lambda: 3)
    await house.tidy(floor=6, late_s=2 * KEEP_S)
    assert await house.kept() == ([5], 3)


async def test_what_nobody_needs_goes_but_for_the_newest(house: House) -> None:
    await house.commit(5)
    await house.tidy(floor=6, late_s=2 * KEEP_S)
    assert await house.kept() == ([5], 1)


async def test_before_the_sessions_were_looked_at_everything_may_be_needed(house: House) -> None:
    await house.commit(3)
    house.late_us = int(2e6 * KEEP_S)
    await house.keeping.tidy(look=False)
    assert await house.kept() == ([1, 2, 3], 3)


async def test_records_go_when_they_are_landed_and_no_feed_needs_them(house: House) -> None:
    await house.commit(1)
    await house.feeds.append([Record(PLACES.feed_subject("wire"), b"{}", f"r{n}") for n in range(10)])

    async def left() -> list[int]:
        return [entry.position for entry in (await house.feeds.read("net.feeds.>", 0)).entries]

    await house.tidy(floor=1, late_s=0)
    assert len(await left()) == 10, "nothing is landed yet"
    house.work.progress.note_ingested(7)
    await house.feeders.put(cell_key("wire"), encode_cell(FeedCell(1, {}, Intent({}, "x", 3))))
    await house.tidy(floor=1, late_s=0)
    assert await left() == [4, 5, 6, 7, 8, 9, 10]
    await house.feeders.put(cell_key("wire"), encode_cell(FeedCell(1, {})))
    await house.tidy(floor=1, late_s=0)
    assert await left() == [8, 9, 10]

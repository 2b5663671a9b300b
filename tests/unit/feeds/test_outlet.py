"""One feed's way into the log: whatever is killed, each record is there once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.feeds.desk import PLACES, Desk, HandClock
from tocsin.errors import Conflict, OutcomeUnknown, StoreFull, StoreUnavailable
from tocsin.feeds.outlet import FeedWriter
from tocsin.model.catalogue import Feed, HttpSource
from tocsin.model.feeding import RECORDS, FeedCell, Marks
from tocsin.ports import Log, Record, Table
from tocsin.store.retention import feeds_floor

FEED = Feed("Reports", "Data", HttpSource())
FORGOTTEN_US = 200_000_000  # longer than the log remembers ids


class Killed(BaseException):
    """The process is gone."""


class Fragile:
    """A log or table at which a process dies, before or after what it asked for took effect."""

    def __init__(self, real: Any, deaths: list[str]) -> None:
        self._real = real
        self._deaths = deaths  # one for each write: "", "before" or "after"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def append(self, records: Sequence[Record]) -> tuple[int, ...]:
        return await self._mortal(self._real.append(records))  # type: ignore[no-any-return]

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> int:
        return await self._mortal(self._real.compare_and_set(key, value, revision=revision))  # type: ignore[no-any-return]

    async def _mortal(self, work: Any) -> Any:
        death = self._deaths.pop(0) if self._deaths else ""
        if death == "before":
            work.close()
            raise Killed
        done = await work
        if death == "after":
            raise Killed
        return done


async def nothing() -> Marks:
    return {}


async def take(outlet: FeedWriter, source: list[int], sizes: list[int]) -> None:
    """An agent whose source is a list: it appends what its mark says is next, until there is no more."""
    marks = await outlet.open(nothing)
    at = marks.get("source", 0)
    while at < len(source):
        upto = min(len(source), at + (sizes.pop(0) if sizes else 3))
        await outlet.put([(str(each), b"%d" % each) for each in source[at:upto]], {"source": upto})
        at = upto
        if at % 2:
            await outlet.settle()


class Reader:
    """The pipeline: it takes what is there, and trims what it has and nobody needs."""

    def __init__(self, log: Log, cells: Table) -> None:
        self._log, self._cells, self._next = log, cells, 0
        self.read: list[int] = []

    async def take(self) -> None:
        page = await self._log.read(PLACES.feed_subject(FEED.name), self._next)
        self.read += [int(RECORDS.open(entry.payload)) for entry in page.entries]
        self._next = page.next
        if page.next:
            await self._log.trim(before=await feeds_floor(self._cells, page.next))


@settings(max_examples=300)
@given(
    st.integers(0, 12),
    st.lists(st.integers(1, 4), max_size=12),
    st.lists(st.sampled_from(["", "", "before", "after"]), max_size=30),
    st.lists(st.sampled_from(["soon", "late"]), max_size=30),
    st.lists(st.booleans(), max_size=30),
)
def test_each_record_is_taken_once_however_often_the_process_dies(
    count: int, sizes: list[int], deaths: list[str], pauses: list[str], reads: list[bool]
) -> None:
    async def scenario() -> None:
        clock = HandClock()
        desk = await Desk.open(clock)
        reader = Reader(desk.feeds, desk.cells)
        feeds: Any = Fragile(desk.feeds, deaths)
        cells: Any = Fragile(desk.cells, deaths)
        while True:
            try:
                await take(FeedWriter(FEED, feeds, cells, PLACES), list(range(count)), sizes)
                break
            except Killed:
                if pauses and pauses.pop() == "late":
                    clock.us += FORGOTTEN_US
                if reads and reads.pop():
                    await reader.take()
        await reader.take()
        assert reader.read == list(range(count))

    asyncio.run(scenario())


async def test_a_settled_feed_allows_trimming_and_an_intended_append_does_not() -> None:
    desk = await Desk.open()
    outlet = FeedWriter(FEED, desk.feeds, desk.cells, PLACES)
    await outlet.open(nothing)
    for number in range(3):
        await outlet.put([(str(number), b"{}")], {"source": number})
    assert await feeds_floor(desk.cells, 100) == 3  # the third was intended when two were there
    await outlet.settle()
    assert await feeds_floor(desk.cells, 100) == 100


async def test_a_new_version_of_a_feed_begins_anew() -> None:
    desk = await Desk.open()
    old = FeedWriter(FEED, desk.feeds, desk.cells, PLACES)
    await old.open(nothing)
    await old.put([("1", b"{}")], {"source": 1})
    new = FeedWriter(Feed("Reports", "Data", HttpSource(), version=2), desk.feeds, desk.cells, PLACES)

    async def end() -> Marks:
        return {"source": 9}

    assert await new.open(end) == {"source": 9}
    await new.put([("1", b"{}")], {"source": 10})
    assert [entry.id for entry in await desk.entries()] == ["reports.1.1", "reports.2.1"]


async def test_a_cell_that_cannot_be_read_is_begun_anew() -> None:
    desk = await Desk.open()
    await desk.cells.put("feed.reports", b"damaged")
    assert await FeedWriter(FEED, desk.feeds, desk.cells, PLACES).open(nothing) == {}
    assert await desk.cell() == FeedCell(1, {})


async def test_who_lost_the_feed_to_another_appends_nothing() -> None:
    desk = await Desk.open()
    first = FeedWriter(FEED, desk.feeds, desk.cells, PLACES)
    await first.open(nothing)
    second = FeedWriter(FEED, desk.feeds, desk.cells, PLACES)
    await second.open(nothing)
    with pytest.raises(Conflict):
        await first.put([("1", b"{}")], {"source": 1})
    assert await desk.entries() == []


@pytest.mark.parametrize("later_us", [0, int(3_600e6)], ids=["soon", "when-the-ids-are-forgotten"])
async def test_an_append_that_may_succeed_later_is_repeated(
    monkeypatch: pytest.MonkeyPatch, later_us: int
) -> None:
    monkeypatch.setattr("tocsin.feeds.outlet.RETRY_FIRST_S", 0.001)
    clock = HandClock()
    desk = await Desk.open(clock)
    failures = [StoreUnavailable("append", "no server"), OutcomeUnknown("append", 1.0)]

    class Troubled(Fragile):
        async def append(self, records: Sequence[Record]) -> tuple[int, ...]:
            if not failures:
                return await super().append(records)
            if isinstance(failures[0], OutcomeUnknown):
                await super().append(records)
                clock.us += later_us
            raise failures.pop(0)

    feeds: Any = Troubled(desk.feeds, [])
    outlet = FeedWriter(FEED, feeds, desk.cells, PLACES)
    await outlet.open(nothing)
    await outlet.put([("1", b"{}"), ("2", b"{}")], {"source": 2})
    assert [entry.id for entry in await desk.entries()] == ["reports.1.1", "reports.1.2"]


async def test_a_failed_append_leaves_its_intent_for_the_next_writer() -> None:
    desk = await Desk.open()

    class Full(Fragile):
        async def append(self, records: Sequence[Record]) -> tuple[int, ...]:
            raise StoreFull("append", "no room")

    feeds: Any = Full(desk.feeds, [])
    outlet = FeedWriter(FEED, feeds, desk.cells, PLACES)
    await outlet.open(nothing)
    with pytest.raises(StoreFull):
        await outlet.put([("1", b"{}")], {"source": 1})
    await outlet.settle()  # knows nothing, so that it says nothing
    cell = await desk.cell()
    assert cell.intent is not None and cell.marks == {}
    again = FeedWriter(FEED, desk.feeds, desk.cells, PLACES)
    assert await again.open(nothing) == {}

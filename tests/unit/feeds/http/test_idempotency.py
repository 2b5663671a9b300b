"""Requests with an ``Idempotency-Key`` are in the log once, whatever is killed, forgotten and trimmed in
between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.feeds.desk import PLACES, Desk, HandClock
from tocsin.errors import FormatNewer, OutcomeUnknown, StoreFull
from tocsin.feeds.http.idempotency import DOUBT_US, PAGES_PREFIX, IdempotentAppends
from tocsin.feeds.http.keys import PAGE
from tocsin.model.feeding import REQUESTS_CELL, decode_cell
from tocsin.ports import Log, Record
from tocsin.store.retention import feeds_floor

HOUR_US = 3_600_000_000
SUBJECT = PLACES.feed_subject("web")


def request(number: int) -> tuple[str, list[Record]]:
    """A request of two records."""
    prefix = f"web.1.http.{number:032x}"
    return prefix, [Record(SUBJECT, b"%d" % number, f"{prefix}.{part}") for part in range(2)]


class Killed(BaseException):
    """The feeder is no more."""


class House:
    """One feeder after the other, and a pipeline that trims whatever it may."""

    def __init__(self, desk: Desk, clock: HandClock) -> None:
        self.desk, self.clock = desk, clock
        self.requests = IdempotentAppends(desk.feeds, desk.cells, clock.now_us)
        self.seen: dict[int, str] = {}  # every record that the log ever had

    @classmethod
    async def open(cls) -> House:
        clock = HandClock()
        house = cls(await Desk.open(clock), clock)
        await house.requests.open()
        return house

    async def send(self, number: int) -> None:
        await self.requests.append_once(*request(number))

    async def restart(self) -> None:
        self.requests = IdempotentAppends(self.desk.feeds, self.desk.cells, self.clock.now_us)
        await self.requests.open()

    async def look(self) -> None:
        page = await self.desk.feeds.read(SUBJECT, 0)
        self.seen.update((entry.position, entry.id) for entry in page.entries)

    async def trim(self) -> None:
        """Everything is in its dataset."""
        await self.look()
        end = await self.desk.feeds.last() + 1
        await self.desk.feeds.trim(before=await feeds_floor(self.desk.cells, end))

    async def counts(self) -> dict[str, int]:
        await self.look()
        ids = list(self.seen.values())
        return {each: ids.count(each) for each in ids}


class Broken:
    """A log whose appends arrive or do not, and have no answer."""

    def __init__(self, log: Log, *, arrives: bool, error: BaseException) -> None:
        self._log, self._arrives, self._error = log, arrives, error
        self.last, self.read = log.last, log.read

    async def append(self, records: Sequence[Record], *, expected: int | None = None) -> tuple[int, ...]:
        if self._arrives:
            await self._log.append(records)
        raise self._error


async def fails(house: House, number: int, *, arrives: bool, error: BaseException) -> bool:
    """Whether a request fails whose append would end so: not if the log is found to have it already."""
    real, house.requests._log = house.desk.feeds, Broken(house.desk.feeds, arrives=arrives, error=error)  # type: ignore[assignment]
    try:
        await house.send(number)
    except type(error):
        return True
    finally:
        house.requests._log = real
    return False


async def test_a_repeat_is_recognised_hours_after_a_kill_without_a_page() -> None:
    house = await House.open()
    await house.send(1)
    await house.trim()
    house.clock.us += HOUR_US
    await house.restart()
    await house.send(1)
    assert set((await house.counts()).values()) == {1}


async def test_a_repeat_is_known_after_a_kill_though_its_records_were_trimmed() -> None:
    house = await House.open()
    await house.send(1)
    await house.requests.save()
    await house.trim()
    assert not (await house.desk.feeds.read(SUBJECT, 0)).entries
    house.clock.us += HOUR_US
    await house.restart()
    await house.send(1)
    assert set((await house.counts()).values()) == {1}


@pytest.mark.parametrize("arrives", [False, True])
async def test_a_request_that_was_cut_short_by_a_kill_is_taken_once(arrives: bool) -> None:
    house = await House.open()
    assert await fails(house, 1, arrives=arrives, error=Killed())
    await house.trim()
    house.clock.us += HOUR_US
    await house.restart()
    await house.send(1)
    assert (await house.counts()) == {f"{request(1)[0]}.{part}": 1 for part in range(2)}


async def test_nothing_holds_the_log_back_when_no_more_requests_come() -> None:
    house = await House.open()
    await house.send(1)
    for _ in range(2):
        await house.requests.save()
    assert await house.desk.cells.get(REQUESTS_CELL) is None
    await house.send(2)
    assert await house.desk.cells.get(REQUESTS_CELL) is not None


async def test_a_request_without_an_answer_holds_the_log_back_for_minutes() -> None:
    house = await House.open()
    assert await fails(house, 1, arrives=True, error=OutcomeUnknown("append", 5.0))
    for _ in range(3):
        await house.requests.save()
        await house.trim()
    assert len((await house.desk.feeds.read(SUBJECT, 0)).entries) == 2
    house.clock.us += DOUBT_US + 1_000
    for _ in range(3):
        await house.requests.save()
    await house.trim()
    assert not (await house.desk.feeds.read(SUBJECT, 0)).entries
    await house.send(1)
    assert set((await house.counts()).values()) == {1}


async def test_a_request_that_a_full_store_refused_can_come_again() -> None:
    house = await House.open()
    assert await fails(house, 1, arrives=False, error=StoreFull("append", "no room"))
    await house.send(1)
    assert set((await house.counts()).values()) == {1}


async def test_keyed_requests_wait_while_a_page_is_of_a_newer_release() -> None:
    house = await House.open()
    await house.desk.cells.put(f"{PAGES_PREFIX}3", bytes((PAGE.newest + 1,)) + b"?")
    await house.restart()
    with pytest.raises(FormatNewer):
        await house.send(1)
    await house.requests.save()
    assert not await house.counts()


async def test_a_damaged_page_and_a_damaged_cell_are_passed_over() -> None:
    house = await House.open()
    await house.send(1)
    await house.requests.save()
    await house.send(2)
    await house.desk.cells.put(f"{PAGES_PREFIX}3", b"?")
    await house.restart()
    await house.send(1)
    await house.desk.cells.put(REQUESTS_CELL, b"?")
    await house.restart()
    await house.send(1)
    await house.send(3)
    counts = await house.counts()
    assert [counts[f"{request(number)[0]}.0"] for number in (1, 3)] == [1, 1]
    cell = await house.desk.cells.get(REQUESTS_CELL)
    assert cell is not None and decode_cell(cell.value).intent is not None


STEPS = st.one_of(
    st.tuples(st.sampled_from(("send", "unanswered", "lost", "cut short", "cut off")), st.integers(0, 5)),
    st.tuples(st.sampled_from(("save", "trim", "restart", "hour")), st.just(0)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_each_request_is_in_the_log_once_whatever_happens(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        house = await House.open()
        for what, number in steps:
            taken = house.requests._keys.taken(request(number)[0])
            match what:
                case "send":
                    await house.send(number)
                case "unanswered" | "lost" if not taken:
                    with_it = what == "unanswered"
                    await fails(house, number, arrives=with_it, error=OutcomeUnknown("append", 5.0))
                case "cut short" | "cut off" if not taken:
                    await fails(house, number, arrives=what == "cut short", error=Killed())
                    await house.restart()
                case "save":
                    await house.requests.save()
                case "trim":
                    await house.trim()
                case "restart":
                    await house.restart()
                case "hour":
                    house.clock.us += HOUR_US
            await house.look()
        assert set((await house.counts()).values()) <= {1}

    asyncio.run(play())

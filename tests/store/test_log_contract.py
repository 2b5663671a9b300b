"""What every log promises (``ports.Log``), asked of the twin in memory and of JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from tests.store.writing import records
from tocsin.errors import Conflict, Refused, StoreFull, StoreUnavailable, Trimmed
from tocsin.ports import (
    BATCH_MAX,
    PATTERNS_MAX,
    PAYLOAD_MAX_BYTES,
    SUBJECT_MAX_BYTES,
    Begun,
    Entry,
    Log,
    LogSpec,
    Reached,
    Record,
    Store,
)

Opener = Callable[[], Awaitable[Store]]
Specs = Callable[..., LogSpec]


Subject = Callable[[str], str]


async def take(entries: AsyncIterator[Entry], count: int) -> list[Entry]:
    taken: list[Entry] = []
    async with asyncio.timeout(20):
        while len(taken) < count:
            taken.append(await anext(entries))
    return taken


# ── append ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_positions_are_given_out_in_order_from_one(log: Log, subject: Subject) -> None:
    assert await log.append(records(subject("a"), "1")) == (1,)
    assert await log.append(records(subject("b"), "2", "3", "4")) == (2, 3, 4)
    assert await log.last() == 4


async def test_an_entry_is_kept_as_it_was_appended(log: Log, subject: Subject) -> None:
    record = Record(subject("a.b"), bytes(range(256)), "an id with spaces: and colons")
    await log.append([record])
    page = await log.read(subject("a.b"), 0)
    (entry,) = page.entries
    assert (entry.position, entry.subject, entry.payload, entry.id) == (
        1,
        record.subject,
        record.payload,
        record.id,
    )
    assert entry.at_us > 1_600_000_000_000_000


async def test_the_longest_subject_can_be_written_read_and_followed(log: Log, subject: Subject) -> None:
    name = subject("")
    longest = subject("=C3=A9" * ((SUBJECT_MAX_BYTES - len(name)) // 6))
    await log.append(records(longest, "1"))
    await log.append(records(longest, "2", "3"))
    assert [entry.id for entry in (await log.read(longest, 0)).entries] == ["1", "2", "3"]
    assert [entry.id for entry in (await log.read(longest, 2, fresh=True)).entries] == ["2", "3"]
    async with aclosing(log.follow(longest, 0)) as entries:  # type: ignore[type-var]
        assert [entry.id for entry in await take(entries, 3)] == ["1", "2", "3"]


async def test_an_empty_append_does_nothing(log: Log) -> None:
    assert await log.append([]) == ()
    assert await log.last() == 0


async def test_a_repeated_append_returns_the_first_positions(log: Log, subject: Subject) -> None:
    one = await log.append(records(subject("a"), "1"))
    many = await log.append(records(subject("a"), "2", "3", "4"))
    assert await log.append(records(subject("a"), "1")) == one
    assert await log.append(records(subject("a"), "2", "3", "4")) == many
    assert await log.last() == 4


async def test_an_append_that_was_partly_there_adds_only_the_rest(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1", "2", "3"))
    assert await log.append(records(subject("a"), "9", "2", "8", "1")) == (4, 2, 5, 1)
    page = await log.read(subject("a"), 0)
    assert [entry.id for entry in page.entries] == ["1", "2", "3", "9", "8"]


async def test_an_id_twice_in_one_append_is_written_once(log: Log, subject: Subject) -> None:
    assert await log.append(records(subject("a"), "1", "2", "1", "3")) == (1, 2, 1, 3)


async def test_an_append_at_the_expected_position_happens(log: Log, subject: Subject) -> None:
    assert await log.append(records(subject("a"), "1"), expected=0) == (1,)
    assert await log.append(records(subject("a"), "2", "3"), expected=1) == (2, 3)


async def test_an_append_at_another_position_is_a_conflict_and_writes_nothing(
    log: Log, subject: Subject
) -> None:
    await log.append(records(subject("a"), "1", "2"))
    for ids in (("3",), ("3", "4")):
        with pytest.raises(Conflict) as raised:
            await log.append(records(subject("a"), *ids), expected=1)
        assert (raised.value.expected, raised.value.actual) == (1, 2)
    assert await log.last() == 2


async def test_a_repeat_of_an_expected_append_returns_its_positions(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1"), expected=0)
    await log.append(records(subject("a"), "2", "3"), expected=1)
    await log.append(records(subject("a"), "4"))
    assert await log.append(records(subject("a"), "1"), expected=0) == (1,)
    assert await log.append(records(subject("a"), "2", "3"), expected=1) == (2, 3)


async def test_a_partial_repeat_with_the_right_expectation_adds_the_rest(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1", "2"))
    assert await log.append(records(subject("a"), "2", "3", "4"), expected=2) == (2, 3, 4)
    with pytest.raises(Conflict):
        await log.append(records(subject("a"), "4", "5"), expected=2)


async def test_the_largest_batch_is_taken_and_a_larger_one_refused(log: Log, subject: Subject) -> None:
    ids = [str(i) for i in range(BATCH_MAX)]
    assert await log.append(records(subject("a"), *ids)) == tuple(range(1, BATCH_MAX + 1))
    with pytest.raises(Refused):
        await log.append(records(subject("a"), *ids, "one more"))


async def test_the_largest_payload_is_taken_and_a_larger_one_refused(log: Log, subject: Subject) -> None:
    payload = b"x" * PAYLOAD_MAX_BYTES
    await log.append([Record(subject("a"), payload, "1")])
    assert (await log.read(subject("a"), 0)).entries[0].payload == payload
    with pytest.raises(Refused):
        await log.append([Record(subject("a"), payload + b"x", "2")])


@pytest.mark.parametrize("bad", ["", "a..b", "a.*", "a.>", "a b", "a\r\nb", "x" * (SUBJECT_MAX_BYTES + 1)])
async def test_a_bad_subject_is_refused(log: Log, subject: Subject, bad: str) -> None:
    with pytest.raises(Refused):
        await log.append([Record(subject(bad), b"", "1")])


@pytest.mark.parametrize("bad", ["", "x" * 257, "a\r\nNats-Rollup: all", " a", "a ", "é"])
async def test_a_bad_record_id_is_refused(log: Log, subject: Subject, bad: str) -> None:
    with pytest.raises(Refused):
        await log.append([Record(subject("a"), b"", bad)])


async def test_a_subject_of_another_log_is_refused(log: Log) -> None:
    with pytest.raises(Refused):
        await log.append([Record("elsewhere.a", b"", "1")])


async def test_concurrent_appends_all_get_positions_of_their_own(log: Log, subject: Subject) -> None:
    batches = [records(subject(f"s{i}"), f"{i}-1", f"{i}-2", f"{i}-3") for i in range(40)]
    positions = await asyncio.gather(*(log.append(batch) for batch in batches))
    for each in positions:
        assert each == tuple(range(each[0], each[0] + 3)), "a batch is contiguous"
    assert sorted(p for each in positions for p in each) == list(range(1, 121))


# ── read ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_read_finds_by_exact_subject_and_by_wildcard(log: Log, subject: Subject) -> None:
    for i, rest in enumerate(["a.x", "b.x", "a.y", "a.x.z"]):
        await log.append(records(subject(rest), str(i)))

    async def found(pattern: str) -> list[int]:
        return [entry.position for entry in (await log.read(subject(pattern), 0)).entries]

    assert await found("a.x") == [1]
    assert await found("a.*") == [1, 3]
    assert await found("*.x") == [1, 2]
    assert await found("a.>") == [1, 3, 4]
    assert await found(">") == [1, 2, 3, 4]
    assert await found("c") == []


async def test_pages_go_on_where_they_say(log: Log, subject: Subject) -> None:
    for i in range(10):
        await log.append(records(subject("even" if i % 2 else "odd"), str(i)))
    page = await log.read(subject("even"), 0, limit=2)
    assert ([entry.position for entry in page.entries], page.next, page.last) == ([2, 4], 5, 10)
    page = await log.read(subject("even"), page.next, limit=2)
    assert ([entry.position for entry in page.entries], page.next) == ([6, 8], 9)
    page = await log.read(subject("even"), page.next, limit=2)
    assert ([entry.position for entry in page.entries], page.next, page.last) == ([10], 11, 10)
    page = await log.read(subject("even"), page.next, limit=2)
    assert (page.entries, page.next, page.last) == ((), 11, 10)


async def test_a_page_ends_with_the_entry_that_fills_it(log: Log, subject: Subject) -> None:
    for i in range(9):
        await log.append([Record(subject("big" if i % 3 else "small"), b"x" * 20_000, str(i))])
    found: list[int] = []
    start, pages = 0, 0
    while True:
        page = await log.read(subject(">"), start, max_bytes=50_000)
        if not page.entries:
            break
        assert len(page.entries) <= 3
        found += [entry.position for entry in page.entries]
        start, pages = page.next, pages + 1
    assert found == list(range(1, 10)) and pages >= 3
    alone = await log.read(subject("big"), 0, max_bytes=1)
    assert ([entry.position for entry in alone.entries], alone.next) == ([2], 3)


async def test_a_page_without_matches_goes_on_behind_the_end(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1", "2", "3"))
    page = await log.read(subject("b"), 1)
    assert (page.entries, page.next, page.last) == ((), 4, 3)


async def test_a_read_of_an_empty_log_is_empty(log: Log, subject: Subject) -> None:
    page = await log.read(subject(">"), 0)
    assert (page.entries, page.next, page.last) == ((), 1, 0)


async def test_a_read_beyond_the_end_waits_there(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1"))
    page = await log.read(subject("a"), 7)
    assert (page.entries, page.next, page.last) == ((), 7, 1)


@pytest.mark.parametrize(("start", "limit"), [(-1, 1), (0, 0), (0, 1_001)])
async def test_a_read_out_of_bounds_is_refused(log: Log, subject: Subject, start: int, limit: int) -> None:
    with pytest.raises(Refused):
        await log.read(subject(">"), start, limit=limit)


async def test_last_is_known_for_the_log_and_for_each_subject(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1", "2"))
    await log.append(records(subject("b"), "3"))
    assert await log.last() == 3
    assert await log.last(subject("a")) == 2
    assert await log.last(subject("c")) == 0
    with pytest.raises(Refused):
        await log.last(subject("*"))


# ── follow ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_follower_gets_what_was_there_and_what_comes(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1", "2"))
    async with aclosing(log.follow(subject("a"), 0)) as entries:  # type: ignore[type-var]
        assert [entry.id for entry in await take(entries, 2)] == ["1", "2"]
        await log.append(records(subject("b"), "x"))
        await log.append(records(subject("a"), "3", "4"))
        assert [(entry.position, entry.id) for entry in await take(entries, 2)] == [(4, "3"), (5, "4")]


async def test_a_follower_begins_where_it_is_told(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), *map(str, range(5))))
    async with aclosing(log.follow(subject(">"), 4)) as entries:  # type: ignore[type-var]
        assert [entry.position for entry in await take(entries, 2)] == [4, 5]
    async with aclosing(log.follow(subject("a"), 6)) as entries:  # type: ignore[type-var]
        waiting = asyncio.ensure_future(anext(entries))
        await log.append(records(subject("a"), "new"))
        async with asyncio.timeout(20):
            assert (await waiting).position == 6


async def test_a_follower_misses_nothing_of_a_long_log(log: Log, subject: Subject) -> None:
    for i in range(4):
        await log.append(records(subject("a"), *(f"{i}-{j}" for j in range(600))))
    async with aclosing(log.follow(subject("a"), 0)) as entries:  # type: ignore[type-var]
        assert [entry.position for entry in await take(entries, 2_400)] == list(range(1, 2_401))


@pytest.mark.parametrize(("size", "count"), [(PAYLOAD_MAX_BYTES, 64), (40 << 10, 1_639)])
async def test_a_follower_and_a_reader_miss_nothing_of_64_mib(
    log: Log, subject: Subject, size: int, count: int
) -> None:
    for start in range(0, count, 8):
        numbers = range(start, min(start + 8, count))
        await log.append([Record(subject("a"), i.to_bytes(4, "big") * (size // 4), str(i)) for i in numbers])
    async with aclosing(log.follow(subject("a"), 0)) as entries:  # type: ignore[type-var]
        followed = [(entry.id, len(entry.payload)) for entry in await take(entries, count)]
    assert followed == [(str(i), size) for i in range(count)]
    start, read = 0, []
    while start <= count:
        page = await log.read(subject("a"), start)
        read += [entry.id for entry in page.entries]
        start = page.next
    assert read == [str(i) for i in range(count)]


async def test_a_followed_entry_equals_the_one_that_is_read(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1", "2"))
    async with aclosing(log.follow(subject("a"), 0)) as entries:  # type: ignore[type-var]
        assert tuple(await take(entries, 2)) == (await log.read(subject("a"), 0)).entries


async def test_closing_the_store_ends_a_follower_in_words(
    opener: Opener, store: Store, log_spec: Specs
) -> None:
    other = await opener()
    followed = await other.log(log_spec())
    waiting = asyncio.ensure_future(anext(followed.follow("x.>", 0)))
    await asyncio.sleep(0)
    await other.close()
    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(20):
            await waiting


async def test_fresh_reads_say_what_plain_ones_say(log: Log, subject: Subject) -> None:
    assert (await log.read(subject(">"), 0, fresh=True)).entries == ()
    assert await log.last(fresh=True) >= 0
    assert await log.last(subject("a"), fresh=True) == 0
    await log.append(records(subject("a"), "1", "2"))
    await log.append(records(subject("b.c"), "3"))
    for pattern in (subject("a"), subject("b.*"), subject(">"), ">"):
        page = await log.read(pattern, 0, fresh=True)
        assert page.entries == (await log.read(pattern, 0)).entries
        assert page.next > page.last >= 3, "nothing follows"
        assert len((await log.read(pattern, 0, limit=1, fresh=True)).entries) == 1
    assert await log.last(subject("a"), fresh=True) == 2
    assert await log.last(fresh=True) >= 3
    await log.append(records(subject("a"), "4"))
    assert [entry.id for entry in (await log.read(subject("a"), 3, fresh=True)).entries] == ["4"]


async def test_a_full_log_refuses_with_a_reason_and_keeps_its_entries(store: Store, log_spec: Specs) -> None:
    spec = log_spec(max_bytes=20_000, refuses=True)
    log = await store.log(spec)
    where = spec.subjects[0].replace(">", "a")
    taken = 0
    with pytest.raises(StoreFull):
        for number in range(40):
            await log.append([Record(where, b"x" * 1_000, f"{number}")])
            taken += 1
    assert taken >= 10
    page = await log.read(where, 0)
    assert [entry.id for entry in page.entries] == [f"{number}" for number in range(taken)]
    await log.trim(before=taken)
    assert await log.append([Record(where, b"x" * 1_000, "again")]) == (taken + 1,)


# ── select ───────────────────────────────────────────────────────────────────────────────────────────────────


async def _until(selection: Any, items: Any, position: int) -> list[Entry]:
    """The entries that a selection hands out until it is at a position."""
    found: list[Entry] = []
    async with asyncio.timeout(20):
        async for item in items:
            match item:
                case Entry(position=at):
                    found.append(item)
                case Reached(position=at):
                    pass
                case _:
                    continue
            if at >= position:
                return found
            await selection.hasten()
    raise AssertionError("a selection has no end")


async def test_a_selection_brings_what_matches_and_tells_how_far(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a.1"), "1") + records(subject("b"), "x") + records(subject("c"), "2"))
    selection = log.select((subject("a.*"), subject("c")), 1)
    async with aclosing(selection.items()) as items:
        assert isinstance(await anext(items), Begun)
        assert [each.id for each in await _until(selection, items, 3)] == ["1", "2"]
        await log.append(records(subject("b"), *map(str, range(10, 15))))
        await selection.hasten()
        assert await _until(selection, items, 8) == []
        await log.append(records(subject("c"), "3") + records(subject("b"), "y"))
        assert [(each.position, each.id) for each in await _until(selection, items, 10)] == [(9, "3")]


async def test_a_selection_says_where_the_log_ended(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1", "2", "3"))
    for patterns in ((">",), (subject("b"),), (subject("b"), subject("c.>"))):
        async with aclosing(log.select(patterns, 4).items()) as items:
            begun = await anext(items)
            assert isinstance(begun, Begun)
            assert begun.end == 3


async def test_a_selection_of_many_patterns_brings_what_they_match(log: Log, subject: Subject) -> None:
    wanted = [subject(f"d{i}.*") for i in range(PATTERNS_MAX)]
    await log.append(records(subject("d7.x"), "7") + records(subject("e.x"), "e"))
    selection = log.select(wanted, 1)
    async with aclosing(selection.items()) as items:
        assert [each.id for each in await _until(selection, items, 2)] == ["7"]


async def test_a_selection_never_says_more_than_it_brought(log: Log, subject: Subject) -> None:
    stop = asyncio.Event()

    async def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await log.append(
                [Record(subject("abc"[i % 3]), b"", f"{number}-{i}") for i in range(number % 7 + 1)]
            )
            await asyncio.sleep(0)

    selection = log.select((subject("a"), subject("b")), 1)
    writing, got, reached = asyncio.create_task(write()), list[int](), list[int]()
    async with asyncio.timeout(30), aclosing(selection.items()) as items:
        async for item in items:
            if isinstance(item, Entry):
                assert item.position > max(reached, default=0)
                got.append(item.position)
            elif isinstance(item, Reached):
                reached.append(item.position)
                if len(reached) == 30:
                    break
            await selection.hasten()
    stop.set()
    await writing
    there = [
        entry.position for each in "ab" for entry in (await log.read(subject(each), 0, limit=1_000)).entries
    ]
    assert got[:300] == sorted(each for each in there if each <= reached[-1])[:300]


async def test_a_selection_that_needs_what_is_trimmed_says_so(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), *map(str, range(5))))
    await log.trim(before=4)
    async with aclosing(log.select((subject("a"),), 2).items()) as items:
        with pytest.raises(Trimmed):
            async with asyncio.timeout(20):
                async for _ in items:
                    pass


@pytest.mark.parametrize(("patterns", "start"), [((), 0), (("",), 0), ((">",), -1), (("a",) * 257, 0)])
async def test_a_selection_that_cannot_be_read_is_refused(
    log: Log, patterns: tuple[str, ...], start: int
) -> None:
    with pytest.raises(Refused):
        log.select(patterns, start)

"""What every log forgets, and what it does not: asked of the twin in memory and of JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tests.store.writing import records
from tocsin.errors import Refused, StoreUnavailable, Trimmed
from tocsin.ports import Log, LogSpec, Record, Store

Opener = Callable[[], Awaitable[Store]]
Specs = Callable[..., LogSpec]
Subject = Callable[[str], str]


# ── trim ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_trim_before_a_position_forgets_the_older_and_moves_nothing(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1", "2", "3", "4"))
    assert await log.trim(before=3) == 2
    assert [entry.position for entry in (await log.read(subject("a"), 0)).entries] == [3, 4]
    assert await log.trim(before=3) == 0
    assert await log.append(records(subject("a"), "5")) == (5,)


async def test_a_read_of_what_is_no_longer_kept_says_so(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1", "2", "3", "4"))
    await log.trim(before=3)
    with pytest.raises(Trimmed) as raised:
        await log.read(subject("a"), 2)
    assert (raised.value.position, raised.value.oldest) == (2, 3)
    with pytest.raises(Trimmed):
        async with asyncio.timeout(20):
            await anext(log.follow(subject("a"), 1))
    assert (await log.read(subject("a"), 3)).next == 5


async def test_trim_of_everything_keeps_the_count(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1", "2", "3"))
    assert await log.trim(before=100) == 3
    assert await log.last() == 3
    page = await log.read(subject("a"), 0)
    assert (page.entries, page.next, page.last) == ((), 4, 3)
    with pytest.raises(Trimmed):
        await log.read(subject("a"), 3)
    assert await log.append(records(subject("a"), "4")) == (4,)


async def test_trim_of_a_subject_leaves_the_others(log: Log, subject: Subject) -> None:
    for i in range(6):
        await log.append(records(subject("a" if i % 2 else "b"), str(i)))
    assert await log.trim(subject=subject("a"), before=5) == 2
    assert [entry.position for entry in (await log.read(subject(">"), 0)).entries] == [1, 3, 5, 6]
    assert await log.trim(subject=subject("b")) == 3
    assert [entry.position for entry in (await log.read(subject(">"), 0)).entries] == [6]
    assert await log.last(subject("b")) == 0


async def test_trim_by_age_forgets_only_what_is_older(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1", "2"))
    assert await log.trim(older_than_s=3_600) == 0
    assert await log.trim(older_than_s=0) == 2
    assert await log.last() == 2


async def test_trim_to_a_size_keeps_the_newest(log: Log, subject: Subject) -> None:
    for i in range(20):
        await log.append([Record(subject("a"), b"x" * 1_000, str(i))])
    assert await log.trim(keep_bytes=1 << 20) == 0
    gone = await log.trim(keep_bytes=5_800)
    assert 14 <= gone <= 16
    kept = (await log.read(subject("a"), 0)).entries
    assert [entry.position for entry in kept] == list(range(gone + 1, 21))
    assert await log.trim(keep_bytes=0) == 20 - gone


async def test_trim_without_a_bound_is_refused(log: Log) -> None:
    with pytest.raises(Refused):
        await log.trim()


async def test_a_trimmed_id_is_still_known(log: Log, subject: Subject) -> None:
    await log.append(records(subject("a"), "1", "2"))
    await log.trim(before=3)
    assert await log.append(records(subject("a"), "1", "2")) == (1, 2)


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_log_keeps_so_many_per_subject(store: Store, log_spec: Specs) -> None:
    spec = log_spec(max_per_subject=2)
    log = await store.log(spec)
    for i in range(4):
        await log.append(records(f"{spec.name}.a", str(i)))
    await log.append(records(f"{spec.name}.b", "b"))
    page = await log.read(f"{spec.name}.>", 1)
    assert [entry.position for entry in page.entries] == [3, 4, 5], "its holes are no reason to stop a reader"


async def test_a_log_keeps_so_many_bytes(store: Store, log_spec: Specs) -> None:
    spec = log_spec(max_bytes=10_000)
    log = await store.log(spec)
    for i in range(30):
        await log.append([Record(f"{spec.name}.a", b"x" * 1_000, str(i))])
    kept = (await log.read(f"{spec.name}.a", 0)).entries
    assert 8 <= len(kept) <= 10
    assert kept[-1].position == 30


async def test_an_opened_log_is_the_same_log_with_new_bounds(opener: Opener, log_spec: Specs) -> None:
    spec = log_spec()
    one, other = await opener(), await opener()
    await (await one.log(spec)).append(records(f"{spec.name}.a", *map(str, range(5))))
    bounded = LogSpec(spec.name, spec.subjects, max_per_subject=2)
    page = await (await other.log(bounded)).read(f"{spec.name}.a", 0)
    assert [entry.position for entry in page.entries] == [4, 5]


async def test_an_opened_log_takes_subjects_that_it_did_not_have(opener: Opener, log_spec: Specs) -> None:
    """In the same order as those that it had, read by themselves or as one."""
    store, before = await opener(), log_spec()
    (old,) = before.subjects
    prefix = old.removesuffix(".>")
    await (await store.log(before)).append(records(f"{prefix}.a", "1"))
    wider = msgspec.structs.replace(before, subjects=(old, f"{prefix}-more.>"))
    log = await (await opener()).log(wider)
    await log.append([*records(f"{prefix}-more.a", "2"), *records(f"{prefix}.a", "3")])
    for pattern, positions in (
        (old, [1, 3]),
        (f"{prefix}-more.>", [2]),
        ("*.a", [1, 2, 3]),
        (">", [1, 2, 3]),
    ):
        assert [each.position for each in (await log.read(pattern, 1)).entries] == positions
    followed = log.follow(">", 1)
    async with asyncio.timeout(20):
        assert [(await anext(followed)).position for _ in range(3)] == [1, 2, 3]


async def test_logs_do_not_share_subjects(store: Store, log_spec: Specs) -> None:
    spec = log_spec()
    await store.log(spec)
    with pytest.raises(Refused):
        await store.log(LogSpec(f"{spec.name}-other", (f"{spec.name}.a",)))


async def test_a_bad_log_is_refused(store: Store) -> None:
    for bad in (
        LogSpec("a b", ("a",)),
        LogSpec("a", ()),
        LogSpec("a", (">",)),
        LogSpec("a", ("a",), max_age_s=0),
    ):
        with pytest.raises(Refused):
            await store.log(bad)


async def test_a_closed_store_says_so(opener: Opener, log_spec: Specs) -> None:
    store = await opener()
    spec = log_spec()
    log = await store.log(spec)
    await store.close()
    await store.close()
    for attempt in (
        log.append(records(f"{spec.name}.a", "1")),
        log.read(f"{spec.name}.a", 0),
        log.last(),
        log.trim(before=1),
        store.log(spec),
    ):
        with pytest.raises(StoreUnavailable):
            await attempt

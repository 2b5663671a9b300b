"""What every table promises (``ports.Table``), asked of the twin in memory and of JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from tocsin.errors import Conflict, Refused, StoreFull, StoreUnavailable
from tocsin.ports import KEYS_MAX, PAYLOAD_MAX_BYTES, Cell, Change, Store, Table, TableSpec
from tocsin.store.rules import KEY_MAX_BYTES

Opener = Callable[[], Awaitable[Store]]
Specs = Callable[..., TableSpec]


async def take(changes: AsyncIterator[Change], count: int) -> list[Change]:
    taken: list[Change] = []
    async with asyncio.timeout(20):
        while len(taken) < count:
            taken.append(await anext(changes))
    return taken


async def take_snapshot(changes: AsyncIterator[Change]) -> list[Change]:
    """Everything up to and with ``ready``."""
    taken = await take(changes, 1)
    while taken[-1].kind != "ready":
        taken += await take(changes, 1)
    return taken


async def test_a_key_has_the_value_that_was_put_last(table: Table) -> None:
    assert await table.get("a") is None
    assert await table.put("a", b"1") == 1
    assert await table.put("a", b"2") == 2
    assert await table.get("a") == Cell("a", b"2", 2)


async def test_many_keys_are_read_at_once_without_those_that_are_gone(table: Table) -> None:
    for key in ("a", "b", "c"):
        await table.put(key, key.encode())
    await table.delete("b")
    for fresh in (False, True):
        found = await table.get_many(("a", "b", "c", "d"), fresh=fresh)
        assert found == {"a": Cell("a", b"a", 1), "c": Cell("c", b"c", 3)}
    assert await table.get_many(("d",)) == {} == await table.get_many(())
    with pytest.raises(Refused, match="at most 256"):
        await table.get_many([f"k{number}" for number in range(KEYS_MAX + 1)])


async def test_revisions_grow_across_keys(table: Table) -> None:
    assert [await table.put(key, b"") for key in ("a", "b", "a")] == [1, 2, 3]
    assert await table.get("b") == Cell("b", b"", 2)


async def test_a_value_is_kept_byte_for_byte(table: Table) -> None:
    value = bytes(range(256)) * 4
    await table.put("a.b/c=d_e-f.G9", value)
    cell = await table.get("a.b/c=d_e-f.G9")
    assert cell is not None
    assert cell.value == value


async def test_the_longest_key_can_be_written_read_and_watched(table: Table) -> None:
    key = "=C3=A9" * (KEY_MAX_BYTES // 6)
    revision = await table.compare_and_set(key, b"1", revision=0)
    assert await table.get(key) == Cell(key, b"1", revision)
    assert await table.get(key, fresh=True) == Cell(key, b"1", revision)
    assert await table.keys(key[:600]) == (key,)
    async with aclosing(table.watch()) as changes:  # type: ignore[type-var]
        assert [change.key for change in await take_snapshot(changes) if change.kind == "put"] == [key]
    assert await table.put(key, b"2") > revision


async def test_compare_and_set_writes_over_the_revision_it_knows(table: Table) -> None:
    first = await table.compare_and_set("a", b"1", revision=0)
    second = await table.compare_and_set("a", b"2", revision=first)
    assert await table.get("a") == Cell("a", b"2", second)


async def test_compare_and_set_over_another_revision_is_a_conflict(table: Table) -> None:
    first = await table.put("a", b"1")
    second = await table.put("a", b"2")
    for wrong in (0, first, second + 1):
        with pytest.raises(Conflict) as raised:
            await table.compare_and_set("a", b"3", revision=wrong)
        assert (raised.value.expected, raised.value.actual) == (wrong, second)
    with pytest.raises(Conflict) as raised:
        await table.compare_and_set("b", b"3", revision=second)
    assert raised.value.actual == 0
    assert await table.get("a") == Cell("a", b"2", second)


async def test_of_many_that_compare_and_set_one_wins(opener: Opener, table_spec: Specs) -> None:
    spec = table_spec()
    tables = [await (await opener()).table(spec) for _ in range(5)]
    attempts = [table.compare_and_set("lease", str(i).encode(), revision=0) for i, table in enumerate(tables)]
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(outcome, int) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 4


async def test_of_many_writes_at_once_each_has_its_own_outcome(table: Table) -> None:
    names = [f"k{number}" for number in range(300)]
    made = await asyncio.gather(*(table.compare_and_set(name, b"1", revision=0) for name in names))
    assert len(set(made)) == len(names)
    known = dict(zip(names, made, strict=True))
    wrong = {"k7": 0, "k150": known["k151"], "k299": known["k299"] + 1_000}
    writes = (
        table.compare_and_set(name, b"2", revision=wrong.get(name, known[name]), ttl_s=60) for name in names
    )
    outcomes = dict(zip(names, await asyncio.gather(*writes, return_exceptions=True), strict=True))
    assert {name for name, outcome in outcomes.items() if isinstance(outcome, Conflict)} == set(wrong)
    for name, outcome in outcomes.items():
        kept = Cell(name, b"1", known[name]) if name in wrong else Cell(name, b"2", outcome)  # type: ignore[arg-type]
        assert await table.get(name) == kept


async def test_of_many_writes_at_once_some_may_be_of_one_key(table: Table) -> None:
    writes = [table.compare_and_set(f"k{number % 50}", b"", revision=0) for number in range(200)]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert sum(isinstance(outcome, int) for outcome in outcomes) == 50
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 150


async def test_many_keys_that_were_deleted_can_be_made_again_at_once(table: Table) -> None:
    names = [f"k{number}" for number in range(100)]
    await asyncio.gather(*(table.put(name, b"1") for name in names))
    await asyncio.gather(*(table.delete(name) for name in names[::3]))
    assert len(await table.get_many(names)) == 66
    revisions = [
        0 if cell is None else cell.revision
        for cell in await asyncio.gather(*(table.get(name) for name in names))
    ]
    writes = (
        table.compare_and_set(name, b"2", revision=revision)
        for name, revision in zip(names, revisions, strict=True)
    )
    assert len(set(await asyncio.gather(*writes))) == 100


async def test_a_deleted_key_is_absent_and_can_be_made_again(table: Table) -> None:
    await table.put("a", b"1")
    await table.delete("a")
    assert await table.get("a") is None
    assert await table.keys() == ()
    with pytest.raises(Conflict):
        await table.compare_and_set("a", b"2", revision=1)
    revision = await table.compare_and_set("a", b"2", revision=0)
    assert revision > 1
    assert await table.get("a") == Cell("a", b"2", revision)


async def test_deleting_what_is_absent_is_no_error(table: Table) -> None:
    await table.delete("a")
    await table.delete("a", revision=0)
    await table.put("a", b"")
    await table.delete("a")
    await table.delete("a")
    assert await table.put("a", b"") == 3, "only changes take a revision"


async def test_a_delete_of_another_revision_is_a_conflict(table: Table) -> None:
    revision = await table.put("a", b"1")
    with pytest.raises(Conflict):
        await table.delete("a", revision=revision + 1)
    with pytest.raises(Conflict):
        await table.delete("a", revision=0)
    await table.delete("a", revision=revision)
    assert await table.get("a") is None


async def test_keys_are_found_by_their_first_characters_in_order(table: Table) -> None:
    for key in ("b.x", "a.x", "a.y.z", "ab", "a"):
        await table.put(key, b"")
    await table.delete("b.x")
    assert await table.keys() == ("a", "a.x", "a.y.z", "ab")
    assert await table.keys("a.") == ("a.x", "a.y.z")
    assert await table.keys("a.y") == ("a.y.z",)
    assert await table.keys("a.y.") == ("a.y.z",)
    assert await table.keys("ab") == ("ab",)
    assert await table.keys("c") == ()


async def test_more_keys_than_a_page_are_all_found(table: Table) -> None:
    names = [f"k{i:04}" for i in range(1_200)]
    for at in range(0, len(names), 100):
        await asyncio.gather(*(table.put(name, b"v") for name in names[at : at + 100]))
    assert await table.keys() == tuple(names)


async def test_a_key_with_a_time_to_live_expires(table: Table) -> None:
    await table.put("kept", b"")
    revision = await table.put("lease", b"1", ttl_s=1)
    async with aclosing(table.watch("lease")) as changes:  # type: ignore[type-var]
        assert [change.kind for change in await take_snapshot(changes)] == ["reset", "put", "ready"]
        (gone,) = await take(changes, 1)
    assert (gone.kind, gone.key) == ("delete", "lease")
    assert gone.revision > revision
    assert await table.get("lease") is None
    assert await table.keys() == ("kept",)
    with pytest.raises(Conflict):
        await table.compare_and_set("lease", b"2", revision=revision, ttl_s=1)
    assert await table.compare_and_set("lease", b"2", revision=0, ttl_s=1) > gone.revision


async def test_an_expiry_is_heard_of_after_another_client_has_gone(opener: Opener, table_spec: Specs) -> None:
    spec = table_spec()
    leaving, staying = await opener(), await opener()
    await (await leaving.table(spec)).put("lease", b"", ttl_s=1)
    table = await staying.table(spec)
    async with aclosing(table.watch()) as changes:  # type: ignore[type-var]
        assert [change.kind for change in await take_snapshot(changes)] == ["reset", "put", "ready"]
        await leaving.close()
        assert [(change.kind, change.key) for change in await take(changes, 1)] == [("delete", "lease")]


async def test_a_renewed_lease_lives_on(table: Table) -> None:
    revision = await table.put("lease", b"1", ttl_s=1)
    await table.put("other", b"1", ttl_s=1)
    revision = await table.compare_and_set("lease", b"1", revision=revision, ttl_s=3_600)
    async with aclosing(table.watch("other")) as changes:  # type: ignore[type-var]
        taken = await take_snapshot(changes)
        if len(taken) == 3:  # it may have expired while the watch began
            await take(changes, 1)
    assert await table.get("lease") == Cell("lease", b"1", revision)


async def test_a_watch_tells_the_state_and_then_the_changes(table: Table) -> None:
    await table.put("a", b"1")
    await table.put("b", b"2")
    await table.put("a", b"3")
    await table.put("gone", b"")
    await table.delete("gone")
    async with aclosing(table.watch()) as changes:  # type: ignore[type-var]
        assert await take_snapshot(changes) == [
            Change("reset"),
            Change("put", "b", b"2", 2),
            Change("put", "a", b"3", 3),
            Change("ready", revision=5),
        ]
        await table.put("c", b"4")
        await table.delete("a")
        await table.put("b", b"5")
        assert await take(changes, 3) == [
            Change("put", "c", b"4", 6),
            Change("delete", "a", b"", 7),
            Change("put", "b", b"5", 8),
        ]


async def test_a_watch_of_an_empty_table_is_ready_at_once(table: Table) -> None:
    async with aclosing(table.watch()) as changes:  # type: ignore[type-var]
        assert await take(changes, 2) == [Change("reset"), Change("ready")]
        await table.put("a", b"1")
        assert await take(changes, 1) == [Change("put", "a", b"1", 1)]


async def test_a_watch_sees_only_keys_that_begin_so(table: Table) -> None:
    for key in ("ab.x", "a.x", "b"):
        await table.put(key, b"")
    async with aclosing(table.watch("a.")) as changes:  # type: ignore[type-var]
        assert [change.key for change in await take_snapshot(changes)] == ["", "a.x", ""]
        for key in ("ab.y", "b", "a.y"):
            await table.put(key, b"")
        assert [change.key for change in await take(changes, 1)] == ["a.y"]


async def test_a_watch_of_nothing_that_is_there_is_ready_all_the_same(table: Table) -> None:
    await table.put("ab", b"")
    async with aclosing(table.watch("ac")) as changes:  # type: ignore[type-var]
        assert [change.kind for change in await take_snapshot(changes)] == ["reset", "ready"]


async def test_a_watcher_that_obeys_ends_up_with_the_table(opener: Opener, table_spec: Specs) -> None:
    spec = table_spec()
    writer = await (await opener()).table(spec)
    watcher = await (await opener()).table(spec)
    known: dict[str, bytes] = {}
    finished = asyncio.Event()

    async def obey() -> None:
        async for change in watcher.watch():
            if change.kind == "reset":
                known.clear()
            elif change.kind == "put":
                known[change.key] = change.value
            elif change.kind == "delete":
                known.pop(change.key, None)
            if known.get("end"):
                finished.set()

    obeying = asyncio.create_task(obey())
    for i in range(60):
        await writer.put(f"k{i % 7}", str(i).encode())
        if i % 5 == 0:
            await writer.delete(f"k{(i + 3) % 7}")
    await writer.put("end", b"1")
    async with asyncio.timeout(20):
        await finished.wait()
    obeying.cancel()
    await asyncio.gather(obeying, return_exceptions=True)
    cells = {key: await writer.get(key) for key in await writer.keys()}
    assert known == {key: cell.value for key, cell in cells.items() if cell is not None}


@pytest.mark.parametrize(
    "bad", ["", ".", "a..b", ".a", "a.", "a b", "a*", "a.>", "é", "x" * (KEY_MAX_BYTES + 1)]
)
async def test_a_bad_key_is_refused(table: Table, bad: str) -> None:
    with pytest.raises(Refused):
        await table.put(bad, b"")
    with pytest.raises(Refused):
        await table.get(bad)


@pytest.mark.parametrize("bad", [0, 0.5, 1.5, -1])
async def test_a_bad_time_to_live_is_refused(table: Table, bad: float) -> None:
    with pytest.raises(Refused):
        await table.put("a", b"", ttl_s=bad)


async def test_a_value_that_is_too_large_is_refused(table: Table) -> None:
    with pytest.raises(Refused):
        await table.put("a", b"x" * (PAYLOAD_MAX_BYTES + 1))


async def test_a_table_that_is_full_says_so_and_keeps_what_it_has(store: Store, table_spec: Specs) -> None:
    table = await store.table(table_spec(max_bytes=10_000))
    with pytest.raises(StoreFull):
        for i in range(20):
            await table.put(f"k{i}", b"x" * 1_000)
    keys = await table.keys()
    assert len(keys) >= 8
    for key in keys:
        assert await table.get(key) is not None


async def test_a_closed_store_says_so(opener: Opener, table_spec: Specs) -> None:
    store = await opener()
    table = await store.table(table_spec())
    await store.close()
    for attempt in (table.get("a"), table.put("a", b""), table.delete("a"), table.keys()):
        with pytest.raises(StoreUnavailable):
            await attempt
    with pytest.raises(StoreUnavailable):
        await anext(table.watch())


@pytest.mark.parametrize(("size", "count"), [(PAYLOAD_MAX_BYTES, 64), (40 << 10, 1_639)])
async def test_a_watch_of_64_mib_is_told_everything_once(
    opener: Opener, table_spec: Specs, size: int, count: int
) -> None:
    """More than any pull may carry: values of 1 MiB, of which 16 fill one, and of 40 KiB."""
    spec = table_spec()
    table = await (await opener()).table(spec)
    for start in range(0, count, 32):
        keys = range(start, min(start + 32, count))
        await asyncio.gather(*(table.put(f"k{i}", i.to_bytes(4, "big") * (size // 4)) for i in keys))
    watched = await (await opener()).table(spec)
    async with aclosing(watched.watch()) as changes:  # type: ignore[type-var]
        async with asyncio.timeout(60):
            told = await take_snapshot(changes)
        assert [change.kind for change in told] == ["reset", *["put"] * count, "ready"]
        assert all(len(change.value) == size for change in told[1:-1])
        assert {(change.key, change.value[:4]) for change in told[1:-1]} == {
            (f"k{i}", i.to_bytes(4, "big")) for i in range(count)
        }
        await table.put("k0", b"new")
        assert [(change.kind, change.value) for change in await take(changes, 1)] == [("put", b"new")]
    assert len(await watched.keys()) == count


async def test_a_watch_goes_on_while_what_fills_its_pulls_is_written(table: Table) -> None:
    """The watch is there first: 24 MiB of values of 1 MiB come one by one, and none of them resets it."""
    async with aclosing(table.watch()) as changes:  # type: ignore[type-var]
        assert [change.kind for change in await take_snapshot(changes)] == ["reset", "ready"]
        for i in range(24):
            await table.put("k", i.to_bytes(4, "big") * (PAYLOAD_MAX_BYTES // 4))
            (change,) = await take(changes, 1)
            assert (change.kind, change.value[:4]) == ("put", i.to_bytes(4, "big"))


async def test_fresh_reads_say_what_plain_ones_say(table: Table) -> None:
    assert await table.get("a", fresh=True) is None
    assert await table.keys(fresh=True) == ()
    revision = await table.put("a.b", b"1")
    assert await table.get("a.b", fresh=True) == Cell("a.b", b"1", revision)
    assert await table.keys(fresh=True) == await table.keys("a", fresh=True) == ("a.b",)
    assert await table.keys("b", fresh=True) == ()
    await table.delete("a.b")
    assert await table.get("a.b", fresh=True) is None
    assert await table.keys(fresh=True) == ()


async def test_a_table_says_how_much_it_holds(table: Table) -> None:
    before = await table.usage()
    for number in range(10):
        await table.put(f"k{number}", b"x" * 1_000)
    after = await table.usage()
    assert after.keys - before.keys == 10
    assert 10_000 <= after.size - before.size <= 13_000

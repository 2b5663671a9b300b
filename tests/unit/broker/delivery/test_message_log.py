"""The broker's side of the message log, on the store in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tocsin.broker.delivery import message_log as module
from tocsin.broker.delivery.message_log import MessageLog
from tocsin.errors import FormatNewer, OutcomeUnknown, StoreFull, StoreUnavailable, TocsinError
from tocsin.model.publication import Publication, decode_publication, encode_publication
from tocsin.model.said import reference_of
from tocsin.model.stream import Value
from tocsin.model.subjects import messages_log, said_reference, said_subject, subject_of
from tocsin.ports import Entry, Log, Record
from tocsin.store.memory.store import MemoryServer, MemoryStore

DEADLINE_S = 10.0


class Jumping:
    """The store's clock: it jumps after each append, so that the ids in it are forgotten."""

    def __init__(self, jump_us: int) -> None:
        self.us = 0
        self.jump_us = jump_us

    def now_us(self) -> int:
        return self.us


class Troubled:
    """A log whose appends fail as told, before or after they took effect."""

    def __init__(self, log: Log, clock: Jumping) -> None:
        self._log = log
        self._clock = clock
        self.before: list[TocsinError] = []
        self.after: list[TocsinError] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.batches: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, records: Sequence[Record], *, expected: int | None = None) -> tuple[int, ...]:
        await self.gate.wait()
        if self.before:
            raise self.before.pop(0)
        positions = await self._log.append(records, expected=expected)
        self._clock.us += self._clock.jump_us
        self.batches.append(len(records))
        if self.after:
            raise self.after.pop(0)
        return positions


class Bench:
    def __init__(self, log: Troubled, wanted: str = "#") -> None:
        self.log = log
        self.dispatched: list[tuple[int, bytes]] = []
        self.pressure: list[bool] = []
        self.outcomes: list[TocsinError | None] = []
        self.positions: list[int] = []  # that were told with them
        self.said: list[dict[str, Value] | None] = []  # of the streams of what was dispatched
        self.judging = False
        self.message_log = MessageLog(
            log,
            "net",
            records_max=8,
            pressure=self.pressure.append,
        )
        self.message_log.want(wanted)

    async def follow(self) -> None:
        await self.message_log.follow(self._dispatch, lambda: self.judging)

    def _dispatch(self, entry: Entry, publication: Publication) -> bool:
        self.dispatched.append((entry.position, publication.payload))
        self.said.append(publication.keys)
        return True

    def _stored(self, error: TocsinError | None, position: int) -> None:
        self.outcomes.append(error)
        self.positions.append(position)

    def commit(
        self,
        payload: bytes,
        topic: str = "a",
        record_id: str = "",
        *,
        priority: str = "",
        keys: dict[str, Value] | None = None,
        behind: int | None = None,
    ) -> None:
        name = record_id or f"{topic}:{payload.decode()}"
        said = (("priority", priority),) if priority else ()
        publication = Publication(topic, payload, 1, "me", user_properties=said, keys=keys)
        self.message_log.commit(publication, name, self._stored, behind)

    async def until(self, condition: object) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # type: ignore[operator]
                await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def running(*, forgetful: bool = False) -> AsyncIterator[Bench]:
    clock = Jumping(int(3_600e6) if forgetful else 0)
    store = MemoryStore(MemoryServer(clock))
    log = Troubled(await store.log(messages_log("net", None, None)), clock)
    bench = Bench(log)
    await bench.message_log.open()
    tasks = [
        asyncio.create_task(bench.message_log.commit_all()),
        asyncio.create_task(bench.follow()),
    ]
    try:
        yield bench
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()


async def test_a_message_is_acknowledged_when_it_is_durable_and_then_dispatched() -> None:
    async with running() as bench:
        bench.log.gate.clear()
        bench.commit(b"one")
        await asyncio.sleep(0)
        assert bench.outcomes == []
        bench.log.gate.set()
        await bench.until(lambda: bench.dispatched)
        assert bench.outcomes == [None]
        assert bench.dispatched == [(1, b"one")]
        assert bench.message_log.tail == 1


async def test_what_gathers_during_an_append_is_one_batch() -> None:
    async with running() as bench:
        bench.log.gate.clear()
        bench.commit(b"0")
        await asyncio.sleep(0)
        for number in range(1, 6):
            bench.commit(b"%d" % number)
        bench.log.gate.set()
        await bench.until(lambda: len(bench.dispatched) == 6)
        assert bench.log.batches == [1, 5]
        assert [payload for _, payload in bench.dispatched] == [b"%d" % number for number in range(6)]
        assert bench.positions == [1, 2, 3, 4, 5, 6], "each is told its own position"


async def test_an_append_whose_answer_was_lost_is_repeated_and_written_once() -> None:
    async with running() as bench:
        bench.log.after.append(OutcomeUnknown("append", 1.0))
        bench.commit(b"one")
        await bench.until(lambda: bench.outcomes)
        await bench.until(lambda: bench.dispatched)
        assert bench.outcomes == [None]
        assert bench.dispatched == [(1, b"one")]


async def test_an_append_whose_answer_was_lost_is_written_once() -> None:
    """The store has forgotten the ids: it was away for longer, or its clock jumped."""
    async with running(forgetful=True) as bench:
        bench.commit(b"before")
        await bench.until(lambda: bench.dispatched)
        bench.log.after.append(OutcomeUnknown("append", 1.0))
        for number in range(3):
            bench.commit(b"%d" % number, topic=f"t/{number}")
        await bench.until(lambda: len(bench.outcomes) == 4)
        await bench.until(lambda: bench.message_log.tail == 4)
        bench.commit(b"after")
        await bench.until(lambda: len(bench.dispatched) == 5)
        assert [payload for _, payload in bench.dispatched] == [b"before", b"0", b"1", b"2", b"after"]
        assert bench.positions == [1, 2, 3, 4, 5]


async def test_a_message_that_another_broker_appended_is_not_appended_again() -> None:
    async with running(forgetful=True) as bench:
        bench.commit(b"will", record_id="will.1")
        await bench.until(lambda: bench.dispatched)
        late = Bench(bench.log)
        late.commit(b"will", record_id="will.1", behind=0)
        task = asyncio.create_task(late.message_log.commit_all())
        await bench.until(lambda: late.outcomes)
        task.cancel()
        assert late.positions == [1]
        assert await bench.message_log.end() == 1


async def test_publishers_hear_of_a_full_store_and_later_messages_are_tried() -> None:
    async with running() as bench:
        bench.log.before.append(StoreFull("append", "disk"))
        bench.commit(b"one")
        await bench.until(lambda: bench.outcomes)
        assert isinstance(bench.outcomes[0], StoreFull) and bench.positions == [0]
        bench.commit(b"two")
        await bench.until(lambda: bench.dispatched)
        assert bench.dispatched == [(1, b"two")]


async def test_publishers_are_held_back_and_let_go_once_each() -> None:
    async with running() as bench:
        bench.log.gate.clear()
        for number in range(12):
            bench.commit(b"%d" % number)
        assert bench.pressure == [True]
        bench.log.gate.set()
        await bench.until(lambda: len(bench.dispatched) == 12)
        assert bench.pressure == [True, False]


@pytest.mark.parametrize("filters", [["a/#", "b"], ["a", "a/+", "a/#", "b", "c/#"]])
async def test_a_read_returns_matches_in_order_and_the_next_position(filters: list[str]) -> None:
    async with running() as bench:
        for number, topic in enumerate(["a", "b", "c/x", "a/1", "b/2", "a"]):
            bench.commit(b"%d" % number, topic)
        await bench.until(lambda: len(bench.dispatched) == 6)
        batch = await bench.message_log.read(filters, 1)
        wanted = {1, 2, 4, 6} | ({3, 5} if len(filters) > 2 else set())
        assert {entry.position for entry in batch.entries} == wanted
        assert [entry.position for entry in batch.entries] == sorted(wanted)
        assert batch.next > bench.message_log.tail


async def test_critical_messages_are_read_without_the_others_and_the_others_without_them() -> None:
    async with running() as bench:
        for number, topic in enumerate(["a", "a", "b", "a/x", "a", "b"]):
            bench.commit(b"%d" % number, topic, priority="8" if number in (1, 3, 5) else "")
        await bench.until(lambda: len(bench.dispatched) == 6)
        assert [position for position, _ in bench.dispatched] == [1, 2, 3, 4, 5, 6], "they come as one"
        for filters in (["a/#"], ["a", "a/+", "a/#", "a/x", "a/x/#"]):
            read = {
                critical: {
                    each.position
                    for each in (await bench.message_log.read(filters, 1, critical=critical)).entries
                }
                for critical in (True, False, None)
            }
            assert read[True] >= {2, 4} and read[False] >= {1, 5}
            assert read[True] & read[False] == set() and read[None] == read[True] | read[False]
        batch = await bench.message_log.read(["a"], 3, critical=True)
        assert batch.entries == [] and batch.next == 7, "all is known that there is"


async def test_it_is_known_up_to_where_there_may_be_critical_messages() -> None:
    async with running() as bench:
        bench.commit(b"0")
        await bench.until(lambda: bench.message_log.tail == 1)
        assert bench.message_log.critical_tail == 0
        bench.commit(b"1", priority="critical")
        bench.commit(b"2")
        await bench.until(lambda: bench.message_log.tail == 3)
        assert bench.message_log.critical_tail == 2
        fresh = Bench(bench.log)
        await fresh.message_log.open()
        assert fresh.message_log.critical_tail == fresh.message_log.tail == 3, "where they are is not known"


async def test_a_critical_entry_is_found_by_its_id_too() -> None:
    async with running() as bench:
        bench.commit(b"0", record_id="id.0", priority="9")
        await bench.until(lambda: bench.message_log.tail == 1)
        assert await bench.message_log.has("id.0", "a", 0)


async def test_an_entry_is_found_by_id_and_topic_after_a_position() -> None:
    async with running() as bench:
        for number in range(3):
            bench.commit(b"%d" % number, record_id=f"id.{number}")
        await bench.until(lambda: bench.message_log.tail == 3)
        assert await bench.message_log.has("id.1", "a", 0)
        assert await bench.message_log.has("id.1", "a", 1)
        assert not await bench.message_log.has("id.1", "a", 2), "it would have to be behind that"
        assert not await bench.message_log.has("id.1", "b", 0)
        assert not await bench.message_log.has("id.9", "a", 0)


async def test_an_entry_is_looked_for_in_what_is_still_kept() -> None:
    async with running() as bench:
        for number in range(3):
            bench.commit(b"%d" % number, record_id=f"id.{number}")
        await bench.until(lambda: bench.message_log.tail == 3)
        await bench.log.trim(before=3)
        assert await bench.message_log.has("id.2", "a", 0)
        assert not await bench.message_log.has("id.1", "a", 0)


LARGE: dict[str, Value] = {f"key{number}": "v" * 100 for number in range(30)}


async def entries_of(bench: Bench) -> list[Entry]:
    return list((await bench.log.read(">", 0)).entries)


async def test_large_metadata_are_in_the_log_once_and_messages_refer_to_them() -> None:
    async with running() as bench:
        for number in range(100):
            bench.commit(b"%d" % number, keys=LARGE)
        bench.commit(b"small", "b", keys={"Room": "410"})
        await bench.until(lambda: len(bench.dispatched) == 101)
        entries = await entries_of(bench)
        assert len(entries) == 102
        assert [said_reference(entry.subject) is not None for entry in entries] == [True] + [False] * 101
        assert all(len(entry.payload) < 100 for entry in entries[1:])
        assert bench.said == [None] * 100 + [{"Room": "410"}], "nobody judges by it"
        bench.judging = True
        bench.commit(b"judged", keys=dict(LARGE))
        bench.commit(b"other", keys={**LARGE, "more": 1})
        await bench.until(lambda: len(bench.dispatched) == 103)
        assert bench.said[101:] == [LARGE, {**LARGE, "more": 1}]
        assert len(await entries_of(bench)) == 105


async def test_metadata_are_resolved_for_those_behind_also_after_a_restart() -> None:
    async with running() as bench:
        bench.commit(b"one", keys=LARGE)
        bench.commit(b"two")
        await bench.until(lambda: len(bench.dispatched) == 2)
        after = Bench(bench.log)  # knows nothing of what the one before knew
        batch = await after.message_log.read(["#"], 0)
        assert len(batch.entries) == 2, "metadata are no messages"
        whole = await after.message_log.resolved(batch.entries)
        assert [decode_publication(entry.payload).keys for entry in whole] == [LARGE, None]
        assert [entry.position for entry in whole] == [2, 3]


async def test_metadata_that_the_log_has_no_longer_count_as_nothing_said() -> None:
    async with running() as bench:
        bench.commit(b"one", keys=LARGE)
        await bench.until(lambda: len(bench.dispatched) == 1)
        await bench.log.trim(before=2)
        after = Bench(bench.log)
        whole = await after.message_log.resolved((await after.message_log.read(["#"], 2)).entries)
        assert decode_publication(whole[0].payload).keys == {}
        assert after.message_log.resolver.missing == 1


async def test_a_server_that_is_behind_is_asked_again() -> None:
    async with running() as bench:
        publication = Publication("a", b"", 1, "me", said=b"r" * 16)
        with pytest.raises(StoreUnavailable):
            await bench.message_log.resolver.resolve(publication, 99)


async def test_metadata_that_could_not_be_stored_are_written_with_the_next_message() -> None:
    async with running() as bench:
        bench.log.before.append(StoreFull("append", "no room"))
        bench.commit(b"one", keys=LARGE)
        await bench.until(lambda: len(bench.outcomes) == 1)
        bench.commit(b"two", keys=LARGE)
        await bench.until(lambda: len(bench.dispatched) == 1)
        entries = await entries_of(bench)
        assert len(entries) == 2 and said_reference(entries[0].subject) is not None


async def test_messages_of_before_have_their_metadata_themselves() -> None:
    async with running() as bench:
        old = encode_publication(Publication("a", b"old", 1, "me", keys=LARGE))
        await bench.log.append([Record("net.m.a", old, "old")])
        await bench.until(lambda: len(bench.dispatched) == 1)
        assert bench.said == [LARGE]


@pytest.mark.parametrize("said", [False, True])
async def test_a_record_of_a_newer_format_is_not_passed_over(said: bool) -> None:
    """What was acknowledged is somebody's: the follower stops there in words, and its tail says so."""
    store = MemoryStore(MemoryServer(Jumping(0)))
    log = await store.log(messages_log("net", None, None))
    bench = Bench(Troubled(log, Jumping(0)))
    bench.judging = True
    await bench.message_log.open()
    reference = reference_of(b"x")
    message = Publication("a", b"one", 1, "me", said=reference if said else b"")
    encoded = encode_publication(message)
    records = [Record(subject_of("a", "net"), encoded if said else b"\x02" + encoded[1:], "1")]
    if said:
        records.insert(0, Record(said_subject(reference, "net"), b"\x02\x80", "0"))
    await log.append(records)
    with pytest.raises(FormatNewer, match="Upgrade this process"):
        async with asyncio.timeout(DEADLINE_S):
            await bench.follow()
    assert not bench.dispatched and bench.message_log.tail < len(records)
    await store.close()


# ── all that the log has ────────────────────────────────────────────────────────────────────────────────────


async def test_all_is_dispatched_when_the_log_is_read_up_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the newest message there may be those that nobody here wants."""
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.001)
    store = MemoryStore(MemoryServer(Jumping(0)))
    log = await store.log(messages_log("net", None, None))
    bench, level, tries = Bench(Troubled(log, Jumping(0)), wanted="a"), list[int](), list[int]()
    await bench.message_log.open()
    payload = encode_publication(Publication("a", b"x", 1, "me"))
    for topic in ("a", "other"):
        await log.append([Record(subject_of(topic, "net"), payload, f"{topic}{n}") for n in range(3)])

    async def end() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise StoreUnavailable("last", "away")
        return await log.last(fresh=True)

    monkeypatch.setattr(bench.message_log, "end", end)
    finding = asyncio.create_task(bench.message_log.find_ends())
    bench.message_log.when_all_dispatched(lambda: level.append(bench.message_log.tail))
    await bench.until(lambda: len(tries) > 1)
    for _ in range(100):
        await asyncio.sleep(0)
    assert level == [], "three messages are unread"
    following = asyncio.create_task(bench.follow())
    await bench.until(lambda: level)
    assert level == [6] and len(bench.dispatched) == 3
    bench.message_log.when_all_dispatched(lambda: level.append(0))
    await bench.until(lambda: level == [6, 0])
    for task in (finding, following):
        task.cancel()
    await asyncio.gather(finding, following, return_exceptions=True)
    await store.close()

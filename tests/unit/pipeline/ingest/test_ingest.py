"""Records of feeds into datasets, each once, whatever is repeated; on a store in memory and real tables."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("deltalake", reason="install the extra tocsin[spark]")

from tocsin.errors import StorageUnusable
from tocsin.model.catalogue import Column, Dataset, Feed, HttpSource
from tocsin.model.channel_names import ChannelNames
from tocsin.pipeline.ingest.ingest import Ingest, split
from tocsin.pipeline.storage.landing import Landing
from tocsin.pipeline.storage.tables.files import read_parquet
from tocsin.ports import Entry, Record
from tocsin.runtime.faults import kill_points as points
from tocsin.store.memory.store import MemoryServer, MemoryStore

PLACES = ChannelNames("net")
DATASET = Dataset("Reports", (Column("n", "BIGINT", nullable=False),))
FEEDS = {name: Feed(name, "Reports", HttpSource()) for name in ("one", "two")}


class Killed(BaseException):
    """In place of SIGKILL."""


def opened(root: Path) -> Landing:
    landing = Landing(root)
    landing.create(DATASET)
    return landing


def ingest_of(landing: Landing, log: Any = None, start: int = 0, batch: int = 100) -> Ingest:
    return Ingest(landing, log, "net.feeds.>", batch=batch, start=start, clock=lambda: 5, wake=lambda: None)


def entry(position: int, feed: str, record: object) -> Entry:
    payload = record if isinstance(record, bytes) else msgspec.json.encode(record)
    return Entry(position, PLACES.feed_subject(feed), payload, str(position), 0)


def rows(landing: Landing) -> list[int]:
    snapshot = landing.data.snapshot("Reports")
    table = read_parquet(snapshot.root, [file.path for file in snapshot.files], snapshot.schema.stored)
    return sorted(table["n"].to_pylist())


def quarantined(landing: Landing) -> list[str]:
    snapshot = landing.quarantine.snapshot("Reports")
    table = read_parquet(snapshot.root, [file.path for file in snapshot.files], snapshot.schema.stored)
    return sorted(table["record"].to_pylist())


def test_a_slice_is_one_append_per_feed_and_names_the_new_version(tmp_path: Path) -> None:
    landing = opened(tmp_path)
    ingest = ingest_of(landing)
    landed = ingest.land(
        [entry(1, "one", {"n": 1}), entry(2, "two", {"n": 2}), entry(3, "one", {"n": 3})], FEEDS
    )
    assert landed.versions == {"reports": 2} and landed.entries == 3
    assert rows(landing) == [1, 2, 3] and ingest.position == 3
    assert (ingest.figures["one"].records, ingest.figures["two"].position) == (2, 2)


def test_several_records_in_one_entry_and_what_does_not_fit(tmp_path: Path) -> None:
    landing = opened(tmp_path)
    ingest = ingest_of(landing)
    ingest.land(
        [
            entry(1, "one", [{"n": 1}, {"n": "x"}, {"n": 2, "extra": 1}]),
            entry(2, "one", b"[not json"),
            entry(3, "one", 7),
        ],
        FEEDS,
    )
    assert rows(landing) == [1, 2]
    assert quarantined(landing) == ["7", "[not json", '{"n":"x"}']
    figures = ingest.figures["one"]
    assert (figures.records, figures.quarantined, figures.ignored) == (5, 3, ("extra",))


def test_records_of_a_feed_that_is_not_defined_are_left_out(tmp_path: Path) -> None:
    landing = opened(tmp_path)
    ingest = ingest_of(landing)
    landed = ingest.land([entry(1, "gone", {"n": 1}), entry(2, "one", {"n": 2})], FEEDS)
    assert landed.versions == {"reports": 1} and rows(landing) == [2] and ingest.position == 2


def test_what_the_storage_refuses_is_kept_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = opened(tmp_path)
    ingest = ingest_of(landing)
    entries = [entry(1, "one", {"n": 1})]

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise StorageUnusable("append", "no room")

    monkeypatch.setattr(landing, "land", refuse)
    with pytest.raises(StorageUnusable):
        ingest.land(entries, FEEDS)
    assert "no room" in ingest.figures["one"].error and ingest.position == 0
    monkeypatch.undo()
    ingest.give_back(entries)
    ingest.land(ingest.take(), FEEDS)
    assert rows(landing) == [1] and ingest.figures["one"].error == ""


def test_a_slice_that_begins_within_what_is_landed_adds_the_rest_only(tmp_path: Path) -> None:
    entries = [entry(n, "one", {"n": n} if n % 2 else {"n": str(n)}) for n in range(1, 7)]
    ingest_of(opened(tmp_path)).land(entries[:3], FEEDS)
    landing = opened(tmp_path)
    ingest_of(landing).land(entries[1:], FEEDS)
    assert rows(landing) == [1, 3, 5] and quarantined(landing) == ['{"n":"2"}', '{"n":"4"}', '{"n":"6"}']


def test_a_slice_killed_after_quarantine_is_repeated_with_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [entry(n, "one", {"n": n} if n % 2 else {"n": str(n)}) for n in range(1, 7)]
    landing = opened(tmp_path)

    def killed(*arguments: Any, **options: Any) -> Any:
        raise Killed

    monkeypatch.setattr(landing.data, "append", killed)
    with pytest.raises(Killed):
        ingest_of(landing).land(entries[:4], FEEDS)
    landing = opened(tmp_path)
    assert (rows(landing), quarantined(landing)) == ([], ['{"n":"2"}', '{"n":"4"}'])
    ingest_of(landing).land(entries, FEEDS)
    assert rows(landing) == [1, 3, 5] and quarantined(landing) == ['{"n":"2"}', '{"n":"4"}', '{"n":"6"}']


@settings(max_examples=30)
@given(
    records=st.lists(st.tuples(st.sampled_from(["one", "two"]), st.booleans()), min_size=1, max_size=12),
    runs=st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 2), st.sampled_from(["fit", "quarantine", "done"])),
        max_size=5,
    ),
)
def test_each_record_is_stored_or_quarantined_once_despite_kills(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[tuple[str, bool]],
    runs: list[tuple[int, int, str]],
) -> None:
    """Runs read in slices of any size from any earlier position on, and are killed within or behind a slice."""
    root = tmp_path_factory.mktemp("landing")
    entries = [
        entry(position, feed, {"n": position} if fits else {"n": str(position)})
        for position, (feed, fits) in enumerate(records, 1)
    ]
    known = 0
    with pytest.MonkeyPatch.context() as patch:
        for size, slices, place in [*runs, (4, 99, "never")]:
            landing = opened(root)
            ingest = ingest_of(landing)
            left = [each for each in entries if each.position > known]

            def land_killed(*arguments: Any, landing: Landing = landing, **options: Any) -> Any:
                raise Killed

            def reach(where: str) -> None:
                raise Killed

            for number in range(min(slices + 1, len(left) // size + 1)):
                some = left[number * size : (number + 1) * size]
                last = number == slices
                if last and place == "fit":
                    patch.setattr(points, "reach", reach)
                if last and place == "quarantine":
                    patch.setattr(landing.data, "append", land_killed)
                try:
                    if some:
                        ingest.land(some, FEEDS)
                except Killed:
                    patch.undo()
                    break
                patch.undo()
                if number % 2 == 0 and not last:
                    known = max(known, ingest.position)  # the cell of progress is written now and then
    landing = opened(root)
    assert rows(landing) == [n for n, (_, fits) in enumerate(records, 1) if fits]
    bad = sorted(f'{{"n":"{n}"}}' for n, (_, fits) in enumerate(records, 1) if not fits)
    assert quarantined(landing) == bad


async def test_a_backlog_is_read_no_further_ahead_than_the_bound(tmp_path: Path) -> None:
    store = MemoryStore(MemoryServer())
    log = await store.log(PLACES.feeds)
    await log.append([Record(PLACES.feed_subject("one"), b'{"n":1}', f"r{n}") for n in range(50)])
    ingest = ingest_of(opened(tmp_path), log, batch=5)
    following = asyncio.create_task(ingest.follow())
    taken: list[int] = []
    while len(taken) < 50:
        await asyncio.sleep(0)
        assert ingest.waiting <= 10
        taken += [each.position for each in ingest.take()]
    following.cancel()
    assert taken == list(range(1, 51))


async def test_following_begins_behind_what_is_landed(tmp_path: Path) -> None:
    store = MemoryStore(MemoryServer())
    log = await store.log(PLACES.feeds)
    await log.append([Record(PLACES.feed_subject("one"), b'{"n":1}', f"r{n}") for n in range(5)])
    ingest = ingest_of(opened(tmp_path), log, start=4)
    assert ingest.position == 3
    following = asyncio.create_task(ingest.follow())
    while ingest.waiting < 2:
        await asyncio.sleep(0)
    following.cancel()
    assert [each.position for each in ingest.take()] == [4, 5]


@pytest.mark.parametrize(
    ("payload", "records"),
    [
        (b'{"a": 1}', [b'{"a": 1}']),
        (b' [{"a": 1},\n {"b": [2]}] ', [b'{"a": 1}', b'{"b": [2]}']),
        (b"[]", []),
        (b"[1", [b"[1"]),
        (b"", [b""]),
        (b"\xff[", [b"\xff["]),
    ],
)
def test_an_entry_has_one_record_or_an_array_of_them(payload: bytes, records: list[bytes]) -> None:
    assert split(payload) == records

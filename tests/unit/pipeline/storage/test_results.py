from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.pipeline.storage.test_parts import Row, batch
from tocsin.errors import StorageUnusable, Trimmed
from tocsin.model.results import Execution, Notice, decode_notice, encode_notice
from tocsin.pipeline.storage import results
from tocsin.pipeline.storage.parts import Part, TaskOutput, parts_of, write_part
from tocsin.pipeline.storage.results import Committed, ResultsStore
from tocsin.pipeline.storage.tables import planning
from tocsin.pipeline.storage.tables.delta import Table
from tocsin.results.reader import Result, ResultsReader

NOW_US = 1_800_000_000_000_000
SECOND = 1_000_000


def run(
    store: ResultsStore, tick: int, tasks: list[list[Row]], *, name: str = "r1", at_us: int = NOW_US
) -> list[Part]:
    where = TaskOutput(str(store.root), tick, name, at_us)
    return parts_of(write_part(where, part, 0, [batch(rows)]) for part, rows in enumerate(tasks))


def tick(
    store: ResultsStore, number: int, tasks: list[list[Row]], *, at_us: int = NOW_US, **more: Any
) -> Committed:
    return store.commit(number, run(store, number, tasks, at_us=at_us), at_us=at_us, metadata=more)


def row(k: str, payload: str, *brokers: str, channel: str = "Near") -> Row:
    return (channel, 3, k, list(brokers), 0, payload)


@pytest.fixture
def store(tmp_path: Path) -> ResultsStore:
    return ResultsStore(tmp_path / "results")


def payloads(found: Any) -> list[tuple[int, str]]:
    return [(each.ordinal, each.payload.decode()) for each in found]


def test_a_tick_is_one_commit_with_all_that_its_notice_needs(store: ResultsStore) -> None:
    committed = tick(
        store,
        5,
        [[row("k1", "a", "e1", "e2"), row("k2", "b", "e2")], [row("k3", "c", "e1", channel="Far")]],
        read={"D": 4},
    )
    (notice,) = committed.notices()
    assert decode_notice(encode_notice(notice)) == notice
    assert (notice.tick, notice.first, notice.rows, notice.id) == (5, 0, 3, "tick-5-0")
    assert notice.executions == (Execution("Far", 3, 1, 0), Execution("Near", 3, 2, 0))
    assert [(file.broker, file.rows, file.part, file.offset) for file in notice.files] == [
        ("e1", 1, 0, 0),
        ("e2", 2, 0, 0),
        ("e1", 1, 1, 2),
    ]
    reader = ResultsReader(store.root)
    assert list(reader.read(notice, "e1")) == [
        Result(0, "Near", 3, "k1", 0, b"a"),
        Result(2, "Far", 3, "k3", 0, b"c"),
    ]
    assert payloads(reader.read(notice, "e2")) == [(0, "a"), (1, "b")]
    assert payloads(reader.find(notice, ["k1", "k3"])) == [(0, "a"), (2, "c")]


def test_after_a_restart_the_newest_tick_is_known_as_it_was(store: ResultsStore) -> None:
    assert store.committed() is None
    committed = tick(store, 5, [[row("k1", "a", "e1")], [row("k2", "b", "e2")]], read={"D": 4})
    assert ResultsStore(store.root).committed() == committed
    assert committed.metadata == {"read": {"D": 4}}


def test_a_tick_without_results_is_committed_and_has_no_notice(store: ResultsStore) -> None:
    committed = tick(store, 5, [], read={"D": 4})
    assert committed.notices() == []
    assert ResultsStore(store.root).committed() == committed


def test_a_tick_that_is_run_again_is_not_committed_again(store: ResultsStore) -> None:
    first = tick(store, 5, [[row("k1", "a", "e1")]], read=1)
    again = ResultsStore(store.root)
    repeated = again.commit(5, run(again, 5, [[row("k1", "A", "e1")]], name="r2"), at_us=NOW_US + 9)
    assert repeated == first
    assert payloads(ResultsReader(store.root).read(repeated.notices()[0], "e1")) == [(0, "a")]
    tick(store, 6, [])
    with pytest.raises(StorageUnusable, match="tick 6 is committed already"):
        tick(again, 4, [])


def test_of_two_that_run_one_tick_at_once_one_is_committed(store: ResultsStore) -> None:
    stores = [store, ResultsStore(store.root)]
    parts = [run(each, 5, [[row("k1", f"{n}", "e1")]], name=f"r{n}") for n, each in enumerate(stores)]
    found: list[Committed] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(stores[n].commit(5, parts[n], at_us=NOW_US)))
        for n in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert len(ResultsStore(store.root).snapshot().files) == 1


def test_a_large_tick_has_several_notices(store: ResultsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "ORDINALS", 3)
    tasks = [[row("k", f"{task}{n}", "e1") for n in range(2)] for task in range(4)]
    notices = tick(store, 5, tasks).notices()
    assert [(notice.first, notice.rows, notice.id) for notice in notices] == [
        (0, 3, "tick-5-0"),
        (3, 3, "tick-5-3"),
        (6, 2, "tick-5-6"),
    ]
    assert [[file.part for file in notice.files] for notice in notices] == [[0, 1], [1, 2], [3]]
    reader = ResultsReader(store.root)
    assert [payloads(reader.read(notice, "e1")) for notice in notices] == [
        [(0, "00"), (1, "01"), (2, "10")],
        [(0, "11"), (1, "20"), (2, "21")],
        [(0, "30"), (1, "31")],
    ]
    assert payloads(reader.find(notices[1], ["k"], start=1)) == [(1, "20"), (2, "21")]


def settled(store: ResultsStore, ticks: int) -> dict[int, Notice]:
    """Ticks that are long over, and one that is not."""
    notices = {}
    for number in range(1, ticks + 1):
        committed = tick(store, number, [[row("k1", f"{number}a", "e1", "e2")], [row("k2", f"{number}b", "e1")]],
                         at_us=NOW_US + number * SECOND)  # fmt: skip
        notices[number] = committed.notices()[0]
    return notices


LATER = NOW_US + int(results.SETTLED_S + 100) * SECOND


def test_results_are_found_after_their_files_were_put_together(store: ResultsStore) -> None:
    notices = settled(store, planning.COMPACT_FILES + 3)
    done = store.upkeep(LATER, keep_s=None, floor=0)
    assert [each.step for each in done] == ["compact"]
    assert store.upkeep(LATER + 2 * 3_600 * SECOND, keep_s=None, floor=0)[-1].step == "sweep"
    assert not (store.root / notices[1].files[0].path).exists()
    reader = ResultsReader(store.root)
    for number, notice in notices.items():
        assert payloads(reader.read(notice, "e1")) == [(0, f"{number}a"), (1, f"{number}b")]
        assert payloads(reader.read(notice, "e2")) == [(0, f"{number}a")]
        assert payloads(reader.find(notice, ["k2", "k1"])) == [(0, f"{number}a"), (1, f"{number}b")]
    newest = store.committed()
    assert newest is not None
    assert newest.notices() == [notices[max(notices)]]
    assert ResultsStore(store.root).committed() == newest


def test_results_are_forgotten_when_they_are_old_and_nobody_needs_them(store: ResultsStore) -> None:
    notices = settled(store, 4)
    assert store.upkeep(LATER, keep_s=10, floor=0) == [], "the floor holds"
    (done,) = store.upkeep(LATER, keep_s=10, floor=2)
    assert (done.step, done.removed, len(store.snapshot().files)) == ("forget", 3, 9)
    store.upkeep(LATER, keep_s=10, floor=1_000)
    assert len(store.snapshot().files) == 3, "the newest tick stays"
    store.upkeep(LATER + 2 * 3_600 * SECOND, keep_s=10, floor=4)
    reader = ResultsReader(store.root)
    with pytest.raises(Trimmed, match="the oldest is 4"):
        list(reader.read(notices[1], "e1"))
    assert payloads(reader.read(notices[4], "e2")) == [(0, "4a")]


def test_up_to_which_tick_results_were_forgotten_is_known(store: ResultsStore) -> None:
    settled(store, 4)
    assert store.snapshot().forgotten == 0
    store.upkeep(LATER, keep_s=10, floor=3)
    assert ResultsStore(store.root).snapshot().forgotten == 2
    tick(store, 5, [[row("k1", "a", "e1")]], at_us=LATER)
    assert (store.snapshot().tick, store.snapshot().forgotten) == (5, 2)


def test_a_table_of_an_earlier_release_gets_the_columns_it_lacks(tmp_path: Path) -> None:
    names = [name for name in results._STORED.names if name != "parameters"]
    older = pa.schema([results._STORED.field(name) for name in names])
    Table.create(tmp_path / "results", older, partition_by=["broker"])
    store = ResultsStore(tmp_path / "results")
    committed = tick(store, 1, [[row("k1", "a", "e1")]])
    assert "parameters" in DeltaTable(store.root).schema().to_json()
    entries = len(list((store.root / "_delta_log").glob("*.json")))
    assert ResultsStore(store.root).committed() == committed
    assert len(list((store.root / "_delta_log").glob("*.json"))) == entries, "once"


def test_old_rows_go_from_a_file_that_has_younger_ones_too(store: ResultsStore) -> None:
    notices = {}
    for number in range(1, 12):
        at_us = NOW_US + number * 100 * SECOND
        notices[number] = tick(store, number, [[row("k", str(number), "e1")]], at_us=at_us).notices()[0]
    now_us = NOW_US + 1_800 * SECOND
    assert store.upkeep(now_us, keep_s=None, floor=0)[0].step == "compact"
    assert store.upkeep(now_us, keep_s=1_250, floor=10) == [], (
        "the file has rows that are not below the floor"
    )
    (done,) = store.upkeep(now_us, keep_s=1_250, floor=11)
    assert (done.step, done.removed, done.added) == ("forget", 1, 1)
    store.upkeep(now_us + 7_200 * SECOND, keep_s=None, floor=0)
    reader = ResultsReader(store.root)
    for number, notice in notices.items():
        if number <= 5:
            with pytest.raises(Trimmed):
                list(reader.read(notice, "e1"))
        else:
            assert payloads(reader.read(notice, "e1")) == [(0, str(number))]


def test_files_of_a_lost_attempt_are_swept_and_a_running_ticks_kept(
    store: ResultsStore,
) -> None:
    tick(store, 5, [[row("k", "a", "e1")]])
    (lost,) = run(store, 5, [[row("k", "a", "e1")]], name="dead")
    (coming,) = run(store, 6, [[row("k", "b", "e1")]])
    store.upkeep(NOW_US, keep_s=None, floor=0)
    (done,) = store.upkeep(NOW_US + 3_601 * SECOND, keep_s=None, floor=0)
    assert (done.step, done.removed) == ("sweep", 1)
    assert not (store.root / lost.files[0].path).exists()
    committed = store.commit(6, [coming], at_us=NOW_US)
    assert payloads(ResultsReader(store.root).read(committed.notices()[0], "e1")) == [(0, "b")]


tasks = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["k1", "k2", "k3"]),
            st.lists(st.sampled_from(["e1", "e2"]), min_size=1, max_size=2, unique=True),
        ),
        max_size=4,
    ),
    max_size=3,
)


@settings(max_examples=30)
@given(st.lists(tasks, min_size=1, max_size=4), st.booleans(), st.sampled_from([2, 1 << 20]))
def test_every_result_is_read_where_it_belongs_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, ticks: list[Any], moved: bool, ordinals: int
) -> None:
    store = ResultsStore(tmp_path_factory.mktemp("results"), grace_s=0)
    notices: list[tuple[Notice, list[tuple[str, list[str], str]]]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "ORDINALS", ordinals)
        patch.setattr(planning, "COMPACT_FILES", 2)
        for number, each in enumerate(ticks, 1):
            rows = [[row(k, f"{number}.{t}.{n}", *brokers) for n, (k, brokers) in enumerate(task)]
                    for t, task in enumerate(each)]  # fmt: skip
            flat = [(k, brokers, payload) for task in rows for _, _, k, brokers, _, payload in task]
            for notice in tick(store, number, rows).notices():
                notices.append((notice, flat[notice.first : notice.first + notice.rows]))
        if moved:
            store.upkeep(LATER, keep_s=None, floor=0)
    reader = ResultsReader(store.root)
    for notice, expected in notices:
        for broker in ("e1", "e2", "e3"):
            assert payloads(reader.read(notice, broker)) == [
                (n, payload) for n, (_, brokers, payload) in enumerate(expected) if broker in brokers
            ]
        for ks in (["k1"], ["k2", "k3"], []):
            assert payloads(reader.find(notice, ks)) == [
                (n, payload) for n, (k, _, payload) in enumerate(expected) if k in ks
            ]


def test_another_reader_of_delta_sees_all_rows_with_their_brokers(store: ResultsStore) -> None:
    settled(store, planning.COMPACT_FILES + 3)
    store.upkeep(LATER, keep_s=None, floor=0)
    table = pa.table(DeltaTable(store.root).scan(columns=["tick", "broker", "payload"]).read_all())
    expected = [
        (n, broker, f"{n}{x}") for n in range(1, 12) for broker, x in (("e1", "a"), ("e1", "b"), ("e2", "a"))
    ]
    assert sorted(zip(*(table[name].to_pylist() for name in table.column_names), strict=True)) == expected

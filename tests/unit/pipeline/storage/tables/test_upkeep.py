from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.pipeline.storage.stored_tables import (
    DAY_US,
    MOVES,
    NOW_US,
    PLACES,
    REPORTS,
    counting,
    rows_of,
    stored,
)
from tocsin.model.catalogue import Dataset
from tocsin.pipeline.storage.datasets import DatasetStore, Snapshot, time_of
from tocsin.pipeline.storage.tables import planning, upkeep
from tocsin.pipeline.storage.tables.delta import Overtaken
from tocsin.pipeline.storage.tables.files import read_parquet, write_parquet
from tocsin.pipeline.storage.tables.upkeep import TOMBSTONES_KEPT_S, Sweep, Upkeep, compact, fold, merge

HOUR_US = 3_600_000_000


@pytest.fixture
def store(tmp_path: Path) -> DatasetStore:
    return DatasetStore(tmp_path)


def report(store: DatasetStore, number: int, at_us: int = NOW_US) -> None:
    store.append("Reports", rows_of(REPORTS, [(number, f"r{number}", time_of(at_us))]), now_us=at_us)


def dated(keep_s: float) -> Dataset:
    return Dataset("Reports", REPORTS.columns, event_time="at", keep_s=keep_s)


def test_compaction_makes_few_files_of_many_and_changes_no_row(store: DatasetStore) -> None:
    store.create(REPORTS)
    for number in range(planning.COMPACT_FILES + 2):
        report(store, number)
    before = store.snapshot("Reports")
    done = Upkeep(store).run("Reports", NOW_US)
    after = store.snapshot("Reports")
    assert [(each.step, each.removed, each.added) for each in done] == [("compact", len(before.files), 1)]
    assert (len(after.files), after.version) == (1, before.version)
    assert stored(after) == sorted(stored(before), key=lambda row: row["_version"])
    entry = sorted((after.root / "_delta_log").glob("*.json"))[-1].read_text()
    assert '"dataChange":false' in entry and '"dataChange":true' not in entry


def test_two_compactions_at_once_leave_every_row_once(store: DatasetStore) -> None:
    store.create(REPORTS)
    for number in range(planning.COMPACT_FILES + 2):
        report(store, number)
    snapshot, table = store.snapshot("Reports"), store.table("Reports")
    compact(snapshot, table, time_of(NOW_US))
    with pytest.raises(Overtaken):
        compact(snapshot, table, time_of(NOW_US))
    assert len(stored(store.snapshot("Reports"))) == planning.COMPACT_FILES + 2


def test_what_is_appended_while_a_dataset_is_folded_is_kept(store: DatasetStore) -> None:
    store.create(MOVES)
    store.append("Moves", rows_of(MOVES, [("a", 1.0, 1), ("b", 1.0, 1)]), now_us=NOW_US)
    snapshot = store.snapshot("Moves")
    store.append("Moves", rows_of(MOVES, [("a", 2.0, 2)]), now_us=NOW_US)
    fold(snapshot, store.table("Moves"), time_of(NOW_US))
    after = store.snapshot("Moves")
    assert [file.rows for file in after.base] == [2]
    assert [file.rows for file in after.changes] == [1]
    assert counting(after)["a",]["x"] == 2.0


def test_after_a_fold_any_reader_sees_each_key_once(store: DatasetStore) -> None:
    store.create(PLACES)
    for x in range(3):
        rows = [("a", float(x), False), ("b", 1.0, False), ("c", None, x == 2)]
        store.append("Places", rows_of(PLACES, rows), now_us=NOW_US)
    fold(store.snapshot("Places"), store.table("Places"), time_of(NOW_US))
    rows_seen = [(row["user"], row["x"], row["_deleted"]) for row in stored(store.snapshot("Places"))]
    assert sorted(rows_seen) == [("a", 2.0, False), ("b", 1.0, False)]


def test_changes_are_settled_after_a_merge_and_the_late_ones_gone(store: DatasetStore) -> None:
    store.create(MOVES)
    store.append("Moves", rows_of(MOVES, [("a", 1.0, 10), ("b", 1.0, 10), ("c", 1.0, 5)]), now_us=NOW_US)
    fold(store.snapshot("Moves"), store.table("Moves"), time_of(NOW_US))
    store.append("Moves", rows_of(MOVES, [("a", 2.0, 9), ("b", 2.0, 10), ("c", 2.0, 6)]), now_us=NOW_US)
    assert not store.snapshot("Moves").settled
    Upkeep(store).tidy("Moves", NOW_US)
    snapshot = store.snapshot("Moves")
    assert (snapshot.settled, [file.rows for file in snapshot.changes]) == (True, [2])
    assert in_layers(snapshot) == counting(snapshot)
    assert {key[0]: row["x"] for key, row in counting(snapshot).items()} == {"a": 1.0, "b": 2.0, "c": 2.0}
    Upkeep(store).tidy("Moves", NOW_US)
    assert store.snapshot("Moves") == snapshot


def test_an_append_beside_a_long_fold_does_not_overtake_it(store: DatasetStore) -> None:
    store.create(PLACES)
    store.append("Places", rows_of(PLACES, [("a", 1.0), ("b", 1.0)]), now_us=NOW_US)
    table = store.table("Places")
    with table.rewriting:
        snapshot = store.snapshot("Places")
        store.append("Places", rows_of(PLACES, [("a", 2.0)]), now_us=NOW_US)
        Upkeep(store).tidy("Places", NOW_US)
        fold(snapshot, table, time_of(NOW_US))
    assert {key[0]: row["x"] for key, row in counting(store.snapshot("Places")).items()} == {
        "a": 2.0,
        "b": 1.0,
    }


def test_a_file_of_another_writer_is_never_taken_for_settled(store: DatasetStore) -> None:
    store.create(PLACES)
    store.append("Places", rows_of(PLACES, [("a", 1.0)]), now_us=NOW_US)
    store.append("Places", rows_of(PLACES, [("a", 2.0)]), now_us=NOW_US)
    snapshot, table = store.snapshot("Places"), store.table("Places")
    rows = read_parquet(snapshot.root, [file.path for file in snapshot.files], snapshot.schema.stored)
    theirs = write_parquet(snapshot.root, "part-0.parquet", rows)
    table.commit([theirs], removes=snapshot.files, transactions={"theirs": 1})
    assert not store.snapshot("Places").settled
    Upkeep(store).tidy("Places", NOW_US)
    assert [(row["user"], row["x"]) for row in stored(store.snapshot("Places"))] == [("a", 2.0)]


def test_one_append_after_the_base_needs_no_merge(store: DatasetStore) -> None:
    store.create(MOVES)
    store.append("Moves", rows_of(MOVES, [("a", 1.0, 10)]), now_us=NOW_US)
    fold(store.snapshot("Moves"), store.table("Moves"), time_of(NOW_US))
    store.append("Moves", rows_of(MOVES, [("a", 2.0, 10)]), now_us=NOW_US)
    snapshot = store.snapshot("Moves")
    assert snapshot.settled
    Upkeep(store).tidy("Moves", NOW_US)
    assert store.snapshot("Moves") == snapshot


def test_a_late_row_loses_against_a_deletion_even_after_a_fold(store: DatasetStore) -> None:
    store.create(MOVES)
    store.append("Moves", rows_of(MOVES, [("a", 1.0, 5, False)]), now_us=NOW_US)
    store.append("Moves", rows_of(MOVES, [("a", None, 10, True)]), now_us=NOW_US)
    fold(store.snapshot("Moves"), store.table("Moves"), time_of(NOW_US))
    store.append("Moves", rows_of(MOVES, [("a", 2.0, 7, False)]), now_us=NOW_US)
    assert counting(store.snapshot("Moves")) == {}
    fold(store.snapshot("Moves"), store.table("Moves"), time_of(NOW_US))
    assert counting(store.snapshot("Moves")) == {}
    later = NOW_US + int(TOMBSTONES_KEPT_S * 1_000_000) + 1
    fold(store.snapshot("Moves"), store.table("Moves"), time_of(later))
    assert stored(store.snapshot("Moves")) == []


class Moves:
    """The dumbest model of a keyed dataset."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[Any, ...]] = {}  # user → (at, number, x or None if deleted)

    def append(self, number: int, rows: list[tuple[str, float | None, int]]) -> None:
        for index, (user, x, at) in enumerate(rows):
            self.rows[user] = max(self.rows.get(user, (-1,)), (at, number, index, x), key=lambda row: row[:3])

    def seen(self) -> dict[tuple[str], dict[str, Any]]:
        return {
            (user,): {"user": user, "x": row[3], "at": row[0]}
            for user, row in self.rows.items()
            if row[3] is not None
        }


def in_layers(snapshot: Snapshot) -> dict[tuple[Any, ...], dict[str, Any]]:
    """What a reader sees that believes the changes settled: those, and of the base what they do not speak of."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for files in (snapshot.base, snapshot.changes):
        rows = stored(msgspec.structs.replace(snapshot, files=tuple(files)))
        assert len({row["user"] for row in rows}) == len(rows)
        found.update(((row["user"],), row) for row in rows)
    return {
        key: {name: row[name] for name in snapshot.schema.columns}
        for key, row in found.items()
        if not row["_deleted"]
    }


moves = st.lists(
    st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.floats(0, 9, width=16)), st.integers(0, 9)),
    min_size=1,
    max_size=5,
)
steps = st.lists(st.one_of(moves, st.sampled_from(["fold", "merge", "upkeep", "restart"])), max_size=12)


@settings(max_examples=25)
@given(steps, st.booleans())
def test_a_keyed_dataset_always_has_the_rows_of_a_dictionary(happening: list[Any], small: bool) -> None:
    keeps_up_with_a_dictionary(happening, small)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=300)
@given(steps, st.booleans())
def test_a_keyed_dataset_always_has_the_rows_of_a_dictionary_long(happening: list[Any], small: bool) -> None:
    keeps_up_with_a_dictionary(happening, small)


def keeps_up_with_a_dictionary(happening: list[Any], small: bool) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        store = DatasetStore(root)
        store.create(MOVES)
        model = Moves()
        with pytest.MonkeyPatch.context() as patch:
            if small:  # so that upkeep finds something to do, and files of a base are left alone
                patch.setattr(planning, "FOLD_ROWS", 4)
                patch.setattr(planning, "SMALL_ROWS", 1)
                patch.setattr(upkeep, "FILE_ROWS", 1)
            for step in happening:
                if isinstance(step, list):
                    rows = [(user, x, at, x is None) for user, x, at in step]
                    model.append(store.append("Moves", rows_of(MOVES, rows), now_us=NOW_US), step)
                elif step == "restart":
                    store = DatasetStore(root)
                    store.create(MOVES)
                elif step == "upkeep":
                    Upkeep(store, grace_s=0).run("Moves", NOW_US)
                elif step == "fold":
                    fold(store.snapshot("Moves"), store.table("Moves"), time_of(NOW_US))
                elif store.snapshot("Moves").changes:
                    merge(store.snapshot("Moves"), store.table("Moves"), time_of(NOW_US))
                snapshot = store.snapshot("Moves")
                assert counting(snapshot) == model.seen()
                if snapshot.settled:
                    assert in_layers(snapshot) == model.seen()
                rows_of_base = msgspec.structs.replace(snapshot, files=tuple(snapshot.base))
                keys = [row["user"] for row in stored(rows_of_base)]
                assert len(set(keys)) == len(keys)
    finally:
        shutil.rmtree(root)


def test_rows_are_forgotten_by_their_event_time(store: DatasetStore) -> None:
    store.create(dated(86_400))
    for day in range(5):
        report(store, day, NOW_US - day * DAY_US)
    done = Upkeep(store).run("Reports", NOW_US + 1)
    assert [(each.step, each.removed, each.added) for each in done] == [("forget", 4, 0)]
    assert [row["id"] for row in stored(store.snapshot("Reports"))] == [0]


def test_a_file_with_expired_rows_is_rewritten_without_them(store: DatasetStore) -> None:
    store.create(dated(86_400))
    rows = [(day, "r", time_of(NOW_US - day * DAY_US)) for day in range(3)]
    store.append("Reports", rows_of(REPORTS, rows), now_us=NOW_US)
    (done,) = Upkeep(store).run("Reports", NOW_US + HOUR_US)
    assert (done.step, done.removed, done.added) == ("forget", 1, 1)
    assert [row["id"] for row in stored(store.snapshot("Reports"))] == [0]


def test_without_an_event_time_rows_are_forgotten_by_their_arrival(store: DatasetStore) -> None:
    store.create(Dataset("Reports", REPORTS.columns, keep_s=60))
    report(store, 1, NOW_US)
    report(store, 2, NOW_US + 50_000_000)
    Upkeep(store).run("Reports", NOW_US + 70_000_000)
    assert [row["id"] for row in stored(store.snapshot("Reports"))] == [2]


def test_keyed_rows_are_forgotten_too_and_none_older_comes_back(store: DatasetStore) -> None:
    columns = (*PLACES.columns, *[each for each in REPORTS.columns if each.name == "at"])
    dataset = Dataset("Seen", columns, key=("user",), event_time="at", keep_s=86_400)
    store.create(dataset)
    old, new = time_of(NOW_US - 3 * DAY_US), time_of(NOW_US - 2 * DAY_US)
    store.append("Seen", rows_of(dataset, [("a", 1.0, old), ("b", 1.0, time_of(NOW_US))]), now_us=NOW_US)
    fold(store.snapshot("Seen"), store.table("Seen"), time_of(NOW_US - 3 * DAY_US))
    store.append("Seen", rows_of(dataset, [("a", 2.0, new)]), now_us=NOW_US)
    assert Upkeep(store).run("Seen", NOW_US)[0].step == "fold"
    assert [row["user"] for row in stored(store.snapshot("Seen"))] == ["b"]


def test_files_without_use_go_after_the_grace_and_no_others(store: DatasetStore) -> None:
    store.create(REPORTS)
    report(store, 1)
    snapshot, table = store.snapshot("Reports"), store.table("Reports")
    orphan = snapshot.root / "rows" / "orphan.parquet"
    orphan.write_bytes(b"x")
    sweep = Sweep(table, grace_s=10)
    assert sweep.run(NOW_US) == 0
    assert sweep.run(NOW_US + 9_999_999) == 0
    assert orphan.exists()
    assert sweep.run(NOW_US + 10_000_000, spared=lambda path: "orphan" in path) == 0
    assert sweep.run(NOW_US + 20_000_000) == 0, "what was spared begins its grace anew"
    assert sweep.run(NOW_US + 30_000_000) == 1
    assert not orphan.exists()
    assert len(stored(store.snapshot("Reports"))) == 1


def test_a_file_that_is_committed_during_its_grace_stays(store: DatasetStore) -> None:
    store.create(REPORTS)
    report(store, 1)
    table = store.table("Reports")
    (file,) = table.files()
    table.commit([], removes=[file], transactions={"test": 1})
    sweep = Sweep(table, grace_s=10)
    sweep.run(NOW_US)
    table.commit([file], transactions={"test": 2})
    assert sweep.run(NOW_US + 20_000_000) == 0
    assert len(stored(store.snapshot("Reports"))) == 1


def test_readers_of_an_older_snapshot_find_their_files_within_the_grace(store: DatasetStore) -> None:
    store.create(REPORTS)
    for number in range(planning.COMPACT_FILES + 2):
        report(store, number)
    held = store.snapshot("Reports")
    keeper = Upkeep(store, grace_s=60)
    keeper.run("Reports", NOW_US)
    assert len(stored(held)) == planning.COMPACT_FILES + 2
    keeper.run("Reports", NOW_US + 61_000_000)
    assert len(list((held.root / "rows").iterdir())) == 1
    assert len(stored(store.snapshot("Reports"))) == planning.COMPACT_FILES + 2

from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st

from tocsin.pipeline.storage.tables import planning
from tocsin.pipeline.storage.tables.files import DataFile

NOW = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)


def file(name: int, rows: int, size: int = 0, broker: str | None = None) -> DataFile:
    partition: dict[str, str | None] = {} if broker is None else {"broker": broker}
    return DataFile(f"{name:05}", size or rows * 10, rows, {"v": name}, {"v": name}, partition)


def aged(name: int, first_s: float, last_s: float) -> DataFile:
    """A file whose rows are so many seconds old."""
    at = [NOW - datetime.timedelta(seconds=each) for each in (first_s, last_s)]
    return DataFile(f"{name:05}", 10, 10, {"at": at[0]}, {"at": at[1]})


sizes = st.lists(
    st.builds(
        file,
        st.integers(0, 99_999),
        st.integers(1, planning.SMALL_ROWS * 2),
        st.integers(1, planning.SMALL_BYTES * 2),
        st.sampled_from(["a", "b"]),
    ),
    max_size=60,
    unique_by=lambda each: each.path,
)


@given(sizes)
def test_compaction_takes_small_files_of_one_partition_each_once_within_its_bounds(
    files: list[DataFile],
) -> None:
    groups = planning.to_compact(files, "v")
    taken = [each for group in groups for each in group]
    assert len({each.path for each in taken}) == len(taken)
    assert sum(each.size for each in taken) <= planning.COMPACT_BYTES_MAX
    for group in groups:
        assert len(group) > 1
        assert len({each.partition["broker"] for each in group}) == 1
        assert all(each.rows < planning.SMALL_ROWS and each.size < planning.SMALL_BYTES for each in group)
        assert group == sorted(group, key=lambda each: each.path)


def test_constant_appends_keep_few_files_and_rewrite_rows_rarely() -> None:
    files: list[DataFile] = []
    written = 0
    most = 0
    for number in range(20_000):
        files.append(file(number, 100))
        for group in planning.to_compact(files, "v"):
            rows = sum(each.rows for each in group)
            written += rows
            paths = {each.path for each in group}
            files = [each for each in files if each.path not in paths]
            files.append(DataFile(group[0].path, rows * 10, rows, group[0].least, group[-1].greatest))
        most = max(most, len(files))
    assert most <= 60
    assert written <= 6 * 20_000 * 100


def test_changes_are_folded_when_they_are_many_beside_the_base() -> None:
    assert not planning.should_fold([], [file(1, planning.FOLD_ROWS)])
    assert planning.should_fold([], [file(1, planning.FOLD_ROWS + 1)])
    base = [file(1, 1_000_000)]
    assert not planning.should_fold(base, [file(2, 250_000)])
    assert planning.should_fold(base, [file(2, 250_001)])
    assert planning.should_fold([file(1, 10**9)], [file(2, planning.FOLD_ROWS_MAX + 1)])


@given(
    st.lists(
        st.tuples(st.floats(0, 1_000), st.floats(0, 1_000)).map(lambda pair: (max(pair), min(pair))),
        max_size=10,
    )
)
def test_rows_go_between_their_time_and_a_tenth_later(spans: list[tuple[float, float]]) -> None:
    files = [aged(number, *span) for number, span in enumerate(spans)]
    plan = planning.to_forget(files, "at", 100, NOW)
    for each in files:
        oldest_s = (NOW - each.least["at"]).total_seconds()
        newest_s = (NOW - each.greatest["at"]).total_seconds()
        assert (each in plan.whole) == (newest_s > 100)
        assert (each in plan.parts) == (newest_s <= 100 and oldest_s > 110)


def test_what_is_kept_for_ages_is_kept() -> None:
    assert planning.to_forget([aged(1, 1, 0)], "at", 1e15, NOW) == planning.Forgetting()

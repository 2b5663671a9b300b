from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from tocsin.errors import ResultsUnreachable, Trimmed
from tocsin.model.results import Notice, ResultFile
from tocsin.results import reader as results
from tocsin.results.reader import ResultsReader

pa = pytest.importorskip("pyarrow", reason="install the extra tocsin[spark]")
pq = pytest.importorskip("pyarrow.parquet")


def write(root: Path, name: str, rows: list[int], *, part: int = 0, group: int = 100) -> ResultFile:
    """A file of broker e1 with these row numbers; the payload is the row's number."""
    count = len(rows)
    table = pa.table(
        {
            "tick": [7] * count,
            "part": pa.array([part] * count, pa.int32()),
            "row": pa.array(rows, pa.int32()),
            "channel": ["Near"] * count,
            "execution": [3] * count,
            "k": [f"k{row}" for row in rows],
            "priority": pa.array([0] * count, pa.int32()),
            "payload": [str(row) for row in rows],
            "at": pa.array([0] * count, pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, root / name, row_group_size=group)
    return ResultFile("e1", name, count, part, part * 10)


def notice(*files: ResultFile, rows: int = 100) -> Notice:
    return Notice(7, 0, (), files, 0, rows)


def ordinals(found: Any) -> list[int]:
    return [each.ordinal for each in found]


def test_parts_come_in_the_order_of_their_ordinals(tmp_path: Path) -> None:
    files = [write(tmp_path, f"{part}", [0, 2], part=part) for part in (2, 0, 1)]
    assert ordinals(ResultsReader(tmp_path).read(notice(*files), "e1")) == [0, 2, 10, 12, 20, 22]
    assert ordinals(ResultsReader(tmp_path).read(notice(*files), "e1", start=12)) == [12, 20, 22]
    assert ordinals(ResultsReader(tmp_path).read(notice(*files), "e9")) == []


def test_a_large_file_is_read_group_by_group_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "CACHED_FILE_BYTES", 10)
    file = write(tmp_path, "f", list(range(50)), group=7)
    reader = ResultsReader(tmp_path)
    rows = reader.read(notice(file), "e1")
    assert next(rows).ordinal == 0
    assert ordinals(rows) == list(range(1, 50))
    assert not reader._cached


def test_what_was_read_is_kept_within_a_bound(tmp_path: Path) -> None:
    files = [write(tmp_path, f"{part}", [0], part=part) for part in range(4)]
    reader = ResultsReader(tmp_path)
    list(reader.read(notice(*files[:1]), "e1"))
    bounded = ResultsReader(tmp_path, cache_bytes=reader._bytes * 3)  # two thirds are for columns
    for file in files:
        assert ordinals(bounded.read(notice(file), "e1")) == [file.offset]
    assert list(bounded._cached) == ["2", "3"]
    (tmp_path / "3").unlink()
    assert ordinals(bounded.read(notice(files[3]), "e1")) == [30]
    figures = bounded.statistics()
    assert figures == {
        "results_cache_bytes": bounded._bytes,
        "results_cache_hits": 1,
        "results_cache_misses": 4,
    }
    without = ResultsReader(tmp_path, cache_bytes=0)
    assert [ordinals(without.read(notice(files[2]), "e1")) for _ in range(2)] == [[20], [20]]
    assert without.statistics()["results_cache_hits"] == 0


def test_storage_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    file = ResultFile("e1", "f", 1)
    with pytest.raises(ResultsUnreachable, match="there is no such directory; ask the pipeline"):
        list(ResultsReader(tmp_path / "nothing").read(notice(file), "e1"))
    with pytest.raises(ResultsUnreachable):  # a file that is gone, and no log that says where to
        list(ResultsReader(tmp_path).read(notice(file), "e1"))
    (tmp_path / "f").write_bytes(b"no parquet")
    with pytest.raises(ResultsUnreachable):
        list(ResultsReader(tmp_path).find(notice(file), ["k1"]))


@pytest.mark.parametrize("path", ["/etc/passwd", "../f", "a/../../f"])
def test_a_name_that_leads_elsewhere_is_not_followed(tmp_path: Path, path: str) -> None:
    with pytest.raises(ResultsUnreachable, match="leads out of the dataset"):
        list(ResultsReader(tmp_path).read(notice(ResultFile("e1", path, 1)), "e1"))


def test_a_broker_without_pyarrow_is_told_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ResultsUnreachable, match="pyarrow is not installed"):
        list(ResultsReader(tmp_path).read(notice(ResultFile("e1", "f", 1)), "e1"))


def test_a_part_without_rows_is_not_missed_when_it_is_gone(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    DeltaTable.create(
        tmp_path, pa.schema([("tick", pa.int64()), ("broker", pa.string())]), partition_by=["broker"]
    )
    assert ordinals(ResultsReader(tmp_path).read(notice(ResultFile("e1", "f", 0)), "e1")) == []
    with pytest.raises(Trimmed):
        list(ResultsReader(tmp_path).read(notice(ResultFile("e1", "f", 1)), "e1"))


def test_who_asks_often_is_answered_as_who_asks_first(tmp_path: Path) -> None:
    files = [write(tmp_path, f"{part}", [0, 1, 3], part=part) for part in (1, 0)]
    again = write(tmp_path, "again", [0, 1, 3])  # the same results, in another broker's file
    reader = ResultsReader(tmp_path)
    for _ in range(5):
        assert ordinals(reader.find(notice(*files, again), ["k3", "k1"], start=2)) == [3, 11, 13]
        assert ordinals(reader.find(notice(*files, again), ["k0"])) == [0, 10]

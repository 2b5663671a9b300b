from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pipeline.storage.stored_tables import NOW_US, stored
from tocsin.errors import FileUnreadable
from tocsin.model.catalogue import Column, Dataset
from tocsin.pipeline.storage.landing import Landing
from tocsin.pipeline.storage.rows import user_files
from tocsin.pipeline.storage.rows.fitting import Fitter
from tocsin.pipeline.storage.rows.loading import Loaded, Progress, load
from tocsin.pipeline.storage.rows.schema import schema_of
from tocsin.pipeline.storage.rows.types import Type
from tocsin.pipeline.storage.rows.values import parse

SHELTERS = Dataset(
    "Shelters",
    (
        Column("name", "STRING", nullable=False),
        Column("beds", "INT"),
        Column("lon", "DOUBLE"),
        Column("lat", "DOUBLE"),
        Column("open", "BOOLEAN"),
        Column("since", "TIMESTAMP"),
        Column("tags", "ARRAY<STRING>"),
        Column("geometry", "STRING"),
    ),
)
FEATURE = {
    "type": "Feature",
    "properties": {"name": "North", "beds": 5},
    "geometry": {"type": "Point", "coordinates": [1.5, 2.5]},
}


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    found = Landing(tmp_path / "storage")
    found.create(SHELTERS)
    return found


def loaded(landing: Landing, path: Path, **chosen: Any) -> Loaded:
    return load(landing, path, "Shelters", now_us=lambda: NOW_US, **chosen)


def rows(landing: Landing, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in stored(landing.data.snapshot("Shelters"))]


def reasons(landing: Landing) -> list[tuple[int, str]]:
    return [(row["position"], row["reason"]) for row in stored(landing.quarantine.snapshot("Shelters"))]


def test_csv_is_read_by_the_types_of_the_dataset(landing: Landing, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text(
        "\ufeffname,beds,lat,lon,open,since,tags,unknown\n"
        'A,5,1.5,-2,true,2024-05-01T00:00:00Z,"[""x"", ""y""]",?\n'
        '"B, the\nsecond",,,,,,,\n'
        "C,many,1,1,true,,,\n"
        "D,1\n"
        ",1,1,1,true,,,\n",
        encoding="utf-8",
    )
    found = loaded(landing, path)
    assert (found.rows, found.quarantined, found.ignored) == (2, 3, frozenset({"unknown"}))
    assert rows(landing, "name", "beds", "lon", "open", "tags") == [
        ("A", 5, -2.0, True, ["x", "y"]),
        ("B, the\nsecond", None, None, None, None),
    ]
    assert reasons(landing) == [
        (3, "beds: the text 'many' is no number"),
        (4, "the row has 2 cells, the header 8"),
        (5, "name: is missing"),
    ]


def test_quarantined_csv_rows_are_records_that_fit_once_corrected(landing: Landing, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("name,beds,lat\nA,many,1.5\n")
    loaded(landing, path)
    (row,) = stored(landing.quarantine.snapshot("Shelters"))
    assert json.loads(row["record"]) == {"name": "A", "beds": "many", "lat": 1.5}
    assert row["feed"] == "file s.csv"


def test_text_in_csv_that_is_not_utf_8_goes_to_quarantine(landing: Landing, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_bytes(b"name\nA\nB\xff\n")
    assert (loaded(landing, path).rows, reasons(landing)) == (1, [(2, "name: the text is not UTF-8")])


@given(
    st.sampled_from(["INT", "BIGINT", "DOUBLE", "STRING"]), st.lists(st.text("0123456789.-+eE x", max_size=6))
)
def test_cells_converted_at_once_are_what_each_is_by_itself(kind: str, cells: list[str]) -> None:
    found = user_files._written_out(Type(kind), [cell or None for cell in cells])
    if found is not None:
        assert found.to_pylist() == [parse(Type(kind), cell) if cell else None for cell in cells]
    elif kind == "STRING":
        raise AssertionError("text is taken as it is")


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"])
def test_json_lines_are_records(landing: Landing, tmp_path: Path, prefix: bytes) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(prefix + b'{"name": "A", "beds": 5}\n\n  {"name": "B"}\r\n{"beds": 1}\n{"name"\n')
    found = loaded(landing, path)
    assert (found.rows, found.quarantined) == (2, 2)
    assert rows(landing, "name", "beds") == [("A", 5), ("B", None)]
    assert [position for position, _ in reasons(landing)] == [3, 4]


def test_an_overlong_line_is_one_record_that_does_not_fit(
    landing: Landing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_files, "RECORD_MAX_BYTES", 40)
    path = tmp_path / "s.jsonl"
    path.write_text('{"name": "A"}\n{"name": "' + "x" * 5_000_000 + '"}\n{"name": "C"}\n')
    assert (loaded(landing, path).rows, rows(landing, "name")) == (2, [("A",), ("C",)])


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf", b" \n"])
def test_a_json_array_is_records(landing: Landing, tmp_path: Path, prefix: bytes) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(prefix + b'[{"name": "A", "tags": ["x"]}, {"name": "B"}, 5]')
    assert (loaded(landing, path).rows, loaded(landing, path).repeated) == (2, True)
    assert rows(landing, "name", "tags") == [("A", ["x"]), ("B", None)]
    assert reasons(landing) == [(3, "the record is no JSON object")]


def test_a_feature_is_its_properties_with_geometry_and_place(landing: Landing, tmp_path: Path) -> None:
    path = tmp_path / "s.geojson"
    polygon = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
    features = [
        FEATURE,
        {"type": "Feature", "properties": {"name": "P", "lon": 9}, "geometry": polygon},
        {"a": 1},
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    done = loaded(landing, path)
    assert (done.rows, done.ignored) == (2, frozenset()), "longitude and latitude are only offered"
    north, area = rows(landing, "name", "lon", "lat", "geometry")
    assert north == ("North", 1.5, 2.5, '{"type":"Point","coordinates":[1.5,2.5]}')
    assert area[:3] == ("P", 9.0, None)
    assert json.loads(area[3]) == polygon


def test_parquet_is_taken_column_by_column(landing: Landing, tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    table = pa.table(
        {
            "name": ["A", None, "C"],
            "beds": pa.array([5, 1, 1 << 40], pa.int64()),
            "since": pa.array([1_000, 0, 0], pa.timestamp("ms")),
            "tags": [["x"], [], None],
            "extra": [1, 2, 3],
        }
    )
    pq.write_table(table, path)
    found = loaded(landing, path)
    assert (found.rows, found.quarantined, found.ignored) == (1, 2, frozenset({"extra"}))
    ((name, beds, since, tags),) = rows(landing, "name", "beds", "since", "tags")
    assert (name, beds, since.timestamp(), tags) == ("A", 5, 1.0, ["x"])
    assert reasons(landing) == [
        (2, "name: is missing"),
        (3, "beds: 1099511627776 is out of the range of INT"),
    ]


def test_a_loaded_file_is_loaded_again_only_on_request(landing: Landing, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"name": "A"}\n')
    assert not loaded(landing, path).repeated
    assert loaded(landing, path) == Loaded(0, 0, True)
    assert loaded(landing, path, again=True).rows == 1
    assert loaded(landing, path, again=True).rows == 1
    path.write_text('{"name": "B"}\n')
    assert loaded(landing, path).rows == 1
    assert sorted(name for (name,) in rows(landing, "name")) == ["A", "A", "A", "B"]


def test_a_load_that_was_cut_short_goes_on_where_it_was(
    landing: Landing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_files, "CHUNK_ROWS", 2)
    path = tmp_path / "s.csv"
    path.write_text("name\n" + "".join(f"n{number}\n" for number in range(7)))
    seen: list[Progress] = []

    def stop(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loaded(landing, path, progress=stop)
    assert len(rows(landing, "name")) == 4
    found = loaded(landing, path, progress=seen.append)
    assert (found.rows, found.repeated) == (3, False)
    assert sorted(rows(landing, "name")) == [(f"n{number}",) for number in range(7)]
    assert seen[-1].bytes_read == seen[-1].bytes_total == path.stat().st_size


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("s.txt", b"", "its name does not say what it is"),
        ("s.csv", b"", "it has no column name"),
        ("s.csv", b"a,b\n1,2\n", "it has no column name, which dataset Shelters needs; it has a, b"),
        ("s.csv", b"name,name\n1,2\n", "one name"),
        ("s.csv", b'name\n"' + b"x" * 200_000 + b'"\n', "field larger than field limit"),
        ("s.json", b"[1,", "it is not JSON"),
        ("s.json", b"5", "it is not JSON"),
        ("s.geojson", b'{"type": "FeatureCollection", "features": 5}', "it is not JSON"),
        ("s.parquet", b"PAR1", "Give a whole file"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_in_words(
    landing: Landing, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FileUnreadable, match=said):
        loaded(landing, path)
    with pytest.raises(FileUnreadable, match="Give the path"):
        loaded(landing, tmp_path / "nothing.csv")
    assert rows(landing, "name") == []


numbers = st.one_of(st.none(), st.integers(-300, 300))


@given(st.lists(st.tuples(numbers, st.one_of(numbers, st.floats(-5, 5))), min_size=1, max_size=5))
def test_a_row_means_the_same_in_json_and_in_parquet(found: list[tuple[Any, Any]]) -> None:
    dataset = Dataset("D", (Column("a", "TINYINT", nullable=False), Column("b", "FLOAT")))
    fitter = Fitter(schema_of(dataset))
    columns = [
        pa.array([row[0] for row in found], pa.int64()),
        pa.array([row[1] for row in found], pa.float64()),
    ]
    in_parquet = user_files._parquet_chunk(
        ["a", "b"], pa.record_batch(columns, ["a", "b"]), 1, 0, fitter
    ).fitted()
    in_json = fitter.fit([msgspec.json.encode({"a": a, "b": b}) for a, b in found])
    assert in_parquet.rows.equals(in_json.rows)
    assert [(each.index, each.reason) for each in in_parquet.rejected] == [
        (each.index, each.reason) for each in in_json.rejected
    ]

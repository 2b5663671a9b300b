"""Files as records."""

from __future__ import annotations

import builtins
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tocsin.errors import FileUnreadable
from tocsin.feeds.files import records_of, value_of
from tocsin.ports import PAYLOAD_MAX_BYTES

COLUMNS = {"id": "BIGINT", "size": "DOUBLE", "good": "BOOLEAN", "at": "TIMESTAMP", "tags": "ARRAY<STRING>"}


def written(tmp_path: Path, name: str, content: bytes | str) -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path) -> list[Any]:
    return [json.loads(each) for each in records_of(path, COLUMNS)]


def test_cells_of_csv_become_what_their_columns_are(tmp_path: Path) -> None:
    text = (
        'id,size,good,at,tags,name\n7, 1.5e1 ,TRUE,2026-01-01,"[""a""]",07\n8,,false,1700000000,,"x, ""y"""\n'
    )
    assert read(written(tmp_path, "a.csv", "\ufeff" + text)) == [
        {"id": 7, "size": 15.0, "good": True, "at": "2026-01-01", "tags": ["a"], "name": "07"},
        {"id": 8, "size": None, "good": False, "at": 1700000000, "tags": None, "name": 'x, "y"'},
    ]


def test_cells_of_the_wrong_type_stay_text_for_the_pipeline_to_judge(tmp_path: Path) -> None:
    text = "id,size,good,tags\nseven,1e999,maybe,[\n99999999999999999999,nan,1,{}\n"
    assert read(written(tmp_path, "a.CSV", text)) == [
        {"id": "seven", "size": "1e999", "good": "maybe", "tags": "["},
        {"id": 1e20, "size": "nan", "good": "1", "tags": {}},
    ]


def test_a_row_of_another_length_is_no_record(tmp_path: Path) -> None:
    records = list(records_of(written(tmp_path, "a.csv", 'id,name\n1\n2,b\n3,"c,d",e\n\n'), COLUMNS))
    assert records == [b"1", b'{"id":2,"name":"b"}', b'3,"c,d",e']


@pytest.mark.parametrize("text", ["", "id,id\n1,2\n", "id,\n1,2\n"])
def test_a_csv_without_a_header_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(FileUnreadable, match="first line"):
        read(written(tmp_path, "a.csv", text))


def test_bytes_that_are_no_text_do_not_stop_a_csv(tmp_path: Path) -> None:
    assert read(written(tmp_path, "a.csv", b"name\nG\xf6ran\n")) == [{"name": "G\\xf6ran"}]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.text("ab,\"'\n é", max_size=5), st.integers(-(2**63), 2**63 - 1)), max_size=8))
def test_csv_that_a_library_writes_is_read_again(tmp_path: Path, rows: list[tuple[str, int]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["name", "id"])
    writer.writerows(rows)
    path = written(tmp_path, "a.csv", text.getvalue())
    assert read(path) == [{"name": name or None, "id": number} for name, number in rows]


def test_lines_of_json_are_records_and_an_overlong_line_is_cut(tmp_path: Path) -> None:
    long = b'{"x": "%b"}' % (b"a" * (PAYLOAD_MAX_BYTES + 3))
    path = written(tmp_path, "a.jsonl", b'\xef\xbb\xbf{"a": 1}\n\n  {"a": 2}  \r\n' + long + b"\nno JSON\n")
    records = list(records_of(path, COLUMNS))
    assert records[:2] == [b'{"a": 1}', b'{"a": 2}']
    assert len(records[2]) == PAYLOAD_MAX_BYTES + 2
    assert records[3:] == [b"no JSON"]


def test_elements_of_a_json_array_are_records_and_so_is_one_object(tmp_path: Path) -> None:
    assert read(written(tmp_path, "a.json", '[{"a": 1}, 7, {"a": 2}]')) == [{"a": 1}, 7, {"a": 2}]
    assert read(written(tmp_path, "b.json", ' {"a": 1} ')) == [{"a": 1}]


@pytest.mark.parametrize("text", ["", "[1", "7", '{"a"', "[" * 200_000])
def test_a_document_that_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(FileUnreadable, match="not JSON"):
        read(written(tmp_path, "a.json", text))


def test_features_of_geojson_are_their_properties_and_where_they_are(tmp_path: Path) -> None:
    text = json.dumps(
        {
            "type": "FeatureCollection",
            "features": [
                {
                    "type": "Feature",
                    "id": "q1",
                    "properties": {"mag": 4.5, "lat": "own"},
                    "geometry": {"type": "Point", "coordinates": [12.5, 41.9, 10]},
                },
                {"type": "Feature", "properties": None, "geometry": {"type": "Polygon", "coordinates": []}},
                7,
            ],
        }
    )
    point, polygon, other = read(written(tmp_path, "a.geojson", text))
    assert point.pop("geometry")["coordinates"] == [12.5, 41.9, 10]
    assert point == {
        "mag": 4.5, "id": "q1", "longitude": 12.5, "latitude": 41.9, "lon": 12.5, "lat": "own"
    }  # fmt: skip
    assert polygon == {"geometry": {"type": "Polygon", "coordinates": []}}
    assert other == 7


def test_rows_of_parquet_are_records(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra spark is not installed")
    import pyarrow.parquet as pq

    at = pa.array([1_700_000_000_000_000, None], pa.timestamp("us", "UTC"))
    table = pa.table({"id": [1, 2], "at": at, "where": [{"x": 1.5}, None], "raw": [b"\x00", b"\x01"]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [
        {"id": 1, "at": "2023-11-14T22:13:20Z", "where": {"x": 1.5}, "raw": "AA=="},
        {"id": 2, "at": None, "where": None, "raw": "AQ=="},
    ]
    with pytest.raises(FileUnreadable, match="whole Parquet file"):
        read(written(tmp_path, "b.parquet", b"PAR1 and no more"))


def test_without_pyarrow_parquet_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(FileUnreadable, match=r"Install tocsin\[spark\]"):
        read(written(tmp_path, "a.parquet", b""))


def test_a_name_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match="does not say what it is"):
        read(written(tmp_path, "a.txt", "x"))


@given(st.text(max_size=20), st.sampled_from([*COLUMNS.values(), "STRING", "MAP<STRING, DOUBLE>", "DATE"]))
def test_every_cell_has_a_value_that_json_can_say(cell: str, kind: str) -> None:
    value = value_of(cell, kind)
    assert json.loads(json.dumps(value, allow_nan=False)) == value

"""JSON files that are read as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import FileUnreadable
from tocsin.runtime.documents import BOM, read_document

MAX_BYTES = 1 << 16
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1_000, 1_000) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def read(path: Path, data: bytes) -> list[Any]:
    path.write_bytes(data)
    count, records = read_document(path, MAX_BYTES)
    found = [json.loads(each) for each in records]
    assert len(found) == count
    return found


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documents") / "file.json"


@given(value=st.lists(VALUES, max_size=5) | st.dictionaries(st.text(max_size=5), VALUES, max_size=5))
def test_an_array_is_its_elements_and_an_object_is_one(path: Path, value: Any) -> None:
    wanted = value if isinstance(value, list) else [value]
    if isinstance(value, dict) and not isinstance(value.get("type", ""), str):
        return  # a collection is told by its type, so that has to be text
    if isinstance(value, dict) and not isinstance(value.get("features"), list | None):
        return
    for data in (json.dumps(value).encode(), BOM + b"\n " + json.dumps(value, indent=1).encode() + b"\n"):
        assert read(path, data) == wanted


def test_a_collection_is_its_features_with_their_places(path: Path) -> None:
    point = {"type": "Point", "coordinates": [8.5, 47.4, 400]}
    line = {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}
    features: list[Any] = [
        {"type": "Feature", "id": 7, "properties": {"name": "a", "lat": 1}, "geometry": point},
        {"type": "Feature", "properties": {"id": "own"}, "geometry": line},
        {"type": "Feature", "properties": None, "geometry": None},
        "no feature",
    ]
    data = json.dumps({"type": "FeatureCollection", "features": features}).encode()
    places = {"longitude": 8.5, "latitude": 47.4, "lon": 8.5}
    assert read(path, data) == [
        {"name": "a", "lat": 1, "id": 7, "geometry": point, **places},
        {"id": "own", "geometry": line},
        {},
        "no feature",
    ]


@pytest.mark.parametrize("data", [b"", b"[1,", b'{"a": }', b"\xff\xfe", b"[" * 60_000, b'{"type": 1}', b"7"])
def test_what_is_no_document_is_refused_with_the_forms_that_are(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(FileUnreadable, match="GeoJSON collection"):
        read_document(path, MAX_BYTES)


def test_what_is_too_large_is_refused_before_it_is_read(path: Path) -> None:
    path.write_bytes(b" " * 11)
    with pytest.raises(FileUnreadable, match=r"11 bytes.*JSON lines"):
        read_document(path, 10)

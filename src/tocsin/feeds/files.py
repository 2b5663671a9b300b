"""Files as records of JSON: CSV, JSON, JSON lines, GeoJSON and Parquet, by the ends of their names.

The same file gives the same records in the same order, whenever it is read: how far it was read is a number of records.
Cells of CSV are text; they become what the dataset's column of their name is, where they can, and stay text where they
cannot, for the pipeline to say so. The same holds for a row with too few or too many cells.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tocsin.errors import FileUnreadable
from tocsin.ports import PAYLOAD_MAX_BYTES

ENDINGS: Final = (".csv", ".jsonl", ".ndjson", ".json", ".geojson", ".parquet", ".pq")
DOCUMENT_MAX_BYTES: Final = 256 << 20  # of a JSON array or GeoJSON file, which is read as a whole
BATCH_ROWS: Final = 1_000
_INTEGERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_POINTS: Final = (("longitude", "latitude"), ("lon", "lat"))  # columns that are filled from a point
_BOM: Final = b"\xef\xbb\xbf"


def records_of(path: Path, columns: Mapping[str, str]) -> Iterator[bytes]:
    """The records of a file; ``columns``: the dataset's, with their types. Raises ``FileUnreadable``."""
    name = path.name.lower()
    try:
        if name.endswith(".csv"):
            yield from _csv(path, columns)
        elif name.endswith((".jsonl", ".ndjson")):
            yield from _lines(path)
        elif name.endswith((".json", ".geojson")):
            yield from _document(path)
        elif name.endswith((".parquet", ".pq")):
            yield from _parquet(path)
        else:
            raise FileUnreadable(
                str(path), "its name does not say what it is", f"Let it end in {', '.join(ENDINGS)}"
            )
    except OSError as error:
        raise FileUnreadable(
            str(path), error.strerror or str(error), "Let the feeder read the whole file"
        ) from error


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _lines(path: Path) -> Iterator[bytes]:
    """Lines that are not blank. One that is too long for the log is cut, and so fits no dataset."""
    first = True
    with open(path, "rb") as file:
        while line := file.readline(PAYLOAD_MAX_BYTES + 2):
            cut = not line.endswith(b"\n")
            while cut and (rest := file.readline(1 << 20)):
                cut = not rest.endswith(b"\n")
            stripped = (line.removeprefix(_BOM) if first else line).strip()
            first = False
            if stripped:
                yield stripped


class _Collection(msgspec.Struct):
    type: str = ""
    features: list[msgspec.Raw] | None = None


class _Feature(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw(b"null")
    properties: dict[str, msgspec.Raw] | None = None
    geometry: msgspec.Raw = msgspec.Raw(b"null")


class _Point(msgspec.Struct):
    type: str
    coordinates: Any = None


def _document(path: Path) -> Iterator[bytes]:
    """The elements of a JSON array, the features of a GeoJSON collection, or one object."""
    size = path.stat().st_size
    if size > DOCUMENT_MAX_BYTES:
        raise FileUnreadable(
            str(path),
            f"it has {size} bytes, and JSON is read as a whole, up to {DOCUMENT_MAX_BYTES}",
            "Write it as JSON lines (.jsonl), which has no such bound",
        )
    data = path.read_bytes().removeprefix(_BOM).strip()
    try:
        if data[:1] == b"[":
            found = msgspec.json.decode(data, type=list[msgspec.Raw])
            yield from (bytes(each) for each in found)
            return
        collection = msgspec.json.decode(data, type=_Collection)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileUnreadable(
            str(path),
            f"it is not JSON: {error}",
            "Write one JSON array, one GeoJSON collection, or JSON lines (.jsonl)",
        ) from None
    if collection.type == "FeatureCollection" and collection.features is not None:
        yield from (_feature(bytes(each)) for each in collection.features)
    else:
        yield data


def _feature(text: bytes) -> bytes:
    """A feature as a record: its properties; ``geometry``, ``id`` and where a point is, if no property is called so."""
    try:
        feature = msgspec.json.decode(text, type=_Feature)
        record: dict[str, Any] = dict(feature.properties or {})
        if bytes(feature.id) != b"null":
            record.setdefault("id", feature.id)
        if bytes(feature.geometry) != b"null":
            record.setdefault("geometry", feature.geometry)
            at = _point(feature.geometry)
            for east, north in _POINTS if at is not None else ():
                record.setdefault(east, at[0])
                record.setdefault(north, at[1])
        return msgspec.json.encode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text  # the pipeline says what is wrong with it


def _point(geometry: msgspec.Raw) -> Any:
    try:
        point = msgspec.json.decode(geometry, type=_Point)
    except msgspec.DecodeError:
        return None
    place = point.coordinates
    good = point.type == "Point" and isinstance(place, list) and len(place) >= 2
    return place if good else None


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────


def _csv(path: Path, columns: Mapping[str, str]) -> Iterator[bytes]:
    """Rows of a CSV file with a header (RFC 4180, UTF-8). An empty cell is NULL."""
    with open(path, "rb") as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="backslashreplace", newline="")
        reader = csv.reader(text)
        try:
            header = [name.strip() for name in next(reader, [])]
            if not header or "" in header or len(set(header)) < len(header):
                raise FileUnreadable(
                    str(path),
                    "its first line does not name each column once",
                    "Write a header, such as id,name,at",
                )
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    yield _row(cells)
                    continue
                record = {
                    name: value_of(cell, columns.get(name, "STRING"))
                    for name, cell in zip(header, cells, strict=True)
                }
                yield msgspec.json.encode(record)
        except csv.Error as error:
            raise FileUnreadable(
                str(path),
                f"line {reader.line_num}: {error}",
                "Write commas between cells, and quotes around text",
            ) from None


def _row(cells: list[str]) -> bytes:
    """A row as it was written, more or less: no record, and seen as such."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue().encode()


def value_of(cell: str, kind: str) -> Any:
    """A cell as JSON would say it, for a column of a type."""
    if not cell:
        return None
    text = cell.strip()
    whole = kind == "TIMESTAMP" or kind in _INTEGERS
    if whole and _INTEGER.fullmatch(text) and -(1 << 63) <= int(text) < 1 << 63:
        return int(text)
    if kind in ("DOUBLE", "FLOAT", "TIMESTAMP", *_INTEGERS):
        number = float(text) if _NUMBER.fullmatch(text) else math.inf
        return number if math.isfinite(number) else cell
    if kind == "BOOLEAN" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind.startswith(("ARRAY", "MAP", "STRUCT")):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return cell
    return cell


def _parquet(path: Path) -> Iterator[bytes]:
    """Rows of a Parquet file."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise FileUnreadable(
            str(path),
            "Parquet cannot be read without pyarrow",
            "Install tocsin[spark] where the feeder runs, or write CSV or JSON lines",
        ) from None
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                for row in batch.to_pylist(maps_as_pydicts="strict"):
                    yield msgspec.json.encode(row, enc_hook=str)
    except (pa.ArrowException, KeyError) as error:
        raise FileUnreadable(str(path), str(error), "Give a whole Parquet file") from error

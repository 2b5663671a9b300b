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
from tocsin.runtime.documents import BOM, read_document

ENDINGS: Final = (".csv", ".jsonl", ".ndjson", ".json", ".geojson", ".parquet", ".pq")
DOCUMENT_MAX_BYTES: Final = 256 << 20  # of a JSON array or GeoJSON file, which is read as a whole
BATCH_ROWS: Final = 1_000
_INTEGERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)


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
            stripped = (line.removeprefix(BOM) if first else line).strip()
            first = False
            if stripped:
                yield stripped


def _document(path: Path) -> Iterator[bytes]:
    _, records = read_document(path, DOCUMENT_MAX_BYTES)
    yield from records


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

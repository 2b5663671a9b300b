"""Files as chunks of records, each of which knows how to be fitted.

JSON of all kinds becomes records, as they come in feeds. CSV and Parquet have columns: those are converted column
by column, and only rows that do not fit that way are looked at value by value, by the same rules.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tocsin.errors import FileUnreadable
from tocsin.pipeline.storage.rows.fitting import RECORD_MAX_BYTES, Fitted, Fitter, Rejected
from tocsin.pipeline.storage.rows.schema import DELETED, required
from tocsin.pipeline.storage.rows.types import INTEGERS, Type
from tocsin.pipeline.storage.rows.values import Unfit, convert, parse
from tocsin.runtime.documents import BOM, POINTS, read_document

CHUNK_ROWS: Final = 50_000
CHUNK_BYTES: Final = 32 << 20
DOCUMENT_MAX_BYTES: Final = 1 << 30  # of a JSON array or GeoJSON file, which is read as a whole
_PATTERNS: Final = {
    "INT": r"^\s*-?[0-9]{1,18}\s*$",
    "DOUBLE": r"^\s*-?[0-9]{1,300}(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,2})?\s*$",
}  # what Arrow reads as we do; anything else is looked at by itself
_PLACE_COLUMNS: Final = frozenset(("id", "geometry", *(name for names in POINTS for name in names)))


class Chunk(msgspec.Struct, frozen=True):
    """Some records of a file, in order."""

    fitted: Callable[[], Fitted]
    positions: Sequence[int]  # the number of each record in the file, from 1
    read_bytes: int  # of the file, up to the end of the chunk


def chunks_of(path: Path, fitter: Fitter) -> Iterator[Chunk]:
    """A file's chunks, always the same for the same file."""
    name = path.name.lower()
    try:
        if name.endswith(".csv"):
            yield from _csv(path, fitter)
        elif name.endswith((".jsonl", ".ndjson")):
            yield from _records(_lines(path), fitter)
        elif name.endswith((".json", ".geojson")):
            yield from _records(_document(path), fitter)
        elif name.endswith((".parquet", ".pq")):
            yield from _parquet(path, fitter)
        else:
            raise FileUnreadable(
                str(path),
                "its name does not say what it is",
                "Let it end in .csv, .jsonl, .json, .geojson or .parquet",
            )
    except (OSError, pa.ArrowException) as error:
        raise FileUnreadable(
            str(path), str(error), "Give a whole file of the kind that its name says"
        ) from error


def place_columns_of(path: Path) -> frozenset[str]:
    """Optional columns: a dataset may lack them."""
    return _PLACE_COLUMNS if path.name.lower().endswith(".geojson") else frozenset()


# ── records ──────────────────────────────────────────────────────────────────────────────────────────────────


def _records(records: Iterator[tuple[bytes, int]], fitter: Fitter) -> Iterator[Chunk]:
    """Chunks of (record, bytes read so far)."""
    held: list[bytes] = []
    first, size = 1, 0
    read = 0
    for record, read in records:
        held.append(record)
        size += len(record)
        if len(held) == CHUNK_ROWS or size >= CHUNK_BYTES:
            yield _record_chunk(held, first, read, fitter)
            first, held, size = first + len(held), [], 0
    if held:
        yield _record_chunk(held, first, read, fitter)


def _record_chunk(records: list[bytes], first: int, read: int, fitter: Fitter) -> Chunk:
    return Chunk(lambda: fitter.fit(records), range(first, first + len(records)), read)


def _lines(path: Path) -> Iterator[tuple[bytes, int]]:
    """Lines that are not blank. A line that is too long is cut, and does not fit."""
    read = 0
    with open(path, "rb") as file:
        while line := file.readline(RECORD_MAX_BYTES + 2):
            first, read = not read, read + len(line)
            cut = not line.endswith(b"\n")
            while cut and (rest := file.readline(1 << 20)):
                read += len(rest)
                cut = not rest.endswith(b"\n")
            if stripped := (line.removeprefix(BOM) if first else line).strip():
                yield stripped, read


def _document(path: Path) -> Iterator[tuple[bytes, int]]:
    """The records of a file that is read as a whole, each with its share of the file."""
    size = path.stat().st_size
    count, records = read_document(path, DOCUMENT_MAX_BYTES)
    for number, record in enumerate(records, 1):
        yield record, size * number // count


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────


def _csv(path: Path, fitter: Fitter) -> Iterator[Chunk]:
    """Rows of a CSV file with a header (RFC 4180, UTF-8). An empty cell is NULL."""
    with open(path, "rb") as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")
        reader = csv.reader(text)
        try:
            header = [name.strip() for name in next(reader, [])]
            _check_columns(path, header, fitter)
            first, held, size = 1, list[list[str]](), 0
            for cells in reader:
                if not cells:
                    continue
                held.append(cells)
                size += sum(map(len, cells))
                if len(held) == CHUNK_ROWS or size >= CHUNK_BYTES:
                    yield _csv_chunk(header, held, first, raw.tell(), fitter)
                    first, held, size = first + len(held), [], 0
            if held:
                yield _csv_chunk(header, held, first, raw.tell(), fitter)
        except csv.Error as error:
            raise FileUnreadable(
                str(path),
                f"line {reader.line_num}: {error}",
                "Write commas between cells, and quotes around text",
            ) from None


def _csv_chunk(header: list[str], rows: list[list[str]], first: int, read: int, fitter: Fitter) -> Chunk:
    def fitted() -> Fitted:
        wrong = {
            index: f"the row has {len(cells)} cells, the header {len(header)}"
            for index, cells in enumerate(rows)
            if len(cells) != len(header)
        }
        width = len(header)
        columns = list(zip(*((cells + [""] * width)[:width] for cells in rows), strict=True))
        cells_of = dict(zip(header, columns, strict=True))

        def column(name: str, kind: Type) -> tuple[pa.Array | None, Sequence[Any]]:
            cells = [cell or None for cell in cells_of[name]]
            return _written_out(kind, cells), cells

        def as_record(index: int) -> bytes:
            return msgspec.json.encode(_as_json(dict(zip(header, rows[index], strict=False)), fitter))

        return _fit_columns(fitter, header, len(rows), column, parse, wrong, as_record)

    return Chunk(fitted, range(first, first + len(rows)), read)


def _written_out(kind: Type, cells: list[str | None]) -> pa.Array | None:
    """Cells of a usual kind, converted all at once; None if they have to be looked at one by one."""
    pattern = _PATTERNS.get("INT" if kind.name in INTEGERS else kind.name)
    try:
        texts = pa.array(cells, pa.string())
        if kind.name == "STRING":
            return texts
        if pattern is None or not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
            return None
        return pc.cast(texts, kind.arrow)
    except (pa.ArrowException, UnicodeEncodeError):
        return None


def _parquet(path: Path, fitter: Fitter) -> Iterator[Chunk]:
    """Rows of a Parquet file."""
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        _check_columns(path, names, fitter)
        known = [name for name in names if name in {*fitter.schema.columns, DELETED}]
        first = 1
        total = max(file.metadata.num_rows, 1)
        for batch in file.iter_batches(CHUNK_ROWS, columns=known):
            read = path.stat().st_size * (first - 1 + batch.num_rows) // total
            yield _parquet_chunk(names, batch, first, read, fitter)
            first += batch.num_rows


def _parquet_chunk(names: list[str], batch: pa.RecordBatch, first: int, read: int, fitter: Fitter) -> Chunk:
    def column(name: str, kind: Type) -> tuple[pa.Array | None, Sequence[Any]]:
        values = batch.column(name)
        try:
            if (
                kind.name != "STRING"
                or pa.types.is_string(values.type)
                or pa.types.is_large_string(values.type)
            ):
                return pc.cast(values, kind.arrow), ()
        except pa.ArrowException:
            pass
        return None, values.to_pylist()

    def as_record(index: int) -> bytes:
        return msgspec.json.encode(batch.slice(index, 1).to_pylist()[0], enc_hook=str)

    return Chunk(
        lambda: _fit_columns(fitter, names, batch.num_rows, column, convert, {}, as_record),
        range(first, first + batch.num_rows),
        read,
    )


def _fit_columns(
    fitter: Fitter,
    names: Sequence[str],
    count: int,
    column: Callable[[str, Type], tuple[pa.Array | None, Sequence[Any]]],
    one: Callable[[Type, Any], Any],
    wrong: dict[int, str],
    as_record: Callable[[int], bytes],
) -> Fitted:
    """Columns fitted: ``column`` converts one all at once, or gives its values, which ``one`` converts each."""
    schema = fitter.schema
    needed = required(schema.dataset)
    deleted = _deletions(names, count, column, wrong) if schema.keyed else [False] * count
    arrays: dict[str, pa.Array] = {}
    for name, kind in zip(schema.columns, schema.types, strict=True):
        if name in names:
            array, values = column(name, kind)
        else:
            array, values = pa.nulls(count, kind.arrow), ()
        if array is None:
            array = _each(name, kind, values, one, wrong)
        if name in needed and array.null_count:
            may_miss = name not in schema.key and name != schema.dataset.event_time
            for index in pc.indices_nonzero(pc.is_null(array)).to_pylist():
                if not (deleted[index] and may_miss):
                    wrong.setdefault(index, f"{name}: is missing")
        arrays[name] = array
    if schema.keyed:
        arrays[DELETED] = pa.array(deleted, pa.bool_())
    table = pa.table(arrays)
    if wrong:
        table = table.filter(pa.array([index not in wrong for index in range(count)], pa.bool_()))
    table = pa.table(table.columns, schema=fitter.arrow)
    rejected = tuple(Rejected(index, wrong[index], as_record(index)) for index in sorted(wrong))
    return Fitted(table, rejected, frozenset(set(names) - {*schema.columns, DELETED}))


def _each(
    name: str, kind: Type, values: Sequence[Any], one: Callable[[Type, Any], Any], wrong: dict[int, str]
) -> pa.Array:
    """Values converted one by one; those that do not fit are noted, and NULL."""
    found: list[Any] = []
    for index, value in enumerate(values):
        try:
            found.append(None if value is None else one(kind, value))
            if isinstance(value, str):
                value.encode()
        except Unfit as error:
            wrong.setdefault(index, str(error.under(name)))
            found.append(None)
        except UnicodeEncodeError:
            wrong.setdefault(index, f"{name}: the text is not UTF-8")
            found[-1] = None
    return pa.array(found, kind.arrow)


def _deletions(
    names: Sequence[str],
    count: int,
    column: Callable[[str, Type], tuple[pa.Array | None, Sequence[Any]]],
    wrong: dict[int, str],
) -> list[bool]:
    """Which rows delete their keys."""
    if DELETED not in names:
        return [False] * count
    array, values = column(DELETED, Type("BOOLEAN"))
    if array is None:
        array = _each(DELETED, Type("BOOLEAN"), values, parse, wrong)
    return [bool(value) for value in array.to_pylist()]


def _as_json(row: dict[str, str], fitter: Fitter) -> dict[str, Any]:
    """A row of text as a record that would fit if its values did: what is a number there is one here."""
    record: dict[str, Any] = {}
    for name, cell in row.items():
        record[name] = cell.encode(errors="backslashreplace").decode() or None
        if name in fitter.schema.columns and cell:
            kind = fitter.schema.type_of(name)
            if kind.name not in ("STRING", "TIMESTAMP", "DATE", "DECIMAL", "BINARY"):
                with contextlib.suppress(Unfit):
                    record[name] = parse(kind, cell)
    return record


def _check_columns(path: Path, names: Sequence[str], fitter: Fitter) -> None:
    """A file without a column that every row needs is not for this dataset."""
    if missing := sorted(required(fitter.schema.dataset) - set(names)):
        raise FileUnreadable(
            str(path),
            f"it has no column {', '.join(missing)}, which dataset {fitter.schema.dataset.name} needs; "
            f"it has {', '.join(names[:20]) or 'none'}",
            "Rename the file's columns, or load it into another dataset",
        )
    if len(set(names)) < len(names):
        raise FileUnreadable(str(path), "two of its columns have one name", "Name them apart")

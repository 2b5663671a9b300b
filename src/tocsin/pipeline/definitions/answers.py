"""Answers (``model.answer``) made of what Spark and the catalogue say, within the bounds of a message."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa

from tocsin.errors import SqlInvalid, TocsinError
from tocsin.model.answer import Answer, Heading, Problem, Reply
from tocsin.model.questions import REPLY

REPLY_MAX_BYTES: Final = 900_000  # less than what the bus carries (1 MiB)
ROWS_MAX: Final = 100_000


def problem_of(error: TocsinError) -> Problem:
    if isinstance(error, SqlInvalid):
        return Problem(error.problem, error.line, error.column, error.remedy)
    return Problem(str(getattr(error, "problem", "") or error), remedy=str(getattr(error, "remedy", "")))


def table_answer(statement: str, found: pa.Table, limit: int) -> Answer:
    """An Arrow table, of which at most ``limit`` rows are shown."""
    shown = found.slice(0, limit)
    columns = [column.to_pylist() for column in shown.columns]
    rows = tuple(tuple(map(plain, row)) for row in zip(*columns, strict=True))
    headings = tuple(Heading(field.name, spark_name(field.type)) for field in found.schema)
    return Answer(statement, headings, rows, more=found.num_rows > limit)


def encode_reply(reply: Reply) -> bytes:
    """JSON that fits a message: rows are left out, the last first, until it does."""
    data = REPLY.write(reply)
    results = list(reply.results)
    while len(data) > REPLY_MAX_BYTES and any(each.rows for each in results):
        largest = max(range(len(results)), key=lambda index: len(results[index].rows))
        answer = results[largest]
        kept = len(answer.rows) // 2
        results[largest] = msgspec.structs.replace(answer, rows=answer.rows[:kept], more=True)
        data = REPLY.write(Reply(tuple(results), reply.error))
    if len(data) > REPLY_MAX_BYTES:
        size = len(data)
        data = REPLY.write(
            Reply((), Problem(f"the answer of {size} bytes is too large", remedy="ask for less"))
        )
    return data


def plain(value: Any) -> Any:
    """A value as JSON has it: times in ISO 8601, exact numbers and bytes as text, what is no number as null."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime.datetime():
            moment = value if value.tzinfo is None else value.astimezone(datetime.UTC)
            return moment.isoformat().replace("+00:00", "Z")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case dict():
            return {str(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
    return str(value)


def spark_name(kind: pa.DataType) -> str:
    """Spark's name for a type, for people."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind).simpleString().upper()


def headings(names: Iterable[str], **types: str) -> tuple[Heading, ...]:
    return tuple(Heading(name, types.get(name, "STRING")) for name in names)

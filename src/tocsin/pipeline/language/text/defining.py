"""CREATE statements: datasets with their columns, feeds with their sources, channels with their parameters."""

from __future__ import annotations

import math
import re
from typing import Final, cast, get_args

from tocsin.errors import QueryInvalid, SchemaInvalid, SqlInvalid
from tocsin.model.catalogue import (
    COLUMNS_MAX,
    PARAMETERS_MAX,
    Channel,
    Column,
    Dataset,
    Feed,
    FeedSource,
    FolderSource,
    HttpSource,
    KafkaSource,
    Parameter,
    ParameterType,
    StreamSource,
    TopicSource,
)
from tocsin.pipeline.language.functions.spaces import SPATIAL_TYPES
from tocsin.pipeline.language.limits import EVERY_MAX_S, EVERY_MIN_S, KEEP_MAX_S
from tocsin.pipeline.language.names import meant
from tocsin.pipeline.language.text.lexer import Token
from tocsin.pipeline.language.text.reader import Reader
from tocsin.pipeline.language.text.statements import CreateChannel, CreateDataset, CreateFeed
from tocsin.pipeline.storage.rows.types import parse_type
from tocsin.query import parse as parse_query

_UNITS: Final = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": 86_400, "WEEK": 604_800}
_PARAMETER_TYPES: Final = get_args(ParameterType)
_PARAMETER_SYNONYMS: Final = {
    "INT": "BIGINT",
    "INTEGER": "BIGINT",
    "LONG": "BIGINT",
    "TEXT": "STRING",
    "VARCHAR": "STRING",
    "FLOAT": "DOUBLE",
    "REAL": "DOUBLE",
    "BOOL": "BOOLEAN",
}
_EVENT_TIMES: Final = ("TIMESTAMP", "DATE", "BIGINT")
_CLAUSES: Final = ("KEY", "EVENT", "KEEP")


def dataset(reader: Reader, at: int, if_not_exists: bool) -> CreateDataset:
    """``CREATE DATASET name (col TYPE [NOT NULL], …) [KEY (a, b)] [EVENT TIME col] [KEEP 30 DAYS]``"""
    name = reader.name("dataset")
    columns = _columns(reader)
    key: tuple[str, ...] = ()
    event_time: str | None = None
    keep_s: float | None = None
    seen: set[str] = set()
    while reader.peek().kind != "end":
        token = reader.peek()
        clause = reader.one_of(*_CLAUSES)
        if clause in seen:
            raise reader.wrong(token, f"{clause} is given twice", "say it once")
        seen.add(clause)
        if clause == "KEY":
            key = _key(reader, columns)
        elif clause == "EVENT":
            reader.expect("TIME")
            event_time = _event_time(reader, columns)
        else:
            keep_s = _duration(reader, "KEEP", EVERY_MIN_S, KEEP_MAX_S)
    made = Dataset(name, columns, key, event_time, keep_s, text=reader.whole())
    return CreateDataset(made, if_not_exists, at)


def _columns(reader: Reader) -> tuple[Column, ...]:
    found: dict[str, Column] = {}
    reader.expect_symbol("(")
    while True:
        token = reader.peek()
        name = reader.name("column")
        if name.lower() in found:
            raise reader.wrong(token, f"two columns are called {name}", "name them apart, in more than case")
        if len(found) == COLUMNS_MAX:
            raise reader.wrong(token, f"more than {COLUMNS_MAX} columns", "put some into a STRUCT")
        found[name.lower()] = Column(name, *_type(reader))
        if not reader.accept_symbol(","):
            break
    reader.expect_symbol(")")
    return tuple(found.values())


def _type(reader: Reader) -> tuple[str, bool]:
    """A type as Spark writes it, and whether NULL is allowed."""
    first = reader.peek()
    depth, index = 0, 0
    while True:
        token = reader.peek(index)
        if token.kind == "end" or (depth == 0 and (token.is_symbol(",", ")") or token.is_word("NOT"))):
            break
        depth += token.is_symbol("<", "(") - token.is_symbol(">", ")")
        index += 1
    pieces = reader.until(reader.index + index)
    if not pieces:
        raise reader.wrong(first, "this column has no type", "write its type, such as STRING or DOUBLE")
    text = " ".join(SPATIAL_TYPES.get(piece.text.upper(), piece.text) for piece in pieces)
    try:
        found = parse_type(text).text
    except SchemaInvalid as error:
        raise reader.wrong(first, error.problem, error.remedy) from None
    nullable = True
    if reader.accept("NOT"):
        reader.expect("NULL")
        nullable = False
    return found, nullable


def _key(reader: Reader, columns: tuple[Column, ...]) -> tuple[str, ...]:
    found: list[str] = []
    reader.expect_symbol("(")
    while True:
        token = reader.peek()
        column = _column(reader, columns)
        if column.name in found:
            raise reader.wrong(token, f"{column.name} is in the key already", "name it once")
        if re.match(r"ARRAY|MAP|STRUCT|DOUBLE|FLOAT|BINARY", column.type):
            raise reader.wrong(
                token,
                f"{column.name} is a {column.type.partition('<')[0]}, which cannot be a key",
                "use columns of text or whole numbers",
            )
        found.append(column.name)
        if not reader.accept_symbol(","):
            break
    reader.expect_symbol(")")
    return tuple(found)


def _event_time(reader: Reader, columns: tuple[Column, ...]) -> str:
    token = reader.peek()
    column = _column(reader, columns)
    if column.type not in _EVENT_TIMES:
        raise reader.wrong(
            token,
            f"{column.name} is {column.type}, not a time",
            f"use a column of {' or '.join(_EVENT_TIMES)}",
        )
    return column.name


def _column(reader: Reader, columns: tuple[Column, ...]) -> Column:
    token = reader.peek()
    name = reader.name("column")
    for column in columns:
        if column.name.lower() == name.lower():
            return column
    raise reader.wrong(
        token, f"there is no column {name}", meant(name, [column.name for column in columns], "columns")
    )


def feed(reader: Reader, at: int, if_not_exists: bool) -> CreateFeed:
    """``CREATE FEED name INTO dataset FROM …``"""
    name = reader.name("feed")
    reader.expect("INTO")
    dataset_at = reader.peek().at
    target = reader.name("dataset")
    reader.expect("FROM")
    source = _source(reader)
    return CreateFeed(Feed(name, target, source, text=reader.whole()), if_not_exists, at, dataset_at)


def _source(reader: Reader) -> FeedSource:
    match reader.one_of("STREAMS", "TOPIC", "HTTP", "FOLDER", "KAFKA"):
        case "STREAMS":
            reader.expect("WHERE")
            return _streams(reader)
        case "TOPIC":
            token = reader.peek()
            topic_filter = reader.string("topic filter", "'sensors/+/temperature'")
            if problem := _topic_filter_problem(topic_filter):
                raise reader.wrong(
                    token, problem, "write it as a client would subscribe, such as 'a/+/b' or 'a/#'"
                )
            return TopicSource(topic_filter)
        case "HTTP":
            return HttpSource()
        case "FOLDER":
            token = reader.peek()
            path = reader.string("folder", "'/var/spool/reports'")
            if not path.startswith("/"):
                raise reader.wrong(
                    token, "the folder's path is not absolute", "write it from the root, as '/var/spool/x'"
                )
            return FolderSource(path)
        case _:
            servers = reader.string("list of Kafka servers", "'kafka-1:9092,kafka-2:9092'")
            reader.expect("TOPIC")
            return KafkaSource(servers, reader.string("topic", "'reports'"))


def _topic_filter_problem(topic_filter: str) -> str | None:
    if not topic_filter or len(topic_filter.encode()) > 65_535:
        return "a topic filter has 1 to 65535 bytes"
    if topic_filter.startswith("$"):
        return "a feed reads plain topics; those with a $ are the network's own"
    levels = topic_filter.split("/")
    if any("#" in level and (level != "#" or level is not levels[-1]) for level in levels):
        return "# stands alone, as the last level"
    if any("+" in level and level != "+" for level in levels):
        return "+ stands alone in its level"
    return None


def _streams(reader: Reader) -> StreamSource:
    first = reader.peek()
    text = reader.rest()
    try:
        query = parse_query(text)
    except QueryInvalid as error:
        raise SqlInvalid(
            reader.text, first.at + error.at, error.problem, "see the reference of queries over metadata"
        ) from None
    return StreamSource(query.text)


def channel(reader: Reader, at: int, or_replace: bool, if_not_exists: bool) -> CreateChannel:
    """``CREATE [OR REPLACE] CHANNEL name(param TYPE, …) EVERY …|CONTINUOUS [PRIORITY …] AS SELECT …``"""
    name = reader.name("channel")
    parameters = _parameters(reader)
    every_s = period(reader)
    rank, column = priority(reader) if reader.peek().is_word("PRIORITY") else (0, None)
    reader.expect("AS")
    first = reader.peek()
    if not first.is_word("SELECT", "WITH") and not first.is_symbol("("):
        raise reader.wrong(first, f"{first.shown()} begins no query", "write SELECT … or WITH … after AS")
    query = reader.rest()
    made = Channel(name, parameters, (), query, every_s, rank, column, text=reader.whole())
    return CreateChannel(made, or_replace, if_not_exists, at, first.at)


def _parameters(reader: Reader) -> tuple[Parameter, ...]:
    if not reader.accept_symbol("(") or reader.accept_symbol(")"):
        return ()
    found: dict[str, Parameter] = {}
    while True:
        token = reader.peek()
        name = reader.name("parameter")
        if name.lower() in found:
            raise reader.wrong(
                token, f"two parameters are called {name}", "name them apart, in more than case"
            )
        if len(found) == PARAMETERS_MAX:
            raise reader.wrong(token, f"more than {PARAMETERS_MAX} parameters", "make several channels")
        found[name.lower()] = Parameter(name, _parameter_type(reader, name))
        if not reader.accept_symbol(","):
            break
    reader.expect_symbol(")")
    return tuple(found.values())


def _parameter_type(reader: Reader, name: str) -> ParameterType:
    token: Token = reader.take()
    word = _PARAMETER_SYNONYMS.get(token.text.upper(), token.text.upper())
    if word not in _PARAMETER_TYPES:
        raise reader.wrong(
            token,
            f"{token.shown()} is no type of a parameter; {name} needs one",
            f"write one of {', '.join(_PARAMETER_TYPES)}",
        )
    return cast(ParameterType, word)


def period(reader: Reader) -> float | None:
    """``EVERY 10 SECONDS`` or ``CONTINUOUS`` (None)."""
    if reader.one_of("EVERY", "CONTINUOUS") == "CONTINUOUS":
        return None
    return _duration(reader, "EVERY", EVERY_MIN_S, EVERY_MAX_S)


def _duration(reader: Reader, clause: str, least_s: float, most_s: float) -> float:
    token = reader.peek()
    count = 1.0 if reader.peek().kind == "word" else reader.number("seconds, minutes, hours or days")
    unit = reader.take()
    seconds = _UNITS.get(unit.text.upper().removesuffix("S"))
    if unit.kind != "word" or seconds is None:
        raise reader.wrong(
            unit, f"{unit.shown()} is no unit of time", "write SECONDS, MINUTES, HOURS or DAYS"
        )
    found = count * seconds
    if not math.isfinite(found) or not least_s <= found <= most_s:
        raise reader.wrong(
            token,
            f"{clause} {token.shown()} {unit.text} is out of range",
            f"write {least_s:g} second to {most_s / 86_400:g} days",
        )
    return found


def priority(reader: Reader) -> tuple[int, str | None]:
    """``PRIORITY n`` or ``PRIORITY BY column``"""
    reader.expect("PRIORITY")
    if reader.accept("BY"):
        return 0, reader.name("column")
    token = reader.peek()
    value = reader.number("a priority")
    if value not in range(10):
        raise reader.wrong(
            token, f"{token.shown()} is no priority", "write 0 to 9; what is higher comes first"
        )
    return int(value), None

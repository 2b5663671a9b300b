"""Parses a script into statements, by recursive descent; queries are parsed elsewhere.

A statement's first words say what it is. Queries are taken as text here (``query`` reads them), and so are
predicates over metadata, which ``tocsin.query`` reads. Every error is a ``SqlInvalid`` that points at the character
and says what to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from tocsin.errors import SqlInvalid
from tocsin.model.catalogue import TEXT_MAX_BYTES
from tocsin.pipeline.language.limits import BRACKETS_MAX, STATEMENTS_MAX, TOKENS_MAX
from tocsin.pipeline.language.names import meant
from tocsin.pipeline.language.text import defining
from tocsin.pipeline.language.text.lexer import Token, tokens
from tocsin.pipeline.language.text.reader import Reader
from tocsin.pipeline.language.text.statements import (
    AlterChannel,
    Describe,
    Drop,
    ExplainChannel,
    Kind,
    PauseChannel,
    ResumeChannel,
    RunChannel,
    Select,
    Show,
    Statement,
)

_KINDS: Final = ("DATASET", "FEED", "CHANNEL")
# Statements of other databases that people write.
_INSTEAD: Final = {
    "INSERT": "datasets are written by feeds and by `tocsin dataset load` only",
    "UPDATE": "a dataset with a KEY takes the newest record of each key from its feed",
    "DELETE": "use KEEP n DAYS in CREATE DATASET; rows leave by themselves",
    "MERGE": "a dataset with a KEY takes the newest record of each key from its feed",
    "TRUNCATE": "use KEEP n DAYS in CREATE DATASET, or DROP DATASET",
    "SET": "settings are in tocsin.toml",
    "RESET": "settings are in tocsin.toml",
    "USE": "there is one set of names; write them alone",
    "ADD": "nothing can be added to Spark from here",
    "DECLARE": "there are no variables; write a parameter as :name in a channel",
    "CACHE": "data is kept at hand by itself",
    "REFRESH": "data is kept at hand by itself",
    "CALL": "only what the standard library has can be called, in a query",
    "EXECUTE": "only what the standard library has can be called, in a query",
    "VALUES": "write SELECT",
    "TABLE": "write SELECT * FROM",
    "FROM": "begin with SELECT",
}


def read_script(text: str) -> tuple[Statement, ...]:
    """The statements of a script. Raises ``SqlInvalid`` at the first that cannot be read."""
    found: list[Statement] = []
    for pieces in split(text):
        if len(found) == STATEMENTS_MAX:
            raise SqlInvalid(
                text,
                pieces[0].at,
                f"more than {STATEMENTS_MAX} statements in a script",
                "run it in several pieces",
            )
        found.append(_statement(Reader(text, pieces)))
    return tuple(found)


def split(text: str) -> list[list[Token]]:
    """The tokens of each statement; a semicolon ends one."""
    statements: list[list[Token]] = [[]]
    for token in tokens(text):
        if token.is_symbol(";"):
            statements.append([])
        elif token.kind != "end":
            statements[-1].append(token)
    found = [pieces for pieces in statements if pieces]
    for pieces in found:
        _bound(text, pieces)
    return found


def _bound(text: str, pieces: list[Token]) -> None:
    first, last = pieces[0], pieces[-1]
    size = len(text[first.at : last.end].encode())
    if size > TEXT_MAX_BYTES or len(pieces) > TOKENS_MAX:
        raise SqlInvalid(
            text,
            first.at,
            f"a statement of {size} bytes and {len(pieces)} words is too long",
            f"at most {TEXT_MAX_BYTES} bytes and {TOKENS_MAX} words are allowed",
        )
    open_at: list[int] = []
    for token in pieces:
        if token.is_symbol("(", "["):
            open_at.append(token.at)
            if len(open_at) > BRACKETS_MAX:
                raise SqlInvalid(
                    text,
                    token.at,
                    f"more than {BRACKETS_MAX} brackets one inside the other",
                    "make it flatter",
                )
        elif token.is_symbol(")", "]"):
            if not open_at:
                raise SqlInvalid(text, token.at, f"this {token.text} closes nothing", "leave it out")
            open_at.pop()
    if open_at:
        raise SqlInvalid(text, open_at[-1], "this bracket is not closed", "close it")


def _statement(reader: Reader) -> Statement:
    word = reader.peek()
    read = _STATEMENTS.get(word.text.upper()) if word.kind in ("word", "symbol") else None
    if read is None:
        remedy = _INSTEAD.get(word.text.upper()) or meant(word.text, _STATEMENTS, "statements")
        raise reader.wrong(word, f"{word.shown()} begins no statement", remedy)
    statement = read(reader)
    if not isinstance(statement, Select):
        reader.end()
    return statement


def _create(reader: Reader) -> Statement:
    at = reader.take().at
    or_replace = reader.accept("OR") and bool(reader.expect("REPLACE"))
    word = reader.peek()
    kind = word.text.upper()
    if kind not in _KINDS:
        remedy = "only datasets, feeds and channels can be made: CREATE DATASET|FEED|CHANNEL"
        raise reader.wrong(word, f"{word.shown()} cannot be created", remedy)
    if or_replace and kind != "CHANNEL":
        raise reader.wrong(word, f"a {kind.lower()} cannot be replaced", f"DROP {kind} first")
    reader.take()
    if_not_exists = reader.accept("IF") and bool(reader.expect("NOT") and reader.expect("EXISTS"))
    if or_replace and if_not_exists:
        raise reader.wrong(word, "OR REPLACE and IF NOT EXISTS contradict each other", "choose one")
    if kind == "DATASET":
        return defining.dataset(reader, at, if_not_exists)
    if kind == "FEED":
        return defining.feed(reader, at, if_not_exists)
    return defining.channel(reader, at, or_replace, if_not_exists)


def _drop(reader: Reader) -> Drop:
    at = reader.take().at
    kind = reader.one_of(*_KINDS).lower()
    if_exists = reader.accept("IF") and bool(reader.expect("EXISTS"))
    return Drop(cast(Kind, kind), reader.name(kind), if_exists, at)


def _alter(reader: Reader) -> AlterChannel:
    at = reader.take().at
    reader.one_of("CHANNEL")
    name = reader.name("channel")
    if reader.peek().is_word("PRIORITY"):
        priority, column = defining.priority(reader)
        return AlterChannel(name, at, priority=priority if column is None else None, priority_column=column)
    every_s = defining.period(reader)
    return AlterChannel(name, at, every_s=every_s, continuous=every_s is None)


def _of_channel(make: Callable[[str, int], Statement]) -> Callable[[Reader], Statement]:
    def read(reader: Reader) -> Statement:
        at = reader.take().at
        reader.one_of("CHANNEL")
        return make(reader.name("channel"), at)

    return read


def _show(reader: Reader) -> Show:
    at = reader.take().at
    what = reader.one_of("DATASETS", "FEEDS", "CHANNELS", "SUBSCRIPTIONS").lower()
    if what != "subscriptions":
        return Show(what, at)  # type: ignore[arg-type]
    reader.expect("OF")
    return Show("subscriptions", at, reader.name("channel"))


def _describe(reader: Reader) -> Describe:
    at = reader.take().at
    kind: str | None = None
    following = reader.peek(1)
    if reader.peek().is_word(*_KINDS) and following.kind in ("word", "name"):
        kind = reader.take().text.lower()
    return Describe(reader.name(kind or "dataset, feed or channel"), at, cast("Kind | None", kind))


def _select(reader: Reader) -> Select:
    start = reader.peek().at
    return Select(reader.rest(), start)


_STATEMENTS: Final[dict[str, Callable[[Reader], Statement]]] = {
    "CREATE": _create,
    "DROP": _drop,
    "ALTER": _alter,
    "PAUSE": _of_channel(PauseChannel),
    "RESUME": _of_channel(ResumeChannel),
    "RUN": _of_channel(RunChannel),
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXPLAIN": _of_channel(ExplainChannel),
    "SELECT": _select,
    "WITH": _select,
    "(": _select,
}

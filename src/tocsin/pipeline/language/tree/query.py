"""Parses a query's text into a tree of allowed nodes.

sqlglot reads it, as Spark's SQL. Before that, ``NEW``, ``RESULTS OF`` and ``NEW RESULTS OF`` are blanked and remembered
(a table that stands where one of them was is marked), and parameters get names of the same length that are no keywords.
So positions in the tree are positions in the text.

A tree that leaves here has only nodes of ``vocabulary``, names of plain letters, one query, and bounds that are
kept. Spark never sees the text: its query is written from the tree.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

import msgspec
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from tocsin.errors import SqlInvalid
from tocsin.model.catalogue import Parameter
from tocsin.pipeline.language.limits import BLOCKS_MAX, DEPTH_MAX, JOINS_MAX, NODES_MAX
from tocsin.pipeline.language.names import meant, nearest
from tocsin.pipeline.language.text.lexer import Token, blanked, tokens
from tocsin.pipeline.language.tree.vocabulary import (
    BEFORE_BRACKETS,
    CALLED,
    CLOCKS,
    FUNCTION_NODES,
    FUNCTIONS,
    INSTEAD,
    OTHER_NODES,
    REMEDIES,
)

DIALECT: Final = "spark"
NEW: Final = "new"  # the marks of tables, in their ``meta``
RESULTS: Final = "results of"
NEW_RESULTS: Final = "new results of"

_CLAUSES: Final = frozenset(
    (
        "SELECT",
        "FROM",
        "JOIN",
        "ON",
        "USING",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "WINDOW",
        "UNION",
        "INTERSECT",
        "EXCEPT",
    )
)
_RESERVED: Final = "_"  # names that begin with it are ours


class Text(msgspec.Struct, frozen=True):
    """A query's text, which may be part of a script: where errors point."""

    query: str
    whole: str
    at: int = 0  # of the query in the whole

    def wrong(self, at: int, problem: str, remedy: str) -> SqlInvalid:
        return SqlInvalid(self.whole, self.at + at, problem, remedy)

    def wrong_at(self, node: exp.Expr, problem: str, remedy: str) -> SqlInvalid:
        return self.wrong(position(node), problem, remedy)


class Query(msgspec.Struct, frozen=True):
    """A query that has been read. The caller may change ``tree``."""

    text: Text
    tree: exp.Query
    pieces: list[Token]


def position(node: exp.Expr) -> int:
    """Where a node begins: what sqlglot knows of it, its first part, or what it is in."""
    found = _start(node)
    while found is None and node.parent is not None:
        node = node.parent
        found = _start(node)
    return found or 0


def _start(node: exp.Expr) -> int | None:
    starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    return min(starts, default=None)


def read_query(text: Text, parameters: tuple[Parameter, ...]) -> Query:
    """The tree of one query. Raises ``SqlInvalid``."""
    pieces = tokens(text.query)[:-1]
    if not pieces:
        raise text.wrong(0, "there is no query here", "write SELECT …")
    _check_tokens(text, pieces)
    renamed = _rename_parameters(text, pieces, parameters)
    marked = _marks(pieces)
    hidden = {at for before, _ in marked.values() for at in before}
    tree = _parse(text, " " * pieces[0].at + blanked(text.query, renamed, hidden))
    _check_shape(text, tree)
    for node in tree.walk():
        _check_node(text, node)
    for table in tree.find_all(exp.Table):
        name_at = table.this.meta.get("start", -1)
        if name_at in marked:
            table.meta["mark"] = marked.pop(name_at)[1]
    if marked:
        at, (_, mark) = next(iter(marked.items()))
        what = "dataset" if mark == NEW else "channel"
        raise text.wrong(
            at, f"{mark.upper()} stands before no {what}", "write it before a name in FROM or JOIN"
        )
    for placeholder in tree.find_all(exp.Placeholder):
        placeholder.set("this", str(ord(placeholder.name[0]) - ord("a")))
    return Query(text, tree, pieces)


def _check_tokens(text: Text, pieces: list[Token]) -> None:
    """Names are plain; what is called is a function that may be."""
    for index, token in enumerate(pieces):
        if token.kind in ("word", "name"):
            name = token.text.strip("`") if token.kind == "name" else token.text
            if not name.isascii() or not name.replace("_", "a").isalnum() or name[0].isdigit():
                raise text.wrong(token.at, f"{token.shown()} cannot be a name", "use letters, digits and _")
            if name.startswith(_RESERVED) and not _is_metadata(pieces, index):
                raise text.wrong(
                    token.at,
                    f"{token.shown()}: names that begin with _ are reserved",
                    "begin it with a letter",
                )
            if token.kind == "word" and name.lower() in CLOCKS:
                remedy = INSTEAD.get(name.lower(), "write NOW(), the time of the execution")
                raise text.wrong(token.at, f"{token.shown().upper()} is not allowed", remedy)
            if token.is_word("SELECT") and _selects_nothing(pieces, index):
                raise text.wrong(token.at, "nothing is selected", "name columns behind it, or write *")
            if index + 1 < len(pieces) and pieces[index + 1].is_symbol("("):
                _check_call(text, pieces, index, name.lower())
        elif token.is_symbol(":"):
            raise text.wrong(token.at, "a colon begins a parameter", "write :name, with a blank before it")
        elif token.is_symbol(";"):
            raise text.wrong(token.at, "a query ends before a semicolon", "leave it out")
        elif token.is_symbol(",") and _ends(pieces, index + 1):
            raise text.wrong(token.at, "nothing follows this comma", "leave it out")
        elif token.is_symbol("=~", "!~", "~", "&", "|", "^", "!"):
            instead = {"=~": "write RLIKE", "!~": "write NOT … RLIKE", "!": "write NOT"}
            raise text.wrong(
                token.at, f"{token.text} is no operator here", instead.get(token.text, "leave it out")
            )


def _ends(pieces: list[Token], index: int) -> bool:
    """Whether a list ends here."""
    return index >= len(pieces) or pieces[index].is_symbol(")", "]") or pieces[index].is_word(*_CLAUSES)


def _selects_nothing(pieces: list[Token], index: int) -> bool:
    distinct = index + 1 < len(pieces) and pieces[index + 1].is_word("DISTINCT")
    return _ends(pieces, index + 2 if distinct else index + 1)


def _is_metadata(pieces: list[Token], index: int) -> bool:
    """Results have columns whose names begin so (``_at``, ``_k``); checked against what there is later."""
    return not pieces[max(index - 1, 0)].is_word("AS") and any(piece.is_word("RESULTS") for piece in pieces)


def _check_call(text: Text, pieces: list[Token], index: int, name: str) -> None:
    token = pieces[index]
    before = pieces[index - 1] if index else None
    if before is not None and before.is_symbol("."):
        raise text.wrong(
            token.at, f"{token.shown()}(…) is not called with a dot", "write the function's name alone"
        )
    if name in FUNCTIONS and (token.kind == "word" or name not in BEFORE_BRACKETS):
        return
    if token.kind == "word" and name in BEFORE_BRACKETS:
        return
    if (
        before is not None
        and (before.is_word("WITH", "AS") or before.is_symbol(",", ")"))
        and _names_columns(pieces, index)
    ):
        return
    if before is not None and before.is_word("FROM", "JOIN"):
        raise text.wrong(
            token.at, f"{token.shown()}(…) is no dataset", "only datasets and subqueries can be read"
        )
    remedy = INSTEAD.get(name)
    if remedy is None:
        near = nearest(name, FUNCTIONS)
        remedy = (
            f"did you mean {near.upper()}?" if near else "see the reference for the functions that there are"
        )
    raise text.wrong(token.at, f"{token.shown().upper()}(…) is not allowed", remedy)


def _names_columns(pieces: list[Token], index: int) -> bool:
    """Whether a word with a bracket behind it is a table's alias with names of columns: ``WITH a(x, y) AS``."""
    at = index + 2
    while at < len(pieces) and (pieces[at].kind in ("word", "name") or pieces[at].is_symbol(",")):
        at += 1
    return at < len(pieces) and pieces[at].is_symbol(")") and at > index + 2


def _rename_parameters(text: Text, pieces: list[Token], parameters: tuple[Parameter, ...]) -> list[Token]:
    known = {parameter.name.lower(): index for index, parameter in enumerate(parameters)}
    used: set[int] = set()
    renamed: list[Token] = []
    for token in pieces:
        if token.kind == "parameter":
            index = known.get(token.text[1:].lower())
            if index is None:
                names = [f":{parameter.name}" for parameter in parameters]
                remedy = meant(token.text, names, "parameters") if names else "this query takes no parameters"
                raise text.wrong(token.at, f"there is no parameter {token.text}", remedy)
            used.add(index)
            safe = chr(ord("a") + index) + "_" * (len(token.text) - 2)
            token = Token("parameter", f":{safe}", token.at)
        elif token.kind == "string":
            token = Token("string", _escaped(token.text), token.at)
        renamed.append(token)
    for index, parameter in enumerate(parameters):
        if index not in used:
            raise text.wrong(
                0,
                f"the parameter {parameter.name} is not used",
                f"write :{parameter.name} in the query, or take it out of the channel's parameters",
            )
    return renamed


def _escaped(string: str) -> str:
    """A string with a backslash where a quote is doubled: sqlglot would read two strings."""
    quote = string[0]
    inside = re.sub(
        rf"\\.|{quote}{quote}",
        lambda found: f"\\{quote}" if found[0][0] == quote else found[0],
        string[1:-1],
        flags=re.DOTALL,
    )
    return f"{quote}{inside}{quote}"


def channels_read(query: str) -> dict[str, int]:
    """The channels whose results a query reads, in small letters → where it names them. The query need not be right."""
    pieces = tokens(query)[:-1]
    name_of = {piece.at: piece.text.strip("`").lower() for piece in pieces}
    marked = {at: mark for at, (_, mark) in _marks(pieces).items()}
    return {name_of[at]: at for at, mark in marked.items() if mark in (RESULTS, NEW_RESULTS)}


def _marks(pieces: list[Token]) -> dict[int, tuple[list[int], str]]:
    """Where a name has NEW, RESULTS OF or both before it: that name's position → those words' positions, the mark."""
    found: dict[int, tuple[list[int], str]] = {}
    clauses = [""]
    for index, token in enumerate(pieces):
        if token.is_symbol("("):
            clauses.append("")
        elif token.is_symbol(")") and len(clauses) > 1:
            clauses.pop()
        elif token.kind == "word" and token.text.upper() in _CLAUSES:
            clauses[-1] = token.text.upper()
        before = pieces[index - 1] if index else token
        starts = before.is_word("FROM", "JOIN") or (before.is_symbol(",") and clauses[-1] in ("FROM", "JOIN"))
        if not starts:
            continue
        words, mark = _mark(pieces, index)
        if words:
            found[pieces[index + words].at] = ([piece.at for piece in pieces[index : index + words]], mark)
    return found


def _mark(pieces: list[Token], index: int) -> tuple[int, str]:
    """How many words stand before a table's name, and the mark that they are."""
    new = pieces[index].is_word("NEW")
    at = index + new
    if at + 2 < len(pieces) and pieces[at].is_word("RESULTS") and pieces[at + 1].is_word("OF"):
        return at + 2 - index, NEW_RESULTS if new else RESULTS
    return (1, NEW) if new and _is_name(pieces, at) else (0, "")


def _is_name(pieces: list[Token], index: int) -> bool:
    """Whether a name follows, rather than an alias of a dataset that is called NEW."""
    if index >= len(pieces) or pieces[index].kind not in ("word", "name"):
        return False
    return not pieces[index].is_word("AS", "JOIN", "LEFT", "RIGHT", "INNER", "CROSS", "FULL", "ON", *_CLAUSES)


def _parse(text: Text, sql: str) -> exp.Query:
    try:
        trees = sqlglot.parse(sql, dialect=DIALECT)
    except ParseError as error:
        _explain(text, error)
    except (SqlglotError, RecursionError, ValueError, AttributeError, TypeError) as error:
        raise text.wrong(
            0, f"the query cannot be read ({type(error).__name__})", "write it more simply"
        ) from None
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query):
        raise text.wrong(0, "this is no query", "write one SELECT")
    return tree


def _explain(text: Text, error: ParseError) -> NoReturn:
    """sqlglot's error, at the character that it means."""
    first = error.errors[0] if error.errors else {}
    lines = text.query.split("\n")
    line = int(first.get("line") or 1)
    highlight = str(first.get("highlight") or "")
    end = sum(len(each) + 1 for each in lines[: line - 1]) + int(first.get("col") or 1)
    at = min(max(end - len(highlight), 0), len(text.query))
    found = f"{highlight!r} does not fit here" if highlight.strip() else "something is missing here"
    raise text.wrong(
        at, found, "see that the words before it are complete, and that names are no keywords"
    ) from None


def _check_shape(text: Text, tree: exp.Query) -> None:
    """The bounds of a tree, without recursion."""
    level: list[exp.Expr] = [tree]
    depth = nodes = 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > DEPTH_MAX or nodes > NODES_MAX:
            raise text.wrong(
                0, "the query is too large or too deep", f"at most {DEPTH_MAX} operators one inside the other"
            )
        level = [child for node in level for child in node.iter_expressions()]
    joins = list(tree.find_all(exp.Join))
    if len(joins) > JOINS_MAX:
        raise text.wrong_at(
            joins[-1],
            f"{len(joins)} joins are too many",
            f"at most {JOINS_MAX} are allowed; use fewer datasets",
        )
    blocks = list(tree.find_all(exp.Select))
    if len(blocks) > BLOCKS_MAX:
        raise text.wrong_at(
            blocks[-1], f"{len(blocks)} SELECTs are too many", f"at most {BLOCKS_MAX} are allowed"
        )


def _check_node(text: Text, node: exp.Expr) -> None:
    kind = type(node)
    if kind in FUNCTION_NODES:
        return
    members = OTHER_NODES.get(kind, ...)
    if members is ...:
        _refuse(text, node, kind.__name__)
    if kind is exp.Anonymous and node.name.lower() not in FUNCTIONS:
        raise text.wrong_at(node, f"the function {node.name.upper()} is not allowed", "see the reference")
    if kind is exp.Table and not isinstance(node.this, exp.Identifier):
        raise text.wrong_at(
            node, "only datasets can be read", "write a dataset's name, or a subquery in brackets"
        )
    if members is None:
        return
    for member, value in node.args.items():
        if value and member not in members:
            _refuse(text, node, member)


def _refuse(text: Text, node: exp.Expr, what: str) -> NoReturn:
    called = CALLED.get(what, what)
    raise text.wrong_at(
        node, f"{called} is not allowed", REMEDIES.get(called, "write it with what the reference lists")
    )

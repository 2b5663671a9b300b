"""Whether a user may do what a statement says, by the rules about SQL; and what of a list it may see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog

from tocsin.core.access.rules import FILE_MAX_BYTES
from tocsin.core.access.sql_rules import Action, SqlAccess, SqlRule, parse_sql_rules
from tocsin.errors import OperatorError, SqlInvalid
from tocsin.model.answer import Answer
from tocsin.pipeline.execution.compiled import Compiled, Selection
from tocsin.pipeline.language.text import statements as said
from tocsin.runtime.security.followed_files import signature

Need = tuple[Action, str]  # what has to be allowed, and of which dataset, feed or channel


class SqlRules:
    """The rules about SQL of a file, read again when it changes. Without a file everything is allowed."""

    def __init__(self, path: str = "") -> None:
        """``OperatorError`` if the file cannot be used."""
        self._path = Path(path) if path else None
        self._signature = signature(self._path) if self._path else None
        self._access = SqlAccess(_read(self._path) if self._path else None)

    @property
    def access(self) -> SqlAccess:
        if self._path is not None and (found := signature(self._path)) != self._signature:
            self._signature = found
            try:
                self._access = SqlAccess(_read(self._path))
            except OperatorError as error:
                structlog.get_logger().error(
                    "changed rules cannot be used; the old ones stay", problem=str(error)
                )
        return self._access


def _read(path: Path) -> tuple[SqlRule, ...]:
    try:
        with path.open("rb") as file:
            return parse_sql_rules(file.read(FILE_MAX_BYTES).decode(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"the rules in {path} cannot be read: {error}", "Correct access.rules") from None


def action_of(statement: said.Statement) -> Need:
    """The main object of a statement; for the audit log too."""
    match statement:
        case said.CreateDataset(dataset=definition):
            return "define", definition.name
        case said.CreateFeed(feed=feed):
            return "define", feed.name
        case said.CreateChannel(channel=channel):
            return "define", channel.name
        case said.Drop(name=name):
            return "drop", name
        case said.AlterChannel() | said.PauseChannel() | said.ResumeChannel() | said.RunChannel():
            return "define", statement.name
        case said.Show(what=what, of=name):
            return "query", name or what
        case said.Describe(name=name) | said.ExplainChannel(name=name):
            return "query", name
        case said.Select():
            return "query", ""


def needs(statement: said.Statement, compiled: Compiled | Selection | None) -> Iterator[Need]:
    """All that has to be allowed for a statement."""
    if isinstance(statement, said.Show) and statement.of is None:
        return  # it lists what one may see
    if not isinstance(statement, said.Select):
        yield action_of(statement)
    if isinstance(statement, said.CreateFeed):
        yield "define", statement.feed.dataset
    if compiled is not None:
        reads = compiled.reads if isinstance(compiled, Selection) else compiled.template.reads
        yield from (("query", each.name) for each in reads)


def check_rights(
    access: SqlAccess, user: str, text: str, statement: said.Statement, compiled: Compiled | Selection | None
) -> None:
    """``NotAllowed`` if the user may not do what the statement says."""
    for action, name in needs(statement, compiled):
        if not access.allows(user, action, name):
            raise NotAllowed(
                text, statement.at, f"{user} may not {action} {name}", "ask the operator for a rule"
            )


class NotAllowed(SqlInvalid):
    """The statement is right, and not for this user."""


def seen(access: SqlAccess, user: str, answer: Answer) -> Answer:
    """The rows of a list whose first column names what the user may query."""
    rows = tuple(row for row in answer.rows if access.allows(user, "query", str(row[0])))
    return answer if len(rows) == len(answer.rows) else msgspec.structs.replace(answer, rows=rows)

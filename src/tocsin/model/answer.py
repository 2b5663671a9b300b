"""The pipeline's answers to SQL, on both sides of the bus: structs that are JSON there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tocsin.errors import SqlInvalid, TocsinError


class Heading(msgspec.Struct, frozen=True):
    """A column of a table."""

    name: str
    type: str = "STRING"


class Answer(msgspec.Struct, frozen=True):
    """The outcome of one statement: a table, or text."""

    statement: str
    columns: tuple[Heading, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    more: bool = False  # there are rows that are not here
    message: str = ""

    def names(self) -> list[str]:
        """The columns' names, each once: a second ``n`` is ``n_2``."""
        found: list[str] = []
        for heading in self.columns:
            name, number = heading.name, 1
            while name in found:
                number += 1
                name = f"{heading.name}_{number}"
            found.append(name)
        return found

    def objects(self) -> Iterator[dict[str, Any]]:
        """The rows, by the columns' names."""
        names = self.names()
        return (dict(zip(names, row, strict=True)) for row in self.rows)


class Problem(msgspec.Struct, frozen=True):
    """Why a script stopped, and where: lines and columns from 1; 0: nowhere in particular."""

    message: str
    line: int = 0
    column: int = 0
    remedy: str = ""

    def error(self, text: str) -> TocsinError:
        """As an error about the script."""
        if self.line:
            lines = text.split("\n")
            at = sum(len(each) + 1 for each in lines[: self.line - 1]) + self.column - 1
            return SqlInvalid(text, at, self.message, self.remedy)
        return TocsinError(f"{self.message}; {self.remedy}" if self.remedy else self.message)


class Reply(msgspec.Struct, frozen=True):
    """The answers up to the first problem."""

    results: tuple[Answer, ...] = ()
    error: Problem | None = None

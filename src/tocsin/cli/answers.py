"""Answers of the pipeline, for people (tables) and for programs (JSON lines, CSV).

For programs, standard output has the rows and nothing else; words go to standard error.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from typing import Any, Final, Literal, get_args

import msgspec
from rich.table import Table
from rich.text import Text

from tocsin.cli.layout import console, lay_out, printable
from tocsin.client.sql import Answer
from tocsin.errors import OperatorError

Form = Literal["table", "json", "csv"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)
RIGHT: Final = re.compile(r"(TINY|SMALL|BIG)?INT|FLOAT|DOUBLE|DECIMAL.*")


def form_of(text: str) -> Form:
    for form in FORMS:
        if form == text:
            return form
    raise OperatorError(f"-o {text} is not a form", f"Choose one of {', '.join(FORMS)}")


def show(answer: Answer, form: Form, seconds: float | None = None) -> None:
    """Print one answer."""
    if form == "table":
        _show_table(answer, seconds)
        return
    if answer.columns:
        sys.stdout.write(json_lines(answer) if form == "json" else csv_text(answer))
        sys.stdout.flush()
    elif answer.message:
        print(answer.message, file=sys.stderr)
    if answer.more:
        print("there are more rows than these; --limit shows more", file=sys.stderr)


def json_lines(answer: Answer) -> str:
    """One object a row."""
    return "".join(msgspec.json.encode(row).decode() + "\n" for row in answer.objects())


def csv_text(answer: Answer) -> str:
    """A line of names, then the rows; null is empty, and what has parts is JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(answer.names())
    writer.writerows(["" if cell is None else word(cell) for cell in row] for row in answer.rows)
    return text.getvalue()


def word(cell: Any) -> str:
    """A value as text."""
    if cell is None:
        return "NULL"
    return cell if isinstance(cell, str) else msgspec.json.encode(cell).decode()


def table(answer: Answer, width: int) -> Table:
    return lay_out(
        [heading.name for heading in answer.columns],
        [[word(cell) for cell in row] for row in answer.rows],
        [RIGHT.fullmatch(heading.type) is not None for heading in answer.columns],
        width,
    )


def _show_table(answer: Answer, seconds: float | None) -> None:
    out = console()
    took = "" if seconds is None else f" ({seconds:.2f} s)"
    if not answer.columns:
        out.print(printable(answer.message + took))
        return
    out.print(table(answer, out.width))
    if answer.message:
        out.print(printable(answer.message))
    count = len(answer.rows)
    more = ", and there are more: --limit shows more" if answer.more else ""
    out.print(Text(f"{count} row{'' if count == 1 else 's'}{more}{took}", style="dim"))

"""Tables that can be read wherever they are shown.

Where nothing is a terminal they are as wide as they need. On a terminal that is too narrow, long texts are folded; if
columns would become too narrow to be read, each row is a block of lines, one for each column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

FOLDED_MIN: Final = 20  # characters of a folded column: less is not read any more
BETWEEN: Final = 3  # what a table has between two columns
BOUNDLESS: Final = 100_000  # the width of what is no terminal
CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> Text:
    """Text from outside: no markup, and no codes that a terminal obeys."""
    return Text(CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text))


def console() -> Console:
    """Standard output."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=BOUNDLESS)


def lay_out(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int
) -> Table:
    """A table of texts; ``right`` says of each column whether it is flush with its right side, as numbers are."""
    needed = [
        max(_width(heading), *(_width(row[number]) for row in rows), 0)
        for number, heading in enumerate(headings)
    ]
    if sum(min(each, FOLDED_MIN) + BETWEEN for each in needed) + 1 > width:
        return _blocks(headings, rows)
    shown = Table()
    for number, heading in enumerate(headings):
        shown.add_column(
            printable(heading),
            justify="right" if right[number] else "left",
            overflow="fold",
            no_wrap=needed[number] <= FOLDED_MIN,
        )
    for row in rows:
        shown.add_row(*map(printable, row))
    return shown


def _blocks(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    shown = Table("", "", show_header=False)
    shown.columns[0].no_wrap = max(map(_width, headings), default=0) <= FOLDED_MIN
    for column in shown.columns:
        column.overflow = "fold"
    for row in rows:
        for heading, cell in zip(headings, row, strict=True):
            shown.add_row(printable(heading), printable(cell))
        shown.add_section()
    return shown


def _width(text: str) -> int:
    return max(map(cell_len, printable(text).plain.split("\n")), default=0)

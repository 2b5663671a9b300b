"""Tables on terminals of every width."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from tocsin.cli.layout import BOUNDLESS, FOLDED_MIN, console, lay_out

HEADINGS = ("channel", "runs", "subscriptions", "executions", "last", "matched", "overruns", "error")
ROW = ("EmergenciesNearMe", "every 10 s", "12,345", "1,234", "0:00:05 ago", "17", "0", "")
LEFT = (False,) * len(ROW)


def shown(headings: tuple[str, ...], rows: list[tuple[str, ...]], right: tuple[bool, ...], width: int) -> str:
    out = Console(file=io.StringIO(), width=width, force_terminal=False)
    out.print(lay_out(headings, rows, right, width))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_what_fits_is_a_table_with_a_line_for_each_row() -> None:
    lines = shown(HEADINGS, [ROW], LEFT, 120).splitlines()
    assert len(lines) == 5 and all(word in lines[1] for word in HEADINGS)
    assert all(word in lines[3] for word in ROW)


def test_a_long_text_is_folded_and_nothing_else_is() -> None:
    text = shown(HEADINGS, [(*ROW[:-1], "z" * 200)], LEFT, 130)
    lines = [line for line in text.splitlines() if "z" in line]
    assert text.count("z") == 200 and len(lines) > 1
    assert all(word in lines[0] for word in ROW[:-1])
    assert all(cell_len(line) <= 130 for line in lines)


def test_where_columns_would_be_too_narrow_each_row_is_a_block() -> None:
    lines = shown(HEADINGS, [ROW, ROW], LEFT, 80).splitlines()
    found = [[part.strip() for part in line.strip("│┃").split("│")] for line in lines if "│" in line]
    pairs = [list(each) for each in zip(HEADINGS, ROW, strict=True)]
    assert found == pairs * 2


def test_numbers_are_flush_right() -> None:
    lines = shown(("n",), [("1",), ("100",)], (True,), 80).splitlines()
    assert lines[3] == "│   1 │"


def test_what_is_no_terminal_has_no_width() -> None:
    assert console().width == BOUNDLESS  # pytest reads what is written


cells = st.text("abcdefg hij", max_size=60)


@given(
    rows=st.lists(st.tuples(cells, cells, cells), max_size=4),
    width=st.integers(2 * FOLDED_MIN + 10, 200),
)
def test_every_letter_is_shown_and_no_line_is_too_wide(rows: list[tuple[str, ...]], width: int) -> None:
    text = shown(("KKK", "LLL", "MMM"), rows, (False, True, False), width)
    for letter in "abcdefghij":
        assert text.count(letter) == sum(cell.count(letter) for row in rows for cell in row)
    assert all(cell_len(line) <= width for line in text.splitlines())

"""Answers to SQL, as programs and people see them."""

from __future__ import annotations

from tocsin.errors import SqlInvalid
from tocsin.model.answer import Answer, Heading, Problem


def test_names_of_columns_are_told_apart() -> None:
    answer = Answer("SELECT", (Heading("n"), Heading("n"), Heading("n_2")), ((1, 2, 3),))
    assert answer.names() == ["n", "n_2", "n_2_2"]
    assert list(answer.objects()) == [{"n": 1, "n_2": 2, "n_2_2": 3}]


def test_a_problem_shows_the_line_with_a_mark_below_it() -> None:
    error = Problem("there is no dataset Report", 2, 6, "did you mean Reports?").error(
        "SELECT 1\nFROM Report"
    )
    assert isinstance(error, SqlInvalid) and (error.line, error.column) == (2, 6)
    assert "FROM Report\n" in str(error) and "     ^" in str(error)
    assert str(Problem("too large", remedy="ask for less").error("SELECT 1")) == "too large; ask for less"

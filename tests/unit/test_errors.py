"""Errors, as a person reads them."""

from __future__ import annotations

import pytest

from tocsin.errors import OperatorError, SourceUnusable


@pytest.mark.parametrize("problem", ["no such file", "no such file."])
@pytest.mark.parametrize(
    ("remedy", "read"),
    [("Name another", "Name another."), ("Name another.", "Name another."), ("Is it up?", "Is it up?")],
)
def test_a_problem_and_its_remedy_each_end_once(problem: str, remedy: str, read: str) -> None:
    assert str(OperatorError(problem, remedy)) == f"no such file. {read}"
    assert str(SourceUnusable("a feed", problem, remedy)) == f"a feed: no such file. {read}"

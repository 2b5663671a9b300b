"""Answers of the pipeline, for people and for programs."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from tocsin.cli.answers import csv_text, form_of, json_lines, show, table
from tocsin.client.sql import Answer, Heading
from tocsin.errors import OperatorError

ANSWER = Answer(
    "SELECT",
    (Heading("kind"), Heading("n", "BIGINT"), Heading("place", "STRUCT")),
    (("flood, [red]high[/]", 3, {"x": 1}), (None, None, None)),
)


def test_for_programs_each_row_is_an_object_on_a_line() -> None:
    lines = [json.loads(line) for line in json_lines(ANSWER).splitlines()]
    assert lines == [
        {"kind": "flood, [red]high[/]", "n": 3, "place": {"x": 1}},
        {"kind": None, "n": None, "place": None},
    ]


def test_csv_has_a_line_of_names_and_reads_back() -> None:
    rows = list(csv.reader(io.StringIO(csv_text(ANSWER))))
    assert rows == [["kind", "n", "place"], ["flood, [red]high[/]", "3", '{"x":1}'], ["", "", ""]]


def shown(answer: Answer) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    console.print(table(answer, console.width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_table_shows_what_is_there_and_obeys_none_of_it() -> None:
    assert "flood, [red]high[/]" in shown(ANSWER) and "NULL" in shown(ANSWER)
    odd = Answer("SELECT", (Heading("t"),), (("\x1b[2Jgone\x07",),))
    assert "\\x1b[2Jgone\\x07" in shown(odd) and "\x1b" not in shown(odd)


def test_words_are_beside_the_rows_where_programs_read(capsys: pytest.CaptureFixture[str]) -> None:
    show(Answer("CREATE DATASET", message="dataset Reports is made"), "json")
    show(Answer("SELECT", (Heading("n"),), ((1,),), more=True), "json")
    output, errors = capsys.readouterr()
    assert output == '{"n":1}\n'
    assert "dataset Reports is made" in errors and "--limit" in errors


def test_people_are_told_how_many_rows_and_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    show(Answer("SELECT", (Heading("n"),), ((1,),), more=True), "table", 0.5)
    show(Answer("DROP FEED", message="feed x is dropped"), "table")
    output = capsys.readouterr().out
    assert "1 row, and there are more" in output and "(0.50 s)" in output and "feed x is dropped" in output


def test_a_form_that_does_not_exist_is_refused() -> None:
    assert form_of("csv") == "csv"
    with pytest.raises(OperatorError, match="table, json, csv"):
        form_of("xml")

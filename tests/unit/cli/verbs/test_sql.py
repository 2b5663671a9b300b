"""``tocsin sql`` with scripts: where they come from, what is printed where, and exit codes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.unit.cli.talking import Fake, fake_in
from tocsin.cli.main import main
from tocsin.client.sql import Answer, Heading, Pipeline, Problem, Reply
from tocsin.errors import DeadlineExceeded, Forbidden, TocsinError

ROWS = Answer("SELECT", (Heading("kind"), Heading("n", "INT")), (("flood", 1), ("fire", 2)))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    found = fake_in(monkeypatch, "tocsin.cli.verbs.sql")
    found.reply = lambda text: Reply((ROWS,))
    return found


def test_a_command_is_run_and_its_rows_are_shown(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "-c", "SELECT 1"]) == 0
    assert fake.scripts == ["SELECT 1"]
    shown = capsys.readouterr().out
    assert "flood" in shown and "2 rows" in shown
    assert main(["sql", "-o", "csv", "-c", "SELECT 1"]) == 0
    assert capsys.readouterr().out == "kind,n\nflood,1\nfire,2\n"
    assert main(["sql", "-o", "json", "-c", "SELECT 1"]) == 0
    assert capsys.readouterr().out == '{"kind":"flood","n":1}\n{"kind":"fire","n":2}\n'


def test_tables_of_a_script_are_apart_in_csv(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.reply = lambda text: Reply((ROWS, ROWS))
    assert main(["sql", "-o", "csv", "-c", "SELECT 1; SELECT 1"]) == 0
    assert capsys.readouterr().out == "kind,n\nflood,1\nfire,2\n\nkind,n\nflood,1\nfire,2\n"


def test_a_file_and_standard_input_are_scripts(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "a.sql"
    script.write_text("SHOW FEEDS;")
    assert main(["sql", "-f", str(script)]) == 0
    for options in ([], ["-f", "-"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"SHOW CHANNELS;")))
        assert main(["sql", *options]) == 0
    assert fake.scripts == ["SHOW FEEDS;", "SHOW CHANNELS;", "SHOW CHANNELS;"]


def failing(monkeypatch: pytest.MonkeyPatch, error: TocsinError) -> None:
    async def run(pipeline: Pipeline, text: str, **options: object) -> Reply:
        raise error

    monkeypatch.setattr(Pipeline, "run", run)


def test_an_answer_that_does_not_come_may_still_be_on_its_way(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, DeadlineExceeded("n.pipeline.sql.operator", 60))
    assert main(["sql", "--timeout", "60", "-c", "CREATE DATASET A (n INT)"]) == 2
    said = capsys.readouterr().err
    assert "within 60 s; it may still do what it was asked" in said and "--timeout" in said


def test_a_key_of_somebody_else_is_told_of(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, Forbidden("user.ann", "publish on", "n.pipeline.sql.ann"))
    assert main(["sql", "--user", "ann", "--key", "user-bob.nk", "-c", "SHOW FEEDS"]) == 2
    said = capsys.readouterr().err
    assert "does not let you ask as ann" in said and "`tocsin store user add ann`" in said
    assert main(["sql", "-c", "SHOW FEEDS"]) == 1


def test_a_statement_that_fails_is_marked_and_costs_exit_code_1(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.reply = lambda text: Reply((ROWS,), Problem("there is no Report", 1, 15, "did you mean Reports?"))
    assert main(["sql", "-c", "SELECT 1 FROM Report"]) == 1
    output, errors = capsys.readouterr()
    assert "flood" in output
    assert "there is no Report" in errors and "did you mean Reports?" in errors and "^" in errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-c", "SELECT 1", "-f", "x.sql"], "exclude each other"),
        (["-f", "/none.sql"], "/none.sql cannot be read"),
        (["-c", "SELECT 1", "-o", "xml"], "-o xml is not a form"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(
    fake: Fake, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", *options]) == 2
    errors = capsys.readouterr().err
    assert words in errors and errors.count("\n") == 1
    assert fake.scripts == []


@pytest.mark.parametrize(("data", "words"), [(b" \n", "no statement"), (b"\xff", "not text in UTF-8")])
def test_a_file_without_statements_is_refused(
    fake: Fake, tmp_path: Path, data: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.sql").write_bytes(data)
    assert main(["sql", "-f", str(tmp_path / "a.sql")]) == 2
    assert words in capsys.readouterr().err


def test_a_network_that_does_not_run_is_said_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--set", "nats.urls=nats://127.0.0.1:9", "--state", str(tmp_path)]
    assert main(["sql", "-c", "SHOW FEEDS", *options]) == 2
    errors = capsys.readouterr().err
    assert "cannot be reached" in errors and "tocsin up" in errors

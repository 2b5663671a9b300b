"""The prompt: when a statement is complete, what a word may become, and how one leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cli.talking import Fake
from tocsin.cli.prompt import (
    KEYWORDS,
    completions,
    converse,
    editing,
    history_file,
    is_complete,
    read_statement,
)
from tocsin.client.sql import Answer, Heading, Problem, Reply


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1;",
        "SELECT ';';",
        "SELECT 1; -- done",
        "SELECT 1; /* done */",
        "SELECT 'it''s';",
        r"SELECT '\'';",
    ],
)
def test_a_semicolon_ends_a_statement(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SELECT 1",
        "SELECT ';",
        'SELECT ";',
        "SELECT `;",
        "SELECT 1 -- ;",
        "SELECT 1; /*",
        "SELECT 1; /* ;",
        "/*/;",
    ],
)
def test_a_semicolon_that_is_hidden_ends_nothing(text: str) -> None:
    assert not is_complete(text)


def dumb(text: str) -> bool:
    """One character after the other, with what it is in."""
    inside, last, at = "", "", 0
    while at < len(text):
        pair, character = text[at : at + 2], text[at]
        if inside in ("'", '"') and character == "\\" and at + 1 < len(text):
            at += 2
            continue
        if inside:
            end = {"--": "\n", "/*": "*/"}.get(inside, inside)
            if text.startswith(end, at):
                inside, at = "", at + len(end) - (end == "\n")
                continue
        elif pair in ("--", "/*"):
            inside, at = pair, at + 2
            continue
        elif character in "'\"`":
            inside = last = character
        elif not character.isspace():
            last = character
        at += 1
    return last == ";" and inside in ("", "--")


@given(st.text(alphabet=list("a;'\"`-/*\\\n "), max_size=14))
def test_a_statement_is_complete_as_reading_one_character_after_the_other_says(text: str) -> None:
    assert is_complete(text) == dumb(text)


def test_keywords_are_completed_in_the_case_in_which_they_were_begun_and_names_as_they_are() -> None:
    names = {"reports": "Reports", "reported_at": "reported_at"}
    assert completions("reports", names) == ["Reports"]
    assert completions("rep", names) == ["reports", "reported_at", "replace"]
    assert completions("Rep", names) == ["Reports", "Reported_at", "RepLACE"]
    assert completions("SEL", names) == ["SELECT"]
    assert completions("", names) == ["Reports", "reported_at"]
    assert completions("zzz", names) == []
    assert len(set(KEYWORDS)) == len(KEYWORDS)


@given(st.text("rRepPoOsS", min_size=1, max_size=4))
def test_whatever_several_completions_share_what_was_written_is_kept(word: str) -> None:
    found = completions(word, {"reports": "Reports", "reported_at": "reported_at"})
    assert len(found) == 1 or all(each.startswith(word) for each in found)


def lines(*given: str) -> Callable[[str], str]:
    left: Iterator[str] = iter(given)

    def ask(prompt: str) -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    return ask


def test_lines_are_gathered_until_a_semicolon() -> None:
    ask = lines("SELECT 1,", "  2", ";", "SHOW FEEDS;")
    assert read_statement(ask) == "SELECT 1,\n  2\n;"
    assert read_statement(ask) == "SHOW FEEDS;"
    assert read_statement(ask) is None


@pytest.mark.parametrize("word", ["exit", "quit;", "\\q"])
def test_one_leaves_with_a_word(word: str) -> None:
    assert read_statement(lines(word)) is None


def test_an_empty_line_and_ctrl_c_cost_nothing() -> None:
    def interrupted(prompt: str) -> str:
        raise KeyboardInterrupt

    assert read_statement(lines("  ")) == ""
    assert read_statement(interrupted) == ""


def test_what_was_written_is_kept_for_oneself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readline = pytest.importorskip("readline")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with editing({}):
        readline.add_history("SHOW CHANNELS;")
    assert "SHOW CHANNELS;" in history_file().read_text()
    assert history_file().stat().st_mode & 0o777 == 0o600
    readline.clear_history()


def answered(text: str) -> Reply:
    if "wrong" in text:
        return Reply(error=Problem("there is no wrong", 1, 15, "write right"))
    if text.startswith("DESCRIBE"):
        return Reply((Answer("DESCRIBE", (Heading("column"),), (("kind",),)),))
    return Reply((Answer("SELECT", (Heading("n", "INT"),), ((41,),)),))


def test_one_asks_is_answered_is_told_what_is_wrong_and_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("builtins.input", lines("SELECT 41 AS n", ";", "SELECT 1 FROM wrong;", "exit"))
    fake = Fake()
    fake.reply = answered
    fake.status["datasets"] = [{"name": "Reports"}]
    assert converse(fake.reached(), 10, 60.0) == 0
    output, errors = capsys.readouterr()
    assert "41" in output and "1 row" in output
    assert "there is no wrong" in errors and "^" in errors
    assert fake.scripts[:2] == ["DESCRIBE DATASET `Reports`", "SELECT 41 AS n\n;"]

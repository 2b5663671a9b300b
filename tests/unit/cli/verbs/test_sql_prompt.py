"""The prompt: when a statement is complete, what a word may become, and how one leaves."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from tests.unit.cli.talking import Fake
from tocsin.cli.verbs.sql_prompt import (
    HISTORY_MAX_BYTES,
    KEYWORDS,
    Words,
    completions,
    converse,
    history_file,
    is_complete,
    kept_history,
    leaves,
)
from tocsin.client.sql import Answer, Heading, Problem, Reply
from tocsin.ports import BusMessage


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


def test_keywords_are_completed_in_their_case_and_names_as_they_are() -> None:
    names = {"reports": "Reports", "reported_at": "reported_at"}
    assert completions("reports", names) == ["Reports"]
    assert completions("rep", names) == ["Reports", "reported_at", "replace"]
    assert completions("Rep", names) == ["Reports", "reported_at", "REPLACE"]
    assert completions("SEL", names) == ["SELECT"]
    assert completions("", names) == ["Reports", "reported_at"]
    assert completions("zzz", names) == []
    assert len(set(KEYWORDS)) == len(KEYWORDS)


def test_a_word_is_completed_where_the_cursor_is() -> None:
    document = Document("SELECT * FROM repo", 18)
    (found,) = Words({"reports": "Reports"}).get_completions(document, CompleteEvent())
    assert (found.text, found.start_position) == ("Reports", -4)


@pytest.mark.parametrize("word", ["exit", "quit;", "\\q"])
def test_one_leaves_with_a_word(word: str) -> None:
    assert leaves(word) and not leaves("SELECT 1;")


def test_the_history_is_for_oneself_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    history = kept_history()
    assert history is not None
    for number in range(40):
        history.store_string(f"SELECT '{'x' * 50_000}', {number};")
    assert history_file().stat().st_mode & 0o777 == 0o600
    kept = kept_history()
    assert kept is not None
    assert history_file().stat().st_size <= HISTORY_MAX_BYTES // 2
    found = list(kept.load_history_strings())
    assert found[0].endswith("39;") and all(each.startswith("SELECT") for each in found)


def test_a_history_that_cannot_be_kept_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tocsin").write_text("a file, not a directory")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert kept_history() is None


def answered(text: str) -> Reply:
    if "wrong" in text:
        return Reply(error=Problem("there is no wrong", 1, 15, "write right"))
    if text.startswith("DESCRIBE"):
        return Reply((Answer("DESCRIBE", (Heading("column"),), (("kind",),)),))
    return Reply((Answer("SELECT", (Heading("n", "INT"),), ((41,),)),))


def talk(typed: str, fake: Fake) -> int:
    """Type at a prompt."""
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(typed)
        return converse(fake.reached(), 10, 60.0)


def test_one_asks_is_answered_is_told_what_is_wrong_and_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    fake = Fake()
    fake.reply = answered
    fake.status["datasets"] = [{"name": "Reports"}]
    assert talk("SELECT 41 AS n\r;\rSELECT 1 FROM wrong;\rexit\r", fake) == 0
    output, errors = capsys.readouterr()
    assert "41" in output and "1 row" in output
    assert "there is no wrong" in errors and "^" in errors
    assert fake.scripts[:2] == ["DESCRIBE DATASET `Reports`", "SELECT 41 AS n\n;"]


def test_ctrl_c_gives_up_a_statement_and_ctrl_d_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    fake = Fake()
    assert talk("SELECT nothing\x03\r\x04", fake) == 0
    assert fake.scripts == []


def test_ctrl_c_gives_up_the_wait_for_an_answer_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    class Slow(Fake):
        async def _sql(self, delivery: BusMessage) -> bytes:
            if b"slow" in delivery.payload:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(60)
            return await super()._sql(delivery)

    fake = Slow()
    fake.reply = answered
    assert talk("SELECT slow;\rSELECT 41 AS n;\rexit\r", fake) == 0
    output, errors = capsys.readouterr()
    assert "not waited for" in errors
    assert "41" in output

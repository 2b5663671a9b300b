"""``tocsin channel``: lists, descriptions, and statements about one channel."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.talking import Fake, fake_in
from tocsin.cli.main import main
from tocsin.client.sql import Answer, Heading, Problem, Reply

ALARMS: dict[str, Any] = {
    "name": "Alarms",
    "version": 1,
    "every_s": 10.0,
    "paused": False,
    "subscriptions": 1234,
    "executions": 7,
    "last_at_us": 1_000_000,
    "last_ms": 41.6,
    "matched": 5,
    "results": 6,
    "overruns": 2,
    "failures": 1,
    "error": "no [red]room[/]",
    "next_at_us": None,
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("COLUMNS", "200")
    found = fake_in(monkeypatch, "tocsin.cli.listing")
    found.status["channels"] = [ALARMS]
    return found


def test_a_list_shows_when_it_runs_and_how_it_went(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["channel", "list"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "Alarms" in line]
    for words in ("every 10 s", "1,234", " 7 ", "ago", " 42 ", " 5 ", " 6 ", " 2 ", " 1 ", "no [red]room[/]"):
        assert words in line


@pytest.mark.parametrize(
    ("change", "words"), [({"paused": True}, "paused"), ({"every_s": None}, "continuous")]
)
def test_a_channel_is_paused_or_continuous_in_words(
    fake: Fake, change: dict[str, object], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.status["channels"] = [ALARMS | change | {"last_at_us": 0}]
    assert main(["channel", "list"]) == 0
    shown = capsys.readouterr().out
    assert words in shown and "ago" not in shown


def test_a_list_for_programs_has_everything(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["channel", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [ALARMS]


def test_a_description_has_the_definition_and_the_figures(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Answer(
        "DESCRIBE", (Heading("what"), Heading("value")), (("query", "SELECT 1"),), message="CREATE …"
    )
    fake.reply = lambda text: Reply((told,))
    assert main(["channel", "describe", "alarms"]) == 0
    shown = capsys.readouterr().out
    for words in ("SELECT 1", "CREATE …", "1,234", "1970-01-01T00:00:01+00:00", "no [red]room[/]"):
        assert words in shown
    assert main(["channel", "describe", "alarms", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["definition"] == [{"what": "query", "value": "SELECT 1"}] and said["status"] == ALARMS
    assert fake.scripts == ["DESCRIBE CHANNEL `alarms`"] * 2


@pytest.mark.parametrize("verb", ["pause", "resume", "run"])
def test_a_verb_is_a_statement(fake: Fake, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    fake.reply = lambda text: Reply((Answer("CHANGE", message="channel Alarms is so"),))
    assert main(["channel", verb, "Alarms"]) == 0
    assert fake.scripts == [f"{verb.upper()} CHANNEL `Alarms`"]
    assert "channel Alarms is so" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["describe", "pause"])
def test_a_channel_that_does_not_exist_is_refused(
    fake: Fake, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.reply = lambda text: Reply(error=Problem("there is no channel Alarm", 1, 1, "did you mean Alarms?"))
    assert main(["channel", verb, "Alarm"]) == 2
    errors = capsys.readouterr().err
    assert "there is no channel Alarm" in errors and "did you mean Alarms?" in errors


def test_what_is_no_name_is_not_asked_for(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["channel", "run", "a`; DROP DATASET x"]) == 2
    assert fake.scripts == [] and "is no name of a channel" in capsys.readouterr().err

"""``tocsin feed``: what pipeline and feeder say of a feed, in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.talking import Fake, fake_in
from tocsin.cli.main import main

WIRE: dict[str, Any] = {
    "name": "Wire",
    "dataset": "Reports",
    "source": "topic reports/#",
    "position": 17,
    "lag": 3,
    "records": 1_500,
    "quarantined": 4,
    "ignored": [],
    "error": "",
}
AGENT: dict[str, Any] = {"name": "wire", "state": "running", "lag": 25, "error": "a broker is away"}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("COLUMNS", "200")
    found = fake_in(monkeypatch, "tocsin.cli.listing")
    found.status["feeds"] = [WIRE]
    found.feeder["feeds"] = [AGENT]
    return found


def line(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["feed", "list"]) == 0
    return next(line for line in capsys.readouterr().out.splitlines() if "Wire" in line)


def test_a_list_shows_what_waits_where(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    shown = line(capsys)
    for words in ("Reports", "topic reports/#", "running", " 25 ", " 3 ", "1,500", " 4 ", "a broker is away"):
        assert words in shown


def test_a_feed_that_nobody_reads_is_shown_so(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.feeder["feeds"] = []
    assert "no feeder" in line(capsys)
    fake.feeder["feeds"] = [{**AGENT, "lag": -1}]
    fake.status["feeds"] = [{**WIRE, "error": "the dataset is gone"}]
    shown = line(capsys)
    assert "-1" not in shown and "the dataset is gone" in shown


def test_a_list_for_programs_has_what_both_say(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feed", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{**WIRE, "agent": AGENT}]

"""``tocsin feeder``: what it says when it cannot start."""

from __future__ import annotations

import pytest

from tocsin.cli.main import main


def test_the_help_says_what_a_feeder_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feeder", "--help"]) == 0
    assert "accepts records of feeds" in capsys.readouterr().out


def test_settings_that_cannot_be_used_cost_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feeder", "--set", "feeds.http_port=70000"]) == 2
    said = capsys.readouterr().err
    assert "feeds.http_port" in said and len(said.splitlines()) == 1

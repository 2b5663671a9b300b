"""The settings in effect: values, origins, no secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tocsin.cli.main import main
from tocsin.config import SETTINGS
from tocsin.config.reference import markdown


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def test_every_setting_is_shown_with_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--set", "nats.port=4333"]) == 0
    shown = capsys.readouterr().out
    assert all(key in shown for key in SETTINGS)
    line = next(line for line in shown.splitlines() if " nats.port " in line)
    assert "4333" in line and "flag" in line
    assert "north-hub: routing of north, 127.0.0.1:1885" in shown


def test_as_json_it_can_be_read_by_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--json", "--set", "nats.port=4333"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == set(SETTINGS)
    assert found["nats.port"] == {"value": 4333, "origin": "flag"}
    assert found["brokers"]["value"][0]["id"] == "north-1"


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_secrets_are_masked(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--set", "nats.token=hush", *more]) == 0
    shown = capsys.readouterr().out
    assert "hush" not in shown and "***" in shown


def test_an_empty_secret_is_shown_as_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nats.token"]["value"] == ""


def test_a_bad_setting_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--set", "nats.port=x"]) == 2
    assert capsys.readouterr().err.startswith("tocsin: nats.port = 'x' (flag)")


def test_the_reference_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "reference"]) == 0
    assert capsys.readouterr().out == markdown()


def test_what_a_configuration_sets_is_shown_as_it_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scoring.battery_weight"] == {"value": 1.0, "origin": "default"}
    flags = ["--set", "scoring.configuration=mobile-backup", "--set", "scoring.memory_weight=3"]
    assert main(["config", "show", "--json", *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scoring.battery_weight"] == {
        "value": {"serving": 1.0, "standby": 50.0},
        "origin": "scoring.configuration",
    }
    assert found["scoring.memory_weight"] == {"value": 3.0, "origin": "flag"}
    assert main(["config", "show", *flags]) == 0
    assert "1.0, standbys 50.0" in capsys.readouterr().out

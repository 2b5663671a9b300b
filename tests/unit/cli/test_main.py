"""The command line as a whole: its verbs, its help, its exit codes."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
from typing import NoReturn

import pytest

from tocsin.cli.main import COMMANDS, VERBS, main
from tocsin.errors import StoreUnavailable


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f" {verb} " in shown for verb in VERBS)


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tocsin {importlib.metadata.version('tocsin')}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert f"tocsin {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["fly"], ["up", "--high"], ["broker"], ["config", "hide"]])
def test_a_command_that_does_not_exist_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_broker_that_is_not_in_the_settings_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "west-1"]) == 2
    assert capsys.readouterr().err == (
        "tocsin: there is no broker 'west-1' in the settings. "
        "Name one of: north-1, north-2, north-hub, south-1, south-2, south-hub.\n"
    )


def test_an_internal_error_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> NoReturn:
        raise StoreUnavailable("connect", "no server")

    monkeypatch.setattr("tocsin.cli.verbs.version.version", fail)
    assert main(["version"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_only_the_verb_that_is_asked_for_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    really = importlib.import_module

    def noted(name: str) -> object:
        imported.append(name)
        return really(name)

    monkeypatch.setattr(importlib, "import_module", noted)
    assert main(["version"]) == 0
    assert imported == ["tocsin.cli.verbs.version"]


@pytest.mark.parametrize("arguments", [["demo", "--quick"], ["lab", "cqbs", "--only", "full"]])
def test_a_verb_whose_package_is_missing_says_what_to_install(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: ())
    verb = arguments[0]
    assert main(arguments) == 2
    assert capsys.readouterr().err == (
        f"tocsin: `tocsin {verb}` is not installed. Install the extra: pip install 'tocsin[{verb}]'.\n"
    )
    assert main(["--help"]) == 0
    assert f"'tocsin[{verb}]'" in capsys.readouterr().out


def test_another_package_adds_a_verb(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    added = importlib.metadata.EntryPoint("greet", "tests.unit.cli.test_main:greet", COMMANDS)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: {COMMANDS: (added,)}[group])
    assert main(["greet", "Ada"]) == 0
    assert capsys.readouterr().out == "hello Ada\n"
    assert main(["--help"]) == 0
    assert "Say hello" in capsys.readouterr().out


def greet(name: str) -> None:
    """Say hello."""
    print(f"hello {name}")


def test_a_process_starts_without_what_draws_on_terminals() -> None:
    look = "import sys; from tocsin.cli.main import build; build(['broker']); print('rich.console' in sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout == "False\n"

"""``tocsin init``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.cli.main import main
from tocsin.cli.setting_options import read
from tocsin.runtime.security.authority import Authority


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_network_can_be_started_with_what_it_writes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--network", "alerts"]) == 0
    settings = read(None, None).settings
    assert settings.network == "alerts" and settings.state == ".tocsin"
    assert {broker.cluster for broker in settings.brokers} == {"north", "south"}
    authority = Authority.open_or_make(here / ".tocsin" / "certs", "alerts")
    assert {each.identity.network for each in authority.certificates()} == {"alerts"}
    assert "tocsin up" in capsys.readouterr().out


def test_a_path_with_any_letters_is_written_as_it_is(here: Path) -> None:
    state = str(here / 'a "b" \\ é')
    assert main(["init", "-c", "x/y.toml", "--state", state]) == 0
    assert read(Path("x/y.toml"), None).settings.state == state


def test_settings_that_are_there_are_not_overwritten(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "tocsin.toml").write_text("# mine\n")
    assert main(["init"]) == 2
    assert (here / "tocsin.toml").read_text() == "# mine\n"
    assert not (here / ".tocsin").exists()
    assert "not overwritten" in capsys.readouterr().err


def test_an_authority_that_is_there_is_kept(here: Path) -> None:
    before = Authority.open_or_make(here / ".tocsin" / "certs").authorities()
    assert main(["init"]) == 0
    assert Authority.open_or_make(here / ".tocsin" / "certs").authorities() == before


@pytest.mark.parametrize("arguments", [["--network", "Not A Name"], ["--state", "tocsin.toml/x"]])
def test_what_cannot_be_used_leaves_nothing_behind(here: Path, arguments: list[str]) -> None:
    assert main(["init", *arguments]) == 2
    assert list(here.iterdir()) == []

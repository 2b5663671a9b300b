"""``tocsin register``: what it refuses before anything is sent."""

from __future__ import annotations

import pytest

from tocsin.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--at", "mqtt://192.0.2.7:1883"], "not sent in clear text"),
        (["--at", "ws://192.0.2.7:8080"], "not sent in clear text"),
        (["--at", "127.0.0.1:1883", "--remove", "--change-password"], "exclude each other"),
        (["--at", "127.0.0.1:1883"], "no terminal to ask for the password of ann"),
    ],
)
def test_a_password_is_not_asked_for_where_it_cannot_be_used(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOCSIN_PASSWORD", raising=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert main(["register", "ann", *arguments]) == 2
    assert words in capsys.readouterr().err

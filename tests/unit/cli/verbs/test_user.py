"""``tocsin user``: the file that brokers read."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tocsin.cli.main import main
from tocsin.runtime.security.users import read_users


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """Standard input, to be filled by the test."""
    stdin = io.BytesIO()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stdin))
    return stdin


def give(stdin: io.BytesIO, data: bytes) -> None:
    stdin.seek(0)
    stdin.truncate()
    stdin.write(data)
    stdin.seek(0)


def test_users_are_added_listed_and_removed(
    tmp_path: Path, typed: io.BytesIO, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "users"
    for name in ("zoe", "adam"):
        give(typed, b"secret\n")
        assert main(["user", "add", name, "--password-stdin", "--file", str(path)]) == 0
    assert "zoe was added" in capsys.readouterr().out
    assert main(["user", "list", "--file", str(path)]) == 0
    assert capsys.readouterr().out == "adam\nzoe\n"
    give(typed, b"other")
    assert main(["user", "add", "zoe", "--password-stdin", "--file", str(path)]) == 0
    assert "another password" in capsys.readouterr().out
    assert main(["user", "remove", "zoe", "--file", str(path)]) == 0
    assert set(read_users(path)) == {"adam"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_settings_say_where_the_file_is(
    tmp_path: Path, typed: io.BytesIO, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "users"
    config = tmp_path / "tocsin.toml"
    config.write_text(f'[access]\nusers = "{path}"\n')
    give(typed, b"secret\r\n")
    assert main(["user", "add", "bob", "--password-stdin", "-c", str(config)]) == 0
    assert "bob" in read_users(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list"], "access.users"),
        (["list", "--file", "absent"], "no such file"),
        (["remove", "bob", "--file", "absent"], "no such file"),
        (["add", "a/b", "--password-stdin", "--file", "users"], "must not contain '/'"),
        (["add", "bob", "--password-stdin", "--file", "users"], "has 0 bytes"),
        (["add", "bob", "--file", "users"], "no terminal"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    tmp_path: Path,
    typed: io.BytesIO,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["user", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert not (tmp_path / "users").exists()


def test_a_password_that_is_too_long_is_refused(
    tmp_path: Path, typed: io.BytesIO, capsys: pytest.CaptureFixture[str]
) -> None:
    give(typed, b"x" * 5_000)
    assert main(["user", "add", "bob", "--password-stdin", "--file", str(tmp_path / "users")]) == 2
    assert "1 to 1024" in capsys.readouterr().err

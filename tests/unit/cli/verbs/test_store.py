"""``tocsin store``: what it prints is what servers take."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from tocsin.cli.main import main
from tocsin.runtime.network.store_access import keys_directory
from tocsin.store.nats.nkeys import make_seed, public_key, second_seed
from tocsin.store.servers.embedded import find_program


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("more", [(), ("--one-account",)])
def test_a_server_takes_the_accounts_as_they_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    text = said(capsys, "store", "accounts", "--state", str(tmp_path), *more)
    (tmp_path / "nats.conf").write_text(f'jetstream {{ store_dir: "{tmp_path}" }}\n{text}')
    command = [str(find_program()), "-t", "-c", str(tmp_path / "nats.conf")]
    assert subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    listed = said(capsys, "store", "accounts", "--json", "--state", str(tmp_path), *more)
    found = msgspec.json.decode(listed)
    gets = [
        each["name"]
        for each in found["users"]
        if each["account"] == "streams"
        and any("DIRECT.GET" in name for name in each["permissions"]["publish"])
    ]
    assert gets == (["broker", "coordinator", "pipeline", "feeder"] if more else [])


def test_nobody_is_told_to_delete_a_file_that_is_no_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "letter"
    file.write_text("dear ann")
    assert main(["store", "key", "public", str(file)]) == 2
    said = capsys.readouterr().err
    assert "Delete" not in said and "Name a file with a seed" in said


def test_public_keys_of_a_seed_are_those_that_are_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, file = make_seed(), tmp_path / "south.nk"
    file.write_text(seed)
    both = said(capsys, "store", "key", "public", str(file)).strip()
    assert both == f"{public_key(seed)},{public_key(second_seed(seed))}"
    state = ("--state", str(tmp_path))
    said(capsys, "store", "key", "add", "broker", "south", "--public", both, *state)
    (keys_directory(tmp_path) / "feeder@old.pub").write_text(public_key(make_seed()))
    lines = said(capsys, "store", "key", "list", *state).splitlines()
    assert f"broker south {public_key(seed)}" in lines
    assert next(line for line in lines if line.startswith("feeder old ")).endswith("it can purge logs)")
    assert len(lines) == 7

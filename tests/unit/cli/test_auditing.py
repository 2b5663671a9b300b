"""Operators' commands in the audit log, done or not."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
import typer

from tocsin.cli.auditing import audited, operator
from tocsin.cli.main import main
from tocsin.cli.verbs import certs
from tocsin.errors import OperatorError
from tocsin.runtime.security.audit import Audit
from tocsin.runtime.security.authority import Authority


def lines(state: Path) -> list[dict[str, Any]]:
    log = state / "audit" / "audit.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def told(state: Path) -> list[tuple[str, str, str]]:
    return [(each["action"], each["name"], each["outcome"]) for each in lines(state)]


def test_each_action_is_recorded_with_user_time_and_outcome(tmp_path: Path) -> None:
    with audited(tmp_path / "state", "do", "it", "tocsin do it") as note:
        note.result = "three"
    (line,) = lines(tmp_path / "state")
    assert line.pop("at").endswith("+00:00")
    assert line == {
        "v": 1,
        "who": operator(),
        "action": "do",
        "name": "it",
        "what": "tocsin do it",
        "outcome": "done",
        "result": "three",
    }


@pytest.mark.parametrize(
    ("raised", "outcome", "problem"),
    [
        (OperatorError("it is shut", "Open it"), "failed", "it is shut"),
        (ValueError("x"), "failed", "ValueError: x"),
        (KeyboardInterrupt(), "failed", "it was interrupted"),
        (typer.Abort(), "given up", ""),
    ],
)
def test_what_is_not_done_is_noted_with_why(
    tmp_path: Path, raised: BaseException, outcome: str, problem: str
) -> None:
    with pytest.raises(type(raised)), audited(tmp_path, "do", "it", "tocsin do it"):
        raise raised
    (line,) = lines(tmp_path)
    assert line["outcome"] == outcome and line.get("problem", "").startswith(problem)


def test_what_failed_makes_no_state_directory(tmp_path: Path) -> None:
    assert main(["certs", "forget", "broker", "x", "--state", str(tmp_path / "mistyped")]) == 2
    assert not (tmp_path / "mistyped").exists()


def test_who_became_somebody_else_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    account = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.delenv("SUDO_USER", raising=False)
    assert operator() == f"operator {account}"
    monkeypatch.setenv("SUDO_USER", "ann")
    assert operator() == f"operator {account} (sudo: ann)"


def test_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certs, "TAKE_UP_S", 0.0)
    made = Authority.open_or_make(tmp_path / "certs")
    made.ensure("north-1", role="broker")
    state = ["--state", str(tmp_path)]
    out = str(tmp_path / "out")
    for words in (
        ["issue", "broker", "south-1", "--host", "south.example.org", "--out", out],
        ["renew"],
        ["forget", "broker", "south-1"],
        ["rotate", "--authority"],
        ["list"],
    ):
        assert main(["certs", *words, *state]) == 0
    assert main(["certs", "forget", "broker", "nobody", *state]) == 2
    assert told(tmp_path) == [
        ("issue certificate", "broker south-1", "done"),
        ("renew certificates", "", "done"),
        ("forget certificate", "broker south-1", "done"),
        ("rotate certificates", "authority", "done"),
        ("forget certificate", "broker nobody", "failed"),
    ]
    issued, _, _, rotated, _ = lines(tmp_path)
    assert issued["what"] == (
        f"tocsin certs issue broker south-1 --host south.example.org --days 365 --out {out}"
    )
    assert rotated["result"] == "issued again: broker north-1; the old authority is believed no more"


def test_users_of_mqtt_with_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "tocsin.toml"
    state, users = tmp_path / "state", tmp_path / "users"
    config.write_text(f'state = "{state}"\n[access]\nusers = "{users}"\n')
    given = ["-c", str(config)]
    for _ in range(2):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a secret\n")))
        assert main(["user", "add", "zoe", "--password-stdin", *given]) == 0
    assert main(["user", "remove", "zoe", *given]) == 0
    assert main(["user", "remove", "zoe", *given]) == 2
    assert told(state) == [
        ("add user", "zoe", "done"),
        ("add user", "zoe", "done"),
        ("remove user", "zoe", "done"),
        ("remove user", "zoe", "failed"),
    ]
    assert lines(state)[1]["result"] == "it has another password"
    assert "a secret" not in (state / "audit" / "audit.log").read_text()


def test_users_of_a_file_without_a_network_are_noted_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a secret\n")))
    (tmp_path / "etc").mkdir()
    assert main(["user", "add", "zoe", "--password-stdin", "--file", "etc/users"]) == 0
    assert told(tmp_path / "etc") == [("add user", "zoe", "done")]
    assert not (tmp_path / ".tocsin").exists()


def test_users_of_sql(tmp_path: Path) -> None:
    state = ["--state", str(tmp_path)]
    assert main(["store", "user", "add", "ann", *state]) == 0
    assert main(["store", "user", "remove", "ann", *state]) == 0
    assert main(["store", "user", "remove", "ann", *state]) == 2
    assert told(tmp_path) == [
        ("add user of SQL", "ann", "done"),
        ("remove user of SQL", "ann", "done"),
        ("remove user of SQL", "ann", "failed"),
    ]


def _write_many(state: str, number: int) -> None:
    audit = Audit(state, max_bytes=20_000)
    for each in range(50):
        audit.write("ann", "query", "", f"SELECT {number} {each}", "done")


def test_several_processes_write_one_log_and_no_line_is_lost(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(str(tmp_path), number)) for number in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join(60)
        assert each.exitcode == 0
    found = [
        json.loads(line)["what"]
        for log in (tmp_path / "audit").glob("audit.log*")
        for line in log.read_text().splitlines()
    ]
    assert sorted(found) == sorted(f"SELECT {number} {each}" for number in range(4) for each in range(50))

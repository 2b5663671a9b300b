"""``tocsin bridge amqp``: options and the settings file make one plan."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from tocsin.bridge.main import Plan
from tocsin.cli.main import main
from tocsin.cli.verbs import bridge


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What would be run."""
    made: list[Plan] = []

    def run(name: str, settings: Any, serve: functools.partial[Any]) -> int:
        made.append(serve.args[0])
        return 0

    monkeypatch.setattr(bridge, "run", run)
    return made


def test_options_override_the_file_and_rules_add_up(plans: list[Plan], tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(
        'name = "plant"\n[amqp]\nurl = "amqp://127.0.0.1:1"\n[[in]]\naddress = "a"\ntopic = "b"\n'
        "[limits]\nwindow = 5\ntries = 3\n"
    )
    options = ["--out", "c/#=d", "--amqp", "amqp://127.0.0.1:2", "--tries", "0", "--at", "127.0.0.1:1883"]
    assert main(["bridge", "amqp", "-c", str(file), *options]) == 0
    (plan,) = plans
    assert (plan.name, plan.dead, plan.endpoint.port) == ("plant", "bridge/plant/dead", 2)
    assert (plan.limits.window, plan.limits.tries) == (5, 0)
    assert [str(each) for each in (*plan.ins, *plan.outs)] == ["a → b", "c/# → d"]
    client = plan.make_client(client_id="x")
    assert client.server == "127.0.0.1:1883"


def test_the_password_is_taken_from_the_environment(
    plans: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOCSIN_AMQP_PASSWORD", "secret")
    assert main(["bridge", "amqp", "--in", "a=b", "--amqp-user", "alice", "--at", "127.0.0.1:1"]) == 0
    assert plans[0].endpoint.login.password == "secret"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "no rules"),
        (["--in", "a"], "ADDRESS=TOPIC"),
        (["--in", "a=b", "--name", "No Name"], "name"),
        (["--in", "a=b", "-c", "/nowhere/bridge.toml"], "-c FILE"),
        (["--in", "a=b", "--amqp", "amqps://x", "--amqp-cafile", "/nowhere/ca.pem"], "for the AMQP peer"),
        (["--in", "a=b", "--amqp", "ftp://x"], "amqp://host"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_code_2(
    options: list[str], words: str, plans: list[Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bridge", "amqp", "--at", "127.0.0.1:1883", *options]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1
    assert plans == []

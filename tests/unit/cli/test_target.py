"""Which broker `tocsin pub` and `tocsin sub` talk to, how, and as whom."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer

from tocsin.cli import target
from tocsin.cli.main import main
from tocsin.cli.target import announced, caller, find_broker, find_doors
from tocsin.client.address import Server
from tocsin.errors import OperatorError
from tocsin.runtime.network import mdns

NETWORK = """{"network": "n", "pid": 1, "nats": [], "brokers": [
  {"id": "east-1", "cluster": "east", "role": "edge", "host": "10.0.0.1", "port": 2000},
  {"id": "east-2", "cluster": "east", "role": "edge", "host": "10.0.0.2", "port": 2001, "tls_port": 2002}]}"""


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("example.org:1883", Server("example.org", 1883)),
        ("[::1]:1883", Server("::1", 1883)),
        ("mqtt://example.org", Server("example.org", 1883)),
        ("mqtts://example.org", Server("example.org", 8883, "mqtts")),
        ("mqtts://[::1]:1", Server("::1", 1, "mqtts")),
        ("ws://example.org:8080/mqtt", Server("example.org", 8080, "ws")),
        ("wss://example.org/mqtt", Server("example.org", 443, "wss")),
        ("wss://example.org/", Server("example.org", 443, "wss")),
    ],
)
def test_an_address_wins(tmp_path: Path, address: str, meant: Server) -> None:
    assert find_broker("", address, tmp_path) == meant


@pytest.mark.parametrize(
    "bad",
    ["example.org", ":1883", "host:port", "host:0", "host:70000", "http://a:1", "mqtt://", "ws://a/other"],
)
def test_a_bad_address_is_refused_with_an_example(tmp_path: Path, bad: str) -> None:
    with pytest.raises(OperatorError, match=r"such as 127\.0\.0\.1:1883"):
        find_broker("", bad, tmp_path)


def test_a_broker_is_found_in_the_network_that_runs_here(tmp_path: Path) -> None:
    (tmp_path / "network.json").write_text(NETWORK)
    assert find_broker("east-2", "", tmp_path) == Server("10.0.0.2", 2001)
    assert find_broker("", "", tmp_path) == Server("10.0.0.1", 2000)


def test_doors_come_behind_the_broker_that_nobody_named(tmp_path: Path) -> None:
    door = '"door": {"host": "0.0.0.0", "port": 1, "entrances": [["mqtt", "10.0.0.9:1"], ["mqtts", "10.0.0.9:2"]]}'
    assert find_doors(tmp_path, Server("127.0.0.1", 1883)) == [Server("127.0.0.1", 1882)]
    (tmp_path / "network.json").write_text(NETWORK)
    assert find_doors(tmp_path, Server("10.0.0.1", 2000)) == []
    (tmp_path / "network.json").write_text(NETWORK[:-1] + f", {door}}}")
    assert find_doors(tmp_path, Server("10.0.0.1", 2000)) == [Server("10.0.0.9", 1)]
    assert find_doors(tmp_path, Server("10.0.0.2", 2002, "mqtts")) == [Server("10.0.0.9", 2, "mqtts")]
    assert find_doors(tmp_path, Server("10.0.0.2", 2003, "wss")) == []


def test_announced_doors_are_those_of_the_way_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find() -> list[tuple[str, str, int]]:
        return [("mqtt", "10.0.0.9", 1), ("mqtts", "10.0.0.9", 2)]

    monkeypatch.setattr(mdns, "find", find)
    assert announced(secure=True) == [Server("10.0.0.9", 2, "mqtts")]
    assert announced(secure=False) == [Server("10.0.0.9", 1)]

    async def none() -> list[tuple[str, str, int]]:
        return []

    monkeypatch.setattr(mdns, "find", none)
    with pytest.raises(OperatorError, match=r"door\.mdns"):
        announced(secure=False)


def test_without_a_network_the_defaults_are_meant(tmp_path: Path) -> None:
    assert find_broker("", "", tmp_path) == Server("127.0.0.1", 1883)
    assert find_broker("south-hub", "", tmp_path) == Server("127.0.0.1", 1888)


def test_an_unknown_broker_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="Name one of north-1, "):
        find_broker("west-1", "", tmp_path)


def test_who_speaks_of_certificates_means_tls(tmp_path: Path) -> None:
    (tmp_path / "network.json").write_text(NETWORK)
    assert find_broker("east-2", "", tmp_path, secure=True) == Server("10.0.0.2", 2002, "mqtts")
    assert find_broker("", "a:1", tmp_path, secure=True) == Server("a", 1, "mqtts")
    with pytest.raises(OperatorError, match="broker east-1 has no port for TLS"):
        find_broker("east-1", "", tmp_path, secure=True)
    with pytest.raises(OperatorError, match="Write wss://"):
        find_broker("", "ws://a:1", tmp_path, secure=True)


# ── as whom ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def passwords(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """The passwords that clients were made with."""
    made: list[bytes | None] = []
    monkeypatch.setattr(target, "AsyncClient", lambda *where, **how: made.append(how["password"]))
    monkeypatch.delenv(target.PASSWORD_VARIABLE, raising=False)
    return made


def test_a_password_is_given_taken_from_the_environment_or_asked_for(
    passwords: list[bytes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []

    def prompt(text: str, **how: object) -> str:
        asked.append(how)
        return "typed"

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", prompt)
    caller(address="a:1", user="anna")
    monkeypatch.setenv(target.PASSWORD_VARIABLE, "of the environment")
    caller(address="a:1", user="anna")
    caller(address="a:1", user="anna", password="given")
    caller(address="a:1")
    assert passwords == [b"typed", b"of the environment", b"given", None]
    assert asked == [{"hide_input": True, "err": True}]


def test_without_a_terminal_the_variable_is_named(passwords: list[bytes | None]) -> None:
    with pytest.raises(OperatorError, match="Set TOCSIN_PASSWORD"):
        caller(address="a:1", user="anna")


def test_a_password_without_a_user_is_refused(passwords: list[bytes | None]) -> None:
    with pytest.raises(OperatorError, match="Add --user NAME"):
        caller(address="a:1", password="x")


def test_the_commands_take_these_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for command in (["pub", "a", "b"], ["sub", "a"], ["streams", "a = 1"]):
        assert main([*command, "--at", "mqtts://127.0.0.1:1", "--cafile", str(tmp_path / "none.pem")]) == 2
        assert "none.pem (--cafile) cannot be read: no such file" in capsys.readouterr().err

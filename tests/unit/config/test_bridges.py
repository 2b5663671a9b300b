"""Bridges in the settings: what is read, what is refused, and the command that each becomes."""

from __future__ import annotations

from typing import Any

import pytest

from tocsin.config import load
from tocsin.errors import SettingError


def bridges(*tables: dict[str, Any]) -> Any:
    return load(flags={"bridges": list(tables)}).settings.bridges


def test_a_bridge_becomes_a_command_of_the_verb() -> None:
    (bridge,) = bridges(
        {
            "name": "hall-1",
            "broker": "north-1",
            "domain": 7,
            "payload": "json",
            "allow": ["rt/*"],
            "deny": ["x"],
        }
    )
    command = " ".join(bridge.command("/state"))
    assert command.startswith(
        "bridge dds --name hall-1 --broker north-1 --state /state --domain 7 --prefix dds"
    )
    assert command.endswith("--payload json --allow rt/* --deny x")


def test_there_is_no_bridge_unless_one_is_configured() -> None:
    assert load().settings.bridges == ()


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"broker": "west-1"}, "bridges[0].broker"),
        ({"name": "A"}, "bridges[0].name"),
        ({"name": "a" * 33}, "bridges[0].name"),
        ({"domain": 233}, "bridges[0].domain"),
        ({"kind": "amqp"}, "bridges[0].kind"),
        ({"payload": "xml"}, "bridges[0].payload"),
        ({"prefix": "$dds"}, "bridges[0].prefix"),
        ({"prefix": "dds/"}, "bridges[0].prefix"),
        ({"prefix": "a/+"}, "bridges[0].prefix"),
        ({"allow": ["x" * 257]}, "bridges[0].allow"),
        ({"allow": ["x"] * 129}, "bridges[0].allow"),
        ({"deny": [""]}, "bridges[0].deny"),
        ({"user": "u" * 257}, "bridges[0].user"),
    ],
)
def test_a_bridge_that_cannot_be_is_refused(change: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingError) as error:
        bridges({"name": "hall-1", "broker": "north-1", **change})
    assert error.value.key == key


def test_two_bridges_of_one_name_are_refused() -> None:
    one = {"name": "hall-1", "broker": "north-1"}
    with pytest.raises(SettingError, match="another bridge has this name"):
        bridges(one, one)

"""Which broker `tocsin pub` and `tocsin sub` talk to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.cli.target import find_broker
from tocsin.errors import OperatorError

NETWORK = """{"network": "n", "pid": 1, "nats": [], "brokers": [
  {"id": "east-1", "cluster": "east", "role": "edge", "host": "10.0.0.1", "port": 2000},
  {"id": "east-2", "cluster": "east", "role": "edge", "host": "10.0.0.2", "port": 2001}]}"""


def test_an_address_wins(tmp_path: Path) -> None:
    assert find_broker("", "example.org:1883", tmp_path) == ("example.org", 1883)
    assert find_broker("", "[::1]:1883", tmp_path) == ("::1", 1883)


@pytest.mark.parametrize("bad", ["example.org", ":1883", "host:port", "host:0", "host:70000"])
def test_a_bad_address_is_refused_with_an_example(tmp_path: Path, bad: str) -> None:
    with pytest.raises(OperatorError, match=r"such as 127\.0\.0\.1:1883"):
        find_broker("", bad, tmp_path)


def test_a_broker_is_found_in_the_network_that_runs_here(tmp_path: Path) -> None:
    (tmp_path / "network.json").write_text(NETWORK)
    assert find_broker("east-2", "", tmp_path) == ("10.0.0.2", 2001)
    assert find_broker("", "", tmp_path) == ("10.0.0.1", 2000)


def test_without_a_network_the_defaults_are_meant(tmp_path: Path) -> None:
    assert find_broker("", "", tmp_path) == ("127.0.0.1", 1883)
    assert find_broker("south-hub", "", tmp_path) == ("127.0.0.1", 1888)


def test_an_unknown_broker_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="Name one of north-1, "):
        find_broker("west-1", "", tmp_path)

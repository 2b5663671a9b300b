"""The loopback interface is slowed down only where nobody else uses it."""

from __future__ import annotations

import socket

import pytest

from tocsin.errors import OperatorError
from tocsin_labs.landmark import bandwidth
from tocsin_labs.landmark.plan import Condition


def test_an_interface_that_others_use_is_not_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, ...]] = []
    monkeypatch.setattr(bandwidth, "_command", lambda *words: done.append(words))
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
    with pytest.raises(OperatorError, match="which others use"):
        bandwidth.check_own()
    assert done == []
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo")])
    bandwidth.check_own()
    assert [words[0] for words in done] == ["ip"]


def test_a_rate_is_taken_off_however_the_experiment_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, ...]] = []
    monkeypatch.setattr(bandwidth, "_command", lambda *words: done.append(words))
    with pytest.raises(OperatorError), bandwidth.narrowed(Condition(10.0)):
        raise OperatorError("the network is gone", "Try again")
    assert [words[2] for words in done] == ["replace", "del"]
    assert "10mbit" in done[0]
    with bandwidth.narrowed(Condition()):
        pass
    assert len(done) == 2, "without a limit nothing is changed"


def test_a_missing_program_is_said_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(OperatorError, match="iproute2"):
        bandwidth._command("tc", "qdisc")


def test_what_the_interface_carried_is_read_of_its_own_namespace() -> None:
    before = bandwidth._sent()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        sink.sendto(bytes(50_000), sink.getsockname())
    assert bandwidth._sent() - before >= 50_000


def test_conditions_are_told_apart_by_their_words() -> None:
    conditions = (Condition(), Condition(10.0), Condition(10.0, 0.5))
    assert [each.words for each in conditions] == [
        "no limit",
        "10 Mbit/s",
        "10 Mbit/s, 50% of it taken",
    ]

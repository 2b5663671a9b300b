"""``tocsin explain backup`` against a real network, whose operator has a criterion of his own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.running import DEADLINE_S, up

PLANNED_S = 120.0  # a plan comes within seconds of a change, and otherwise every minute
NORTH, SOUTH = ("north-1", "north-2", "north-3"), ("south-1", "south-2")
BROKERS = json.dumps(
    [{"id": each, "cluster": each.partition("-")[0], "role": "edge"} for each in (*NORTH, *SOUTH)]
)


class Network:
    """A network whose criterion says of north-2 what is in a file, and of everybody else that they are fit."""

    def __init__(self, ready: dict[str, Any], said: Path) -> None:
        self._ready = ready
        self.said = said

    def explain(self, broker: str, *options: str) -> subprocess.CompletedProcess[str]:
        where = ("--state", self._ready["state"])
        command = [sys.executable, "-P", "-m", "tocsin", "explain", "backup", broker, *options, *where]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    def explained(self, broker: str, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """What it says, as soon as that fits."""
        deadline, shown = time.monotonic() + PLANNED_S, "nothing"
        while time.monotonic() < deadline:
            done = self.explain(broker, "--json")
            shown = done.stdout + done.stderr
            if done.returncode == 0 and fits(found := json.loads(done.stdout)):
                assert isinstance(found, dict)
                return found
            time.sleep(0.5)
        raise AssertionError(f"not within {PLANNED_S:g} s; the last it said: {shown}")

    def have_it_planned_anew(self) -> None:
        """A broker that comes back has the leader plan; by itself it does so every minute. Once in a network."""
        os.kill(self._ready["pids"]["broker/south-2"], signal.SIGKILL)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    said = tmp_path_factory.mktemp("criterion") / "said"
    said.write_text("1.0\n")
    script = f"case $TOCSIN_BROKER in north-2) cat {said};; *) echo 1;; esac"
    criterion = {
        "name": "power",
        "command": ["/bin/sh", "-c", script],
        "weight": 8,
        "every_s": 0.2,
        "timeout_ms": 20_000,
    }
    sets = (
        f"brokers={BROKERS}",
        f"scoring.criteria={json.dumps([criterion])}",
        "scoring.processor_weight=0",  # how busy this machine is must not decide
        "scoring.memory_weight=0",
        "recovery.nearness_weight=0",  # nor microseconds that were measured over links
    )
    with up(*(word for each in sets for word in ("--set", each))) as ready:
        yield Network(ready, said)


def names(candidates: list[dict[str, Any]]) -> list[str]:
    return [each["name"] for each in candidates]


def answered(found: dict[str, Any]) -> bool:
    """Everybody's machine was scored, the criterion included."""
    candidates = found["local"]["candidates"] + found["remote"]["candidates"]
    return len(candidates) == len(NORTH + SOUTH) - 1 and not any(each["problems"] for each in candidates)


@pytest.mark.parametrize("broker", [*NORTH, *SOUTH])
def test_every_broker_has_a_local_and_a_remote_backup_with_reasons(network: Network, broker: str) -> None:
    found = network.explained(broker, answered)
    own, other = (NORTH, SOUTH) if broker in NORTH else (SOUTH, NORTH)
    assert found["local"]["chosen"] in set(own) - {broker}
    assert found["remote"]["chosen"] in other
    assert set(names(found["local"]["candidates"])) == set(own) - {broker}
    assert set(names(found["remote"]["candidates"])) == set(other)
    first = found["local"]["candidates"][0]
    assert set(first["terms"]) == {"similarity", "nearness", "room", "resources"}
    assert set(first["machine"]) == {"processor", "memory", "bandwidth", "battery", "power"}
    assert found["leader"] == "coordinator-1" and found["shortfalls"] == []


def test_people_are_told_in_tables(network: Network) -> None:
    chosen = network.explained("north-1", answered)["local"]["chosen"]
    done = network.explain("north-1")
    assert done.returncode == 0 and done.stderr == ""
    assert f"local backup: {chosen}\n" in done.stdout
    assert "remote backup: south-" in done.stdout and "│" not in done.stdout
    assert f" * {chosen} " in done.stdout


def test_a_criterion_that_turns_bad_changes_the_ranking_and_the_choice(network: Network) -> None:
    before = network.explained("north-1", answered)
    assert names(before["local"]["candidates"]) == ["north-2", "north-3"], "equal, so by name"
    network.said.write_text("0.1\n")
    network.have_it_planned_anew()
    after = network.explained(
        "north-1", lambda found: answered(found) and found["local"]["chosen"] == "north-3"
    )
    best, worst = after["local"]["candidates"]
    assert (best["name"], worst["name"]) == ("north-3", "north-2")
    assert worst["machine"]["power"]["value"] == 0.1
    assert worst["score"] < best["score"]
    assert worst["terms"]["resources"]["value"] == pytest.approx((2 + 8 * 0.1) / 10)


def test_a_broker_that_is_not_there_is_refused_with_those_that_are(network: Network) -> None:
    done = network.explain("east-1")
    assert done.returncode == 2
    assert "there is no broker 'east-1'" in done.stderr and "north-1, north-2" in done.stderr

"""Of several standbys the one with the best score takes a lost broker's place: real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.running import DEADLINE_S, up

KNOWN_S = 60.0  # probes are a second or two apart, and standbys are asked again after ten
STANDBYS = ("spare-a", "spare-b", "spare-z")
BROKERS = json.dumps(
    [
        *({"id": f"north-{number}", "cluster": "north"} for number in (1, 2)),
        *({"id": each, "cluster": "north", "role": "standby"} for each in STANDBYS),
    ]
)
CRITERION = {
    "name": "power",
    "command": [
        "/bin/sh",
        "-c",
        "case $TOCSIN_BROKER in spare-z) echo 0.9;; spare-b) echo 0.5;; *) echo 0;; esac",
    ],
    "weight": 10,
    "every_s": 0.5,
    "timeout_ms": 20_000,
}
SETS = (
    f"brokers={BROKERS}",
    f"scoring.criteria={json.dumps([CRITERION])}",
    "scoring.processor_weight=0",  # how busy this machine is must not decide
    "scoring.memory_weight=0",
)
Said = dict[str, Any]


@pytest.fixture(scope="module")
def network() -> Iterator[Said]:
    with up(*(word for each in SETS for word in ("--set", each)), level="error") as ready:
        yield ready


def run(network: Said, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "tocsin", *words, "--state", network["state"]]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def said(network: Said, words: tuple[str, ...], fits: Callable[[Any], bool]) -> Any:
    """What a verb says in JSON, as soon as that fits."""
    deadline, shown = time.monotonic() + KNOWN_S, "nothing"
    while time.monotonic() < deadline:
        done = run(network, *words, "--json")
        shown = done.stdout + done.stderr
        if done.returncode == 0 and fits(found := json.loads(done.stdout)):
            return found
        time.sleep(0.3)
    raise AssertionError(f"not within {KNOWN_S:g} s; the last it said: {shown}")


def measured(found: Any) -> bool:
    """All standbys have answered for north-1, the criterion and the measurements included."""
    candidates = found[0]["next"]["candidates"] if found[0]["next"] else ()
    return len(candidates) == 3 and not any(each["problems"] for each in candidates)


def test_the_best_scored_standby_is_promoted_and_explain_says_why(network: Said) -> None:
    (found,) = said(network, ("explain", "standby", "north-1"), measured)
    assert [each["name"] for each in found["next"]["candidates"]] == ["spare-z", "spare-b", "spare-a"]
    assert found["next"]["peers"] == ["north-2"] and found["last"] is None
    best = found["next"]["candidates"][0]
    assert (found["next"]["chosen"], best["answered"], best["same_cluster"]) == ("spare-z", True, True)
    assert set(best["terms"]) == {"processor", "memory", "bandwidth", "battery", "delay", "power"}
    assert best["terms"]["power"]["value"] == 0.9
    assert (best["configuration"], best["changed"]) == ("static", {})
    assert best["delay_ms"] > 0 and best["bandwidth_mbit"] > 0, "by its own measurement"

    broker = network["pids"]["broker/north-1"]
    os.kill(broker, signal.SIGSTOP)
    try:
        status = said(network, ("coordinator", "status"), lambda all_: bool(all_[0]["promoted"]))
        assert status[0]["promoted"] == {"spare-z": "north-1"}
        (after,) = said(network, ("explain", "standby", "north-1"), lambda all_: bool(all_[0]["last"]))
        assert after["last"]["chosen"] == "spare-z"
        assert [each["score"] for each in after["last"]["candidates"]] == sorted(
            (each["score"] for each in after["last"]["candidates"]), reverse=True
        )
    finally:
        os.kill(broker, signal.SIGCONT)
    # The broker is back, and the standby is one again.
    status = said(network, ("coordinator", "status"), lambda all_: not all_[0]["promoted"])
    free = said(network, ("coordinator", "status"), lambda all_: len(all_[0]["standbys"]) == 3)
    assert free[0]["standbys"] == list(STANDBYS)


def test_people_are_told_in_a_table_and_of_every_broker(network: Said) -> None:
    done = run(network, "explain", "standby")
    assert done.returncode == 0 and done.stderr == ""
    assert "north-1 would be replaced by" in done.stdout and "north-2 would be replaced by" in done.stdout
    assert "north-1 was replaced by spare-z" in done.stdout


def test_a_standby_has_no_standby_and_nobody_else_has_a_strange_name(network: Said) -> None:
    done = run(network, "explain", "standby", "spare-a")
    assert done.returncode == 1 and "spare-a is a standby" in done.stderr
    done = run(network, "explain", "standby", "east-1")
    assert done.returncode == 2 and "there is no broker 'east-1'" in done.stderr

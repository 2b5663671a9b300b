"""``tocsin lab landmark`` in its quick form: networks, clients and kills are real; figures are not looked at."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

DEADLINE_S = 170.0
COMMAND = (sys.executable, "-m", "tocsin", "lab", "landmark")


def lab(out: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    command = [*COMMAND, "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    written = out / "results.json"
    return done, json.loads(written.read_text()) if written.exists() else {}


def test_brokers_that_fail_at_once_recover_and_nothing_is_lost(tmp_path: Path) -> None:
    done, found = lab(tmp_path, "--quick", "--only", "latency", "--only", "scale")
    assert done.returncode == 0, done.stderr
    assert "not to be compared" in " ".join(done.stdout.split())
    assert [trial["failures"] for trial in found["latency"]] == [1, 2]
    for trial in found["latency"]:
        assert len(trial["outcomes"]) == trial["failures"]
        assert trial["account"]["due"] > 0
        assert (trial["account"]["lost"], trial["account"]["twice"]) == (0, 0)
        for outcome in trial["outcomes"]:
            for name in ("detected_s", "taken_over_s", "back_s", "served_s"):
                assert outcome[name] is not None, name
            assert outcome["by"] not in (None, outcome["broker"])
    page = (tmp_path / "summary.md").read_text()
    assert "`tocsin lab landmark --quick --only latency --only scale` wrote this page" in page
    assert "| Table 1, simulated, 12 brokers, default | heartbeats alone (KB/s) |" in page
    killed = [(each["brokers"], each["detect"], each["what"]) for each in found["kills"]]
    assert killed == [
        (brokers, detect, what)
        for brokers, whats in ((6, ("1", "2")), (12, ("1", "2", "a cluster")))
        for detect in ("default", "aggressive")
        for what in whats
    ]
    for each in found["kills"]:
        assert each["wrongly"] == 0
        assert all(fate["lost_s"] is not None for fate in each["fates"])
        assert each["planned_s"] is not None or not each["bereaved"]


@pytest.mark.slow
def test_traffic_is_counted_idle_and_during_failure_and_every_message_arrives(
    tmp_path: Path,
) -> None:
    done, found = lab(tmp_path, "--quick", "--only", "control", "--only", "objects", "--only", "sequence")
    assert done.returncode == 0, done.stderr
    assert [each["brokers"] for each in found["control"]] == [2, 3]
    for each in found["control"]:
        assert each["total"]["mean"] > each["payload"] > each["heartbeats"] > 0
    assert [(each["kind"], each["count"]) for each in found["objects"]] == [("queues", 2), ("routes", 2)]
    for each in found["objects"]:
        assert each["total"] > each["payload"] > 0
        assert each["clients"] > 0
    replaced, expiring = found["sequence"]
    assert (replaced["way"], expiring["way"]) == ("standby", "expiry")
    assert replaced["account"]["lost"] == expiring["account"]["lost"] == 0
    assert replaced["replaced_s"] is not None
    assert {"north-1", "spare"} <= {visit["broker"] for visit in replaced["visits"]}
    assert all(message["arrived_s"] is not None for message in replaced["messages"])


@pytest.mark.slow  # all experiments share their stage: test_lab.py interrupts another
def test_an_interrupted_experiment_keeps_its_run_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--out", str(tmp_path), "--quick", "--only", "latency", "--only", "sequence"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "1 of 6 brokers fail" in line:
                break
        others = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 1
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["partial"]
    assert [trial["failures"] for trial in found["latency"]] == [1]
    assert found["sequence"] == []
    assert len(others) >= 6
    assert not psutil.wait_procs(others, timeout=DEADLINE_S)[1]


def test_a_bad_option_is_refused_in_words(tmp_path: Path) -> None:
    done, found = lab(tmp_path, "--only", "nothing")
    assert done.returncode == 2
    assert "--only" in done.stderr
    assert "latency" in done.stderr
    assert "Traceback" not in done.stderr
    assert found == {}

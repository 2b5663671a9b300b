"""``tocsin lab cqbs`` in its quick form: the networks, clients and kills are real, the figures are not looked at."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

DEADLINE_S = 120.0


def lab(out: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tocsin", "lab", "cqbs", "--out", str(out), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def results(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "results.json").read_text())
    return found


def done(process: subprocess.Popen[str]) -> str:
    words, complaints = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, complaints
    return words


def test_every_message_of_the_single_broker_arrives(tmp_path: Path) -> None:
    words = done(lab(tmp_path, "--quick", "--only", "single"))
    assert "not to be compared" in " ".join(words.split())
    found = results(tmp_path)["single"]
    assert list(found) == ["1", "5"]
    for size, each in found.items():
        assert each["arrived"] == each["sent"] > 0
        assert each["first"]["samples"] == each["publishers"] == 10 * int(size)
        assert len((tmp_path / f"single-{size}.csv").read_text().splitlines()) == each["sent"] + 1


@pytest.mark.slow  # test_coordinators.py kills a leader too
def test_the_coordinator_loses_nothing_also_when_its_leader_is_killed(tmp_path: Path) -> None:
    done(lab(tmp_path, "--quick", "--only", "coordinator"))
    found = results(tmp_path)
    for name in ("alone", "replicated"):
        each = found[name]
        assert each["changes"] == 60
        assert each["expected"] > 100
        assert (each["lost"], each["unexpected"], each["sets_wrong"]) == (0, 0, 0)
    assert found["alone"]["killed_s"] is None
    assert found["replicated"]["gap_s"] > 0
    assert found["replicated"]["undisturbed"]["samples"] < found["replicated"]["all"]["samples"]


def test_publishers_cycle_among_subscribers_of_the_full_system(tmp_path: Path) -> None:
    done(lab(tmp_path, "--quick", "--only", "full"))
    full = results(tmp_path)["full"]
    assert full["arrived"] == full["sent"] > 0
    assert full["changes"] > 0
    assert full["first"]["samples"] == full["publishers"]
    assert full["changing"]["samples"] == full["changes"]
    written = (tmp_path / "summary.md").read_text()
    assert "`tocsin lab cqbs --quick --only full` wrote this page on " in written


def test_every_design_tells_each_subscriber_of_every_change(tmp_path: Path) -> None:
    done(lab(tmp_path, "--quick", "--only", "designs"))
    designs = {(each["design"], each["equal"]): each for each in results(tmp_path)["designs"]}
    alone = [("logged", False), ("ahead", False), ("broadcast", False)]
    assert list(designs) == [*alone, ("logged", True), ("unshared", True)]
    for each in designs.values():
        found = each["found"]
        assert found["changes"] == 40 and found["expected"] > 100
        assert (found["lost"], found["unexpected"], found["sets_wrong"]) == (0, 0, 0)
    assert [name for name, each in designs.items() if each["behind"] is not None] == [("ahead", False)]
    shared, unshared = designs["logged", True], designs["unshared", True]
    assert shared["found"]["queries"] == unshared["found"]["queries"] == 40
    assert len((tmp_path / "design-unshared-1-equal.csv").read_text().splitlines()) > 100


def test_an_interrupted_experiment_keeps_what_it_has_and_leaves_nothing_running(tmp_path: Path) -> None:
    process = lab(tmp_path, "--only", "full", "--only", "coordinator", "--scale", "0.1", "--minutes", "30")
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "50 subscribers, 100 publishers" in line:  # said with the news that changes were made
                break
        others = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 1
    found = results(tmp_path)
    assert found["alone"]["partial"]
    assert 0 < found["alone"]["changes"] < 100
    assert found["alone"]["lost"] == 0
    assert found["full"] is None
    assert len(others) >= 3
    assert not psutil.wait_procs(others, timeout=DEADLINE_S)[1]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--only", "nothing"), "--only"),
        (("--scale", "-1"), "--scale"),
        (("--peer", "nowhere"), "'nowhere' is not an address"),
    ],
)
def test_bad_options_are_refused_in_words(tmp_path: Path, options: tuple[str, ...], named: str) -> None:
    process = lab(tmp_path, *options)
    _, complaint = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert named in complaint
    assert "Traceback" not in complaint

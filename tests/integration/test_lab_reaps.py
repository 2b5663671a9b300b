"""``tocsin lab reaps`` in its quick forms, as processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tocsin_labs.reaps.prototype.plan import WAYS, WITHOUT_NEIGHBOUR

DEADLINE_S = 150.0
PROTOTYPE_DEADLINE_S = 600.0  # Spark, and brokers that come and go: on a machine that does other things too


def test_the_quick_form_of_the_simulation_has_every_figure(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tocsin",
        "lab",
        "reaps",
        "simulation",
        "--quick",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert "not to be compared with the paper's" in " ".join(done.stdout.split())
    found = json.loads((tmp_path / "results.json").read_text())
    for figure in ("retrieval", "sweep", "conditions", "replication", "failures"):
        assert found[figure], figure
    assert found["parameters"]["brokers"] == 18
    assert "`tocsin lab reaps simulation --quick`" in (tmp_path / "summary.md").read_text()


@pytest.mark.timeout(PROTOTYPE_DEADLINE_S)
def test_rates_that_are_measured_here_time_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    lab = [sys.executable, "-m", "tocsin", "lab", "reaps"]
    out = tmp_path / "rates"
    for command in (
        [*lab, "rates", "--quick", "--out", str(out)],
        [*lab, "simulation", "--quick", "--rates", str(out / "rates.json"), "--out", str(tmp_path / "out")],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROTOTYPE_DEADLINE_S)
        assert done.returncode == 0, done.stderr
    measured = json.loads((out / "rates.json").read_text())
    assert measured["rates"]["single_s"] > 0 and measured["rates"]["client_s"] > 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["measured"] == measured
    assert not list(tmp_path.glob("tocsin-ephemeral-*"))


@pytest.mark.slow  # its scene is that of ``tocsin demo``, whose test is quicker
@pytest.mark.timeout(PROTOTYPE_DEADLINE_S)
def test_the_quick_prototype_fails_over_every_way_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "tocsin", "lab", "reaps", "prototype", "--quick", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROTOTYPE_DEADLINE_S)
    assert done.returncode == 0, done.stderr
    found = json.loads((out / "results.json").read_text())
    assert {each["way"] for each in found["failures"]} == {*WAYS}
    for each in found["failures"]:
        served = (each["broken_s"], each["served_s"], each["told_s"], each["returned_s"])
        assert [len(times) for times in served] == [each["subscribers"]] * 4, each["way"]
        near = {"north-1", "north-2"} if each["way"] in WITHOUT_NEIGHBOUR else {"south-2"}
        assert each["at"].keys() <= near and each["stands_in"] in near
    account = found["account"]
    assert account["committed"] == account["delivered"] > 0
    assert not any(account[name] for name in ("lost", "duplicates", "strange", "out_of_order"))
    assert "`tocsin lab reaps prototype --quick`" in (out / "summary.md").read_text()
    assert not list(tmp_path.glob("tocsin-ephemeral-*"))

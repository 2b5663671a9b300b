"""``tocsin lab reaps simulation`` in its quick form, as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

DEADLINE_S = 150.0


def test_the_quick_form_simulates_every_figure(tmp_path: Path) -> None:
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

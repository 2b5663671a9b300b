"""Tests of one group run in one test process: they share a Spark, or a network, that takes seconds to start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GROUPED = """
import os
import pytest

@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(8))
def test_where(number, tmp_path_factory):
    with open("where", "a") as where:
        where.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def test_a_group_of_tests_stays_in_one_test_process(tmp_path: Path) -> None:
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ("-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    where = (tmp_path / "where").read_text().split()
    assert len(where) == 8 and len(set(where)) == 1

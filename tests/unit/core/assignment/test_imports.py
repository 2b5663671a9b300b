"""Who plans nothing does not pay for numpy."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "tocsin.core.assignment.ranking.scoring",
        "tocsin.core.assignment.demand",
        "tocsin.core.assignment.rates",
        "tocsin.core.assignment.outcome",
        "tocsin.core.assignment.ranking.ranking",
        "tocsin.core.assignment.costs",
    ],
)
def test_what_is_said_about_plans_is_read_without_numpy(module: str) -> None:
    script = f"import sys, {module}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0

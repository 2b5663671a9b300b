"""Imports point one way: the contracts in pyproject.toml hold, and a wrong import breaks them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = Path(sys.executable).with_name("lint-imports")


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on a copy of the project."""
    return subprocess.run(
        [str(LINT), "--no-cache", "--config", str(tree / "pyproject.toml")],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_project_keeps_its_contracts(tree: Path) -> None:
    outcome = lint(tree)
    assert outcome.returncode == 0, outcome.stdout


@pytest.mark.parametrize(
    ("module", "wrong", "contract"),
    [
        ("core/forwarding.py", "import tocsin.store.memory", "Imports point one way"),
        ("wire/topics.py", "import tocsin.core.machine", "Imports point one way"),
        ("broker/fanout.py", "import tocsin.client", "Imports point one way"),
        ("core/routing.py", "import time", "Cores have no clock"),
        ("core/routing.py", "import random", "Cores have no clock"),
        ("chaos/account.py", "import time", "Cores have no clock"),
        ("broker/main.py", "import pyspark", "Only the pipeline knows Spark"),
        ("feeds/main.py", "import pyspark", "Only the pipeline knows Spark"),
        ("client/aio.py", "import tocsin.feeds.outlet", "Imports point one way"),
        ("runtime/process.py", "import tocsin.chaos.run", "Imports point one way"),
    ],
)
def test_a_planted_wrong_import_is_found(tree: Path, module: str, wrong: str, contract: str) -> None:
    path = tree / "src" / "tocsin" / module
    path.write_text(f"{path.read_text()}\n{wrong}\n")
    outcome = lint(tree)
    assert outcome.returncode != 0
    broken = [line for line in outcome.stdout.splitlines() if "BROKEN" in line]
    assert any(contract in line for line in broken), outcome.stdout

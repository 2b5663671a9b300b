"""Imports point one way: the contracts in pyproject.toml hold, and a wrong import breaks them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "demo/src", "labs/src")
LINT = Path(sys.executable).with_name("lint-imports")


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on a copy of the project."""
    return subprocess.run(
        [str(LINT), "--no-cache", "--config", str(tree / "pyproject.toml")],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(tree / each) for each in SOURCES)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for each in SOURCES:
        shutil.copytree(ROOT / each, tmp_path / each, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_project_keeps_its_contracts(tree: Path) -> None:
    outcome = lint(tree)
    assert outcome.returncode == 0, outcome.stdout


@pytest.mark.parametrize(
    ("module", "wrong", "contract"),
    [
        ("src/tocsin/core/forwarding/table.py", "import tocsin.store.memory.store", "Imports point one way"),
        ("src/tocsin/wire/mqtt/topics.py", "import tocsin.core.machine", "Imports point one way"),
        ("src/tocsin/broker/forwarding/fanout.py", "import tocsin.client", "Imports point one way"),
        ("src/tocsin/core/forwarding/routes.py", "import time", "Cores have no clock"),
        ("src/tocsin/core/forwarding/routes.py", "import random", "Cores have no clock"),
        ("src/tocsin/chaos/account.py", "import time", "Cores have no clock"),
        ("src/tocsin/broker/main.py", "import pyspark", "Only the pipeline knows Spark"),
        ("src/tocsin/feeds/main.py", "import pyspark", "Only the pipeline knows Spark"),
        ("src/tocsin/client/aio.py", "import tocsin.feeds.outlet", "Imports point one way"),
        ("src/tocsin/runtime/process.py", "import tocsin.chaos.run", "Imports point one way"),
        ("src/tocsin/cli/main.py", "import tocsin_demo.scene", "Imports point one way"),
        (
            "src/tocsin/core/assignment/search/multistart.py",
            "import tocsin_labs.optimum",
            "Imports point one way",
        ),
        ("demo/src/tocsin_demo/network.py", "import tocsin_labs.stage", "Imports point one way"),
        ("labs/src/tocsin_labs/stage.py", "import pyspark", "Only the pipeline knows Spark"),
    ],
)
def test_a_planted_wrong_import_is_found(tree: Path, module: str, wrong: str, contract: str) -> None:
    path = tree / module
    path.write_text(f"{path.read_text()}\n{wrong}\n")
    outcome = lint(tree)
    assert outcome.returncode != 0
    broken = [line for line in outcome.stdout.splitlines() if "BROKEN" in line]
    assert any(contract in line for line in broken), outcome.stdout

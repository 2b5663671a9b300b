"""The hook that reads commit messages, and the script that lets git use it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
HOOK = ROOT / ".githooks/commit-msg"


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    loader = SourceFileLoader("commit_msg", str(HOOK))
    spec = importlib.util.spec_from_loader("commit_msg", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


GOOD = [
    "Add a glossary\n\nNobody could tell what the words mean.\n",
    "Add a glossary\n\nNobody could tell.\n\nCo-authored-by: A <a@example.org>\n# Please enter the message\n",
    "Feed records once\n\nA kill could repeat them.\n",
    "Bring wills back\n\nThey were lost.\n",
    "Pass the cause on\n\nLogs had none.\n",
    "Fix typo in the README\n",
    "Bump mqtt5 to 0.8.1\n",
    "Merge branch 'main' of somewhere that has a name which is far too long for a subject line\n",
    'Revert "Adds things."\n',
    "fixup! Add a glossary\n",
    "x" * 72 + "\n\nWhy.\n",
    "\n# only a comment\n",
    "Add a glossary\n\nWhy.\n# ------------------------ >8 ------------------------\ndiff --git a b\n",
]
BAD = [
    ("Add a glossary\n", "Say why"),
    ("Add a glossary\n\nSigned-off-by: A <a@example.org>\n", "Say why"),
    ("Add a glossary\n# a comment is no body\n", "Say why"),
    ("Add a glossary\nbecause nobody could tell\n", "second line"),
    ("x" * 73 + "\n\nWhy.\n", "73 characters"),
    ("Add a glossary.\n\nWhy.\n", "full stop"),
    ("Added a glossary\n\nWhy.\n", "'Added' is not one"),
    ("Adding a glossary\n\nWhy.\n", "'Adding' is not one"),
    ("Adds a glossary\n\nWhy.\n", "'Adds' is not one"),
]


@pytest.mark.parametrize("message", GOOD)
def test_a_good_message_passes(hook: ModuleType, message: str) -> None:
    assert hook.problems(message) == []


@pytest.mark.parametrize(("message", "problem"), BAD)
def test_a_bad_message_is_refused_for_its_one_fault(hook: ModuleType, message: str, problem: str) -> None:
    (found,) = hook.problems(message)
    assert problem in found


def git(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Git with no settings but those of the directory."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "HOME": str(directory),
    }
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    return subprocess.run(
        ["git", *who, *arguments], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("needs git: apt-get install git")
    shutil.copytree(ROOT / ".githooks", tmp_path / ".githooks")
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/use-hooks", tmp_path / "scripts/use-hooks")
    return tmp_path


def use_hooks(directory: Path) -> None:
    git(directory, "-c", "alias.use=!scripts/use-hooks", "use")


def test_git_refuses_a_commit_without_a_reason(checkout: Path) -> None:
    git(checkout, "init", "-q")
    use_hooks(checkout)
    git(checkout, "add", "scripts")
    refused = git(checkout, "commit", "-m", "Add scripts")
    assert refused.returncode != 0
    assert "Say why in a body" in refused.stderr
    assert git(checkout, "commit", "-m", "Add scripts", "-m", "Git uses them.").returncode == 0


def test_hooks_that_somebody_chose_stay(checkout: Path) -> None:
    git(checkout, "init", "-q")
    git(checkout, "config", "core.hooksPath", "elsewhere")
    use_hooks(checkout)
    assert git(checkout, "config", "core.hooksPath").stdout == "elsewhere\n"


def test_an_archive_inside_anothers_checkout_changes_nothing_there(checkout: Path) -> None:
    git(checkout, "init", "-q")
    inner = checkout / "inner"
    (inner / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/use-hooks", inner / "scripts/use-hooks")
    subprocess.run([str(inner / "scripts/use-hooks")], check=True)
    assert git(checkout, "config", "core.hooksPath").stdout == ""

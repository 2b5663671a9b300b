"""The names of tests are short sentences: a reader of a failed run knows what was promised."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
TREES: Final = ("tests", "demo/tests", "labs/tests")
WORDS_MAX: Final = 12
TEST: Final = re.compile(r"^\s*(?:async )?def test_(\w+)", re.MULTILINE)


def too_long(source: str) -> list[str]:
    """The tests of a module whose names, without ``test_``, have more than a dozen words."""
    return [name for name in TEST.findall(source) if len(name.split("_")) > WORDS_MAX]


@pytest.mark.parametrize("tree", TREES)
def test_a_test_name_has_at_most_a_dozen_words(tree: str) -> None:
    modules = sorted((ROOT / tree).rglob("*.py"))
    assert modules, f"no tests in {tree}"
    found = [
        f"{module.relative_to(ROOT)}: {name}" for module in modules for name in too_long(module.read_text())
    ]
    assert found == []


def test_a_longer_name_is_found_wherever_it_is_defined() -> None:
    twelve, thirteen = "_".join("abcdefghijkl"), "_".join("abcdefghijklm")
    source = f"def test_{twelve}(): ...\nclass A:\n    async def test_{thirteen}(self): ...\n"
    assert too_long(source) == [thirteen]

"""``docs/reference/mqtt-conformance.md``, made from the statements and the markers of the tests.

python -m tests.conformance.table > docs/reference/mqtt-conformance.md
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.conformance import statements, statements_311
from tests.conformance.statements import DEVIATIONS

TESTS: Final = Path(__file__).parents[1]
PAGE: Final = TESTS.parent / "docs" / "reference" / "mqtt-conformance.md"
MARKERS: Final = {"mqtt": "MQTT 5.0", "mqtt311": "MQTT 3.1.1"}

HEAD: Final = """# MQTT: statement by statement

*This page is made by `python -m tests.conformance.table` from the tests; change those, not the page.*

The standard numbers what it demands. Each line has one statement in a few words of ours, and the tests that hold the
broker to it over a real socket (files below `tests/`, and how many tests in each), or why there is none. The tests name
the statement: `grep -rn '"3.1.2-4"' tests`. [MQTT](mqtt.md) says what is spoken.

## What is done otherwise

| statement | what and why |
| --- | --- |
"""

Proofs = Mapping[str, list[str]]


def proofs(marker: str) -> Proofs:
    """The tests that name each statement in this marker, as file::name below ``tests/``."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, statement, test in _marked():
        if name == marker:
            found[statement].append(test)
    return found


@cache
def _marked() -> list[tuple[str, str, str]]:
    """Each marker, statement and test that belong together; the files are read, not imported."""
    return [
        (marker, statement, f"{path.relative_to(TESTS)}::{node.name}")
        for path in sorted(TESTS.rglob("test_*.py"))
        if "pytest.mark.mqtt" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for marker in MARKERS
        for statement in _named(node, marker)
    ]


def _named(node: ast.FunctionDef | ast.AsyncFunctionDef, marker: str) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == f"pytest.mark.{marker}":
            for argument in decorator.args:
                assert isinstance(argument, ast.Constant), "statements are named by a string"
                yield str(argument.value)


def page() -> str:
    """The whole page."""
    parts = [HEAD + "".join(f"| {each} | {words} |\n" for each, words in DEVIATIONS.items())]
    parts.append(_section("mqtt", statements.STATEMENTS, statements.UNTESTED))
    parts.append(_section("mqtt311", statements_311.STATEMENTS, statements_311.UNTESTED))
    return "\n".join(parts)


def _section(marker: str, demands: Mapping[str, str], untested: Mapping[str, str]) -> str:
    proven = proofs(marker)
    count = sum(each in proven for each in demands)
    head = f"## {MARKERS[marker]}\n\n{count} of {len(demands)} statements have a test.\n\n"
    rows = [
        f"| {each} | {words} | {_proof(proven[each], untested.get(each))} |"
        for each, words in demands.items()
    ]
    return head + "\n".join(["| | demands | tested by |", "| --- | --- | --- |", *rows]) + "\n"


def _proof(tests: list[str], reason: str | None) -> str:
    if not tests:
        return f"– {reason}"
    files: dict[str, int] = {}
    for test in tests:
        file = test.partition("::")[0]
        files[file] = files.get(file, 0) + 1
    return ", ".join(f"`{file}`" + (f" ({number})" if number > 1 else "") for file, number in files.items())


if __name__ == "__main__":
    print(page(), end="")

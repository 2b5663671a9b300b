"""Table II: the lines of code of a small client, by what they are for, beside the paper's.

Counted as the paper counts: no comments, no blank lines; nor docstrings, which are Python's comments. A line such as
``# ── failover: … ──`` begins a part. The clients are those of ``examples/`` in the source tree.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import Final

from tocsin.errors import OperatorError
from tocsin_labs.cqbs import paper

EXAMPLES: Final = Path(__file__).parents[4] / "examples"
CLIENTS: Final = {"Python": "small_client.py", "C": "small_client.c"}
TOTAL: Final = "total"
_PART: Final = re.compile(r"^\s*(?:#|/\*) ── (\w+)")
_NOT_CODE: Final = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def measure() -> dict[str, dict[str, int]]:
    """Language → part → lines of code; ``total`` is the whole file."""
    return {language: by_part(_read(name), language) for language, name in CLIENTS.items()}


def _read(name: str) -> str:
    try:
        return (EXAMPLES / name).read_text()
    except OSError as error:
        problem = f"the small client {name} cannot be read: {error.strerror}"
        raise OperatorError(problem, "Run this experiment from a copy of the source tree") from None


def by_part(source: str, language: str) -> dict[str, int]:
    """Part → lines of code. What stands before the first part (imports) counts as the first part's."""
    code = _python_lines(source) if language == "Python" else _c_lines(source)
    found: dict[str, int] = {}
    part, waiting = "", 0
    for number, line in enumerate(source.splitlines(), 1):
        if (begun := _PART.match(line)) is not None:
            part = begun[1]
            found.setdefault(part, 0)
            found[part] += waiting
            waiting = 0
        elif number in code:
            if part:
                found[part] += 1
            else:
                waiting += 1
    return {**found, TOTAL: len(code)}


def _python_lines(source: str) -> set[int]:
    words = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = [token for token in tokens if token.type not in _NOT_CODE]
    return {line for token in code for line in range(token.start[0], token.end[0] + 1)} - words


def _c_lines(source: str) -> set[int]:
    bare = re.sub(
        r"/\*.*?\*/|//[^\n]*", lambda comment: "\n" * comment[0].count("\n"), source, flags=re.DOTALL
    )
    return {number for number, line in enumerate(bare.splitlines(), 1) if line.strip()}


def table(found: dict[str, dict[str, int]]) -> list[tuple[str, str, float | None, int]]:
    """Language, part, the paper's lines (of its language for programs that are compiled: Go) and ours."""
    return [
        (language, part, paper.LINES["Go" if language == "C" else language].get(part), lines)
        for language, parts in found.items()
        for part, lines in parts.items()
    ]

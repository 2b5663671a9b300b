"""The core of the client stays small enough to be read in one sitting, or written in another language."""

from __future__ import annotations

import ast
import tokenize
from pathlib import Path

from tocsin import client

CORE = ("session.py", "arrivals.py")
LINES_MAX = 250


def logic_lines(path: Path) -> int:
    """Lines of functions, without blank ones, comments and their texts."""
    tree = ast.parse(path.read_text())
    functions, words = set[int](), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            words |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    empty = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in empty]
    code = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    return len(code & functions - words)


def test_the_core_of_the_client_is_under_250_lines() -> None:
    package = Path(client.__file__).parent
    lines = {name: logic_lines(package / name) for name in CORE}
    assert min(lines.values()) > 50, "it counts"
    assert sum(lines.values()) < LINES_MAX, lines

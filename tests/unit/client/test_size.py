"""The core of the client stays small enough to be read in one sitting, or written in another language."""

from __future__ import annotations

import ast
import tokenize
from pathlib import Path

from tocsin import client

CORE = ("session.py", "arrivals.py")  # what is said to a broker and when; what is done with what it sends
SHELLS = (
    "accounts.py",
    "aio.py",
    "blocking.py",
    "answers.py",
    "subscription.py",
    "stream.py",
    "channel.py",
    "pull.py",
    "sql.py",
    "watching.py",
)  # a program's handles
VALUES = ("values.py", "message.py", "options.py", "address.py", "streamset.py", "__init__.py")
PACKAGE = Path(client.__file__).parent
LINES_MAX = 250


def code_lines(path: Path) -> int:
    """All lines but blank ones, comments and docstrings: imports and declarations count."""
    words = set[int]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            words |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    empty = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    none = (*empty, tokenize.ENCODING, tokenize.ENDMARKER)
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in none]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - words)


def test_the_core_of_the_client_is_under_250_lines() -> None:
    lines = {name: code_lines(PACKAGE / name) for name in CORE}
    assert min(lines.values()) > 50, "it counts"
    assert sum(lines.values()) < LINES_MAX, lines


def test_a_module_of_the_client_is_core_or_shell_or_values() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == {*CORE, *SHELLS, *VALUES}


def test_nothing_but_the_shells_knows_asyncio() -> None:
    knowing = {path.name for path in PACKAGE.glob("*.py") if "import asyncio" in path.read_text()}
    assert knowing <= set(SHELLS), knowing

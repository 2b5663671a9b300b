"""Patterns of ``LIKE`` and regular expressions, as functions of a string. Every match takes time linear in the string,
and bounded time in all.

A ``LIKE`` pattern is text in which ``%`` stands for any run of characters, ``_`` for exactly one, and ``\\%`` and
``\\_`` for themselves; a backslash before anything else is a backslash. Regular expressions are RE2's, found anywhere
in the string unless anchored with ``^`` and ``$``; RE2 never backtracks, and refuses what would need too much memory.

RE2 takes up to a microsecond for each byte and each ten instructions of an expression, once its states outgrow its
memory: 0.2 s for 4 KiB and ``(.{1,900})x``. So an expression is searched only in strings so short that their bytes
times its instructions are at most WORK_MAX; it is not found in a longer one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import re2

REGEX_MEMORY_MAX_BYTES: Final = 1 << 20  # what RE2 may spend on one expression, its cache of states included
WORK_MAX: Final = (
    1 << 16
)  # bytes × instructions: a millisecond or two at worst, and RE2 keeps all states of a string
SEARCHED_MAX_BYTES: Final = 4_096  # of a string, however small the expression is

_PIECE: Final = re.compile(r"\\([%_])|([%_]+)|([^%_\\]+|\\)")


class RegexInvalid(ValueError):
    """RE2 does not take the expression; the message is its own."""


def like_pieces(pattern: str) -> list[tuple[str, bool]]:
    """The pattern as runs of (text, whether it is of wildcards), alternating.

    A run of wildcards has its ``_`` first and at most one ``%``: written otherwise, it means the same.
    """
    pieces: list[tuple[str, bool]] = []
    for escaped, wild, plain in _PIECE.findall(pattern):
        if wild:
            pieces.append(("_" * wild.count("_") + "%" * ("%" in wild), True))
        elif pieces and not pieces[-1][1]:
            pieces[-1] = (pieces[-1][0] + (escaped or plain), False)
        else:
            pieces.append((escaped or plain, False))
    return pieces


def like_prefix(pattern: str) -> tuple[str, bool]:
    """The text with which every match begins, and whether it is all of the match."""
    pieces = like_pieces(pattern)
    if not pieces:
        return "", True
    return ("", False) if pieces[0][1] else (pieces[0][0], len(pieces) == 1)


def like_text(pieces: list[tuple[str, bool]]) -> str:
    """The pattern that has these pieces."""
    return "".join(text if wild else re.sub("([%_])", r"\\\1", text) for text, wild in pieces)


def compile_like(pattern: str) -> Callable[[str], bool]:
    """Whether a whole string fits a pattern."""
    pieces = like_pieces(pattern)
    if any(wild and "_" in text for text, wild in pieces):
        body = "".join(
            text.replace("_", ".").replace("%", ".*") if wild else re2.escape(text) for text, wild in pieces
        )
        return _finder(rf"(?s)\A{body}\z")
    return _segments(pieces)


def compile_regex(regex: str) -> Callable[[str], bool]:
    """Whether the expression is found in a string. Raises ``RegexInvalid``."""
    return _finder(regex)


def _segments(pieces: list[tuple[str, bool]]) -> Callable[[str], bool]:
    """Patterns without ``_``: a beginning, an end, and texts that come between them in order."""
    texts = [text for text, wild in pieces if not wild]
    if not any(wild for _, wild in pieces):
        whole = "".join(texts)
        return lambda string: string == whole
    first = "" if pieces[0][1] else texts.pop(0)
    last = "" if pieces[-1][1] else texts.pop()
    if not texts and not last:
        return lambda string: string.startswith(first)
    middle = tuple(texts)
    least = len(first) + len(last)

    def fits(string: str) -> bool:
        if len(string) < least or not string.startswith(first) or not string.endswith(last):
            return False
        at, end = len(first), len(string) - len(last)
        for text in middle:
            at = string.find(text, at, end)
            if at < 0:
                return False
            at += len(text)
        return True

    return fits


def _finder(regex: str) -> Callable[[str], bool]:
    options = re2.Options()
    options.max_mem = REGEX_MEMORY_MAX_BYTES
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(regex.encode(), options)
    except re2.error as error:
        raise RegexInvalid(_words(error)) from None
    search = compiled.search
    longest = min(SEARCHED_MAX_BYTES, WORK_MAX // max(1, compiled.programsize))

    def found(string: str) -> bool:
        if len(string) > longest:
            return False
        encoded = string.encode(errors="replace")
        return len(encoded) <= longest and search(encoded) is not None

    return found


def _words(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)

"""Regular expressions that are quick whatever they are matched with.

Spark matches with Java's engine, which goes back and tries again. That is slow without bound where one repetition is
inside another, or where what is repeated has alternatives; such patterns are refused, as are look-around and
back-references (RE2 must read the pattern too).
"""

from __future__ import annotations

import re
import warnings
from re import _parser as _sre  # type: ignore[attr-defined]
from typing import Any, Final

import re2

from tocsin.pipeline.language.limits import PATTERN_MAX

_REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_NESTED_MAX: Final = 64  # times that something inside repetitions is repeated, all in all
_ALTERNATIVES_MAX: Final = 4  # times that something with alternatives is repeated
_UNBOUNDED_MAX: Final = 3  # one after the other: matching takes length ** this at worst


def pattern_problem(pattern: str) -> str | None:
    """Why a pattern is not allowed, or None."""
    if len(pattern) > PATTERN_MAX:
        return f"a regular expression of {len(pattern)} characters is too long; at most {PATTERN_MAX}"
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = _sre.parse(pattern)
    except (re2.error, re.error, RecursionError, OverflowError) as error:
        return f"this regular expression cannot be read: {_said(error)}"
    unbounded = _Count()
    if _slow(tree, times=1, unbounded=unbounded):
        return "this regular expression has a repetition or alternatives inside a repetition, which can take forever"
    if unbounded.value > _UNBOUNDED_MAX:
        return (
            f"this regular expression has {unbounded.value} repetitions; at most {_UNBOUNDED_MAX} are allowed"
        )
    return None


class _Count:
    def __init__(self) -> None:
        self.value = 0


def _said(error: Exception) -> str:
    words = error.args[0] if error.args else error
    return words.decode(errors="replace") if isinstance(words, bytes) else str(words)


def _slow(parts: Any, *, times: int, unbounded: _Count) -> bool:
    """Whether something repeated ``times`` times already is repeated too often, or has alternatives."""
    for operation, argument in parts:
        name = str(operation)
        if name in _REPEATS:
            _, most, body = argument
            unbounded.value += int(most) > _NESTED_MAX
            if times > 1 and int(most) > 1 and times * int(most) > _NESTED_MAX:
                return True
            if _slow(body, times=times * max(int(most), 1), unbounded=unbounded):
                return True
        elif name == "BRANCH":
            branches = argument[1]
            if times > _ALTERNATIVES_MAX or any(
                _slow(each, times=times, unbounded=unbounded) for each in branches
            ):
                return True
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            body = argument[-1] if name == "SUBPATTERN" else argument
            if _slow(body, times=times, unbounded=unbounded):
                return True
    return False

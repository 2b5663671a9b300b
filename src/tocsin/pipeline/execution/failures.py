"""Why an execution failed, in terms that a person can act on."""

from __future__ import annotations

import re
from typing import Final

from tocsin.errors import TocsinError

ERROR_MAX: Final = 1_000
_TRACE: Final = (
    "at ",
    "JVM stacktrace",
    "== SQL",
    "Driver stacktrace",
)  # how what nobody wants to read begins
_RAISED: Final = re.compile(r"^(?:tocsin\.[\w.]+|[A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE)


class ExecutionFailed(TocsinError):
    """A channel's query did not run."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


def first_words(error: BaseException) -> str:
    """An error's message for people: Spark's without its Java trace; a Python task's exception."""
    text = str(getattr(error, "problem", "") or getattr(error, "desc", "") or error)
    raised = _RAISED.findall(text)
    if raised:
        return str(raised[-1])[:ERROR_MAX]
    kept: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith(_TRACE):
            break
        kept += [line.strip()] if line.strip() else []
    return " ".join(kept[:4])[:ERROR_MAX] or type(error).__name__

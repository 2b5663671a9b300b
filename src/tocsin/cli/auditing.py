"""Commands of an operator in the audit log: who, when, what, and how it ended, also if it failed.

    with audited(settings.state, "remove retained", topic_filter, f"tocsin retained remove {topic_filter}"):
        ...

An entry is made of arguments that are no secrets, never of the whole command line: that may hold a token.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from tocsin.core.access.sql_rules import OPERATOR
from tocsin.errors import TocsinError
from tocsin.runtime.security.audit import Audit


class Note:
    """The outcome, in a few words."""

    def __init__(self) -> None:
        self.result = ""


@contextmanager
def audited(state: str | Path, action: str, name: str, what: str) -> Iterator[Note]:
    """Write a line when what the context does is done, has failed or was given up.

    A failed command creates no state directory: a mistyped name leaves nothing behind.
    """
    note = Note()
    outcome, problem = "failed", "it was interrupted"
    try:
        yield note
        outcome, problem = "done", ""
    except typer.Abort:
        outcome, problem = "given up", ""
        raise
    except Exception as error:
        problem = str(error) if isinstance(error, TocsinError) else f"{type(error).__name__}: {error}"
        raise
    finally:
        if outcome == "done" or Path(state).is_dir():
            Audit(state).write(operator(), action, name, what, outcome, problem, note.result)


def operator() -> str:
    """The account of this machine under which the command runs; beside it, who became that with sudo."""
    number = os.geteuid()
    try:
        account = pwd.getpwuid(number).pw_name
    except KeyError:
        account = str(number)
    before = os.environ.get("SUDO_USER", "")
    return f"{OPERATOR} {account}{f' (sudo: {before})' if before and before != account else ''}"

"""The prompt of ``tocsin sql``: lines are gathered until a semicolon ends a statement, and what was written is kept.

Lines are edited with the terminal's own readline. The connection lives in a thread of its own, so that it stays alive
while somebody thinks, and Ctrl-C gives up a line, or the wait for an answer, and nothing else.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from tocsin.cli.answers import show
from tocsin.cli.asking import unreachable
from tocsin.client.sql import Pipeline, Reply
from tocsin.errors import StoreUnavailable, TocsinError

HISTORY_MAX: Final = 5_000
FIRST: Final = "tocsin> "
NEXT: Final = "     -> "
LEAVE: Final = frozenset({"exit", "quit", "\\q"})
KEYWORDS: Final = re.findall(
    r"\w+",
    """ALTER AND AS ASC BETWEEN BY CASE CHANNEL CHANNELS CONTINUOUS COUNT CREATE DATASET DATASETS DESC DESCRIBE DISTINCT
    DROP ELSE END EVERY EXISTS EXPLAIN FEED FEEDS FROM GROUP HAVING HOURS IF IN INTO IS JOIN KEY LEFT LIKE LIMIT
    MINUTES NEW NOT NULL OF ON OR ORDER PAUSE PRIORITY REPLACE RESULTS RESUME RUN SECONDS SELECT SHOW SUBSCRIPTIONS
    THEN TIMESTAMP UNION WHEN WHERE WITH""",
)
# What hides a semicolon: strings, names in backticks, comments. An open one goes on to the end of the text.
HIDING: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*(?:'|\Z)|"(?:[^"\\]|\\.)*(?:"|\Z)|`[^`]*(?:`|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)""",
    re.DOTALL,
)
Done = TypeVar("Done")


def is_complete(text: str) -> bool:
    """Whether the last statement of a text is ended by a semicolon that is not in a string, a name or a comment."""
    shown = HIDING.sub(lambda found: "" if found[0].startswith(("--", "/*")) else "x", text)
    return shown.rstrip().endswith(";") and not _open(text)


def _open(text: str) -> bool:
    """Whether the text ends within a comment of several lines."""
    return any(
        found[0].startswith("/*") and (len(found[0]) < 4 or not found[0].endswith("*/"))
        for found in HIDING.finditer(text)
    )


def completions(word: str, names: Mapping[str, str]) -> list[str]:
    """What a word may become: keywords in the case in which it was begun, and names as they are.

    Of several, each begins as the word does, letter for letter: what they share replaces the word.
    """
    if not word:
        return sorted(names.values())
    lower = word.islower()
    found = sorted(name for key, name in names.items() if key.startswith(word.lower()))
    found += [each.lower() if lower else each for each in KEYWORDS if each.startswith(word.upper())]
    return found if len(found) == 1 else [word + each[len(word) :] for each in found]


def history_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "tocsin" / "sql_history"


class Line:
    """A pipeline that is reached from a thread of its own."""

    def __init__(self, reached: AbstractAsyncContextManager[Pipeline]) -> None:
        self._reached = reached
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bus", daemon=True)
        self._pipeline: Pipeline | None = None

    def __enter__(self) -> Line:
        self._thread.start()
        try:
            self._pipeline = self._wait(self._reached.__aenter__())
        except StoreUnavailable as error:
            self._end()
            raise unreachable(error) from None
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(TocsinError):
            self._wait(self._reached.__aexit__(None, None, None))
        self._end()

    def ask(self, question: Callable[[Pipeline], Coroutine[Any, Any, Done]]) -> Done:
        assert self._pipeline is not None, "not entered"
        return self._wait(question(self._pipeline))

    def _wait(self, work: Coroutine[Any, Any, Done]) -> Done:
        future: concurrent.futures.Future[Done] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def known_names(pipeline: Pipeline) -> dict[str, str]:
    """Names of datasets, feeds and channels, and the columns of datasets, by their lower case."""
    told = await pipeline.status()
    names = [str(each["name"]) for kind in ("datasets", "feeds", "channels") for each in told.get(kind, [])]
    script = "; ".join(f"DESCRIBE DATASET `{each['name']}`" for each in told.get("datasets", []))
    if script:
        reply = await pipeline.run(script)
        names += [str(row[0]) for answer in reply.results for row in answer.rows if row]
    return {name.lower(): name for name in names}


def converse(reached: AbstractAsyncContextManager[Pipeline], limit: int, timeout: float) -> int:
    """Talk until the end of input; the exit code."""
    with Line(reached) as line:
        names: dict[str, str] = line.ask(known_names)
        print("Statements end with a semicolon. Tab completes; Ctrl-D, exit or \\q leaves.")
        with editing(names):
            while (text := read_statement(input)) is not None:
                if not text:
                    continue
                try:
                    _answer(line, text, limit, timeout)
                    names.update(line.ask(known_names))
                except KeyboardInterrupt:
                    print("not waited for; it may go on in the pipeline", file=sys.stderr)
                except TocsinError as error:
                    print(error, file=sys.stderr)
    return 0


def _answer(line: Line, text: str, limit: int, timeout: float) -> None:
    async def run(pipeline: Pipeline) -> Reply:
        return await pipeline.run(text, limit=limit, deadline_s=timeout)

    began = time.monotonic()
    reply = line.ask(run)
    for answer in reply.results:
        show(answer, "table", time.monotonic() - began)
    if reply.error is not None:
        print(reply.error.error(text), file=sys.stderr)


def read_statement(ask: Callable[[str], str]) -> str | None:
    """Lines up to a semicolon; empty if the line was given up; None at the end."""
    lines: list[str] = []
    while True:
        try:
            lines.append(ask(NEXT if lines else FIRST))
        except EOFError:
            print()
            return None
        except KeyboardInterrupt:
            print()
            return ""
        text = "\n".join(lines).strip()
        if not text or text.rstrip(";").strip().lower() in LEAVE:
            return None if text else ""
        if is_complete(text):
            return text


@contextlib.contextmanager
def editing(names: Mapping[str, str]) -> Iterator[None]:
    """History and completion, where Python has readline; without it lines are read plainly."""
    try:
        import readline
    except ImportError:
        yield
        return
    path = history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    _complete(readline, names)
    try:
        yield
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):  # a history that cannot be kept stops nobody
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.set_history_length(HISTORY_MAX)
            readline.write_history_file(path)
            path.chmod(0o600)


def _complete(readline: ModuleType, names: Mapping[str, str]) -> None:
    found: list[str] = []

    def complete(word: str, number: int) -> str | None:
        if number == 0:
            found[:] = completions(word, names)
        return found[number] if number < len(found) else None

    readline.set_completer_delims(" \t\n()[]{},;=<>!+-*/%|&'\"`.:")
    readline.set_completer(complete)
    edit_line = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if edit_line else "tab: complete")

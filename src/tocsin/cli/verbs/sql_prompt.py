"""The prompt of ``tocsin sql``: coloured, several lines at once, with completion and a history.

prompt_toolkit edits the lines on the same event loop as the connection, which so stays alive while somebody thinks.
Ctrl-C gives up a statement, or the wait for an answer, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from tocsin.cli.answers import show
from tocsin.cli.asking import unreachable
from tocsin.client.sql import Pipeline, Reply
from tocsin.errors import StoreUnavailable, TocsinError

HISTORY_MAX_BYTES: Final = 1 << 20  # beyond that the older half goes
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
# Tokens that hide a semicolon: strings, names in backticks, comments. An open one goes on to the end of the text.
HIDING: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*(?:'|\Z)|"(?:[^"\\]|\\.)*(?:"|\Z)|`[^`]*(?:`|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)""",
    re.DOTALL,
)


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


class Words(Completer):
    """Completes keywords, in the case in which they were begun, and names as they are."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names  # by their lower case

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        word = document.get_word_before_cursor(pattern=re.compile(r"\w+"))
        for each in completions(word, self._names):
            yield Completion(each, start_position=-len(word))


def completions(word: str, names: Mapping[str, str]) -> list[str]:
    """The completions of a word."""
    found = sorted(name for key, name in names.items() if key.startswith(word.lower()))
    if word:
        lower = word.islower()
        found += [each.lower() if lower else each for each in KEYWORDS if each.startswith(word.upper())]
    return found


def history_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "tocsin" / "sql_history"


def kept_history() -> FileHistory | None:
    """The statements of earlier prompts, for this user only; None where they cannot be kept, which stops nobody."""
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        path.chmod(0o600)
        if path.stat().st_size > HISTORY_MAX_BYTES:
            kept = path.read_bytes()[-HISTORY_MAX_BYTES // 2 :]
            path.write_bytes(kept[kept.find(b"\n#") + 1 :])
    except OSError:
        return None
    return FileHistory(str(path))


def editor(names: Mapping[str, str]) -> PromptSession[str]:
    """A prompt at the terminal. Enter ends a statement that is complete, and begins a new line in any other."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        text = event.current_buffer.text
        if is_complete(text) or not text.strip() or leaves(text):
            event.current_buffer.validate_and_handle()
        else:
            event.current_buffer.insert_text("\n")

    return PromptSession(
        FIRST,
        multiline=True,
        prompt_continuation=NEXT,
        key_bindings=keys,
        lexer=PygmentsLexer(SqlLexer),
        completer=Words(names),
        complete_while_typing=False,
        history=kept_history(),
        enable_open_in_editor=True,
    )


def leaves(text: str) -> bool:
    return text.strip().rstrip(";").strip().lower() in LEAVE


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
    return asyncio.run(_converse(reached, limit, timeout))


async def _converse(reached: AbstractAsyncContextManager[Pipeline], limit: int, timeout: float) -> int:
    async with contextlib.AsyncExitStack() as stack:
        try:
            pipeline = await stack.enter_async_context(reached)
        except StoreUnavailable as error:
            raise unreachable(error) from None
        names = await known_names(pipeline)
        print("Statements end with a semicolon. Tab completes; Ctrl-D, exit or \\q leaves.")
        session = editor(names)
        while (text := await _read(session)) is not None:
            if text:
                await _unless_interrupted(_answer(pipeline, text, names, limit, timeout))
    return 0


async def _read(session: PromptSession[str]) -> str | None:
    """One statement, or several; empty if it was given up, None at the end."""
    try:
        text = (await session.prompt_async()).strip()
    except KeyboardInterrupt:
        return ""
    except EOFError:
        return None
    return None if leaves(text) else text


async def _answer(pipeline: Pipeline, text: str, names: dict[str, str], limit: int, timeout: float) -> None:
    began = time.monotonic()
    try:
        reply: Reply = await pipeline.run(text, limit=limit, deadline_s=timeout)
        for answer in reply.results:
            show(answer, "table", time.monotonic() - began)
        if reply.error is not None:
            print(reply.error.error(text), file=sys.stderr)
        names.update(await known_names(pipeline))
    except TocsinError as error:
        print(error, file=sys.stderr)


async def _unless_interrupted(work: Awaitable[None]) -> None:
    """Wait for an answer; Ctrl-C gives up the wait."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        print("not waited for; it may go on in the pipeline", file=sys.stderr)
    finally:
        loop.remove_signal_handler(signal.SIGINT)

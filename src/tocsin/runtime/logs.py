"""Log lines: one event each, for people on a terminal, as JSON elsewhere, always on standard error.

Every line says which ``process`` it is from and which ``cause`` (the id of the outside happening that led to it) it
belongs to; a line without a cause of its own gets the one of its process, which differs at every start. Facts that
exist (``stream``, ``subscriber``, ``epoch``, …) are given by the caller. Lines of libraries that use ``logging``
come the same way.

Text from outside is bounded and made harmless: long texts are cut, control characters are written as escapes.
A log that can no longer be written (a closed pipe, a full disk) never stops the process that logs.
"""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger

from tocsin.config import Log

TEXT_MAX = 2_000  # characters of one fact: enough for a stack trace's end or the longest topic
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(process: str, settings: Log, *, stream: Callable[[], TextIO] = lambda: sys.stderr) -> None:
    """Set up logging for this process. ``stream`` is asked at every line, so that a live table may stand in for it."""
    human = settings.format == "human" or (settings.format == "auto" and stream().isatty())
    level = LEVELS[settings.level]
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        Identity(process, f"{process}:{secrets.token_hex(4)}"),
        structlog.processors.format_exc_info,
        _bounded,
        _harmless if human else _ordered,
        structlog.dev.ConsoleRenderer(colors=human and stream().isatty()) if human else _json,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Lines(stream),
        cache_logger_on_first_use=False,  # a test, or a second start in one process, may configure again
    )
    root = logging.getLogger()
    root.handlers = [_Bridge()]
    root.setLevel(max(level, logging.WARNING))  # the libraries' own chatter is not our story
    logging.captureWarnings(True)


class Identity:
    """Adds who speaks and why to a line that does not say."""

    def __init__(self, process: str, cause: str) -> None:
        self._process = process
        self._cause = cause

    def __call__(self, logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
        line.setdefault("process", self._process)
        if not line.get("cause"):
            line["cause"] = self._cause
        return line


def _bounded(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
    """Cut long texts in the middle: a stack trace says what failed at its end."""
    for key, value in line.items():
        if isinstance(value, str) and len(value) > TEXT_MAX:
            half = TEXT_MAX // 2
            line[key] = f"{value[:half]}…[{len(value) - TEXT_MAX} characters]…{value[-half:]}"
    return line


def _harmless(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
    """No text from outside may move the cursor of somebody's terminal; stack traces keep their lines."""
    for key, value in line.items():
        text = value if isinstance(value, str) else str(value)
        if not text.isprintable():
            kept = "\n" if key == "exception" else ""
            line[key] = "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)
    return line


def _ordered(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
    first = ("timestamp", "level", "event", "process", "cause")
    return {key: line[key] for key in (*first, *(key for key in line if key not in first)) if key in line}


def _json(logger: WrappedLogger, method: str, line: MutableMapping[str, Any]) -> str:
    return msgspec.json.encode(line, enc_hook=str).decode()


class _Lines:
    """Writes finished lines. All levels are the same to it."""

    def __init__(self, stream: Callable[[], TextIO]) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        try:
            stream = self._stream()
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            pass

    debug = info = warning = error = critical = msg


class _Bridge(logging.Handler):
    """Lines of ``logging`` as lines of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        level = min(record.levelno, logging.ERROR) // 10 * 10
        name = {number: name for name, number in LEVELS.items()}.get(level, "warning")
        facts: dict[str, Any] = {"library": record.name}
        if record.exc_info and record.exc_info[0] is not None:
            facts["exc_info"] = record.exc_info
        getattr(structlog.get_logger(), name)(record.getMessage(), **facts)
